//! Writes packs: takes chunks and pages, gives sealed, verified and uploaded packs and the places of what is in them.
//!
//! Small chunks are grouped in the order they come into frames, which are compressed and verified on other threads while more come. Pages wait
//! until their pack is sealed: by then each frame of content has its place, so a page's hints are exact. A sealed pack goes up while the next one fills.
//! What is held at any time is one pack being filled, some frames being compressed, and the packs that the upload budget admits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::frame::{self, FRAME_TARGET};
use super::pack::{self, FrameKind, PACK_TARGET, PackBuilder, Salt};
use super::reader::Reader;
use crate::error::{Error, Result};
use crate::id::{ChunkId, PackId, PageId};
use crate::store::Store;
use crate::workspace::page::{CHUNK_MAX, ChunkLink, Home, Link, Location, Page, PageLink, Place, Root};
use crate::workspace::page_codec::{HintContext, Spot, decode_stored, encode_body, encode_stored, page_id};
use crate::workspace::source::{Sink, Source};

/// Most objects that a pack gets before it is sealed, so that many tiny ones don't make a huge footer.
const OBJECTS_TARGET: usize = 64 << 10;
/// Most page bytes that wait for their pack.
const PAGES_TARGET: usize = 4 << 20;
/// Frames and packs up to this many bytes are handled on the spot: handing them to another thread costs more.
const INLINE_WORK: usize = 64 << 10;

/// How a [`PackWriter`] works.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Most bytes of sealed packs being uploaded at any time; a pack above it goes up alone.
    pub upload_bytes: usize,
    /// Most frames being compressed at any time.
    pub jobs: usize,
    /// Knows chunks of the base: they aren't stored again.
    pub known: Option<Arc<dyn Source>>,
    /// Keeps what is written, so that reading it soon costs no request.
    pub reader: Option<Reader>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8);
        Self { upload_bytes: 32 << 20, jobs, known: None, reader: None }
    }
}

/// What a [`PackWriter`] has stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The packs in the order they were sealed, with their lengths in bytes.
    pub packs: Vec<(PackId, u64)>,
    /// Sum of the packs' lengths in bytes.
    pub bytes: u64,
    /// Number of chunks and pages in them.
    pub objects: u64,
}

/// Where an object of this writer lies.
#[derive(Clone, Copy, Debug)]
enum Spotted {
    /// In a frame or among the pages of the pack that is being filled.
    Waiting,
    /// In the pack of this number: frame offset, stored length, start and length in the frame's plain bytes.
    Placed { pack: u32, frame: u32, stored: u32, start: u32, len: u32 },
}

/// The places of everything written so far.
#[derive(Debug)]
struct Places {
    home: Arc<Home>,
    salt: Salt,
    sealed: Vec<PackId>,
    chunks: HashMap<ChunkId, Spotted>,
    pages: HashMap<PageId, Spotted>,
}

impl Places {
    /// Returns the number of the pack being filled.
    fn current(&self) -> u32 {
        u32::try_from(self.sealed.len()).unwrap_or(u32::MAX)
    }

    fn spot(&self, spotted: Option<&Spotted>) -> Option<Spot> {
        let Some(&Spotted::Placed { pack, frame, stored, start, len }) = spotted else { return None };
        Some(match self.sealed.get(pack as usize) {
            Some(&id) => Spot::At(Location { home: Arc::clone(&self.home), pack: id, frame, stored, start, len }),
            None => Spot::Here { frame, stored, start, len },
        })
    }

    fn location(&self, spotted: Option<&Spotted>) -> Option<Location> {
        match self.spot(spotted) {
            Some(Spot::At(location)) => Some(location),
            _ => None,
        }
    }
}

impl HintContext for Places {
    fn home(&self) -> &Home {
        &self.home
    }

    fn chunk(&self, id: ChunkId) -> Option<Spot> {
        self.spot(self.chunks.get(&id))
    }

    fn page(&self, id: PageId) -> Option<Spot> {
        self.spot(self.pages.get(&id))
    }
}

/// The chunks of a frame in order, with their lengths in bytes.
type FrameChunks = Vec<(ChunkId, u32)>;

