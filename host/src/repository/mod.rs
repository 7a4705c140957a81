//! Repositories: a remote is asked once which commit a session stands on, that commit is imported once for all sessions, and
//! everything after works on values in the store.

mod base64;
pub mod branch;
mod connect;
mod http;
mod local;
pub mod remote;
pub mod url;

/// Checks a repository's URL as a config gives it.
///
/// # Errors
/// `Usage`, as [`url::RepositoryUrl::parse`]; the message never repeats what could be a secret.
pub fn check_url(text: &str) -> crate::Result<()> {
    url::RepositoryUrl::parse(text).map(|_| ())
}

/// Checks a branch's name as a config or a request gives it.
///
/// # Errors
/// `Usage`, as [`branch::BranchName::parse`].
pub fn check_branch(text: &str) -> crate::Result<()> {
    branch::BranchName::parse(text).map(|_| ())
}
