//! The life of this process as others see it: known while it shows signs of life, and its guests stopped when it can't.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::cancel::{Cancel, CancelReason, Canceller};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::session::replica::Replica;

/// Whether others know of this process, and what stops its guests when they may take it for dead.
#[derive(Debug)]
pub(crate) struct Presence {
    replica: Arc<Replica>,
    clock: Arc<dyn Clock>,
    announced: OnceCell<()>,
    /// Cancelled when this process is taken for dead by others: its guests have to stop.
    lost: Mutex<Arc<Canceller>>,
}

impl Presence {
    pub(crate) fn new(replica: Arc<Replica>, clock: Arc<dyn Clock>) -> Self {
        Self { replica, clock, announced: OnceCell::new(), lost: Mutex::new(Arc::new(Canceller::new().0)) }
    }

    /// Makes this process known to others, once, and keeps it known while it lives.
    pub(crate) async fn announce(self: &Arc<Self>) -> Result<()> {
        if self.replica.is_stopped() {
            return Err(Error::conflict("this host was closed: other replicas don't know of it any more")
                .code("host_closed")
                .hint("make another"));
        }
        self.announced
            .get_or_try_init(|| async {
                self.replica.announce().await?;
                // The task holds no host: it ends when that is dropped.
                tokio::spawn(keep_known(Arc::downgrade(self), Arc::clone(&self.replica)));
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Whether this process shows signs of life: false when it couldn't for a whole lease, and others may have taken over what it had.
    pub(crate) fn is_known(&self) -> bool {
        self.announced.initialized() && self.lost().reason().is_none()
    }

    /// Makes this process unknown to others again.
    pub(crate) async fn end(&self) -> Result<()> {
        if self.announced.initialized() { self.replica.stop().await } else { Ok(()) }
    }

    /// Returns what is cancelled when this process is taken for dead.
    pub(crate) fn lost(&self) -> Cancel {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).token()
    }

    fn lose(&self, error: &Error) {
        tracing::error!(error = %error.chain(), "others may take this process for dead; its guests are stopped");
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).cancel(CancelReason::Fenced);
    }

    fn is_back(&self) {
        tracing::warn!("this process shows signs of life again");
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Canceller::new().0);
    }
}

/// Shows signs of life for as long as the host is there. When that fails for a whole lease its guests are stopped, and it goes on trying: what others
/// haven't taken over by then, this process takes over from itself.
async fn keep_known(presence: Weak<Presence>, replica: Arc<Replica>) {
    loop {
        let error = tokio::select! {
            biased;
            error = replica.keep_alive() => error,
            () = gone(&presence) => return,
        };
        match presence.upgrade() {
            Some(presence) if !replica.is_stopped() => presence.lose(&error),
            _ => return,
        }
        loop {
            let Some(presence) = presence.upgrade() else { return };
            presence.clock.sleep(replica.lease() / 3).await;
            if replica.revive().await.is_ok() {
                presence.is_back();
                break;
            }
        }
    }
}

/// Waits until the host has been dropped.
async fn gone(presence: &Weak<Presence>) {
    while let Some(presence) = presence.upgrade() {
        let clock = Arc::clone(&presence.clock);
        drop(presence);
        clock.sleep(Duration::from_secs(1)).await;
    }
}
