//! Reads pages and chunks by their links: from memory, from the disk cache, or by ranges of packs from the store. Every answer is checked
//! against the id asked for, wherever its bytes came from; what a cache holds damaged is dropped and fetched again.
//!
//! Requests are saved in three ways. A page fetches what lies before it in its pack, where its children are: all of a small turn's pack, some of
//! a large one's. Pages and chunks asked for together are fetched as few long ranges. And what several ask for at once is fetched once.

mod ahead;
mod decode;
mod fetch;
mod known;
mod memory;
mod ranges;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(super) use self::decode::chunk_damaged;
use self::decode::{decode_all, decode_page, placed};
use self::fetch::{Flight, From};
use self::known::Known;
use self::memory::Memory;
pub(super) use self::ranges::{Range, coalesce};
use super::frame;
use super::root::RootRecord;
use super::writer::joined;
use crate::error::{ErrorKind, Result};
use crate::id::{ChunkId, PackId, PageId};
use crate::store::Store;
use crate::store::cache::DiskCache;
use crate::workspace::page::{ChunkLink, Location, Page, PageLink, Place};
use crate::workspace::source::Source;

/// A page whose frame ends before this offset in bytes fetches its pack from the start: a small turn's pack is one request.
const SMALL_PACK: u32 = 256 << 10;
/// Bytes before a page of a larger pack that are fetched with it: its children come before it.
const PAGE_BEHIND: u32 = 64 << 10;
/// Unwanted bytes between two wanted ranges up to which one request is better than two.
const GAP: u32 = 64 << 10;
/// Longest range of one request in bytes.
pub(super) const RANGE_MAX: u32 = 8 << 20;
/// Most requests at a time for one call.
const AT_ONCE: usize = 8;
/// Most requests at a time that only read ahead.
const PREFETCHES: usize = 4;
/// Most ranges waiting to be written to the disk cache.
const WRITES: usize = 16;
/// Pages decoded on the spot; more of them go to other threads.
const DECODE_INLINE: usize = 16;
/// Plain bytes of a frame that are decoded and hashed on the spot.
const INLINE_PLAIN: u32 = 32 << 10;

/// Reads stored objects. Clones share everything; see [`Reader::view`].
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    known: Arc<Known>,
    store: Store,
}

struct Shared {
    cache: Option<Arc<DiskCache>>,
    memory: Memory,
    /// What is being fetched: a frame, or any page of a pack.
    flights: Mutex<HashMap<Flight, Arc<tokio::sync::Mutex<()>>>>,
    prefetches: Arc<Semaphore>,
    /// Writes to the disk cache that are going on.
    writes: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Reader {
    /// Makes a reader over a store, with a disk cache where there is one, that holds at most `memory` bytes of pages and content in memory.
    #[must_use]
    pub fn new(store: Store, cache: Option<Arc<DiskCache>>, memory: usize) -> Self {
        let shared = Shared {
            cache,
            memory: Memory::new(memory),
            flights: Mutex::new(HashMap::new()),
            prefetches: Arc::new(Semaphore::new(PREFETCHES)),
            writes: Mutex::default(),
        };
        Self { shared: Arc::new(shared), known: Arc::default(), store }
    }

    /// Returns a reader with the same caches that knows no chunks yet: [`Source::known_chunk`] tells of chunks named by pages that were read
    /// through this view. A turn writes by a view that has read nothing but its base, so that it refers to nothing that may be collected.
    #[must_use]
    pub fn view(&self) -> Self {
        Self { known: Arc::default(), ..self.clone() }
    }

    /// Returns the same reader through another handle of the same store, whose requests are counted apart.
    #[must_use]
    pub fn through(&self, store: Store) -> Self {
        Self { store, ..self.clone() }
    }

    /// Returns the store that it reads.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Fetches the root pages of a checkpoint together: one request when they are in one small pack.
    ///
    /// # Errors
    /// As [`Source::page`].
    pub async fn open_roots(&self, record: &RootRecord) -> Result<()> {
        let roots = [Some(&record.workspace), Some(&record.state), record.git.as_ref()];
        let links: Vec<_> = roots.into_iter().flatten().flat_map(|root| std::iter::once(&root.page).chain(&root.links)).cloned().collect();
        self.pages(&links).await.map(drop)
    }

    /// Keeps decoded pages whose links are absolute in memory.
    pub(super) fn keep_pages(&self, pages: Vec<(PageId, Location, Arc<Page>)>) {
        for (id, at, page) in pages {
            self.shared.memory.put_page(memory::page_key(id, &at), page);
        }
    }

    /// Waits until what has been read so far is in the disk cache. A process that ends soon does this, else the next one fetches it again.
    pub async fn settle(&self) {
        let mut writes = std::mem::take(&mut *self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner));
        while writes.join_next().await.is_some() {}
    }

    /// Keeps bytes of a pack in memory and, on another thread, in the disk cache.
    pub(super) fn keep_range(&self, pack: PackId, from: u32, bytes: Bytes) {
        self.shared.memory.put_range(pack, from, bytes.clone());
        if let Some(cache) = self.shared.cache.clone() {
            let mut writes = self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
            while writes.try_join_next().is_some() {}
            // Nobody waits for it. When the disk is slower than the store, leaving ranges out is better than holding them.
            if writes.len() < WRITES {
                writes.spawn_blocking(move || cache.put(pack, from, &bytes));
            }
        }
    }

