//! The repository that the session is pinned to, read-only.
//!
//! Paths are relative to the repository's root, as git prints them: `src/main.rs` here is `/workspace/src/main.rs` in the filesystem.

use crate::bindings::landfall::agent::repository as host;
use crate::{Change, Error};
pub use host::{OnBranch, PinnedCommit};

/// Most bytes that one call of the host reads.
const READ_MAX: u64 = 8 << 20;

/// Returns the session's pin; none when the agent has no repository.
#[must_use]
pub fn pin() -> Option<PinnedCommit> {
    host::pin()
}

/// Returns the paths at which `/workspace`, as it is now, differs from the pinned commit. Sorted; files and links only.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Limit`] for more than 100,000 paths.
pub fn status() -> Result<Vec<Change>, Error> {
    Ok(host::status()?)
}

/// Returns the difference between the pinned commit and `/workspace` as a unified diff that `git apply` accepts. No paths means all.
/// Bytes, because files have no declared encoding.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for a malformed path; [`Error::Limit`] above 16 MiB.
pub fn diff(paths: &[impl AsRef<str>]) -> Result<Vec<u8>, Error> {
    let paths: Vec<String> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    Ok(host::diff(&paths)?)
}

/// Returns a whole file as it is at the pin, whatever the workspace holds now. A link gives its target.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for a malformed path or a directory; [`Error::NotFound`].
pub fn read(path: &str) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    loop {
        let part = host::read(path, content.len() as u64, READ_MAX)?;
        if part.is_empty() {
            return Ok(content);
        }
        content.extend_from_slice(&part);
    }
}
