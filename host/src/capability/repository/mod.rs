//! `landfall:agent/repository`: the pinned repository and the commits on top of it, as its guest sees them.

mod host;

use std::fmt;

use bytes::Bytes;

pub(crate) use host::{HasRepository, View};

use super::refusal::Refusal;
use super::types::FileInfo;
use crate::id::CommitId;
use crate::pin::Pin;
use crate::repository::history::CommitInfo;
use crate::workspace::Workspace;

pub use crate::repository::status::StatusKind;

/// Most bytes of a unified diff.
pub const DIFF_MAX: u64 = 16 << 20;
/// Most commits of one answer.
pub const LOG_MAX: usize = 10_000;

/// What a workspace is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareBase {
    /// The pin.
    Pin,
    /// The session's last commit, or the pin.
    Head,
}

/// What a status or a diff looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompareOptions {
    /// What the workspace is compared with.
    pub base: CompareBase,
    /// Files and directories; empty means all.
    pub paths: Vec<String>,
    /// Whether files that went and came with the same content are given as renamed.
    pub renames: bool,
    /// Whether ignored files are given too.
    pub ignored: bool,
}

/// A file or link at which the workspace differs from the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusEntry {
    /// The path, as raw bytes.
    pub path: Bytes,
    /// How it differs.
    pub kind: StatusKind,
    /// The path in the base, for a renamed file.
    pub old_path: Option<Bytes>,
    /// The file in the base.
    pub before: Option<FileInfo>,
    /// The file in the workspace.
    pub after: Option<FileInfo>,
    /// Whether `.gitignore` names it.
    pub ignored: bool,
}

/// What the turn does for this interface. Handed in only where the session has a repository; without one the host refuses by itself.
/// Each call may be dropped at any await, when the guest is stopped.
#[async_trait::async_trait]
pub trait RepositoryService: Send + Sync + fmt::Debug {
    /// Returns the session's pin.
    fn pin(&self) -> Pin;

    /// Returns the paths at which the workspace differs from the base, files and links only, sorted by bytes.
    ///
    /// # Errors
    /// `Invalid` for a malformed path, `Limit` for more than [`super::types::CHANGES_MAX`] paths.
    async fn status(&self, options: &CompareOptions, workspace: &Workspace) -> Result<Vec<StatusEntry>, Refusal>;

    /// Returns the unified diff from the base to the workspace, with so many lines of context.
    ///
    /// # Errors
    /// `Invalid` for a malformed path, `Limit` above [`DIFF_MAX`].
    async fn diff(&self, options: &CompareOptions, context: u32, workspace: &Workspace) -> Result<Bytes, Refusal>;

    /// Returns part of a file at the pin; `length` is at most [`super::types::READ_MAX`].
    ///
    /// # Errors
    /// `NotFound`, and `Invalid` for a malformed path or a directory.
    async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal>;

    /// Returns the session's commits, the newest first, and the pin as the last; at most `limit`, which is at most [`LOG_MAX`].
    ///
    /// # Errors
    /// As [`Refusal`] of a store.
    async fn log(&self, limit: usize) -> Result<Vec<CommitInfo>, Refusal>;

    /// Commits what the workspace has changed since the last commit, at some paths or at all.
    ///
    /// # Errors
    /// `Invalid` for a message or a path that can't be, and when nothing differs; `Limit`.
    async fn commit(&self, message: &str, paths: &[String], workspace: &Workspace) -> Result<CommitId, Refusal>;

    /// Makes files what they are in the last commit, and returns how many paths changed.
    ///
    /// # Errors
    /// `Invalid` for paths that can't be, `Limit`.
    async fn discard(&self, paths: &[String], workspace: &Workspace) -> Result<u32, Refusal>;

    /// Says whether the workspace's `.gitignore` files name a path.
    ///
    /// # Errors
    /// `Invalid` for a malformed path.
    async fn is_ignored(&self, path: &str, workspace: &Workspace) -> Result<bool, Refusal>;
}
