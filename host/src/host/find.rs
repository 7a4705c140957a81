//! Which checkpoint a person means, and what keeps it.

use super::{HISTORY, Host};
use crate::error::{Error, Result};
use crate::session::Kept;
use crate::session::head::Head;
use crate::session::record::RunRecord;
use crate::session::selector::Selector;

impl Host {
    /// Finds the checkpoint that a person names, and what keeps it.
    ///
    /// # Errors
    /// As [`Host::open`]; `NotFound` with the code `checkpoint_dropped` when its session doesn't keep it any more.
    pub async fn find(&self, selector: &Selector) -> Result<Kept> {
        match selector {
            Selector::Run(run) => {
                let record = self.find_run(None, *run).await?;
                let head = self.session(&record.session).await?;
                left_by(&head, record)
            }
            Selector::Head(session) => {
                let head = self.session(session).await?;
                head.current().ok_or_else(|| {
                    Error::not_found(format!("session {session} has no checkpoint yet"))
                        .code("no_checkpoint")
                        .hint("it has one after its first turn")
                })
            }
            Selector::Turn(session, turn) => {
                let head = self.session(session).await?;
                let found = self.inner.sessions.records(&head, HISTORY).await?;
                let found = found.into_iter().find(|record| record.is_completed() && record.turn == *turn);
                left_by(
                    &head,
                    found.ok_or_else(|| {
                        Error::not_found(format!("session {session} has no turn {turn}"))
                            .code("no_turn")
                            .hint("`landfall session log` lists the turns")
                    })?,
                )
            }
            Selector::Saved(session, name) => {
                let head = self.session(session).await?;
                let save = head.saves.iter().find(|save| save.name == *name).ok_or_else(|| {
                    Error::not_found(format!("session {session} has no checkpoint named {name:?}"))
                        .code("no_save")
                        .hint("`landfall session show` lists them")
                })?;
                let (session, checkpoint) = (session.clone(), save.checkpoint.clone());
                Ok(Kept { session, incarnation: head.incarnation, checkpoint, seq: None })
            }
        }
    }
}

/// Returns what a run left behind.
pub(super) fn left_by(head: &Head, record: RunRecord) -> Result<Kept> {
    let Some(checkpoint) = record.after else {
        return Err(Error::not_found(format!("run {} left no checkpoint: it {}", record.run, record.status)).code("no_checkpoint"));
    };
    let kept = Kept { session: record.session, incarnation: record.incarnation, checkpoint, seq: Some(record.seq) };
    if head.keeps(&kept) {
        return Ok(kept);
    }
    Err(Error::not_found(format!("what run {} left behind isn't kept any more", record.run))
        .code("checkpoint_dropped")
        .hint("`landfall checkpoint list` lists what is kept; [retention] in the config says how much that is"))
}
