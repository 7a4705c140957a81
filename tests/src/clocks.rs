//! Clocks and randomness for tests: time that moves only when it is told to, or when somebody waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfall::clock::{Clock, UnixNanos};

/// A clock that stands still. Waiting on it moves it on at once, so that nothing in a test takes real time.
#[derive(Debug)]
pub struct ManualClock {
    start: UnixNanos,
    nanos: AtomicU64,
}

impl ManualClock {
    /// Starts at a wall time, nanoseconds since 1970.
    #[must_use]
    pub fn new(start: UnixNanos) -> Self {
        Self { start, nanos: AtomicU64::new(0) }
    }

    /// Moves both clocks on.
    pub fn advance(&self, span: Duration) {
        self.nanos.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Clock for ManualClock {
    fn now(&self) -> UnixNanos {
        self.start.saturating_add(i64::try_from(self.nanos.load(Ordering::SeqCst)).unwrap_or(i64::MAX))
    }

    fn boot(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    async fn sleep(&self, span: Duration) {
        self.advance(span);
        tokio::task::yield_now().await;
    }
}
