//! Getting a session's lease for a run: waiting for it, and settling first what others left there.

use std::sync::Arc;

use super::event::{NoWatch, RunEvent, Step};
use super::request::Busy;
use super::{Turn, Work};
use crate::component::body::Body;
use crate::error::{Error, Result};
use crate::policy::grants::Grants;
use crate::session::head::Refusal;
use crate::session::queue::QueueEntry;
use crate::session::record::RunRecord;
use crate::session::{Acquired, Held, Origin};

pub(super) enum Leased {
    Held(Box<Held>),
    Ended(Box<RunRecord>),
}

impl Turn<'_> {
    /// Takes the lease for a run that somebody waits for; runs whose process died are settled first.
    pub(super) async fn lease(&self, work: &Work, busy: Busy, component: &dyn Body, grants: &Grants) -> Result<Leased> {
        let entry = &work.entry;
        let mut known = self.context.warm.take(&self.session);
        loop {
            let first = self.sessions.is_first(&self.session, entry.run).await?;
            let mut acquired = if first || busy == Busy::Refuse {
                self.sessions.acquire_for(entry, known.take()).await
            } else {
                self.wait_in_order(work).await
            };
            if let (Ok(Acquired::Busy(_)), Busy::Wait) = (&acquired, busy) {
                acquired = self.wait_in_order(work).await;
            }
            let acquired = match acquired {
                Ok(Acquired::Settle(lost, lost_entry)) => match self.settle(lost, lost_entry, component, grants).await {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                other => other,
            };
            match acquired {
                Ok(Acquired::Held(held)) => return Ok(Leased::Held(held)),
                Ok(Acquired::Ended(record)) => return Ok(Leased::Ended(record)),
                Ok(Acquired::Busy(lease)) => {
                    self.give_up(work).await?;
                    return Err(Refusal::Busy(lease).into_error(&self.session));
                }
                Ok(Acquired::Settle(..)) => return Err(Error::internal("a lost run was settled and is there still")),
                Err(error) => {
                    // Nothing runs; an entry that can't be deleted now is swept later.
                    let _ = self.give_up(work).await;
                    return Err(error);
                }
            }
        }
    }

    /// Takes an entry back. Only what this call accepted: under a key, the run may be going on elsewhere.
    async fn give_up(&self, work: &Work) -> Result<()> {
        if work.fresh { self.sessions.dequeue(&self.session, work.entry.run).await } else { Ok(()) }
    }

    /// Waits for the run's place in the order of the queue.
    async fn wait_in_order(&self, work: &Work) -> Result<Acquired> {
        let entry = &work.entry;
        self.step(Step::Waiting);
        let waiting = self.sessions.acquire_in_order(&self.session, entry.run, entry.incarnation, None, |lease| {
            let text = format!("session {} is busy with run {} on {}", self.session, lease.run, lease.owner.replica);
            self.watch.event(RunEvent::Warning(text));
        });
        tokio::select! {
            biased;
            acquired = waiting => acquired,
            _ = self.cancel.cancelled() => {
                self.give_up(work).await?;
                Err(Error::cancelled(format!("run {} was cancelled while it waited", entry.run)))
            }
        }
    }

    /// Ends a run whose process died. A server's run goes on here, from its start, as often as it may; a command's is over with its command.
    pub(super) async fn settle(
        &self,
        mut lost: Box<Held>,
        entry: Option<Box<QueueEntry>>,
        component: &dyn Body,
        grants: &Grants,
    ) -> Result<()> {
        let run = lost.run();
        let mut reason = String::from("its process ended before it did");
        if let Some(entry) = entry.as_deref().filter(|entry| entry.origin == Origin::Server) {
            if lost.attempt <= entry.attempts_allowed() {
                self.watch.event(RunEvent::Warning(format!("run {run} was cut off when its process ended; it goes on first")));
                let work = Work::load(&self.sessions, entry.clone()).await?;
                let turn = Turn { watch: Arc::new(NoWatch), ..self.again() };
                Box::pin(turn.execute(lost, work, component, grants.clone())).await?;
                return Ok(());
            }
            reason = attempts_used(entry);
        }
        self.watch.event(RunEvent::Warning(format!("run {run} was cut off when its process ended; it is recorded as failed")));
        self.sessions.abandon(&mut lost, entry.as_deref(), &reason).await?;
        Ok(())
    }

    fn again(&self) -> Turn<'_> {
        Turn {
            context: self.context,
            agent: self.agent.clone(),
            session: self.session.clone(),
            store: self.store.clone(),
            sessions: self.sessions.clone(),
            reader: self.reader.clone(),
            watch: Arc::clone(&self.watch),
            cancel: self.cancel.clone(),
        }
    }
}

/// Why a run isn't tried again.
pub(super) fn attempts_used(entry: &QueueEntry) -> String {
    match entry.attempts_allowed() {
        1 => String::from("its process ended before it did, and it may be tried once"),
        allowed => format!("its process ended before it did, in each of its {allowed} attempts"),
    }
}
