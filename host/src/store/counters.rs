//! Counts of object requests and bytes: what a turn cost the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Requests and bytes, as sums since the counters were made. Requests that the client library repeated count once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Objects written (PUT).
    pub puts: u64,
    /// Objects read, whole or in part (GET).
    pub gets: u64,
    /// Questions for an object's size and date (HEAD).
    pub heads: u64,
    /// Listings (LIST), one for each call whatever the number of pages.
    pub lists: u64,
    /// Deletions (DELETE).
    pub deletes: u64,
    /// Bytes of the objects written.
    pub put_bytes: u64,
    /// Bytes of the objects and ranges read.
    pub get_bytes: u64,
}

impl Counts {
    /// Returns the number of requests of all kinds.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.puts + self.gets + self.heads + self.lists + self.deletes
    }
}

#[derive(Default, Debug)]
struct Cells {
    puts: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    put_bytes: AtomicU64,
    get_bytes: AtomicU64,
}

/// Counters that may feed others above them, so that a turn counts its own requests and the process all of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counters {
    cells: Arc<Cells>,
    above: Option<Arc<Self>>,
}

impl Counters {
    /// Returns fresh counters that also count into `self`.
    pub(crate) fn below(&self) -> Self {
        Self { cells: Arc::default(), above: Some(Arc::new(self.clone())) }
    }

    fn each(&self, add: impl Fn(&Cells)) {
        let mut next = Some(self);
        while let Some(counters) = next {
            add(&counters.cells);
            next = counters.above.as_deref();
        }
    }

    pub(crate) fn put(&self, bytes: u64) {
        self.each(|cells| {
            cells.puts.fetch_add(1, Ordering::Relaxed);
            cells.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        });
    }

    pub(crate) fn get(&self) {
        self.each(|cells| {
            cells.gets.fetch_add(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn got(&self, bytes: u64) {
        self.each(|cells| {
            cells.get_bytes.fetch_add(bytes, Ordering::Relaxed);
        });
    }

    pub(crate) fn head(&self) {
        self.each(|cells| {
            cells.heads.fetch_add(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn list(&self) {
        self.each(|cells| {
            cells.lists.fetch_add(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn delete(&self) {
        self.each(|cells| {
            cells.deletes.fetch_add(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let cells = &self.cells;
        Counts {
            puts: read(&cells.puts),
            gets: read(&cells.gets),
            heads: read(&cells.heads),
            lists: read(&cells.lists),
            deletes: read(&cells.deletes),
            put_bytes: read(&cells.put_bytes),
            get_bytes: read(&cells.get_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_below_feed_those_above_and_not_their_siblings() {
        let process = Counters::default();
        let (one, two) = (process.below(), process.below());
        one.put(10);
        two.get();
        two.got(5);
        assert_eq!(one.counts(), Counts { puts: 1, put_bytes: 10, ..Counts::default() });
        assert_eq!(process.counts(), Counts { puts: 1, put_bytes: 10, gets: 1, get_bytes: 5, ..Counts::default() });
        assert_eq!(process.counts().requests(), 2);
    }
}
