//! Reads pages and chunks by their links: from memory, from the disk cache, or by ranges of packs from the store. Every answer is checked
//! against the id asked for, wherever its bytes came from; what a cache holds damaged is dropped and fetched again.
//!
//! Requests are saved in three ways. A page fetches what lies before it in its pack, where its children are: all of a small turn's pack, some of
//! a large one's. Pages and chunks asked for together are fetched as few long ranges. And what several ask for at once is fetched once.

mod known;
mod memory;
mod ranges;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::task::JoinSet;

use self::known::Known;
use self::memory::Memory;
pub(super) use self::ranges::{Range, coalesce};
use super::frame;
use super::pack;
use super::root::RootRecord;
use super::root_codec::check_location;
use super::writer::joined;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChunkId, PackId, PageId};
use crate::store::Store;
use crate::store::cache::DiskCache;
use crate::workspace::page::{ChunkLink, Home, Location, Page, PageLink, Place};
use crate::workspace::page_codec::decode_stored;
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

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Flight {
    Pages(PackId),
    Frame(PackId, u32),
}

/// Where bytes may come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Anywhere,
    Store,
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

    /// Returns the stored bytes of the frame at a location; `page` says how much around it is fetched.
    async fn frame_bytes(&self, at: &Location, page: bool, from: From) -> Result<Bytes> {
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

    /// Fetches the stored frames at these places, where they aren't in memory, in as few requests as is good. Returns them by pack and offset.
    async fn frames_together(&self, places: &[&Location]) -> Result<HashMap<(PackId, u32), Bytes>> {
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
    pub(super) async fn range_once(&self, range: &Range) -> Result<Bytes> {
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

    async fn fetch(&self, home: &Home, pack: PackId, from: u32, len: u32) -> Result<Bytes> {
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
    pub(super) async fn forget(&self, pack: PackId) -> Result<()> {
        self.shared.forget(pack).await
    }
}

impl Shared {
    /// Returns a frame's stored bytes from memory or disk. From disk more is loaded, from `start` on, so that its neighbours come from memory.
    async fn cached(&self, at: &Location, start: u32) -> Result<Option<Bytes>> {
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

    async fn forget(&self, pack: PackId) -> Result<()> {
        self.memory.forget(pack);
        let Some(cache) = self.cache.clone() else { return Ok(()) };
        let forget = move || {
            cache.forget(pack);
            Ok(())
        };
        joined(tokio::task::spawn_blocking(forget).await)
    }

    fn flight(&self, key: Flight) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.len() >= 1024 {
            flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        }
        Arc::clone(flights.entry(key).or_default())
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
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut wanted = Vec::new();
        // Whoever asks for one of these meanwhile waits for it instead of fetching it too.
        let mut guards: HashMap<(PackId, u32), OwnedMutexGuard<()>> = HashMap::new();
        let mut bytes = 0;
        for link in links {
            let Place::At(at) = &link.place else { continue };
            let key = (at.pack, at.frame);
            if check_location(at).is_err() || guards.contains_key(&key) || self.shared.memory.has(key, at.stored) {
                continue;
            }
            bytes += at.stored as usize;
            if bytes > self.shared.memory.prefetch_max() {
                break;
            }
            let small = at.frame.saturating_add(at.stored) <= SMALL_PACK;
            let flight = if small { Flight::Pages(at.pack) } else { Flight::Frame(at.pack, at.frame) };
            if small && guards.keys().any(|(pack, _)| *pack == at.pack) {
                wanted.push(at.clone());
                continue;
            }
            let Ok(guard) = self.shared.flight(flight).try_lock_owned() else { continue };
            guards.insert(key, guard);
            wanted.push(at.clone());
        }
        if wanted.is_empty() {
            return;
        }
        let reader = self.clone();
        drop(runtime.spawn(async move {
            let _guards = guards;
            if let Ok(_slot) = Arc::clone(&reader.shared.prefetches).acquire_owned().await {
                let places: Vec<_> = wanted.iter().collect();
                // An error comes up again, with its name, when the chunk is asked for.
                if let Err(error) = reader.prefetch_frames(&places).await {
                    tracing::debug!(%error, "reading ahead failed");
                }
            }
        }));
    }

    fn known_chunk(&self, id: ChunkId) -> Option<ChunkLink> {
        self.known.chunk(id)
    }
}

impl Reader {
    async fn prefetch_frames(&self, places: &[&Location]) -> Result<()> {
        let ranges = coalesce(places.iter().map(|at| Range::of(at)), GAP, RANGE_MAX);
        let fetches = ranges.into_iter().map(|range| async move {
            let cached = match self.shared.cache.clone() {
                Some(cache) => {
                    let (pack, from, len) = (range.pack, range.from, range.len);
                    joined(tokio::task::spawn_blocking(move || Ok(cache.get(pack, from, len))).await)?
                }
                None => None,
            };
            match cached {
                Some(bytes) => self.shared.memory.put_range(range.pack, range.from, bytes),
                None => {
                    let bytes = self.fetch(&range.home, range.pack, range.from, range.len).await?;
                    self.keep_range(range.pack, range.from, bytes);
                }
            }
            Ok::<_, Error>(())
        });
        futures::stream::iter(fetches).buffer_unordered(PREFETCHES).try_collect().await
    }
}

type PageWork = (usize, PageId, Bytes, Location);

/// Decodes what can be decoded; what can't is left out.
fn decode_all(work: Vec<PageWork>) -> Vec<(usize, PageId, Location, Page)> {
    let decode = |(number, id, stored, at): PageWork| decode_page(id, &stored, &at).ok().map(|page| (number, id, at, page));
    work.into_iter().filter_map(decode).collect()
}

fn decode_page(id: PageId, stored: &Bytes, at: &Location) -> Result<Page> {
    let name = || format!("page {id} at byte {} of pack {} of {} is damaged", at.frame, at.pack, home_text(&at.home));
    let plain = frame::decode(stored).map_err(|e| damaged(name(), "page_damaged", e))?;
    let (start, end) = (at.start as usize, at.start as usize + at.len as usize);
    if plain.len() < end {
        return Err(damaged(name(), "page_damaged", Error::damaged(format!("its frame has {} bytes, not {end}", plain.len()))));
    }
    decode_stored(id, &plain.slice(start..end), at)
}

/// Makes the error for a chunk whose frame can't be decoded or holds something else.
pub(super) fn chunk_damaged(id: ChunkId, at: &Location, cause: Error) -> Error {
    damaged(format!("chunk {id} at byte {} of pack {} of {} is damaged", at.frame, at.pack, home_text(&at.home)), "chunk_damaged", cause)
}

fn damaged(message: String, code: &'static str, cause: Error) -> Error {
    let error = Error::new(if cause.kind() == ErrorKind::TooNew { ErrorKind::TooNew } else { ErrorKind::Damaged }, message).code(code);
    let hint =
        "`landfall checkpoint verify` lists the files that are touched; an older checkpoint or a copy of the store may have them whole";
    error.hint(cause.next_step().map_or_else(|| hint.to_owned(), str::to_owned)).source(cause)
}

fn placed(place: &Place, what: impl FnOnce() -> String) -> Result<&Location> {
    match place {
        Place::At(at) => check_location(at).map_err(|e| e.context(format!("reading {}", what()))).map(|()| at),
        Place::Fresh => Err(Error::internal(format!("{} was asked for before it was stored", what()))),
    }
}

fn home_text(home: &Home) -> String {
    match home {
        Home::Session(session) => format!("session {session}"),
        Home::Repository(repository) => format!("repository {repository}"),
    }
}

#[cfg(test)]
mod tests;
