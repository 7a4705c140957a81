//! The root record: the small value that is a checkpoint.

use crate::id::CheckpointId;
use crate::pin::Pin;
use crate::workspace::page::Root;

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
