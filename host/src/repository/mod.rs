//! Repositories: a remote is asked once which commit a session stands on, that commit is imported once for all sessions, and
//! everything after works on values in the store.

pub(crate) mod attributes;
pub mod base;
mod base85;
pub mod branch;
pub mod checkout;
mod cleaner;
pub mod commit;
mod connect;
pub mod diff;
pub mod discard;
mod encoding;
pub mod export;
mod fetch;
pub mod history;
mod http;
pub mod ignore;
pub mod import;
pub mod imported;
mod local;
pub mod objects;
mod on_branch;
pub mod patch;
pub mod remote;
pub mod series;
pub mod session_git;
pub mod status;
pub mod url;

/// Checks a repository's URL as a config gives it.
///
/// # Errors
/// `Usage`, as [`url::RepositoryUrl::parse`]; the message never repeats what could be a secret.
pub fn check_url(text: &str) -> crate::Result<()> {
    url::RepositoryUrl::parse(text).map(|_| ())
}

/// Returns a repository's URL in its one normal form: what pins hold, and what two URLs are compared by.
///
/// # Errors
/// As [`check_url`].
pub fn normalised_url(text: &str) -> crate::Result<String> {
    url::RepositoryUrl::parse(text).map(|url| url.to_string())
}

/// Checks a branch's name as a config or a request gives it.
///
/// # Errors
/// `Usage`, as [`branch::BranchName::parse`].
pub fn check_branch(text: &str) -> crate::Result<()> {
    branch::BranchName::parse(text).map(|_| ())
}
