//! Limits of one guest call, and the meter that holds the guest to those of memory and tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime::ResourceLimiter;

/// What one call of a guest may use. The configuration's `limits` set them per agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestLimits {
    /// Sum of all memories of the guest, in bytes. Default 512 MiB.
    pub memory: u64,
    /// Time from the start of the call to its end, waits for the host included. Default 15 minutes.
    pub time: Duration,
    /// Largest output, in bytes. Default 1 MiB.
    pub output: u64,
    /// What is kept of stdout and stderr, in bytes; the rest is dropped, and the log says so. Default 1 MiB.
    pub log: u64,
    /// Sum of the payloads of progress events, in bytes. Default 1 MiB.
    pub events: u64,
}

impl Default for GuestLimits {
    fn default() -> Self {
        Self { memory: 512 << 20, time: Duration::from_secs(15 * 60), output: 1 << 20, log: 1 << 20, events: 1 << 20 }
    }
}

/// Core instances, memories and tables of one store, and elements of all its tables together.
const INSTANCES: usize = 500;
const MEMORIES: usize = 64;
const TABLES: usize = 256;
const TABLE_ELEMENTS: u64 = 1_000_000;

/// Bytes that the arguments of one host call may make the host allocate.
pub(super) const HOSTCALL_BYTES: usize = 32 << 20;
/// Handles to resources that a component may hold.
pub(super) const COMPONENT_HANDLES: usize = 10_000;
/// Host objects behind those handles: open files, streams, pollables.
pub(super) const TABLE_ENTRIES: usize = 20_000;
/// Random bytes that one call may ask for.
pub(super) const RANDOM_BYTES: u64 = 1 << 20;

/// What the meter saw; shared with whoever outlives the store.
#[derive(Debug, Default)]
pub(super) struct MemoryUse {
    now: AtomicU64,
    peak: AtomicU64,
    /// Largest total that was asked for and refused; zero when none was.
    refused: AtomicU64,
}

impl MemoryUse {
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> Option<u64> {
        Some(self.refused.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

/// Counts the growth of all memories and tables of a store.
#[derive(Debug)]
pub(super) struct Meter {
    limit: u64,
    memory: Arc<MemoryUse>,
    /// The growth that was allowed last, in bytes: taken back when the machine then fails to give it.
    last: u64,
    elements: u64,
    last_elements: u64,
}

impl Meter {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, memory: Arc::default(), last: 0, elements: 0, last_elements: 0 }
    }

    pub(super) fn memory(&self) -> Arc<MemoryUse> {
        Arc::clone(&self.memory)
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.last = 0;
        let more = desired.saturating_sub(current) as u64;
        let total = self.memory.now.load(Ordering::Relaxed).saturating_add(more);
        if total > self.limit {
            self.memory.refused.fetch_max(total, Ordering::Relaxed);
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.last = more;
        self.memory.now.store(total, Ordering::Relaxed);
        self.memory.peak.fetch_max(total, Ordering::Relaxed);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        tracing::debug!(error = %format!("{error:#}"), "a guest's memory could not grow");
        let now = self.memory.now.load(Ordering::Relaxed);
        self.memory.now.store(now.saturating_sub(self.last), Ordering::Relaxed);
        self.last = 0;
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.last_elements = 0;
        let more = desired.saturating_sub(current) as u64;
        let total = self.elements.saturating_add(more);
        if total > TABLE_ELEMENTS || maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.last_elements = more;
        self.elements = total;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        tracing::debug!(error = %format!("{error:#}"), "a guest's table could not grow");
        self.elements = self.elements.saturating_sub(self.last_elements);
        self.last_elements = 0;
        Ok(())
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_all_memories_counts() {
        let mut meter = Meter::new(100);
        assert!(meter.memory_growing(0, 60, None).unwrap());
        assert!(!meter.memory_growing(0, 60, None).unwrap());
        assert_eq!(meter.memory().refused(), Some(120));
        assert!(meter.memory_growing(0, 40, None).unwrap());
        assert!(!meter.memory_growing(60, 61, None).unwrap());
        assert_eq!(meter.memory().peak(), 100);
    }

    #[test]
    fn growth_that_failed_is_given_back_and_growth_over_its_own_maximum_is_no_refusal() {
        let mut meter = Meter::new(100);
        assert!(meter.memory_growing(0, 60, None).unwrap());
        meter.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(meter.memory_growing(0, 100, None).unwrap());
        assert!(!meter.memory_growing(0, 100, Some(50)).unwrap());
        let mut meter = Meter::new(100);
        assert!(!meter.memory_growing(0, 60, Some(50)).unwrap());
        assert_eq!(meter.memory().refused(), None);
    }

    #[test]
    fn the_sum_of_all_tables_counts() {
        let mut meter = Meter::new(100);
        assert!(meter.table_growing(0, 900_000, None).unwrap());
        assert!(!meter.table_growing(0, 200_000, None).unwrap());
        assert!(meter.table_growing(0, 100_000, None).unwrap());
    }
}
