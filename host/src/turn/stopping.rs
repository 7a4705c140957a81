//! What stops a run before its end: somebody wants it, this process shuts down, or the lease is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::Turn;
use crate::cancel::{CancelReason, Canceller};
use crate::component::body::Body;
use crate::component::failure::GuestFailure;
use crate::component::invoke::{Call, Invoked, Usage};
use crate::error::{ErrorKind, Result};
use crate::session::Held;

/// How often a running turn looks whether it is to be cancelled, or has lost its lease.
const LOOK: Duration = Duration::from_secs(2);

/// Which wishes to stop count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heeds {
    /// All of them.
    All,
    /// A cancel has come too late: the run ends otherwise already. It still has to stop where another process may go on with it.
    Process,
}

impl Turn<'_> {
    /// Runs the guest, and stops it when somebody wants that or the lease is lost.
    pub(super) async fn invoke(&self, held: &Arc<Mutex<Held>>, component: &dyn Body, call: Call) -> Result<Invoked> {
        let (canceller, token) = Canceller::new();
        let invoked = component.invoke(call, &token);
        tokio::pin!(invoked);
        let ended = tokio::select! {
            biased;
            invoked = &mut invoked => invoked,
            reason = self.stopped(held, Heeds::All) => {
                canceller.cancel(reason);
                invoked.await
            }
        };
        match ended {
            // A save in the middle of the run met the cancel in the head, and so ended its guest.
            Err(error) if error.stable_code() == "cancelled" && held.lock().await.is_cancelled() => {
                Ok(Invoked { result: Err(GuestFailure::Cancelled(CancelReason::Requested)), usage: Usage::default() })
            }
            ended => ended,
        }
    }

    /// Works on until it is done, or until the run has to stop: then what is left of the work is dropped.
    pub(super) async fn unless_stopped<T>(
        &self,
        held: &Arc<Mutex<Held>>,
        heeds: Heeds,
        work: impl Future<Output = T> + Send,
    ) -> std::result::Result<T, CancelReason> {
        tokio::select! {
            biased;
            reason = self.stopped(held, heeds) => Err(reason),
            done = work => Ok(done),
        }
    }

    async fn stopped(&self, held: &Arc<Mutex<Held>>, heeds: Heeds) -> CancelReason {
        let lost = self.context.presence.lost();
        let cancelled = async {
            match self.cancel.cancelled().await {
                CancelReason::Requested if heeds == Heeds::Process => std::future::pending().await,
                reason => reason,
            }
        };
        tokio::select! {
            biased;
            reason = lost.cancelled() => reason,
            reason = cancelled => reason,
            reason = self.watch_head(held, heeds) => reason,
        }
    }

    /// Looks at the head now and then, and returns why the run has to stop.
    async fn watch_head(&self, held: &Arc<Mutex<Held>>, heeds: Heeds) -> CancelReason {
        loop {
            self.store.clock().sleep(LOOK).await;
            match self.sessions.check(&*held.lock().await).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Cancelled => {
                    if heeds == Heeds::All {
                        return CancelReason::Requested;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => return CancelReason::Fenced,
                // A store that can't be read for a while: whether the lease still holds is the replica's sign of life to say.
                Err(error) => tracing::warn!(error = %error.chain(), "the session's head could not be looked at"),
            }
        }
    }
}
