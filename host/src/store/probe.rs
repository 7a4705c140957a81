//! What a store enforces, and the self-test that finds out.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// What a store enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abilities {
    /// An upload whose bytes were changed on the way is refused. Where this is false, every pack is read back.
    pub checks_uploads: bool,
    /// An exclusive create of an existing object is refused.
    pub exclusive_create: bool,
    /// An update that names an old version is refused.
    pub conditional_update: bool,
}

impl Abilities {
    /// Everything is enforced.
    pub const ALL: Self = Self { checks_uploads: true, exclusive_create: true, conditional_update: true };
    /// Nothing is known: uploads are read back; conditions are relied on, as there is no other way to write.
    pub const UNKNOWN: Self = Self { checks_uploads: false, exclusive_create: true, conditional_update: true };

    /// Whether more than one replica may use the store.
    #[must_use]
    pub const fn allows_replicas(self) -> bool {
        self.exclusive_create && self.conditional_update
    }
}

/// The abilities known now.
#[derive(Debug)]
pub(super) struct Cell(Mutex<Abilities>);

impl Cell {
    pub(super) const fn new(abilities: Abilities) -> Self {
        Self(Mutex::new(abilities))
    }

    pub(super) fn get(&self) -> Abilities {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
