//! What is kept of requests: an event of the run for each one that left and each one that was denied, and a line of the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::budget::Counters;
use super::failure::Failure;
use crate::id::RunId;
use crate::policy::grants::Denial;
use crate::policy::refused::Refused;

/// Most events of one run; a guest that asks in a loop fills nothing.
const EVENTS_MAX: u64 = 1000;

/// A request that left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The door: `fetch` or `http`.
    pub capability: &'static str,
    /// The method.
    pub method: String,
    /// Scheme, host and port.
    pub origin: String,
    /// The address that was connected to; none when no connection came about.
    pub address: Option<IpAddr>,
    /// The response's status; none when there was no response.
    pub status: Option<u16>,
    /// `ok`, or why it ended early.
    pub outcome: &'static str,
    /// The name of the credential that was added.
    pub credential: Option<String>,
    /// Bytes of the request's body.
    pub sent: u64,
    /// Bytes of the response's body, as they came over the wire.
    pub received: u64,
    /// From the start of the request to its end.
    pub elapsed: Duration,
}

/// Takes the notes of a run's requests, into its events.
pub trait AuditSink: Send + Sync + std::fmt::Debug {
    /// Takes a request that was denied, or whose response was.
    fn denied(&self, denial: Denial);
    /// Takes a request that left and has ended.
    fn sent(&self, sent: Sent);
}

/// Takes note of requests of one run.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    agent: String,
    run: RunId,
    events: Arc<dyn AuditSink>,
    counters: Arc<Counters>,
}

impl Audit {
    pub(super) fn new(agent: String, run: RunId, events: Arc<dyn AuditSink>, counters: Arc<Counters>) -> Self {
        Self { agent, run, events, counters }
    }

    /// Notes a denial.
    pub(super) fn denied(&self, capability: &'static str, target: &str, refused: &Refused) {
        let noted = self.counters.denied.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            agent = %self.agent, run = %self.run, capability, target, code = refused.code, step = refused.step.name(),
            addresses = ?refused.addresses, "a request was denied"
        );
        if noted < EVENTS_MAX {
            self.events.denied(refused.denial(&self.agent, capability, target));
        }
    }

    /// Notes a request that has ended.
    pub(super) fn ended(&self, sent: Sent) {
        let noted = self.counters.requests.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            agent = %self.agent, run = %self.run, capability = sent.capability, method = %sent.method, origin = %sent.origin,
            address = ?sent.address, status = ?sent.status, outcome = sent.outcome, credential = ?sent.credential, sent = sent.sent,
            received = sent.received, ms = sent.elapsed.as_millis(), "a request left"
        );
        if noted < EVENTS_MAX {
            self.events.sent(sent);
        }
    }
}

/// A request under way; noted when it is dropped, with what is known of it by then.
#[derive(Debug)]
pub(super) struct UnderWay {
    audit: Audit,
    clock: crate::clock::SharedClock,
    started: Duration,
    pub(super) sent: Sent,
    sent_bytes: Arc<AtomicU64>,
    received_bytes: Arc<AtomicU64>,
}

impl UnderWay {
    pub(super) fn new(audit: Audit, clock: crate::clock::SharedClock, sent: Sent) -> Self {
        let started = clock.boot();
        Self { audit, clock, started, sent, sent_bytes: Arc::default(), received_bytes: Arc::default() }
    }

    /// Returns the counter of the request's bytes.
    pub(super) fn sent_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent_bytes)
    }

    /// Returns the counter of the response's bytes, as they come over the wire.
    pub(super) fn received_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received_bytes)
    }

    /// Sets why it ended early.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.sent.outcome = failure.code();
    }

    /// Notes a denial of what came back.
    pub(super) fn denied(&self, refused: &Refused) {
        self.audit.denied(self.sent.capability, &self.sent.origin, refused);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut sent = self.sent.clone();
        sent.elapsed = self.clock.boot().saturating_sub(self.started);
        sent.sent = self.sent_bytes.load(Ordering::Relaxed);
        sent.received = self.received_bytes.load(Ordering::Relaxed);
        self.audit.ended(sent);
    }
}
