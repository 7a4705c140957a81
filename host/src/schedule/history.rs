//! What became of ticks and triggers, and why.

use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::id::{RunId, SessionName};
use crate::session::Status;
use crate::session::record::cut;
use crate::tick::TickName;

/// Most entries of runs that went well, and again of those that didn't.
pub const KEPT: usize = 50;
/// Most entries of what never ran.
pub const KEPT_UNRUN: usize = 30;
/// How long an entry is kept, nanoseconds: 30 days.
const KEPT_FOR: i64 = 30 * 24 * 3600 * 1_000_000_000;
/// Longest reason in bytes of its JSON text.
const REASON_MAX: usize = 160;
/// Most bytes that the entries take in the state's document.
const BYTES_MAX: usize = 36 << 10;

/// How a tick or trigger ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its run completed.
    Ran,
    /// Its run failed; the last attempt where there were several.
    Failed,
    /// Its run was cancelled.
    Cancelled,
    /// Its run ran out of time.
    TimedOut,
    /// It was due while an earlier run went on.
    Skipped,
    /// Nobody was there when it was due, and the catch-up policy lets it go.
    Missed,
    /// It wasn't allowed to run.
    Refused,
}

impl Outcome {
    /// Returns the name as JSON has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Skipped => "skipped",
            Self::Missed => "missed",
            Self::Refused => "refused",
        }
    }

    /// Returns the outcome of a run that has ended; none while it runs.
    #[must_use]
    pub const fn of(status: Status) -> Option<Self> {
        match status {
            Status::Running => None,
            Status::Completed => Some(Self::Ran),
            Status::Failed => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
            Status::TimedOut => Some(Self::TimedOut),
        }
    }

    fn class(self) -> usize {
        match self {
            Self::Ran => 0,
            Self::Failed | Self::Cancelled | Self::TimedOut => 1,
            Self::Skipped | Self::Missed | Self::Refused => 2,
        }
    }
}

/// What became of one tick or trigger, or of several ticks in a row that were missed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The tick; of several the last.
    pub tick: TickName,
    /// How many ticks, when there are several.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where that isn't plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The run, the last attempt of it; none when nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The session that it worked in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionName>,
    /// How many attempts there were.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub attempts: u64,
    /// How much later than its tick the run began, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// When this was noted, nanoseconds since 1970.
    pub at: UnixNanos,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

impl Entry {
    /// Makes one of something that never ran.
    #[must_use]
    pub fn unrun(tick: TickName, outcome: Outcome, reason: &str, at: UnixNanos) -> Self {
        Self { tick, count: 1, outcome, reason: cut(reason, REASON_MAX), run: None, session: None, attempts: 1, late_ms: None, at }
    }
}

/// Adds an entry to a history, newest first, and drops what is over the bounds.
pub(super) fn note(history: &mut Vec<Entry>, mut entry: Entry) {
    entry.reason = cut(&entry.reason, REASON_MAX);
    let now = entry.at;
    history.insert(0, entry);
    let mut seen = [0_usize; 3];
    history.retain(|entry| {
        let class = entry.outcome.class();
        seen[class] += 1;
        seen[class] <= if class == 2 { KEPT_UNRUN } else { KEPT } && now.saturating_sub(entry.at) < KEPT_FOR
    });
    let size = |entry: &Entry| serde_json::to_string(entry).map_or(0, |text| text.len() + 1);
    let mut bytes: usize = history.iter().map(size).sum();
    while bytes > BYTES_MAX {
        let Some(oldest) = history.pop() else { break };
        bytes -= size(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(outcome: Outcome, at: i64) -> Entry {
        Entry {
            reason: "x".repeat(1000),
            run: Some(RunId::new_v7(1, [0; 10])),
            session: Some("s".repeat(64).parse().unwrap()),
            ..Entry::unrun(TickName::Due(crate::tick::Tick::from_seconds(at)), outcome, "", at)
        }
    }

    #[test]
    fn good_ones_don_t_push_out_bad_ones() {
        let mut history = Vec::new();
        note(&mut history, entry(Outcome::Failed, 1));
        for at in 2..500 {
            note(&mut history, Entry { reason: String::new(), ..entry(Outcome::Ran, at) });
        }
        assert_eq!(history.iter().filter(|entry| entry.outcome == Outcome::Ran).count(), KEPT);
        assert_eq!(history.last().map(|entry| entry.outcome), Some(Outcome::Failed));
        assert_eq!(history[0].tick.due().map(crate::tick::Tick::seconds), Some(499));
    }

    #[test]
    fn old_entries_go_and_the_document_stays_within_its_size() {
        let mut history = Vec::new();
        note(&mut history, entry(Outcome::Failed, 0));
        note(&mut history, entry(Outcome::Ran, KEPT_FOR));
        assert_eq!(history.len(), 1);
        for at in 0..400 {
            for outcome in [Outcome::Ran, Outcome::Failed, Outcome::Skipped] {
                note(&mut history, entry(outcome, KEPT_FOR + at));
            }
        }
        assert!(serde_json::to_string(&history).unwrap().len() <= BYTES_MAX + 2);
        assert!(history[0].reason.len() <= REASON_MAX);
    }
}
