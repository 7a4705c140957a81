//! What a collection needs of sessions: all of them, tombstones too, the history that is kept, and changes of exactly the head that was read.

use super::head::{Head, Refusal};
use super::record::{Previous, RunRecord};
use super::sessions::{ROUNDS, Sessions, Snapshot, Wrote, contended};
use crate::error::{Error, Result};
use crate::id::SessionRef;
use crate::store::{Prefix, keys};

impl Sessions {
    /// Returns the names of all sessions that have or had a head, tombstones too, by name.
    ///
    /// # Errors
    /// `Store`.
    pub async fn all(&self) -> Result<Vec<SessionRef>> {
        let mut found = Vec::new();
        for segment in self.store.list_folders(&Prefix::Sessions).await? {
            let Ok(agent) = keys::agent_of(&segment) else { continue };
            for segment in self.store.list_folders(&Prefix::Agent(agent.clone())).await? {
                let Ok(session) = keys::session_of(&segment) else { continue };
                found.push(SessionRef { agent: agent.clone(), session });
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the records of a session's ended runs from a seq on, newest first, each checked as [`Sessions::records`] does it.
    ///
    /// # Errors
    /// As [`Sessions::records`].
    pub async fn records_from(&self, head: &Head, seq: u64) -> Result<Vec<RunRecord>> {
        let mut records: Vec<RunRecord> = Vec::new();
        let mut next = head.recent.first().map(|recent| Previous { run: recent.run, seq: recent.seq, record: recent.record });
        while let Some(previous) = next.filter(|previous| previous.seq >= seq) {
            let record = self.checked(&head.session, head, &previous).await?;
            next = record.previous;
            records.push(record);
        }
        Ok(records)
    }

    /// Writes a head over the very one that was read. None when that isn't there any more: then nothing was written.
    ///
    /// # Errors
    /// `Store` with the code `outcome_unknown` when that can't be told.
    pub(crate) async fn replace_exactly(&self, session: &SessionRef, over: &Snapshot, next: &Head) -> Result<Option<Snapshot>> {
        Ok(match self.write(session, Some(&over.version), next).await? {
            Wrote::Done(version) => Some(Snapshot { head: next.clone(), version }),
            Wrote::Changed(_) => None,
        })
    }

    /// Changes the head of a session, also a tombstone.
    ///
    /// # Errors
    /// As [`Sessions::alter`].
    pub(crate) async fn alter_any(
        &self,
        session: &SessionRef,
        change: impl Fn(&Head) -> Result<Head, Refusal> + Send + Sync,
    ) -> Result<Snapshot> {
        let missing = || Error::not_found(format!("there is no session {session}")).code("session_missing");
        let mut snapshot = self.load(session).await?.ok_or_else(missing)?;
        for round in 0..ROUNDS {
            let next = change(&snapshot.head).map_err(|refusal| refusal.into_error(session))?;
            if next == snapshot.head {
                return Ok(snapshot);
            }
            match self.write(session, Some(&snapshot.version), &next).await? {
                Wrote::Done(version) => return Ok(Snapshot { head: next, version }),
                Wrote::Changed(Some(found)) => snapshot = *found,
                Wrote::Changed(None) => return Err(missing()),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }
}
