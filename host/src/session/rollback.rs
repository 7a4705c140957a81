//! Changes of a session without a guest: going back to an older checkpoint, and beginning with files that were brought.
//!
//! Each is a run like any other: it takes the lease, has a record, and is committed by the head. So history only grows, and what was rolled
//! back can be rolled back in turn.

use super::commit::Committed;
use super::head::{Kept, Refusal};
use super::lease::{Acquired, Held};
use super::record::{Origin, Status, Text, Trigger};
use super::sessions::Sessions;
use crate::checkpoint::root::Checkpoint;
use crate::error::{Error, Result};
use crate::id::{PackId, RunId, SessionRef};

/// How often a lost run is settled before a session counts as busy.
const SETTLES: u32 = 3;

impl Sessions {
    /// Takes the lease to take a session back to a checkpoint that it keeps. [`Sessions::commit_without_guest`] then makes that checkpoint the
    /// result of a run. This process has to be known ([`super::Replica::announce`]).
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy` or `checkpoint_dropped`; `Usage` for a checkpoint of another session; `NotFound`; `Store`.
    pub async fn begin_rollback(&self, session: &SessionRef, to: &Kept, run: RunId) -> Result<Held> {
        if to.session != *session {
            return Err(Error::usage(format!("checkpoint {} is of session {}, not of {session}", to.checkpoint.id, to.session))
                .hint("`landfall session fork` makes a session from another one's checkpoint"));
        }
        // Not made anew by taking its lease.
        self.get(session).await?;
        let mut held = self.lease_now(session, run).await?;
        if !held.head.keeps(to) {
            let refusal = Refusal::Dropped(to.checkpoint.id);
            self.forget(held).await?;
            return Err(refusal.into_error(session));
        }
        held.restores(to.clone());
        Ok(held)
    }

    /// Takes the lease now or not at all; a run whose process died is settled first.
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy`; as [`Sessions::acquire`].
    pub(crate) async fn lease_now(&self, session: &SessionRef, run: RunId) -> Result<Held> {
        for _ in 0..SETTLES {
            match self.acquire(session, run, None).await? {
                Acquired::Held(held) => return Ok(*held),
                Acquired::Busy(lease) => return Err(Refusal::Busy(lease).into_error(session)),
                Acquired::Ended(record) => {
                    return Err(Error::conflict(format!("run {run} has ended already: {}", record.status)).code("already_done"));
                }
                // A server's run goes on where servers run it, and comes first.
                Acquired::Settle(lost, Some(entry)) if entry.origin == Origin::Server => {
                    let error = Error::conflict(format!("session {session} is busy: run {} was cut off, and goes on first", lost.run()));
                    self.release(*lost, true).await?;
                    return Err(error.code("session_busy").hint("wait for that run, or cancel it"));
                }
                Acquired::Settle(mut lost, entry) => {
                    self.abandon(&mut lost, entry.as_deref(), "its process ended before it did").await?;
                }
            }
        }
        Err(super::sessions::contended(session))
    }

    /// Commits a checkpoint that no guest made. `words` say what was done; they are the record's output.
    ///
    /// # Errors
    /// As [`Sessions::commit`]: unless the lease is lost, the run still has to be ended ([`Sessions::abandon`]), since its record may be there.
    pub async fn commit_without_guest(&self, held: &mut Held, checkpoint: Checkpoint, packs: &[PackId], words: &str) -> Result<Committed> {
        let mut record = self.new_record(held, Trigger::Manual, Origin::Command);
        record.status = Status::Completed;
        record.pin = checkpoint.root.pin.clone();
        record.after = Some(checkpoint);
        record.output = Some(Text::Inline(super::record::cut(words, super::record::MESSAGE_MAX)));
        self.commit(held, record, packs).await
    }
}