    fn remembered(&self, link: &PageLink) -> Option<Arc<Page>> {
        let Place::At(at) = &link.place else { return None };
        let page = self.shared.memory.page(memory::page_key(link.id, at))?;
        self.known.note(link.id, &page);
        Some(page)
    }

    fn accept(&self, id: PageId, at: &Location, page: Page) -> Arc<Page> {
        let page = Arc::new(page);
        self.shared.memory.put_page(memory::page_key(id, at), Arc::clone(&page));
        self.known.note(id, &page);
        page
    }

    /// Decodes the stored frame at a place by `decode`, on another thread when it is `heavy`. When that finds damage, everything cached of the pack
    /// is dropped and the frame fetched again from the store, once.
    async fn checked<T, F>(&self, at: &Location, page: bool, heavy: bool, decode: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Bytes) -> Result<T> + Clone + Send + 'static,
    {
        let bytes = self.frame_bytes(at, page, From::Anywhere).await?;
        let first = if heavy {
            let decode = decode.clone();
            joined(tokio::task::spawn_blocking(move || decode(&bytes)).await)
        } else {
            decode(&bytes)
        };
        match first {
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::TooNew) => {
                tracing::warn!(pack = %at.pack, %error, "bytes of a pack are damaged; fetching them again");
                self.shared.forget(at.pack).await?;
                let bytes = self.frame_bytes(at, page, From::Store).await?;
                let again = decode(&bytes);
                if again.is_err() {
                    self.shared.forget(at.pack).await?;
                }
                again
            }
            other => other,
        }
    }

    /// Reads the plain bytes of the frame at a chunk's place and checks that the chunk is in it.
    async fn load_chunk(&self, id: ChunkId, at: &Location) -> Result<Bytes> {
        let key = (at.pack, at.frame);
        if let Some(plain) = self.shared.memory.plain(key) {
            let (checked, place) = (Arc::clone(&plain), at.clone());
            let chunk = if plain.is_verified(id, at.start, at.len) || at.len <= INLINE_PLAIN {
                checked.chunk(id, &place)
            } else {
                joined(tokio::task::spawn_blocking(move || checked.chunk(id, &place)).await)
            };
            // A place that names the wrong frame is found here too; only fresh bytes tell which of the two is wrong.
            if let Ok(chunk) = chunk {
                return Ok(chunk);
            }
        }
        let place = at.clone();
        let decode = move |stored: &Bytes| {
            let plain = Arc::new(memory::Plain::new(frame::decode(stored).map_err(|e| chunk_damaged(id, &place, e))?));
            plain.chunk(id, &place).map(|chunk| (plain, chunk))
        };
        let (plain, chunk) = self.checked(at, false, at.stored > INLINE_PLAIN / 4, decode).await?;
        self.shared.memory.put_plain(key, plain);
        Ok(chunk)
    }
}

#[async_trait::async_trait]
impl Source for Reader {
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>> {
        if let Some(page) = self.remembered(link) {
            return Ok(page);
        }
        let at = placed(&link.place, || format!("page {}", link.id))?;
        let (id, place) = (link.id, at.clone());
        let page = self.checked(at, true, false, move |stored: &Bytes| decode_page(id, stored, &place)).await?;
        Ok(self.accept(id, at, page))
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        let at = placed(&link.place, || format!("chunk {}", link.id))?;
        self.load_chunk(link.id, at).await
    }

    async fn pages(&self, links: &[PageLink]) -> Result<Vec<Arc<Page>>> {
        let mut pages: Vec<Option<Arc<Page>>> = links.iter().map(|link| self.remembered(link)).collect();
        let mut places = Vec::new();
        for (link, page) in links.iter().zip(&pages) {
            if page.is_none() {
                places.push(placed(&link.place, || format!("page {}", link.id))?);
            }
        }
        let frames = if places.is_empty() { HashMap::new() } else { self.frames_together(&places).await? };
        let mut work = Vec::new();
        for (number, link) in links.iter().enumerate() {
            if let (None, Place::At(at)) = (&pages[number], &link.place)
                && let Some(stored) = frames.get(&(at.pack, at.frame))
            {
                work.push((number, link.id, stored.clone(), at.clone()));
            }
        }
        if work.len() > DECODE_INLINE {
            let per_thread = work.len().div_ceil(std::thread::available_parallelism().map_or(2, std::num::NonZero::get)).max(DECODE_INLINE);
            let mut threads = Vec::new();
            while !work.is_empty() {
                let part = work.split_off(work.len().saturating_sub(per_thread));
                threads.push(tokio::task::spawn_blocking(move || Ok(decode_all(part))));
            }
            for thread in threads {
                for (number, id, at, page) in joined(thread.await)? {
                    pages[number] = Some(self.accept(id, &at, page));
                }
            }
        } else {
            for (number, id, at, page) in decode_all(work) {
                pages[number] = Some(self.accept(id, &at, page));
            }
        }
        // What couldn't be decoded is read again alone, which also tries the store once more.
        let mut all = Vec::with_capacity(links.len());
        for (link, page) in links.iter().zip(pages) {
            all.push(match page {
                Some(page) => page,
                None => self.page(link).await?,
            });
        }
        Ok(all)
    }

    fn prefetch(&self, links: &[ChunkLink]) {
        self.read_ahead(links);
    }

    fn known_chunk(&self, id: ChunkId) -> Option<ChunkLink> {
        self.known.chunk(id)
    }
}

#[cfg(test)]
mod tests;
