//! Ranges of packs, and how wanted ones join to fewer and longer ones.

use std::sync::Arc;

use crate::id::PackId;
use crate::workspace::page::{Home, Location};

/// A range of a pack's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    /// The pack's home.
    pub(crate) home: Arc<Home>,
    /// The pack.
    pub(crate) pack: PackId,
    /// Offset in bytes.
    pub(crate) from: u32,
    /// Length in bytes.
    pub(crate) len: u32,
}

impl Range {
    /// The stored frame at a location.
    pub(crate) fn of(at: &Location) -> Self {
        Self { home: Arc::clone(&at.home), pack: at.pack, from: at.frame, len: at.stored }
    }

    pub(crate) fn end(&self) -> u32 {
        self.from.saturating_add(self.len)
    }

    pub(crate) fn covers(&self, from: u32, len: u32) -> bool {
        self.from <= from && from.saturating_add(len) <= self.end()
    }

    /// Makes the range begin earlier.
    pub(crate) fn extend_to(&mut self, from: u32) {
        self.len = self.end() - from.min(self.from);
        self.from = from.min(self.from);
    }
}

/// Joins ranges of one pack that overlap or have at most `gap` bytes between them, as long as the joined one has at most `max` bytes.
pub(crate) fn coalesce(ranges: impl IntoIterator<Item = Range>, gap: u32, max: u32) -> Vec<Range> {
    let mut ranges: Vec<Range> = ranges.into_iter().collect();
    ranges.sort_by_key(|range| (range.pack, range.from, range.len));
    let mut joined: Vec<Range> = Vec::new();
    for range in ranges {
        if let Some(last) = joined.last_mut()
            && last.pack == range.pack
            && last.home == range.home
            && range.from <= last.end().saturating_add(gap)
            && range.end().max(last.end()) - last.from <= max
        {
            last.len = range.end().max(last.end()) - last.from;
        } else {
            joined.push(range);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(pack: u8, from: u32, len: u32) -> Range {
        let home = Arc::new(Home::Repository(crate::id::sha256(b"url")));
        Range { home, pack: PackId::from_bytes([pack; 32]), from, len }
    }

    #[test]
    fn near_ranges_of_one_pack_join_up_to_the_longest() {
        let given = [range(1, 100, 10), range(1, 8, 10), range(1, 125, 10), range(2, 18, 5), range(1, 104, 2), range(1, 18, 4)];
        let joined = coalesce(given, 20, 100);
        assert_eq!(joined, [range(1, 8, 14), range(1, 100, 35), range(2, 18, 5)]);
        let joined = coalesce((0..10).map(|n| range(1, n * 10, 10)), 0, 30);
        assert_eq!(joined.len(), 4);
        assert!(joined.iter().all(|range| range.len <= 30));
    }
}
