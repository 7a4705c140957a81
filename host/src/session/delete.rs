//! Deleting a session, and settling what keeps that from being done.

use super::head::Refusal;
use super::lease::Acquired;
use super::sessions::{Sessions, Snapshot};
use crate::error::Result;
use crate::id::{RunId, SessionRef};

impl Sessions {
    /// Deletes a session: its head becomes a tombstone, and a later collection drops its packs. A run whose process died is settled first.
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy` while a run goes on; `NotFound`; `Store`.
    pub async fn delete(&self, session: &SessionRef) -> Result<Snapshot> {
        let at = self.store.clock().now();
        let deleted = self.alter(session, |head| head.delete(at)).await;
        let Err(error) = deleted else { return deleted };
        if error.stable_code() != "session_busy" {
            return Err(error);
        }
        let Some(lease) = self.get(session).await?.head.lease else {
            return self.alter(session, |head| head.delete(at)).await;
        };
        if !self.is_lost(session, &lease).await? {
            return Err(Refusal::Busy(lease).into_error(session));
        }
        self.settle_lost(session, lease.run).await?;
        self.alter(session, |head| head.delete(at)).await
    }

    /// Ends the run of a lease whose process is gone as failed.
    ///
    /// # Errors
    /// As [`Sessions::acquire`] and [`Sessions::commit`]; `Conflict` with the code `session_busy` when somebody else took it.
    pub(crate) async fn settle_lost(&self, session: &SessionRef, run: RunId) -> Result<()> {
        match self.acquire(session, run, None).await? {
            Acquired::Held(mut held) => {
                let entry = self.queued(session, run).await?.map(|queued| queued.entry);
                self.abandon(&mut held, entry.as_ref(), "its process ended before it did").await.map(drop)
            }
            Acquired::Settle(mut held, entry) => {
                self.abandon(&mut held, entry.as_deref(), "its process ended before it did").await.map(drop)
            }
            Acquired::Ended(_) => Ok(()),
            Acquired::Busy(lease) => Err(Refusal::Busy(lease).into_error(session)),
        }
    }
}
