//! Changes of a session without a guest: going back to an older checkpoint, and beginning with files that were brought.
//!
//! Each is a run like any other: it takes the lease, has a record, and is committed by the head. So history only grows, and what was rolled
//! back can be rolled back in turn.

use super::commit::Committed;
use super::head::{Kept, Refusal};
use super::lease::{Acquired, Held};
use super::record::{Failure, Origin, Status, Text, Trigger};
use super::sessions::Sessions;
use crate::checkpoint::root::Checkpoint;
use crate::error::{Error, Result};
use crate::id::{PackId, RunId, SessionRef};

/// How often a lost run is settled before a session counts as busy.
const SETTLES: u32 = 3;

impl Sessions {
    /// Takes a session back to a checkpoint that it keeps: a completed run whose result is that checkpoint. This process has to be known
    /// ([`super::Replica::announce`]).
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy` or `checkpoint_dropped`; `Usage` for a checkpoint of another session; `NotFound`; `Store`.
    pub async fn rollback(&self, session: &SessionRef, to: &Kept, run: RunId, words: &str) -> Result<Committed> {
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
        self.commit_without_guest(held, to.checkpoint.clone(), &[], words).await
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
                Acquired::Settle(mut lost, entry) => {
                    self.abandon(&mut lost, entry.as_deref(), "its process ended before it did").await?;
                }
            }
        }
        Err(super::sessions::contended(session))
    }

    /// Commits a checkpoint that no guest made. `words` say what was done; they are the record's output. On an error that leaves the run
    /// unfinished it is ended as failed, so that its record can't be taken for an end.
    pub(crate) async fn commit_without_guest(
        &self,
        mut held: Held,
        checkpoint: Checkpoint,
        packs: &[PackId],
        words: &str,
    ) -> Result<Committed> {
        let mut record = self.new_record(&held, Trigger::Manual, Origin::Command);
        record.status = Status::Completed;
        record.pin = checkpoint.root.pin.clone();
        record.after = Some(checkpoint);
        record.output = Some(Text::Inline(super::record::cut(words, super::record::MESSAGE_MAX)));
        let error = match self.commit(&mut held, record, packs).await {
            Ok(committed) => return Ok(committed),
            Err(error) if matches!(error.stable_code(), "fenced" | "outcome_unknown") => return Err(error),
            Err(error) => error,
        };
        let mut failed = self.new_record(&held, Trigger::Manual, Origin::Command);
        failed.status = Status::Failed;
        failed.failure = Some(Failure::new(error.stable_code(), error.message()));
        if let Err(left) = self.commit(&mut held, failed, &[]).await {
            tracing::warn!(run = %held.run(), error = %left.chain(), "a run could not be ended; the next one on the session settles it");
        }
        Err(error)
    }
}
