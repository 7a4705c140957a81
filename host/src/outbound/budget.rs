//! What an agent may use: places for requests that are under way, a rate, and the bytes of a run.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;
use super::limits::OutboundLimits;
use crate::clock::SharedClock;

const MINUTE: Duration = Duration::from_secs(60);

/// The places and the rate of one agent in this process.
pub(super) struct Budget {
    clock: SharedClock,
    places: Arc<Semaphore>,
    per_host: usize,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    per_minute: u32,
    begun: Mutex<VecDeque<Duration>>,
}

/// A place for one request; free again when it is dropped.
pub(super) struct Place {
    _place: OwnedSemaphorePermit,
    _at_host: OwnedSemaphorePermit,
}

impl Budget {
    pub(super) fn new(limits: &OutboundLimits, clock: SharedClock) -> Self {
        Self {
            clock,
            places: Arc::new(Semaphore::new(limits.parallel.max(1))),
            per_host: limits.parallel_host.max(1),
            hosts: Mutex::default(),
            per_minute: limits.per_minute,
            begun: Mutex::default(),
        }
    }

    /// Counts a request that begins.
    pub(super) fn count(&self) -> Result<(), Failure> {
        let now = self.clock.boot();
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        while begun.front().is_some_and(|first| now.saturating_sub(*first) >= MINUTE) {
            begun.pop_front();
        }
        if begun.len() >= self.per_minute as usize {
            return Err(Failure::TooMuch { name: "requests-per-minute", allowed: u64::from(self.per_minute) });
        }
        begun.push_back(now);
        Ok(())
    }

    /// Waits for a place. First at the host, so that requests to a slow one don't keep the others out.
    pub(super) async fn place(&self, host: &str) -> Result<Place, Failure> {
        let at_host = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() > 1024 {
                hosts.retain(|_, places| places.available_permits() < self.per_host);
            }
            Arc::clone(hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.per_host))))
        };
        let closed = |_| Failure::Host("the host is shutting down".to_owned());
        let at_host = at_host.acquire_owned().await.map_err(closed)?;
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        Ok(Place { _place: place, _at_host: at_host })
    }
}

/// What one run has used.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    limit: u64,
}

impl Counters {
    pub(super) fn new(limit: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { requests: zero(), denied: zero(), sent: zero(), received: zero(), limit }
    }

    pub(super) fn add_sent(&self, bytes: usize) -> Result<(), Failure> {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.check()
    }

    pub(super) fn add_received(&self, bytes: usize) -> Result<(), Failure> {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.check()
    }

    fn check(&self) -> Result<(), Failure> {
        let used = self.sent.load(Ordering::Relaxed).saturating_add(self.received.load(Ordering::Relaxed));
        if used > self.limit { Err(Failure::TooMuch { name: "egress", allowed: self.limit }) } else { Ok(()) }
    }
}
