//! Time: one line of events for the whole simulated world, and the clocks that the machines read off it, none of them right.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall::clock::{Clock, UnixNanos};

use super::Action;

/// The store's wall clock when a simulation begins: 2023-11-14T22:13:20Z.
pub const BEGINNING: UnixNanos = 1_700_000_000_000_000_000;

/// Whom an event is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The store, the network, or the simulation itself: it happens whatever becomes of the machines.
    World,
    /// A process: its machine's number, and which start of it. One that has ended gets no more events.
    Process(usize, u64),
}

/// What an event does.
pub enum Effect {
    /// Runs some code.
    Call(Box<dyn FnOnce() + Send>),
    /// Does something to the machines.
    Act(Action),
}

/// All that is going to happen, in order.
#[derive(Default)]
pub struct Timeline {
    now: AtomicU64,
    events: Mutex<(u64, BTreeMap<(u64, u64), (Target, Effect)>)>,
}

impl Timeline {
    /// Returns the time since the beginning.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Lets something happen after a span of true time. What is to happen at the same instant happens in the order in which it was said.
    pub fn after(&self, span: Duration, target: Target, effect: Effect) {
        let at = self.now().saturating_add(span);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.0 += 1;
        let number = events.0;
        events.1.insert((nanos(at), number), (target, effect));
    }

    /// As [`Timeline::after`], for code.
    pub fn call_after(&self, span: Duration, target: Target, call: impl FnOnce() + Send + 'static) {
        self.after(span, target, Effect::Call(Box::new(call)));
    }

    /// Goes on to the next event and returns it.
    pub fn next(&self) -> Option<(Target, Effect)> {
        let ((at, _), event) = self.events.lock().unwrap_or_else(PoisonError::into_inner).1.pop_first()?;
        self.now.fetch_max(at, Ordering::Relaxed);
        Some(event)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A machine's clocks: wrong by some hours, and fast or slow.
#[derive(Debug)]
pub struct Drift {
    /// How wrong the wall clock is, in nanoseconds. Somebody may set it at any time.
    pub offset: AtomicI64,
    /// How many of the machine's seconds pass in a million true ones.
    pub rate: u64,
}

/// A process's view of its machine's clocks.
pub struct MachineClock {
    /// True time.
    pub timeline: Arc<Timeline>,
    /// The machine's error.
    pub drift: Arc<Drift>,
    /// Who waits on it.
    pub process: Target,
}

impl std::fmt::Debug for MachineClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineClock").field("drift", &self.drift).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Clock for MachineClock {
    fn now(&self) -> UnixNanos {
        let since = i64::try_from(self.boot().as_nanos()).unwrap_or(i64::MAX);
        BEGINNING.saturating_add(since).saturating_add(self.drift.offset.load(Ordering::Relaxed))
    }

    fn boot(&self) -> Duration {
        scale(self.timeline.now(), self.drift.rate, 1_000_000)
    }

    async fn sleep(&self, span: Duration) {
        let (done, wait) = tokio::sync::oneshot::channel();
        // Never too short, whatever is lost by rounding.
        let span = scale(span, 1_000_000, self.drift.rate).saturating_add(Duration::from_nanos(2));
        self.timeline.call_after(span, self.process, move || _ = done.send(()));
        let _ = wait.await;
    }
}

fn scale(span: Duration, numerator: u64, denominator: u64) -> Duration {
    let nanos = span.as_nanos() * u128::from(numerator) / u128::from(denominator.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
