//! What a reader holds in memory: decoded pages, decoded frames of content, and stored ranges of packs, each with its share of the budget.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lru::LruCache;

use super::chunk_damaged;
use crate::error::{Error, Result};
use crate::id::{ChunkId, PackId, PageId};
use crate::workspace::page::{Content, Entry, Location, Node, Page, Part};

/// The plain bytes of a frame of content.
#[derive(Debug)]
pub(super) struct Plain {
    bytes: Bytes,
    /// The chunks in it that have been hashed, by their offset: hashing again at every small read would be slow.
    verified: Mutex<HashMap<u32, (ChunkId, u32)>>,
}

impl Plain {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes, verified: Mutex::default() }
    }

    pub(super) fn is_verified(&self, id: ChunkId, start: u32, len: u32) -> bool {
        lock(&self.verified).get(&start) == Some(&(id, len))
    }

    /// Returns the chunk that lies at this place, checked against its id.
    pub(super) fn chunk(&self, id: ChunkId, at: &Location) -> Result<Bytes> {
        let (start, end) = (at.start as usize, at.start as usize + at.len as usize);
        if end > self.bytes.len() {
            return Err(chunk_damaged(id, at, Error::damaged(format!("its frame has {} bytes, not {end}", self.bytes.len()))));
        }
        let chunk = self.bytes.slice(start..end);
        if !self.is_verified(id, at.start, at.len) {
            let found = ChunkId::of(&chunk);
            if found != id {
                return Err(chunk_damaged(id, at, Error::damaged(format!("its bytes have the SHA-256 {found}"))));
            }
            lock(&self.verified).insert(at.start, (id, at.len));
        }
        Ok(chunk)
    }
}

/// A decoded page and where it was read. Not the id alone: a page that was stored twice has other hints in each place, and those of the
/// one may lead to packs that were collected since.
pub(super) type PageKey = (PageId, PackId, u32);

/// Returns the key of a page that lies at a place.
pub(super) fn page_key(id: PageId, at: &Location) -> PageKey {
    (id, at.pack, at.frame)
}

/// The three caches.
pub(super) struct Memory {
    pages: Mutex<Weighted<PageKey, Arc<Page>>>,
    plains: Mutex<Weighted<(PackId, u32), Arc<Plain>>>,
    ranges: Mutex<Ranges>,
}

impl Memory {
    pub(super) fn new(budget: usize) -> Self {
        let ranges = Ranges { bytes: Weighted::new(budget / 4), by_pack: HashMap::new() };
        Self { pages: Mutex::new(Weighted::new(budget / 2)), plains: Mutex::new(Weighted::new(budget / 4)), ranges: Mutex::new(ranges) }
    }

    /// Most stored bytes that are read ahead at a time: more would push itself out before it is used.
    pub(super) fn prefetch_max(&self) -> usize {
        lock(&self.ranges).bytes.budget / 2
    }

    pub(super) fn page(&self, key: PageKey) -> Option<Arc<Page>> {
        lock(&self.pages).get(&key)
    }

    pub(super) fn put_page(&self, key: PageKey, page: Arc<Page>) {
        let weight = page_weight(&page);
        lock(&self.pages).put(key, page, weight);
    }

    pub(super) fn plain(&self, key: (PackId, u32)) -> Option<Arc<Plain>> {
        lock(&self.plains).get(&key)
    }

    pub(super) fn put_plain(&self, key: (PackId, u32), plain: Arc<Plain>) {
        let weight = plain.bytes.len() + 256;
        lock(&self.plains).put(key, plain, weight);
    }

    pub(super) fn range(&self, pack: PackId, from: u32, len: u32) -> Option<Bytes> {
        lock(&self.ranges).get(pack, from, len)
    }

    pub(super) fn put_range(&self, pack: PackId, from: u32, bytes: Bytes) {
        lock(&self.ranges).put(pack, from, bytes);
    }

    /// Returns whether a frame is there, stored or decoded.
    pub(super) fn has(&self, (pack, from): (PackId, u32), len: u32) -> bool {
        lock(&self.plains).holds(&(pack, from)) || lock(&self.ranges).get(pack, from, len).is_some()
    }

