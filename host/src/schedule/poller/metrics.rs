//! What a poller did, in numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::schedule::history::Outcome;
use crate::schedule::state::Totals;

/// Of so many last claims the lateness is kept.
const KEPT: usize = 1000;

/// Counts since the poller was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metrics {
    /// Schedules that are known.
    pub schedules: usize,
    /// Of these, with a next tick or retry.
    pub armed: usize,
    /// Runs that this poller put into the queue.
    pub queued: u64,
    /// Runs that it saw end well.
    pub ran: u64,
    /// Runs that it saw end otherwise.
    pub failed: u64,
    /// Ticks that it skipped for an overlap.
    pub skipped: u64,
    /// Ticks that it found missed.
    pub missed: u64,
    /// Ticks that it refused.
    pub refused: u64,
    /// Races that another poller won.
    pub lost: u64,
    /// Ticks that it went on with in place of another process.
    pub taken_over: u64,
    /// Claims that came before their tick by the store's clock.
    pub early: u64,
    /// Failures of the store and of single schedules.
    pub errors: u64,
    /// How much later than due the last claims were stored, nanoseconds, in ascending order.
    pub lateness: Vec<i64>,
}

impl Metrics {
    /// Returns the lateness that so many percent of the last claims stayed within, nanoseconds.
    #[must_use]
    pub fn lateness_at(&self, percent: usize) -> Option<i64> {
        let place = (self.lateness.len() * percent.min(100)).div_ceil(100).max(1) - 1;
        self.lateness.get(place).copied()
    }

    /// Returns them in the text format of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (name, kind, value) in [
            ("schedules", "gauge", self.schedules as u64),
            ("schedules_armed", "gauge", self.armed as u64),
            ("schedule_runs_queued_total", "counter", self.queued),
            ("schedule_runs_completed_total", "counter", self.ran),
            ("schedule_runs_failed_total", "counter", self.failed),
            ("schedule_ticks_skipped_total", "counter", self.skipped),
            ("schedule_ticks_missed_total", "counter", self.missed),
            ("schedule_ticks_refused_total", "counter", self.refused),
            ("schedule_races_lost_total", "counter", self.lost),
            ("schedule_takeovers_total", "counter", self.taken_over),
            ("schedule_claims_early_total", "counter", self.early),
            ("schedule_errors_total", "counter", self.errors),
        ] {
            let _ = writeln!(text, "# TYPE landfall_{name} {kind}\nlandfall_{name} {value}");
        }
        for (quantile, percent) in [("0.5", 50), ("0.95", 95), ("1", 100)] {
            if let Some(late) = self.lateness_at(percent) {
                let millis = late.max(0) / 1_000_000;
                let _ = writeln!(text, "landfall_schedule_claim_lateness_milliseconds{{quantile=\"{quantile}\"}} {millis}");
            }
        }
        text
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    queued: AtomicU64,
    ran: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    missed: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    taken_over: AtomicU64,
    early: AtomicU64,
    errors: AtomicU64,
    lateness: Mutex<VecDeque<i64>>,
}

impl Counters {
    pub(super) fn queued(&self, late: Option<i64>) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        if let Some(late) = late {
            let mut lateness = self.lateness.lock().unwrap_or_else(PoisonError::into_inner);
            if lateness.len() >= KEPT {
                lateness.pop_front();
            }
            lateness.push_back(late);
        }
    }

    pub(super) fn ended(&self, outcome: Outcome) {
        let counter = if outcome == Outcome::Ran { &self.ran } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, before: &Totals, after: &Totals) {
        self.skipped.fetch_add(after.skipped - before.skipped, Ordering::Relaxed);
        self.missed.fetch_add(after.missed - before.missed, Ordering::Relaxed);
        self.refused.fetch_add(after.refused - before.refused, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn taken_over(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn early(&self) {
        self.early.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self, schedules: usize, armed: usize) -> Metrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut lateness: Vec<i64> = self.lateness.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        lateness.sort_unstable();
        Metrics {
            schedules,
            armed,
            queued: get(&self.queued),
            ran: get(&self.ran),
            failed: get(&self.failed),
            skipped: get(&self.skipped),
            missed: get(&self.missed),
            refused: get(&self.refused),
            lost: get(&self.lost),
            taken_over: get(&self.taken_over),
            early: get(&self.early),
            errors: get(&self.errors),
            lateness,
        }
    }
}
