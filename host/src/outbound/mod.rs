//! Requests that leave: from the gate's decision to the last byte of the response, within limits, with nothing of a credential coming back.
//!
//! `exchange.rs` is one request and its response; `connect.rs`, `tls.rs` and `pool.rs` its connection; `inbound.rs` and `decode.rs`
//! the response's body as it streams; `budget.rs` what an agent may use; `audit.rs` what is kept of it. Nothing here follows a
//! redirect: whoever does asks the gate again.

pub mod audit;
mod budget;
mod connect;
mod decode;
pub mod exchange;
pub mod failure;
pub mod inbound;
pub mod limits;
mod pool;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::SharedClock;
use crate::error::Result;
use crate::id::RunId;
use crate::policy::addresses::OwnAddresses;
use crate::policy::egress::Egress;
use crate::policy::refused::Refused;
use crate::policy::resolve::Resolver;
use crate::secret::{Mask, Secret};
use audit::{Audit, AuditSink};
use budget::{Budget, Counters};
use failure::Failure;
use limits::OutboundLimits;
use pool::Pool;
use tls::Tls;

/// How long what is known of this machine's own addresses is taken for true.
const OWN_FRESH: Duration = Duration::from_secs(30);

/// What all agents of a host share on their way out.
#[derive(Clone, Debug)]
pub struct Outbound {
    shared: Arc<Shared>,
}

struct Shared {
    resolver: Arc<dyn Resolver>,
    clock: SharedClock,
    own: Mutex<Option<(Duration, Arc<OwnAddresses>)>>,
    pool: Pool,
    mask: Mask,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("resolver", &self.resolver).field("mask", &self.mask).finish_non_exhaustive()
    }
}

impl Outbound {
    /// Makes what agents share. `mask` finds the secrets that must never come back.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolver>, clock: SharedClock, mask: Mask) -> Self {
        let pool = Pool::new(Arc::clone(&clock));
        Self { shared: Arc::new(Shared { resolver, clock, own: Mutex::default(), pool, mask }) }
    }

    /// Returns this machine's own addresses, at most some seconds old.
    fn own(&self) -> Result<Arc<OwnAddresses>> {
        let now = self.shared.clock.boot();
        let mut own = self.shared.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, addresses)) = &*own
            && now.saturating_sub(*read) < OWN_FRESH
        {
            return Ok(Arc::clone(addresses));
        }
        let addresses = Arc::new(OwnAddresses::read()?);
        *own = Some((now, Arc::clone(&addresses)));
        Ok(addresses)
    }
}

/// The way out of one agent.
#[derive(Clone)]
pub struct AgentOutbound {
    outbound: Outbound,
    egress: Arc<Egress>,
    secrets: Arc<BTreeMap<String, Secret>>,
    tls: Arc<Tls>,
    limits: OutboundLimits,
    budget: Arc<Budget>,
}

impl fmt::Debug for AgentOutbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentOutbound").field("egress", &self.egress).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl AgentOutbound {
    /// Makes an agent's way out: its gate, the values of its credentials, and what it trusts besides the system's authorities, as
    /// the text of a PEM file.
    ///
    /// # Errors
    /// `Config` for a PEM text without certificates.
    pub fn new(
        outbound: Outbound,
        egress: Egress,
        secrets: BTreeMap<String, Secret>,
        extra_ca_pem: Option<&[u8]>,
        limits: OutboundLimits,
    ) -> Result<Self> {
        Ok(Self {
            tls: Arc::new(Tls::new(extra_ca_pem)?),
            budget: Arc::new(Budget::new(&limits, Arc::clone(&outbound.shared.clock))),
            outbound,
            egress: Arc::new(egress),
            secrets: Arc::new(secrets),
            limits,
        })
    }

    /// Returns the gate.
    #[must_use]
    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Opens the way out for one run; what happens on it goes to `events`.
    #[must_use]
    pub fn open(&self, run: RunId, events: Arc<dyn AuditSink>) -> Door {
        let counters = Arc::new(Counters::new(self.limits.run_bytes));
        let audit = Audit::new(self.egress.agent.clone(), run, events, Arc::clone(&counters));
        Door { agent: self.clone(), counters, audit }
    }
}

/// The way out of one run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door {
    agent: AgentOutbound,
    counters: Arc<Counters>,
    audit: Audit,
}

/// What a run sent and received.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressUsage {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Bytes of bodies that were sent.
    pub sent: u64,
    /// Bytes of bodies that were received, as they came over the wire.
    pub received: u64,
}

impl Door {
    /// Returns what the run used so far.
    #[must_use]
    pub fn usage(&self) -> EgressUsage {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        EgressUsage {
            requests: count(&self.counters.requests),
            denied: count(&self.counters.denied),
            sent: count(&self.counters.sent),
            received: count(&self.counters.received),
        }
    }

    /// Returns the limits of the agent.
    #[must_use]
    pub fn limits(&self) -> &OutboundLimits {
        &self.agent.limits
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.agent.egress.agent
    }

    /// Returns the time since boot, on the clock of deadlines.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock().boot()
    }

    /// Notes a refusal that a door decided by itself, and returns it as a failure.
    #[must_use]
    pub fn refuse(&self, capability: &'static str, target: &str, refused: Refused) -> Failure {
        self.audit.denied(capability, &self.masked(target), &refused);
        refused.into()
    }

    /// Returns a text without secrets.
    #[must_use]
    pub fn masked(&self, text: &str) -> String {
        self.agent.outbound.shared.mask.apply(text).into_owned()
    }

    /// Whether a text holds a secret of the host.
    #[must_use]
    pub fn holds_secret(&self, text: &str) -> bool {
        self.agent.outbound.shared.mask.found_in(text.as_bytes())
    }

    fn clock(&self) -> &SharedClock {
        &self.agent.outbound.shared.clock
    }
}
