//! `landfall:agent/repository`: the pinned repository, as its guest sees it.

mod host;

use std::fmt;

use bytes::Bytes;

pub(crate) use host::{HasRepository, View};

use super::refusal::Refusal;
use super::types::Change;
use crate::checkpoint::root::Pin;
use crate::workspace::Workspace;

/// Most bytes of a unified diff.
pub const DIFF_MAX: u64 = 16 << 20;

/// What the turn does for this interface. Handed in only where the session has a repository; without one the host refuses by itself.
/// Each call may be dropped at any await, when the guest is stopped.
#[async_trait::async_trait]
pub trait RepositoryService: Send + Sync + fmt::Debug {
    /// Returns the session's pin.
    fn pin(&self) -> Pin;

    /// Returns the paths at which the workspace differs from the pin, files and links only, sorted by bytes.
    ///
    /// # Errors
    /// `Limit` for more than [`super::types::CHANGES_MAX`] paths.
    async fn status(&self, workspace: &Workspace) -> Result<Vec<Change>, Refusal>;

    /// Returns the unified diff from the pin to the workspace for some paths, or for all when none is given.
    ///
    /// # Errors
    /// `Invalid` for a malformed path, `Limit` above [`DIFF_MAX`].
    async fn diff(&self, paths: &[String], workspace: &Workspace) -> Result<Bytes, Refusal>;

    /// Returns part of a file at the pin; `length` is at most [`super::types::READ_MAX`].
    ///
    /// # Errors
    /// `NotFound`, and `Invalid` for a malformed path or a directory.
    async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal>;
}
