//! The log of a session: the records of its runs, each checked against the digest that the head or the record after it names.

use super::head::{Head, Lease, Recent};
use super::queue::{Queued, queue_key};
use super::record::{Previous, RunRecord};
use super::sessions::{Sessions, Snapshot};
use crate::error::{Error, Result};
use crate::id::{RunId, SessionRef};
use crate::store::Key;

/// How an accepted run stands.
#[derive(Clone, Debug)]
pub enum RunState {
    /// It waits for its session, or for a process.
    Waiting {
        /// Its entry.
        queued: Box<Queued>,
        /// Whether it is to be cancelled.
        cancelling: bool,
    },
    /// It goes on, or its process is silent and nobody has taken over yet.
    Running {
        /// Who is at it.
        lease: Lease,
        /// Whether it is to be cancelled.
        cancelling: bool,
    },
    /// It has ended.
    Ended(Box<RunRecord>),
}

impl Sessions {
    /// Reads a run's record and checks it against the head.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing`, or `run_not_done` when it hasn't ended (the message names the checkpoint before it); `Damaged`
    /// (`record_damaged`) when its digest isn't the head's; `Store`.
    pub async fn record(&self, session: &SessionRef, run: RunId) -> Result<RunRecord> {
        let head = self.get(session).await?.head;
        if let Some(recent) = head.ended(run) {
            return self.record_of(&head, &recent).await;
        }
        let not_done = |why: &str| {
            let before = head.checkpoint.as_ref().map_or_else(|| String::from("none"), |checkpoint| checkpoint.id.to_string());
            Error::not_found(format!("run {run} of session {session} is not done: {why}; the checkpoint before it is {before}"))
                .code("run_not_done")
                .hint("wait for it, or open the checkpoint before it")
        };
        if head.lease.as_ref().is_some_and(|lease| lease.run == run) {
            return Err(not_done("it is running"));
        }
        match self.store.load::<RunRecord>(&Key::Run(session.clone(), run)).await? {
            Some(found) if found.value.is_official(&head) => {
                belongs(&found.value, &head.session, run)?;
                Ok(found.value)
            }
            Some(found) if found.value.incarnation == head.incarnation => Err(not_done("it was interrupted")),
            _ if self.store.size(&queue_key(session, run)).await?.is_some() => Err(not_done("it is waiting")),
            _ => Err(Error::not_found(format!("session {session} has no run {run}"))
                .code("run_missing")
                .hint("`landfall session log` lists the runs of a session")),
        }
    }

    /// Returns the record of a run if it has ended.
    ///
    /// # Errors
    /// `Damaged` (`record_damaged`, `record_missing`), `Store`.
    pub async fn ended(&self, session: &SessionRef, run: RunId) -> Result<Option<RunRecord>> {
        let Some(Snapshot { head, .. }) = self.load(session).await?.filter(|snapshot| snapshot.head.is_open()) else { return Ok(None) };
        self.ended_by(&head, run).await
    }

    /// Returns the record of a run if it has ended by this head of its session.
    ///
    /// # Errors
    /// As [`Sessions::ended`].
    pub async fn ended_by(&self, head: &Head, run: RunId) -> Result<Option<RunRecord>> {
        if let Some(recent) = head.ended(run) {
            return self.record_of(head, &recent).await.map(Some);
        }
        let found = self.store.load::<RunRecord>(&Key::Run(head.session.clone(), run)).await?;
        let Some(found) = found.filter(|found| found.value.is_official(head)) else { return Ok(None) };
        belongs(&found.value, &head.session, run)?;
        Ok(Some(found.value))
    }

    /// Returns how an accepted run stands.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing` for a run that was never accepted, or `session_missing`, `session_deleted`; `Damaged`; `Store`.
    pub async fn state(&self, session: &SessionRef, run: RunId) -> Result<RunState> {
        // A run that ends between the look at the head and the one at the queue is in neither: then it is in the next head.
        for _ in 0..2 {
            let head = self.get(session).await?.head;
            let cancelling = head.is_cancelled(run);
            if let Some(lease) = head.lease.as_ref().filter(|lease| lease.run == run) {
                return Ok(RunState::Running { lease: lease.clone(), cancelling });
            }
            if let Some(record) = self.ended_by(&head, run).await? {
                return Ok(RunState::Ended(Box::new(record)));
            }
            if let Some(queued) = self.queued(session, run).await? {
                return Ok(RunState::Waiting { queued: Box::new(queued), cancelling });
            }
        }
        Err(Error::not_found(format!("session {session} has no run {run}"))
            .code("run_missing")
            .hint("`landfall session log` lists the runs of a session"))
    }

    /// Returns the records of a session's ended runs, newest first, at most `limit`, each checked against the digest that the one after it names.
    ///
    /// # Errors
    /// `Damaged` (`record_damaged`, `record_missing`), `Store`.
    pub async fn records(&self, head: &Head, limit: usize) -> Result<Vec<RunRecord>> {
        let mut records = Vec::new();
        let mut next = head.recent.first().map(|recent| Previous { run: recent.run, seq: recent.seq, record: recent.record });
        while let Some(previous) = next {
            if records.len() >= limit {
                break;
            }
            let record = self.checked(&head.session, head, &previous).await?;
            next = record.previous;
            records.push(record);
        }
        Ok(records)
    }

    pub(super) async fn record_of(&self, head: &Head, recent: &Recent) -> Result<RunRecord> {
        self.checked(&head.session, head, &Previous { run: recent.run, seq: recent.seq, record: recent.record }).await
    }

    pub(super) async fn checked(&self, session: &SessionRef, head: &Head, expected: &Previous) -> Result<RunRecord> {
        let key = Key::Run(session.clone(), expected.run);
        let found = self.store.load::<RunRecord>(&key).await?;
        let found = found.ok_or_else(|| Error::damaged(format!("{key} is missing")).code("record_missing").hint(crate::store::RESTORE))?;
        belongs(&found.value, session, expected.run)?;
        if found.version.digest() != expected.record || found.value.seq != expected.seq || found.value.incarnation != head.incarnation {
            return Err(Error::damaged(format!("{key} is damaged: it isn't the record that the session's head names"))
                .code("record_damaged")
                .hint(crate::store::RESTORE));
        }
        Ok(found.value)
    }
}

fn belongs(record: &RunRecord, session: &SessionRef, run: RunId) -> Result<()> {
    if record.session == *session && record.run == run {
        return Ok(());
    }
    Err(Error::damaged(format!("the record of run {run} is damaged: it is that of run {} of session {}", record.run, record.session))
        .code("record_damaged")
        .hint(crate::store::RESTORE))
}
