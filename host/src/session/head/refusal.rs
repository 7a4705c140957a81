//! Why a change of a head isn't possible.

use super::{Lease, Recent};
use crate::error::Error;
use crate::id::{CheckpointId, RunId, SessionRef};

/// Why a change isn't possible on the head as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The session was deleted.
    Deleted,
    /// Another process, or another run of this one, has the lease.
    Busy(Lease),
    /// The lease that the change stands on is gone: another has been given since, or the session was made anew. The number is the head's epoch.
    Fenced(u64),
    /// The run has ended already.
    Ended(Recent),
    /// The run is to be cancelled: it may end, but not as completed.
    Cancelled,
    /// Too many ended runs whose queue entries weren't seen gone: these have to be looked for first.
    Unsettled(Vec<RunId>),
    /// The name was saved by another run.
    SaveTaken(RunId),
    /// There is no such save or pin.
    NotThere,
    /// A checkpoint isn't kept any more, or isn't the session's.
    Dropped(CheckpointId),
    /// A list or the budget of bytes is full: what, and its limit.
    Full(&'static str, usize),
}

impl Refusal {
    /// Makes the error that a person reads.
    #[must_use]
    pub fn into_error(self, session: &SessionRef) -> Error {
        match self {
            Self::Deleted => Error::not_found(format!("session {session} was deleted")).code("session_deleted"),
            Self::Busy(lease) => Error::conflict(format!(
                "session {session} is busy: replica {} is at run {}, attempt {}",
                lease.owner.replica, lease.run, lease.attempt
            ))
            .code("session_busy")
            .hint("wait for that run, or cancel it"),
            Self::Fenced(epoch) => Error::conflict(format!("the lease on session {session} is lost: it is at epoch {epoch} now"))
                .code("fenced")
                .hint("look at the session again, then repeat"),
            Self::Ended(recent) => Error::conflict(format!("run {} has ended already: {}", recent.run, recent.status)).code("already_done"),
            Self::Cancelled => Error::cancelled(format!("the run on session {session} was cancelled")).code("cancelled"),
            Self::Unsettled(runs) => Error::conflict(format!("session {session} has {} ended runs with queue entries left", runs.len()))
                .code("queue_not_swept")
                .hint("repeat; `landfall gc` sweeps the queue"),
            Self::SaveTaken(run) => Error::conflict(format!("session {session} has a save of this name, made by run {run}"))
                .code("save_conflict")
                .hint("choose another name"),
            Self::NotThere => Error::not_found(format!("session {session} has no such named checkpoint or pin")).code("save_missing"),
            Self::Dropped(id) => Error::conflict(format!("session {session} doesn't keep checkpoint {id} any more"))
                .code("checkpoint_dropped")
                .hint("`landfall checkpoint list` lists those that are kept; name one to keep it for good"),
            Self::Full(what, limit) => {
                Error::limit(format!("session {session} has no room for another entry among its {what}: the limit is {limit}"))
                    .code("head_full")
                    .hint("remove named checkpoints or forks that aren't needed any more")
            }
        }
    }
}
