//! The repository that the session is pinned to, and the commits that the agent makes on top of it.
//!
//! Paths are relative to the repository's root, as git prints them: `src/main.rs` here is `/workspace/src/main.rs` in the filesystem.
//! What is compared is `/workspace` as it is at the call.

use crate::Error;
use crate::bindings::landfall::agent::repository as host;
pub use host::{Base, CommitInfo, OnBranch, PinnedCommit, Signature, StatusEntry, StatusKind};

/// Most bytes that one call of the host reads.
const READ_MAX: u64 = 8 << 20;

/// What a status or a diff looks at: by default all that differs from the last commit, renames found, ignored files left out.
#[derive(Clone, Debug)]
pub struct Compare {
    /// What the workspace is compared with.
    pub base: Base,
    /// Files and folders; none means all.
    pub paths: Vec<String>,
    /// Whether files that went and came with the same content are given as renamed.
    pub renames: bool,
    /// Whether files that `.gitignore` names are given too.
    pub ignored: bool,
    /// Unchanged lines around each change of a diff.
    pub context: u32,
}

impl Default for Compare {
    fn default() -> Self {
        Self { base: Base::Head, paths: Vec::new(), renames: true, ignored: false, context: 3 }
    }
}

impl Compare {
    /// Everything that the session has changed since its pin, whether committed or not.
    #[must_use]
    pub fn since_pin() -> Self {
        Self { base: Base::Pin, ..Self::default() }
    }

    /// Looks at these files and folders only.
    #[must_use]
    pub fn at<P: Into<String>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        Self { paths: paths.into_iter().map(Into::into).collect(), ..self }
    }

    fn options(&self) -> host::CompareOptions {
        host::CompareOptions { base: self.base, paths: self.paths.clone(), renames: self.renames, ignored: self.ignored }
    }
}

/// Returns the session's pin; none when the agent has no repository.
#[must_use]
pub fn pin() -> Option<PinnedCommit> {
    host::pin()
}

/// Returns the files and links at which `/workspace` differs from a commit. Sorted by path.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for a malformed path; [`Error::Limit`] for more than 100,000 paths.
pub fn status(compare: &Compare) -> Result<Vec<StatusEntry>, Error> {
    Ok(host::status(&compare.options())?)
}

/// Returns the difference between a commit and `/workspace` as a unified diff that `git apply` accepts. Bytes, because files have no
/// declared encoding.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for a malformed path; [`Error::Limit`] above 16 MiB.
pub fn diff(compare: &Compare) -> Result<Vec<u8>, Error> {
    Ok(host::diff(&compare.options(), compare.context)?)
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

/// Returns the session's commits, the newest first, and the pin as the last; at most `limit`.
///
/// # Errors
/// [`Error::Denied`] without a repository.
pub fn log(limit: u32) -> Result<Vec<CommitInfo>, Error> {
    Ok(host::log(limit)?)
}

/// Commits what `/workspace` has changed since the last commit, as `git add --all` and `git commit` would, and returns the commit's id.
/// No paths means all.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for an empty message or a malformed path, and when nothing differs;
/// [`Error::Limit`] for more than 100,000 paths.
pub fn commit(message: &str, paths: &[impl AsRef<str>]) -> Result<String, Error> {
    let paths: Vec<String> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    Ok(host::commit(message, &paths)?)
}

/// Makes files of `/workspace` what they are in the last commit, and returns how many paths changed. An empty path means all.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] without a path or for a malformed one; [`Error::Limit`].
pub fn discard(paths: &[impl AsRef<str>]) -> Result<u32, Error> {
    let paths: Vec<String> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    Ok(host::discard(&paths)?)
}

/// Returns whether the `.gitignore` files of `/workspace` name a file, or a folder when the path ends in `/`.
///
/// # Errors
/// [`Error::Denied`] without a repository; [`Error::Invalid`] for a malformed path.
pub fn is_ignored(path: &str) -> Result<bool, Error> {
    Ok(host::is_ignored(path)?)
}
