//! Stored bytes of packs: from memory, from the disk cache, or from the store in as few requests as is good.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};

use super::decode::{damaged, home_text};
use super::ranges::{Range, coalesce};
use super::{AT_ONCE, GAP, PAGE_BEHIND, RANGE_MAX, Reader, SMALL_PACK, Shared};
use crate::checkpoint::pack;
use crate::checkpoint::writer::joined;
use crate::error::{Error, ErrorKind, Result};
use crate::id::PackId;
use crate::workspace::page::{Home, Location};

/// What is being fetched.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Flight {
    Pages(PackId),
    Frame(PackId, u32),
}

/// Where bytes may come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Anywhere,
    Store,
}

impl Reader {
    /// Returns the stored bytes of the frame at a location; `page` says how much around it is fetched.
    pub(super) async fn frame_bytes(&self, at: &Location, page: bool, from: From) -> Result<Bytes> {
        let whole_small = at.frame.saturating_add(at.stored) <= SMALL_PACK;
        let start = match (page, whole_small) {
            (_, true) => 0,
            (true, false) => at.frame.saturating_sub(PAGE_BEHIND),
            (false, false) => at.frame,
        };
        if from == From::Anywhere
            && let Some(bytes) = self.shared.cached(at, start).await?
        {
            return Ok(bytes);
        }
        let flight = if page || whole_small { Flight::Pages(at.pack) } else { Flight::Frame(at.pack, at.frame) };
        let _guard = self.shared.flight(flight).lock_owned().await;
        if from == From::Anywhere
            && let Some(bytes) = self.shared.memory.range(at.pack, at.frame, at.stored)
        {
            return Ok(bytes);
        }
        // After damage exactly the frame is fetched, once.
        let start = if from == From::Store { at.frame } else { start };
        let bytes = self.fetch(&at.home, at.pack, start, at.frame + at.stored - start).await?;
        let frame = bytes.slice((at.frame - start) as usize..);
        self.keep_range(at.pack, start, bytes);
        Ok(frame)
    }

    /// Fetches the stored frames at these places, where they aren't in memory, in as few requests as is good. Returns them by pack and offset.
    pub(super) async fn frames_together(&self, places: &[&Location]) -> Result<HashMap<(PackId, u32), Bytes>> {
        let mut found = HashMap::new();
        let mut missing = Vec::new();
        for &at in places {
            if found.contains_key(&(at.pack, at.frame)) {
                continue;
            }
            match self.shared.memory.range(at.pack, at.frame, at.stored) {
                Some(bytes) => drop(found.insert((at.pack, at.frame), bytes)),
                None => missing.push(at),
            }
        }
        if let Some(cache) = self.shared.cache.clone().filter(|_| !missing.is_empty()) {
            let wanted: Vec<_> = missing.iter().map(|at| (at.pack, at.frame, at.stored)).collect();
            let read = move || Ok(wanted.into_iter().map(|(pack, from, len)| cache.get(pack, from, len)).collect::<Vec<_>>());
            let cached = joined(tokio::task::spawn_blocking(read).await)?;
            let mut cached = cached.into_iter();
            missing.retain(|at| match cached.next().flatten() {
                Some(bytes) => {
                    found.insert((at.pack, at.frame), bytes);
                    false
                }
                None => true,
            });
        }
        let mut ranges = coalesce(missing.iter().map(|at| Range::of(at)), GAP, RANGE_MAX);
        for range in &mut ranges {
            range.extend_to(if range.end() <= SMALL_PACK { 0 } else { range.from.saturating_sub(PAGE_BEHIND) });
        }
        let fetches = ranges.into_iter().map(|range| async move {
            let bytes = self.fetch(&range.home, range.pack, range.from, range.len).await?;
            Ok::<_, Error>((range, bytes))
        });
        let fetched: Vec<_> = futures::stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await?;
        for at in missing {
            let holder = fetched.iter().find(|(range, _)| range.pack == at.pack && range.covers(at.frame, at.stored));
            if let Some((range, bytes)) = holder {
                let from = (at.frame - range.from) as usize;
                found.insert((at.pack, at.frame), bytes.slice(from..from + at.stored as usize));
            }
        }
        for (range, bytes) in fetched {
            self.keep_range(range.pack, range.from, bytes);
        }
        Ok(found)
    }

    /// Returns bytes of a pack from a cache or the store, keeping nothing in memory. For whole walks, which read everything once.
    pub(in crate::checkpoint) async fn range_once(&self, range: &Range) -> Result<Bytes> {
        if let Some(bytes) = self.shared.memory.range(range.pack, range.from, range.len) {
            return Ok(bytes);
        }
        if let Some(cache) = self.shared.cache.clone() {
            let (pack, from, len) = (range.pack, range.from, range.len);
            if let Some(bytes) = joined(tokio::task::spawn_blocking(move || Ok(cache.get(pack, from, len))).await)? {
                return Ok(bytes);
            }
        }
        self.fetch(&range.home, range.pack, range.from, range.len).await
    }

    pub(super) async fn fetch(&self, home: &Home, pack: PackId, from: u32, len: u32) -> Result<Bytes> {
        let range = u64::from(from)..u64::from(from) + u64::from(len);
        self.store.get_range(&pack::key(home, pack), range).await.map_err(|error| match error.stable_code() {
            "object_missing" => Error::damaged(format!("pack {pack} of {} is missing", home_text(home)))
                .code("pack_missing")
                .hint("restore this object from a copy of the store, or go back to a checkpoint that doesn't need it")
                .source(error),
            _ if error.kind() == ErrorKind::Damaged => {
                damaged(format!("pack {pack} of {} is damaged", home_text(home)), "pack_damaged", error)
            }
            _ => error.context(format!("reading pack {pack}")),
        })
    }

    /// Drops what is cached of a damaged pack.
    pub(in crate::checkpoint) async fn forget(&self, pack: PackId) -> Result<()> {
        self.shared.forget(pack).await
    }
}

impl Shared {
    /// Returns a frame's stored bytes from memory or disk. From disk more is loaded, from `start` on, so that its neighbours come from memory.
    pub(super) async fn cached(&self, at: &Location, start: u32) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.memory.range(at.pack, at.frame, at.stored) {
            return Ok(Some(bytes));
        }
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        let (pack, frame, stored) = (at.pack, at.frame, at.stored);
        let read = move || {
            if let Some(bytes) = cache.get(pack, start, frame + stored - start) {
                return Some((start, bytes));
            }
            cache.get(pack, frame, stored).map(|bytes| (frame, bytes))
        };
        let Some((from, bytes)) = joined(tokio::task::spawn_blocking(move || Ok(read())).await)? else { return Ok(None) };
        self.memory.put_range(pack, from, bytes.clone());
        Ok(Some(bytes.slice((frame - from) as usize..)))
    }

    pub(super) async fn forget(&self, pack: PackId) -> Result<()> {
        self.memory.forget(pack);
        let Some(cache) = self.cache.clone() else { return Ok(()) };
        let forget = move || {
            cache.forget(pack);
            Ok(())
        };
        joined(tokio::task::spawn_blocking(forget).await)
    }

    pub(super) fn flight(&self, key: Flight) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.len() >= 1024 {
            flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        }
        Arc::clone(flights.entry(key).or_default())
    }
}
