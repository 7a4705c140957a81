//! From what a guest does to what its watchers see and its record keeps.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::event::{LogStream, RunEvent, SharedWatch};
use crate::capability::progress::{EventSink, GuestEvent, LogStream as GuestStream};
use crate::drill::{self, Point};
use crate::secret::Mask;

/// Passes a guest's events on, with secrets masked, and collects them for the record.
pub(super) struct Watching {
    watch: SharedWatch,
    mask: Mask,
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    log: String,
    events: String,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'t> {
    Progress {
        kind: &'t str,
        payload: &'t str,
    },
    Denied {
        capability: &'t str,
        target: &'t str,
        code: &'t str,
        why: &'t str,
    },
    LogTruncated {
        limit: u64,
    },
    Sent {
        capability: &'t str,
        method: &'t str,
        origin: &'t str,
        address: Option<std::net::IpAddr>,
        status: Option<u16>,
        outcome: &'t str,
        #[serde(skip_serializing_if = "Option::is_none")]
        credential: Option<&'t str>,
        sent: u64,
        received: u64,
        ms: u64,
    },
}

#[derive(Serialize)]
struct LogLine<'t> {
    stream: LogStream,
    line: &'t str,
}

impl Watching {
    pub(super) fn new(watch: SharedWatch, mask: Mask, limit: u64) -> Self {
        // One chunk of a pack holds either text.
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(crate::workspace::page::CHUNK_MAX);
        Self { watch, mask, limit, kept: Mutex::default() }
    }

    /// Returns the log and the events so far, each as JSON lines.
    pub(super) fn kept(&self) -> (String, String) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.log.clone(), kept.events.clone())
    }

    fn keep(&self, line: &impl Serialize, which: impl FnOnce(&mut Kept) -> &mut String) {
        let Ok(json) = serde_json::to_string(line) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = which(&mut kept);
        // What the guest may write is bounded before; JSON's escapes can make more of it, which is left out.
        if text.len() + json.len() < self.limit {
            text.push_str(&json);
            text.push('\n');
        }
    }
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching").field("mask", &self.mask).finish_non_exhaustive()
    }
}

impl EventSink for Watching {
    fn emit(&self, event: GuestEvent) {
        match event {
            GuestEvent::Log { stream, line } => {
                let stream = match stream {
                    GuestStream::Stdout => LogStream::Stdout,
                    GuestStream::Stderr => LogStream::Stderr,
                };
                let line = self.mask.apply(&line).into_owned();
                self.keep(&LogLine { stream, line: &line }, |kept| &mut kept.log);
                self.watch.event(RunEvent::Log { stream, line });
            }
            GuestEvent::Progress { kind, payload } => {
                let payload = self.mask.apply(&payload).into_owned();
                drill::pass(Point::RunDuring);
                self.keep(&Line::Progress { kind: &kind, payload: &payload }, |kept| &mut kept.events);
                self.watch.event(RunEvent::Progress { kind, payload });
            }
            GuestEvent::LogTruncated { limit } => {
                self.keep(&Line::LogTruncated { limit }, |kept| &mut kept.events);
                self.watch.event(RunEvent::Warning(format!("the log is over its limit of {limit} bytes; the rest is dropped")));
            }
            GuestEvent::Sent(sent) => {
                let line = Line::Sent {
                    capability: sent.capability,
                    method: &sent.method,
                    origin: &sent.origin,
                    address: sent.address,
                    status: sent.status,
                    outcome: sent.outcome,
                    credential: sent.credential.as_deref(),
                    sent: sent.sent,
                    received: sent.received,
                    ms: u64::try_from(sent.elapsed.as_millis()).unwrap_or(u64::MAX),
                };
                self.keep(&line, |kept| &mut kept.events);
            }
            GuestEvent::Denied(denial) => {
                let target = self.mask.apply(&denial.target);
                let line = Line::Denied { capability: &denial.capability, target: &target, code: &denial.code, why: &denial.why };
                self.keep(&line, |kept| &mut kept.events);
                self.watch.event(RunEvent::Warning(self.mask.apply(&denial.to_string()).into_owned()));
            }
        }
    }
}
