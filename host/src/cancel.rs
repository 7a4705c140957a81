//! How a running guest is stopped from outside.

use tokio::sync::watch;

/// Why a guest is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CancelReason {
    /// Somebody asked for this run to be cancelled.
    Requested,
    /// The process shuts down: the run is given back and starts again elsewhere.
    Shutdown,
    /// The session's lease is lost: another replica goes on with it.
    Fenced,
}

/// Stops the guests that run under its [`Cancel`] tokens.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Option<CancelReason>>);

impl Canceller {
    /// Makes a canceller and its first token.
    #[must_use]
    pub fn new() -> (Self, Cancel) {
        let (sender, receiver) = watch::channel(None);
        (Self(sender), Cancel(Some(receiver)))
    }

    /// Stops the guests, within about two ticks of the epoch. The first reason given stands.
    pub fn cancel(&self, reason: CancelReason) {
        self.0.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason);
            }
            first
        });
    }

    /// Returns another token.
    #[must_use]
    pub fn token(&self) -> Cancel {
        Cancel(Some(self.0.subscribe()))
    }
}

/// Tells a guest's host that it is to be stopped.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Option<watch::Receiver<Option<CancelReason>>>);

impl Cancel {
    /// Returns a token that is never cancelled.
    #[must_use]
    pub fn never() -> Self {
        Self(None)
    }

    /// Returns the reason, once cancelled.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.0.as_ref().and_then(|receiver| *receiver.borrow())
    }

    /// Waits until cancelled; for ever when the canceller is gone.
    pub async fn cancelled(&self) -> CancelReason {
        if let Some(receiver) = &self.0 {
            let mut receiver = receiver.clone();
            let changed = receiver.wait_for(Option::is_some).await.map(|reason| *reason);
            if let Ok(Some(reason)) = changed {
                return reason;
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stands_and_a_token_taken_later_sees_it() {
        let (canceller, cancel) = Canceller::new();
        assert_eq!(cancel.reason(), None);
        canceller.cancel(CancelReason::Shutdown);
        canceller.cancel(CancelReason::Requested);
        assert_eq!(cancel.cancelled().await, CancelReason::Shutdown);
        assert_eq!(canceller.token().cancelled().await, CancelReason::Shutdown);
    }
}