    /// Drops stored and decoded frames of a pack. Pages stay: they have been checked.
    pub(super) fn forget(&self, pack: PackId) {
        lock(&self.plains).remove_if(|key| key.0 == pack);
        let mut ranges = lock(&self.ranges);
        ranges.by_pack.remove(&pack);
        ranges.bytes.remove_if(|key| key.0 == pack);
    }
}

struct Ranges {
    bytes: Weighted<(PackId, u32), Bytes>,
    /// Offsets and lengths in bytes of the ranges of each pack.
    by_pack: HashMap<PackId, BTreeMap<u32, u32>>,
}

impl Ranges {
    fn get(&mut self, pack: PackId, from: u32, len: u32) -> Option<Bytes> {
        let end = from.checked_add(len)?;
        let starts = self.by_pack.get(&pack)?;
        let start = starts.range(..=from).rev().find(|(start, length)| *start + *length >= end).map(|(start, _)| *start)?;
        let bytes = self.bytes.get(&(pack, start))?;
        let from = (from - start) as usize;
        Some(bytes.slice(from..from + len as usize))
    }

    fn put(&mut self, pack: PackId, from: u32, bytes: Bytes) {
        let Ok(len) = u32::try_from(bytes.len()) else { return };
        if len == 0 || from.checked_add(len).is_none() || self.get(pack, from, len).is_some() {
            return;
        }
        let weight = bytes.len() + 256;
        if weight > self.bytes.budget {
            return;
        }
        self.by_pack.entry(pack).or_default().insert(from, len);
        for (pack, start) in self.bytes.put((pack, from), bytes, weight) {
            if let Some(starts) = self.by_pack.get_mut(&pack) {
                starts.remove(&start);
                if starts.is_empty() {
                    self.by_pack.remove(&pack);
                }
            }
        }
    }
}

/// A least-recently-used cache bounded by the sum of its values' weights in bytes.
struct Weighted<K: Hash + Eq, V> {
    items: LruCache<K, (V, usize)>,
    weight: usize,
    budget: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> Weighted<K, V> {
    fn new(budget: usize) -> Self {
        Self { items: LruCache::unbounded(), weight: 0, budget }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        self.items.get(key).map(|(value, _)| value.clone())
    }

    fn holds(&self, key: &K) -> bool {
        self.items.contains(key)
    }

    /// Puts a value in and returns the keys that had to leave. A value above the whole budget isn't kept.
    fn put(&mut self, key: K, value: V, weight: usize) -> Vec<K> {
        if weight > self.budget {
            return Vec::new();
        }
        if let Some((_, before)) = self.items.put(key, (value, weight)) {
            self.weight -= before;
        }
        self.weight += weight;
        let mut left = Vec::new();
        while self.weight > self.budget
            && let Some((key, (_, weight))) = self.items.pop_lru()
        {
            self.weight -= weight;
            left.push(key);
        }
        left
    }

    fn remove_if(&mut self, gone: impl Fn(&K) -> bool) {
        let keys: Vec<K> = self.items.iter().map(|(key, _)| *key).filter(|key| gone(key)).collect();
        for key in keys {
            if let Some((_, weight)) = self.items.pop(&key) {
                self.weight -= weight;
            }
        }
    }
}

/// Estimates the bytes that a decoded page takes.
fn page_weight(page: &Page) -> usize {
    let parts = |parts: &[Part]| size_of_val(parts);
    let content = |content: &Content| match content {
        Content::Inline(bytes) => bytes.len(),
        Content::Parts(all) => parts(all),
        Content::List(_) => 0,
    };
    let entry = |entry: &Entry| {
        let node = match &entry.node {
            Node::File { content: file, .. } => content(file),
            Node::Symlink(target) => target.len(),
            Node::Directory(_) | Node::Linked(_) => 0,
        };
        size_of::<Entry>() + entry.name.len() + node
    };
    256 + match page {
        Page::Directory(entries) => entries.iter().map(entry).sum(),
        Page::Split(slots) => size_of_val(&**slots),
        Page::List(all) => parts(all),
        Page::ListSplit(children) | Page::LinkTableSplit(children) => size_of_val(&**children),
        Page::LinkTable(files) => size_of_val(&**files) + files.iter().map(|file| content(&file.content)).sum::<usize>(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
