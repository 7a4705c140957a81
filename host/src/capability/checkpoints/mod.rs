//! `landfall:agent/checkpoints`: the session's checkpoints, as its guest sees them.

mod host;

use std::fmt;

pub(crate) use host::{HasCheckpoints, View};

use super::refusal::Refusal;
use super::types::{Change, FileInfo};
use crate::clock::UnixNanos;
use crate::id::{CheckpointId, RunId};
use crate::workspace::Workspace;

/// How a guest names a checkpoint of its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reference {
    /// By its id.
    Id(CheckpointId),
    /// By the name that `save` gave it.
    Saved(String),
    /// The one that this turn started from.
    Start,
}

/// A checkpoint of the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// The name it was saved by; none for the end of a turn.
    pub name: Option<String>,
    /// The run that made it.
    pub run: RunId,
    /// That run's turn number.
    pub turn: u64,
    /// When it was made.
    pub created: UnixNanos,
}

/// What the turn does for this interface. Each call may be dropped at any await, when the guest is stopped.
#[async_trait::async_trait]
pub trait CheckpointService: Send + Sync + fmt::Debug {
    /// Saves the workspace as it is now under a name; durable when it returns. The name has passed [`check_name`].
    ///
    /// # Errors
    /// `Conflict` when another run holds the name, `Limit` for too many.
    async fn save(&self, name: &str, workspace: &Workspace) -> Result<SessionCheckpoint, Refusal>;

    /// Returns the session's checkpoints, newest first.
    ///
    /// # Errors
    /// What the store gives.
    async fn list(&self) -> Result<Vec<SessionCheckpoint>, Refusal>;

    /// Returns what is known of one entry of a checkpoint, without following links.
    ///
    /// # Errors
    /// `NotFound` for the checkpoint or the path, `Invalid` for a path outside `/workspace` and `/state`.
    async fn stat(&self, at: &Reference, path: &str) -> Result<FileInfo, Refusal>;

    /// Returns part of a file of a checkpoint; `length` is at most [`super::types::READ_MAX`].
    ///
    /// # Errors
    /// As [`CheckpointService::stat`], and `Invalid` for a directory.
    async fn read(&self, at: &Reference, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal>;

    /// Returns the paths at which two trees differ, sorted by bytes; `after` none means the workspace as it is now.
    ///
    /// # Errors
    /// `NotFound` for a checkpoint, `Limit` for more than [`super::types::CHANGES_MAX`] paths.
    async fn diff(&self, before: &Reference, after: Option<&Reference>, workspace: &Workspace) -> Result<Vec<Change>, Refusal>;

    /// Makes `/workspace` what it was in a checkpoint, and `/state` too when `state` is set.
    ///
    /// # Errors
    /// `NotFound` for the checkpoint, `Limit` when it is larger than the workspace may be.
    async fn restore(&self, to: &Reference, state: bool, workspace: &Workspace) -> Result<(), Refusal>;
}

/// Longest name of a saved checkpoint, in bytes.
pub const NAME_MAX: usize = 64;

/// Checks the name of a saved checkpoint.
///
/// # Errors
/// `Invalid`, with the rule that it breaks.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let rule = if name.is_empty() || name.len() > NAME_MAX {
        "must have 1 to 64 bytes"
    } else if name.chars().any(char::is_control) {
        "must not have control characters"
    } else if name.trim() != name {
        "must not have blanks at its ends"
    } else {
        return Ok(());
    };
    Err(Refusal::Invalid(format!("the name of a checkpoint {rule}: {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        for bad in ["", " a", "a ", "a\nb", &"x".repeat(65)] {
            assert!(matches!(check_name(bad), Err(Refusal::Invalid(_))), "{bad:?}");
        }
        assert!(check_name(&"x".repeat(64)).is_ok());
        assert!(check_name("before the refactoring").is_ok());
    }
}
