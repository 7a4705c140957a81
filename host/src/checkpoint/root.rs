//! The root record: the small value that is a checkpoint.

use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, CommitId};
use crate::workspace::page::Root;

/// The commit that a session stands on; fixed by its first turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The repository's URL, without user info.
    pub url: String,
    /// The branch it was resolved from, without `refs/heads/`; none when the commit was given and no branch was.
    pub branch: Option<String>,
    /// The commit.
    pub commit: CommitId,
    /// Whether the commit is known to lie on the branch.
    pub on_branch: OnBranch,
}

/// Whether a pinned commit lies on its branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBranch {
    /// The branch's tip was resolved to it, or its history was looked through.
    Yes,
    /// It was given, and one commit of history can't tell.
    Unchecked,
}

/// A checkpoint's content: what the head and the run records hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootRecord {
    /// `/workspace`.
    pub workspace: Root,
    /// `/state`.
    pub state: Root,
    /// Git objects and refs made in the session (HEAD, refs, loose objects), when there are any.
    pub git: Option<Root>,
    /// The pinned commit, when the agent has a repository.
    pub pin: Option<Pin>,
}

/// A checkpoint: its id and its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// SHA-256 of the record's canonical form without hints.
    pub id: CheckpointId,
    /// The record.
    pub root: RootRecord,
}
