//! Driving an accepted run that nobody may be waiting for: it has to end with a record, whatever happens, or be driven again.

use super::lease::attempts_used;
use super::{Turn, Work};
use crate::cancel::CancelReason;
use crate::component::body::Body;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::grants::Grants;
use crate::session::head::Lease;
use crate::session::queue::QueueEntry;
use crate::session::record::{Failure, RunRecord, Status};
use crate::session::{Acquired, Held, Snapshot};

/// How driving a run ended.
#[derive(Debug)]
pub(crate) enum Driven {
    /// The run has ended.
    Ended(Box<RunRecord>),
    /// Another process, or another task of this one, is at work on the session.
    Busy(Lease),
    /// A run that was cut off was settled first; the one that was asked for is still to be driven.
    Settled,
}

impl Turn<'_> {
    pub(super) async fn drive(&self, work: Work, known: Option<Snapshot>, component: &dyn Body, grants: &Grants) -> Result<Driven> {
        let entry = &work.entry;
        // 2. Lease.
        let mut held = match self.sessions.acquire_for(entry, known).await {
            Ok(Acquired::Held(held)) => held,
            Ok(Acquired::Ended(record)) => {
                self.sessions.dequeue(&self.session, entry.run).await?;
                return Ok(Driven::Ended(record));
            }
            Ok(Acquired::Busy(lease)) => return Ok(Driven::Busy(lease)),
            Ok(Acquired::Settle(lost, entry)) => {
                self.settle(lost, entry, component, grants).await?;
                return Ok(Driven::Settled);
            }
            Err(error) if error.stable_code() == "session_deleted" => {
                self.sessions.dequeue(&self.session, entry.run).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if held.head.is_cancelled(entry.run) {
            let failure = Failure::new("cancelled", "the run was cancelled before it began");
            return self.end(&mut held, entry, Status::Cancelled, failure).await.map(|record| Driven::Ended(Box::new(record)));
        }
        if held.attempt > entry.attempts_allowed() {
            let failure = Failure::new("abandoned", &attempts_used(entry));
            return self.end(&mut held, entry, Status::Failed, failure).await.map(|record| Driven::Ended(Box::new(record)));
        }
        // 3 to 10.
        self.execute(held, work, component, grants.clone()).await.map(|record| Driven::Ended(Box::new(record)))
    }

    /// After an error of the host in an attempt, before anything of its end was written: what the store or this machine did may pass, so the run
    /// is driven again; what is wrong with the request or the config doesn't, so the run fails.
    pub(super) async fn end_or_repeat(&self, mut held: Held, entry: &QueueEntry, error: Error) -> Result<RunRecord> {
        if error.kind() == ErrorKind::Cancelled {
            if self.cancel.reason() == Some(CancelReason::Requested) {
                let failure = Failure::new("cancelled", &self.context.mask.apply(&error.chain()));
                return self.end(&mut held, entry, Status::Cancelled, failure).await;
            }
            self.sessions.release(held, false).await?;
            return Err(error);
        }
        let passes = matches!(error.kind(), ErrorKind::Store | ErrorKind::Local | ErrorKind::Internal);
        if passes && held.attempt < entry.attempts_allowed() {
            self.sessions.release(held, true).await?;
            return Err(error);
        }
        let failure = Failure::new(error.stable_code(), &self.context.mask.apply(&error.chain())).hint(error.next_step());
        self.end(&mut held, entry, Status::Failed, failure).await
    }

    async fn end(&self, held: &mut Held, entry: &QueueEntry, status: Status, failure: Failure) -> Result<RunRecord> {
        let mut record = self.sessions.new_record(held, entry.trigger.clone(), entry.origin);
        record.input = Some(entry.input.clone());
        record.request = Some(entry.request()?);
        record.status = status;
        record.failure = Some(failure);
        record.workspace_rolled_back = true;
        let committed = self.sessions.commit(held, record, &[]).await?;
        Ok(committed.record)
    }
}
