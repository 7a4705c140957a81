//! One filesystem of a turn: a stored root as a lazy value, and the edits made since.

use std::fmt;
use std::sync::Arc;

use super::fault::FsResult;
use super::handle::Handle;
use super::limits::{Limits, Usage};
use super::page::Root;
use super::source::Source;
use super::spool::Spool;
use crate::clock::SharedClock;
use crate::error::Result;

/// What a filesystem is made with, apart from its root.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where its stored pages and chunks are read.
    pub source: Arc<dyn Source>,
    /// Where modification times come from.
    pub clock: SharedClock,
    /// Where the data of edits lies; shared by the filesystems of a turn.
    pub spool: Arc<Spool>,
    /// How big it may get.
    pub limits: Limits,
    /// Whether names that some system takes for `.git` are refused with `NotPermitted` when they would be made.
    pub refuse_dot_git: bool,
}

/// A filesystem: cheap to clone, all clones are the same one. Only what is touched is loaded.
#[derive(Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
}

pub(super) struct Shared {}

impl Filesystem {
    /// Opens a filesystem on a stored root, or an empty one. Reads nothing.
    #[must_use]
    pub fn new(setup: Setup, base: Option<Root>) -> Self {
        todo!()
    }

    /// Returns a handle on the top directory.
    #[must_use]
    pub fn root(&self) -> Handle {
        todo!()
    }

    /// Returns how big it may get.
    #[must_use]
    pub fn limits(&self) -> Limits {
        todo!()
    }

    /// Returns how big it is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        todo!()
    }

    /// Returns the stored root that the edits are made on; none for one that began empty.
    #[must_use]
    pub fn base(&self) -> Option<Root> {
        todo!()
    }

    /// Says whether anything was edited since the base; an edit that was taken back may still count.
    #[must_use]
    pub fn is_edited(&self) -> bool {
        todo!()
    }

    /// Returns whether both are the same filesystem.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Replaces everything by another root. Handles and directory streams opened before answer `BadDescriptor` from now on.
    pub fn reset(&self, base: Option<Root>) {
        todo!()
    }

    /// Goes on from `root`, which has to be what [`super::capture::capture`] of this very state gave, with its places resolved and
    /// readable from the source: edits are dropped from memory and spool, handles stay valid. Without it a later capture writes the
    /// same objects again.
    ///
    /// # Errors
    /// Those of the source; the edits are then kept. `Internal` when the root isn't what was captured.
    pub async fn rebase(&self, root: &Root) -> Result<()> {
        todo!()
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem").finish_non_exhaustive()
    }
}