/// Takes chunks and pages and stores them as packs of one home. See the module's text.
///
/// Dropping it before [`PackWriter::finish`] stops its uploads; what has been uploaded is garbage that nothing refers to.
#[derive(Debug)]
pub struct PackWriter {
    store: Store,
    options: WriterOptions,
    places: Places,
    builder: PackBuilder,
    group: Vec<u8>,
    group_chunks: FrameChunks,
    frames: VecDeque<(FrameChunks, JoinHandle<Result<Bytes>>)>,
    pages: Vec<(PageId, Page)>,
    page_bytes: usize,
    uploads: JoinSet<Result<()>>,
    budget: Arc<Semaphore>,
    written: Written,
    failed: bool,
}

impl PackWriter {
    /// Starts a writer of packs of this home.
    #[must_use]
    pub fn new(store: Store, home: Arc<Home>, options: WriterOptions) -> Self {
        let salt = crate::random::bytes(&**store.random());
        let budget = Arc::new(Semaphore::new(kib(options.upload_bytes) as usize));
        Self {
            store,
            options,
            places: Places { home, salt, sealed: Vec::new(), chunks: HashMap::new(), pages: HashMap::new() },
            builder: PackBuilder::new(),
            group: Vec::new(),
            group_chunks: Vec::new(),
            frames: VecDeque::new(),
            pages: Vec::new(),
            page_bytes: 0,
            uploads: JoinSet::new(),
            budget,
            written: Written::default(),
            failed: false,
        }
    }

    /// Seals what is left, waits until everything is stored, and says what was. With nothing given, nothing is stored.
    ///
    /// More may be given afterwards; another call then stores that.
    ///
    /// # Errors
    /// `Store` when an upload failed; `Internal` when a frame or a page doesn't decode to what it was made of.
    pub async fn finish(&mut self) -> Result<Written> {
        self.guarded(async |writer| {
            writer.seal().await?;
            while let Some(done) = writer.uploads.join_next().await {
                joined(done)?;
            }
            Ok(writer.written.clone())
        })
        .await
    }

    /// Returns the link with the place that the page has in a sealed pack.
    ///
    /// # Errors
    /// `Internal` for a fresh page that this writer was never given or hasn't sealed: [`PackWriter::finish`] comes first.
    pub fn resolve(&self, link: &PageLink) -> Result<PageLink> {
        match &link.place {
            Place::At(_) => Ok(link.clone()),
            Place::Fresh => match self.places.location(self.places.pages.get(&link.id)) {
                Some(location) => Ok(Link { id: link.id, place: Place::At(location) }),
                None => Err(Error::internal(format!("page {} isn't in a pack of this writer", link.id))),
            },
        }
    }

    /// As [`PackWriter::resolve`], for a chunk.
    ///
    /// # Errors
    /// As [`PackWriter::resolve`].
    pub fn resolve_chunk(&self, link: &ChunkLink) -> Result<ChunkLink> {
        match &link.place {
            Place::At(_) => Ok(link.clone()),
            Place::Fresh => match self.places.location(self.places.chunks.get(&link.id)) {
                Some(location) => Ok(Link { id: link.id, place: Place::At(location) }),
                None => Err(Error::internal(format!("chunk {} isn't in a pack of this writer", link.id))),
            },
        }
    }

    /// Returns the root with its pages resolved.
    ///
    /// # Errors
    /// As [`PackWriter::resolve`].
    pub fn resolve_root(&self, root: &Root) -> Result<Root> {
        let links = root.links.as_ref().map(|link| self.resolve(link)).transpose()?;
        Ok(Root { page: self.resolve(&root.page)?, links, entries: root.entries, bytes: root.bytes })
    }

