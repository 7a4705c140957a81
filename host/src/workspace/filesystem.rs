//! One filesystem of a turn: a stored root as a lazy value, and the edits made since.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fault::{FsError, FsResult};
use super::handle::Handle;
use super::limits::{Limits, Usage};
use super::node::TOP;
use super::page::Root;
use super::source::Source;
use super::spool::Spool;
use super::state::{Need, State, Step, Stop};
use super::{measure, tree};
use crate::clock::SharedClock;
use crate::error::Error;

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
    /// Another number for each filesystem of a turn: so no two objects have one inode.
    pub number: u64,
}

/// A filesystem: cheap to clone, all clones are the same one. Only what is touched is loaded.
#[derive(Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn Source>,
    /// Never held while waiting.
    state: Mutex<State>,
}

impl Filesystem {
    /// Opens a filesystem on a stored root, or an empty one. Reads nothing.
    #[must_use]
    pub fn new(setup: Setup, base: Option<Root>) -> Self {
        let source = Arc::clone(&setup.source);
        Self { shared: Arc::new(Shared { source, state: Mutex::new(State::new(setup, base, 0)) }) }
    }

    /// Returns a handle on the top directory.
    #[must_use]
    pub fn root(&self) -> Handle {
        let mut state = self.state();
        let generation = state.generation;
        // The top directory is always there.
        let _ = state.open(TOP);
        drop(state);
        Handle::new(self.clone(), TOP, generation)
    }

    /// Returns how big it may get.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.state().setup.limits
    }

    /// Returns how big it is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.state().usage
    }

    /// Returns the stored root that the edits are made on; none for one that began empty.
    #[must_use]
    pub fn base(&self) -> Option<Root> {
        self.state().base.clone()
    }

    /// Returns where its stored pages and chunks are read.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.shared.source
    }

    /// Says whether anything was edited since the base; an edit that was taken back may still count.
    #[must_use]
    pub fn is_edited(&self) -> bool {
        self.state().is_edited()
    }

    /// Returns whether both are the same filesystem.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Replaces everything by another root. Handles and directory streams opened before answer `BadDescriptor` from now on.
    ///
    /// # Errors
    /// `Busy` during a capture.
    pub fn reset(&self, base: Option<Root>) -> FsResult<()> {
        let mut state = self.state();
        state.writable()?;
        let fresh = State::new(state.setup.clone(), base, state.generation + 1);
        let old = std::mem::replace(&mut *state, fresh);
        drop(state);
        // Gives its data back to the spool, which needn't hold up others.
        drop(old);
        Ok(())
    }

    /// Locks the state. Whoever holds it must not wait.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held has ended the turn; others may still look at usage and base.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a handle of this generation.
    pub(super) fn state_of(&self, generation: u64) -> FsResult<MutexGuard<'_, State>> {
        let state = self.state();
        if state.generation == generation { Ok(state) } else { Err(FsError::BadDescriptor) }
    }

    /// Takes a step as often as it needs pages that aren't in memory.
    pub(super) async fn run<T>(&self, generation: u64, mut step: impl FnMut(&mut State) -> Step<T>) -> FsResult<T> {
        loop {
            let stop = {
                let mut state = self.state_of(generation)?;
                state.sweep();
                match step(&mut state) {
                    Ok(value) => return Ok(value),
                    Err(stop) => stop,
                }
            };
            self.provide(stop).await?;
        }
    }

    /// Loads what a step has asked for, or gives its error.
    async fn provide(&self, stop: Stop) -> FsResult<()> {
        match stop {
            Stop::Fail(error) => Err(error),
            Stop::Need(need) => {
                let Need { link, slot } = *need;
                let page = self.shared.source.page(&link).await?;
                if let Some(slot) = slot {
                    tree::check_totals(&slot, &page)?;
                }
                self.state().pages.put(link.id, page);
                Ok(())
            }
            Stop::Measure(link) => {
                let height = measure::height(&*self.shared.source, &link).await?;
                self.state().heights.insert(link.id, height);
                Ok(())
            }
            Stop::List(_) => Err(FsError::Host(Error::internal("a directory was to be listed by a step that lists none"))),
        }
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Filesystem").field("base", &state.base).field("usage", &state.usage).finish_non_exhaustive()
    }
}
