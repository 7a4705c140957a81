//! `landfall:agent/progress`, and the events of a run that its guest causes.

mod host;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use host::{HasProgress, View};

use super::refusal::{LimitReached, Refusal};
use crate::outbound::audit::{AuditSink, Sent};
use crate::policy::grants::Denial;

/// Which of its outputs a guest wrote to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something that happened in a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestEvent {
    /// It wrote a line, here without its line feed. What isn't UTF-8 is replaced; a line over 16 KiB comes in several pieces.
    Log {
        /// Where to.
        stream: LogStream,
        /// The text.
        line: String,
    },
    /// It wrote more than the log may hold; nothing more is kept. Comes once.
    LogTruncated {
        /// The limit in bytes.
        limit: u64,
    },
    /// It told how it goes.
    Progress {
        /// What kind of event it is, for programs.
        kind: String,
        /// Text or JSON.
        payload: String,
    },
    /// A call was refused for want of a grant.
    Denied(Denial),
    /// A request left, and has ended.
    Sent(Sent),
}

/// Takes the events of a run as they happen. Must not wait: the guest stands still meanwhile.
pub trait EventSink: Send + Sync + fmt::Debug {
    /// Takes an event.
    fn emit(&self, event: GuestEvent);
}

/// Notes of requests as events of the run.
#[derive(Clone, Debug)]
pub struct AuditEvents(pub Arc<dyn EventSink>);

impl AuditSink for AuditEvents {
    fn denied(&self, denial: Denial) {
        self.0.emit(GuestEvent::Denied(denial));
    }

    fn sent(&self, sent: Sent) {
        self.0.emit(GuestEvent::Sent(sent));
    }
}

/// Keeps all events in memory.
#[derive(Debug, Default)]
pub struct CollectedEvents(Mutex<Vec<GuestEvent>>);

impl CollectedEvents {
    /// Returns the events so far and forgets them.
    #[must_use]
    pub fn take(&self) -> Vec<GuestEvent> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for CollectedEvents {
    fn emit(&self, event: GuestEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// Bytes of a run's events that a guest may still cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EventBudget {
    limit: u64,
    used: u64,
}

impl EventBudget {
    /// What one event costs beside its text, in bytes: an empty one isn't free for those who keep it.
    const OVERHEAD: u64 = 32;

    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    fn take(&mut self, event: u64) -> Result<(), Refusal> {
        let used = self.used.saturating_add(event).saturating_add(Self::OVERHEAD);
        if used > self.limit {
            return Err(Refusal::Limit(LimitReached::new("events", self.limit, used)));
        }
        self.used = used;
        Ok(())
    }
}

/// Longest kind of an event, in bytes.
pub const KIND_MAX: usize = 64;

fn check_kind(kind: &str) -> Result<(), Refusal> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let rule = if kind.is_empty() || kind.len() > KIND_MAX || !kind.bytes().all(allowed) {
        "must have 1 to 64 of a to z, 0 to 9, `.`, `_` and `-`"
    } else if kind.starts_with("landfall.") {
        "must not start with `landfall.`: those are the host's"
    } else {
        return Ok(());
    };
    Err(Refusal::Invalid(format!("the kind of an event {rule}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_the_rules() {
        for bad in ["", "A", "a b", "landfall.turn", &"x".repeat(65)] {
            assert!(check_kind(bad).is_err(), "{bad:?}");
        }
        assert!(check_kind("files.scanned").is_ok());
    }

    #[test]
    fn even_empty_events_use_up_the_budget() {
        let mut budget = EventBudget::new(100);
        assert!((0..3).all(|_| budget.take(0).is_ok()));
        assert!(matches!(budget.take(0), Err(Refusal::Limit(limit)) if limit.name == "events" && limit.value == Some(128)));
    }
}