    /// Runs one step; after a failed one nothing more is taken.
    async fn guarded<T>(&mut self, step: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::internal("this writer of packs has failed before"));
        }
        // Also when the step is dropped halfway: its state isn't whole then.
        self.failed = true;
        let result = step(self).await;
        self.failed = result.is_err();
        result
    }

    async fn add_chunk(&mut self, id: ChunkId, plain: Bytes) -> Result<()> {
        let len = length(plain.len())?;
        self.places.chunks.insert(id, Spotted::Waiting);
        if plain.len() >= FRAME_TARGET {
            // A frame of its own; the group goes on behind it, so small files around a big one stay together.
            self.compress(vec![(id, len)], plain);
        } else {
            if self.group.len() + plain.len() > FRAME_TARGET {
                self.close_group();
            }
            self.group.extend_from_slice(&plain);
            self.group_chunks.push((id, len));
        }
        while self.frames.len() > self.options.jobs {
            self.collect_frame().await?;
        }
        self.seal_when_full().await
    }

    fn close_group(&mut self) {
        if !self.group.is_empty() {
            let plain = Bytes::from(std::mem::take(&mut self.group));
            let chunks = std::mem::take(&mut self.group_chunks);
            self.compress(chunks, plain);
        }
    }

    fn compress(&mut self, chunks: FrameChunks, plain: Bytes) {
        let check = chunks.clone();
        self.frames.push_back((chunks, tokio::task::spawn_blocking(move || encode_frame(&check, &plain))));
    }

    /// Waits for the oldest frame and puts it into the pack. In order, so that the same input gives the same frames.
    async fn collect_frame(&mut self) -> Result<()> {
        if let Some((chunks, job)) = self.frames.pop_front() {
            let stored = joined(job.await)?;
            self.place_frame(&chunks, &stored)?;
        }
        Ok(())
    }

    fn place_frame(&mut self, chunks: &FrameChunks, stored: &Bytes) -> Result<()> {
        let frame = self.builder.push(FrameKind::Content, stored, chunks.iter().map(|&(_, len)| len).collect())?;
        let (pack, stored) = (self.places.current(), length(stored.len())?);
        let mut start = 0;
        for &(id, len) in chunks {
            self.places.chunks.insert(id, Spotted::Placed { pack, frame, stored, start, len });
            start += len;
        }
        Ok(())
    }

    /// Seals the pack when it has its size. What decides depends on the input alone, not on how fast threads are.
    async fn seal_when_full(&mut self) -> Result<()> {
        let objects = self.builder.objects() + self.group_chunks.len() + self.pages.len();
        if self.builder.len() + self.page_bytes >= PACK_TARGET || self.page_bytes >= PAGES_TARGET || objects >= OBJECTS_TARGET {
            self.seal().await?;
        }
        Ok(())
    }

    async fn seal(&mut self) -> Result<()> {
        if self.frames.is_empty() && self.group.len() <= INLINE_WORK && !self.group.is_empty() {
            let plain = Bytes::from(std::mem::take(&mut self.group));
            let chunks = std::mem::take(&mut self.group_chunks);
            let stored = encode_frame(&chunks, &plain)?;
            self.place_frame(&chunks, &stored)?;
        }
        self.close_group();
        while !self.frames.is_empty() {
            self.collect_frame().await?;
        }
        if self.builder.is_empty() && self.pages.is_empty() {
            return Ok(());
        }
        let big = self.builder.len() + self.page_bytes > INLINE_WORK;
        let (builder, pages) = (std::mem::take(&mut self.builder), std::mem::take(&mut self.pages));
        self.page_bytes = 0;
        let empty = Places {
            home: Arc::clone(&self.places.home),
            salt: self.places.salt,
            sealed: Vec::new(),
            chunks: HashMap::new(),
            pages: HashMap::new(),
        };
        let mut places = std::mem::replace(&mut self.places, empty);
        let keep = self.options.reader.is_some();
        let work = move || seal_packs(builder, pages, &mut places, keep).map(|sealed| (places, sealed));
        let (places, sealed) = if big { joined(tokio::task::spawn_blocking(work).await)? } else { work()? };
        self.places = places;
        for pack in sealed {
            self.upload(pack).await?;
        }
        Ok(())
    }

    async fn upload(&mut self, pack: Sealed) -> Result<()> {
        while let Some(done) = self.uploads.try_join_next() {
            joined(done)?;
        }
        let Sealed { id, bytes, objects, pages } = pack;
        self.written.packs.push((id, bytes.len() as u64));
        self.written.bytes += bytes.len() as u64;
        self.written.objects += objects as u64;
        if let Some(reader) = &self.options.reader {
            reader.keep_pages(pages);
        }
        let permits = kib(bytes.len()).min(kib(self.options.upload_bytes));
        let permit = Arc::clone(&self.budget).acquire_many_owned(permits).await;
        let permit = permit.map_err(|e| Error::internal("the upload budget is gone").source(e))?;
        let (store, home, reader) = (self.store.clone(), Arc::clone(&self.places.home), self.options.reader.clone());
        self.uploads.spawn(async move {
            store.put_pack(&pack::key(&home, id), bytes.clone()).await.map_err(|e| e.context(format!("storing pack {id}")))?;
            if let Some(reader) = reader {
                reader.keep_range(id, 0, bytes);
            }
            drop(permit);
            Ok(())
        });
        Ok(())
    }
}

