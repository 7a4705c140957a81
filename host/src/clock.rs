//! Time as an input: the host's clocks behind one trait, so that tests can simulate days and skewed machines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Nanoseconds since 1970-01-01T00:00:00Z, signed.
pub type UnixNanos = i64;

/// The clocks of a host.
#[async_trait::async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall time in nanoseconds since 1970.
    fn now(&self) -> UnixNanos;

    /// Returns a time that never goes back and goes on while the machine sleeps (CLOCK_BOOTTIME on Linux).
    fn boot(&self) -> Duration;

    /// Waits for a span of this clock.
    async fn sleep(&self, span: Duration);
}

/// The machine's own clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[async_trait::async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's wall clock")]
    fn now(&self) -> UnixNanos {
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        }
    }

    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that waits on the machine's clock")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// Formats nanoseconds since 1970 as RFC 3339 in UTC with milliseconds, such as `2026-11-30T15:04:05.123Z`.
#[must_use]
pub fn rfc3339(at: UnixNanos) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(at)) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => String::from("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_utc_with_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(-1_000_000_000), "1969-12-31T23:59:59.000Z");
    }
}
