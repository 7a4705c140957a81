//! The workspace as a value: an immutable Merkle tree in the store plus the edits of one turn.
//!
//! [`Filesystem`] is the way in: it gives a [`Handle`] on its top directory, and handles offer what `wasi:filesystem` needs.
//! [`capture::capture`] turns the edits into pages and chunks.

use std::sync::Arc;

mod budget;
pub mod capture;
pub(crate) mod cbor;
pub mod changes;
mod content;
pub mod diff;
mod extents;
pub mod fault;
mod files;
pub mod filesystem;
pub mod handle;
pub mod limits;
pub mod link_table;
pub mod list;
pub mod listing;
mod measure;
pub mod memory;
mod names;
mod node;
pub mod page;
mod page_cache;
pub mod page_codec;
pub mod path;
pub mod put;
mod reading;
mod rebase;
pub mod recut;
mod resolve;
mod save;
mod sequence;
pub mod source;
pub mod spool;
pub mod stat;
mod state;
pub mod tree;
pub mod walk;
pub mod wasi;

pub use changes::{Change, ChangedPath};
pub use fault::{Exceeded, FsError, FsResult};
pub use filesystem::{Filesystem, Setup};
pub use handle::{Advice, Handle, READ_MAX, ReadAt};
pub use limits::{Limits, Usage};
pub use listing::{DirectoryEntry, DirectoryStream};
pub use spool::Spool;
pub use stat::{Follow, Kind, NewTime, OpenHow, Stat};

use crate::clock::SharedClock;
use page::Root;
use source::Source;

/// The filesystems of a turn, by the paths under which a guest sees them. They share one spool.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// `/workspace`: the repository's files when there is a repository.
    pub workspace: Filesystem,
    /// `/state`: the agent's own files.
    pub state: Filesystem,
    /// `/tmp`: gone after the turn.
    pub tmp: Filesystem,
}

impl Workspace {
    /// Opens the roots of a checkpoint, or empty ones, and an empty `/tmp` with limits of its own. Reads nothing.
    #[must_use]
    pub fn open(
        source: &Arc<dyn Source>,
        clock: &SharedClock,
        spool: &Arc<Spool>,
        limits: Limits,
        tmp: Limits,
        workspace: Option<Root>,
        state: Option<Root>,
    ) -> Self {
        let setup = |number, limits, refuse_dot_git| Setup {
            source: Arc::clone(source),
            clock: Arc::clone(clock),
            spool: Arc::clone(spool),
            limits,
            refuse_dot_git,
            number,
        };
        Self {
            workspace: Filesystem::new(setup(0, limits, true), workspace),
            state: Filesystem::new(setup(1, limits, true), state),
            tmp: Filesystem::new(setup(2, tmp, false), None),
        }
    }
}

#[cfg(test)]
mod tests;
