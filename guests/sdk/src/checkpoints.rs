//! The session's checkpoints: its files as they were at the ends of turns and wherever a turn saved them.
//!
//! Paths are absolute, as in the filesystem: `/workspace/src/main.rs`, `/state/seen.json`.

use crate::bindings::landfall::agent::checkpoints as host;
use crate::{Change, Error, FileInfo};
pub use host::{Checkpoint, Reference};

/// Most bytes that one call of the host reads.
const READ_MAX: u64 = 8 << 20;

/// What [`restore`] brings back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restore {
    /// `/workspace`.
    Workspace,
    /// `/workspace` and `/state`.
    WorkspaceAndState,
}

/// Saves `/workspace` and `/state` as they are now, under a name. Durable when it returns, also if the turn fails later.
///
/// # Errors
/// [`Error::Invalid`] for a bad name; [`Error::Conflict`] when another run of the session holds the name; [`Error::Limit`] when the
/// session has as many named checkpoints as it may.
pub fn save(name: &str) -> Result<Checkpoint, Error> {
    Ok(host::save(name)?)
}

/// Returns the session's checkpoints, newest first. Empty before the first turn has ended.
///
/// # Errors
/// None of its own.
pub fn list() -> Result<Vec<Checkpoint>, Error> {
    Ok(host::list()?)
}

/// Returns what is known of one entry of a checkpoint. Links are not followed.
///
/// # Errors
/// [`Error::NotFound`] when there is no such checkpoint or path; [`Error::Invalid`] for a path outside `/workspace` and `/state`;
/// [`Error::Damaged`].
pub fn stat(at: &Reference, path: &str) -> Result<FileInfo, Error> {
    Ok(host::stat(at, path)?)
}

/// Returns a whole file of a checkpoint. A link gives its target.
///
/// # Errors
/// As [`stat`], and [`Error::Invalid`] for a directory.
pub fn read(at: &Reference, path: &str) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    loop {
        let part = host::read(at, path, content.len() as u64, READ_MAX)?;
        if part.is_empty() {
            return Ok(content);
        }
        content.extend_from_slice(&part);
    }
}

/// Returns the paths at which two checkpoints differ; no `after` means the files as they are now. Sorted, directories included.
///
/// # Errors
/// [`Error::NotFound`] when there is no such checkpoint; [`Error::Limit`] for more than 100,000 paths; [`Error::Damaged`].
pub fn diff(before: &Reference, after: Option<&Reference>) -> Result<Vec<Change>, Error> {
    Ok(host::diff(before, after)?)
}

/// Makes the files what they were in a checkpoint. Files that are open answer `EBADF` from then on: open them again.
///
/// # Errors
/// [`Error::NotFound`] when there is no such checkpoint; [`Error::Limit`] when it is larger than the workspace may be now;
/// [`Error::Damaged`].
pub fn restore(to: &Reference, what: Restore) -> Result<(), Error> {
    let options = match what {
        Restore::Workspace => host::RestoreOptions::empty(),
        Restore::WorkspaceAndState => host::RestoreOptions::STATE,
    };
    Ok(host::restore(to, options)?)
}