#[async_trait::async_trait]
impl Sink for PackWriter {
    async fn chunk(&mut self, plain: Bytes) -> Result<ChunkLink> {
        if plain.is_empty() || plain.len() > CHUNK_MAX {
            return Err(Error::internal(format!("a chunk of {} bytes was to be stored; 1 to {CHUNK_MAX} are possible", plain.len())));
        }
        let id = ChunkId::of(&plain);
        if !self.places.chunks.contains_key(&id) {
            if let Some(link) = self.options.known.as_ref().and_then(|known| known.known_chunk(id)) {
                return Ok(link);
            }
            self.guarded(async |writer| writer.add_chunk(id, plain).await).await?;
        }
        Ok(Link { id, place: Place::Fresh })
    }

    async fn page(&mut self, page: Page) -> Result<PageLink> {
        let body = encode_body(&page);
        let id = page_id(&body);
        if !self.places.pages.contains_key(&id) {
            self.guarded(async |writer| {
                // Hints add about as much as the ids in a body take.
                writer.page_bytes += 2 * body.len();
                writer.places.pages.insert(id, Spotted::Waiting);
                writer.pages.push((id, page));
                writer.seal_when_full().await
            })
            .await?;
        }
        Ok(Link { id, place: Place::Fresh })
    }
}

/// Compresses a frame, then decodes it and checks that each chunk is what it was: a frame that can't be read must not be uploaded.
fn encode_frame(chunks: &FrameChunks, plain: &Bytes) -> Result<Bytes> {
    let stored = Bytes::from(frame::encode(plain)?);
    let again = frame::decode(&stored)?;
    let mut start = 0;
    for &(id, len) in chunks {
        let end = start + len as usize;
        if again.len() < end || ChunkId::of(&again[start..end]) != id {
            return Err(Error::internal(format!("chunk {id} changed while it was compressed: this machine's memory may be faulty")));
        }
        start = end;
    }
    Ok(stored)
}

/// A pack ready to go up.
struct Sealed {
    id: PackId,
    bytes: Bytes,
    objects: usize,
    /// Its pages with absolute places, when they were asked for.
    pages: Vec<(PageId, Location, Arc<Page>)>,
}

/// Writes the pages behind the content and closes the pack, or packs where the pages don't fit into one.
fn seal_packs(mut builder: PackBuilder, pages: Vec<(PageId, Page)>, places: &mut Places, keep: bool) -> Result<Vec<Sealed>> {
    let mut sealed = Vec::new();
    let mut in_pack = Vec::new();
    for (id, page) in pages {
        let mut plain = encode_stored(&page, places)?;
        let mut stored = frame::encode_page(&plain)?;
        if !builder.has_room(stored.len(), 1) {
            sealed.push(close(std::mem::take(&mut builder), std::mem::take(&mut in_pack), places, keep)?);
            // Its children are now in a pack with a name.
            plain = encode_stored(&page, places)?;
            stored = frame::encode_page(&plain)?;
        }
        let (len, stored_len) = (length(plain.len())?, length(stored.len())?);
        let frame = builder.push(FrameKind::Page, &stored, vec![len])?;
        places.pages.insert(id, Spotted::Placed { pack: places.current(), frame, stored: stored_len, start: 0, len });
        in_pack.push(id);
    }
    sealed.push(close(builder, in_pack, places, keep)?);
    Ok(sealed)
}

/// Closes a pack, names it, and reads its pages back from its bytes.
fn close(builder: PackBuilder, page_ids: Vec<PageId>, places: &mut Places, keep: bool) -> Result<Sealed> {
    let objects = builder.objects();
    let (id, bytes, _) = builder.finish(&places.salt);
    places.sealed.push(id);
    let mut pages = Vec::new();
    for page_id in page_ids {
        let at = places.location(places.pages.get(&page_id)).ok_or_else(|| Error::internal(format!("page {page_id} has no place")))?;
        let plain = frame::decode(&bytes.slice(at.frame as usize..(at.frame + at.stored) as usize))?;
        let page = decode_stored(page_id, &plain, &at)
            .map_err(|e| Error::internal(format!("page {page_id} can't be read back from the pack it was put into")).source(e))?;
        if keep {
            pages.push((page_id, at, Arc::new(page)));
        }
    }
    Ok(Sealed { id, bytes, objects, pages })
}

fn length(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|e| Error::internal("a part of a pack is above 4 GiB").source(e))
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 3)
}

/// Returns a task's result; a task that panicked is a fault of ours.
pub(super) fn joined<T>(result: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    result.unwrap_or_else(|e| Err(Error::internal("a background task ended early").source(e)))
}

#[cfg(test)]
mod tests;
