//! Pages and chunks in memory: a [`Source`] and a [`Sink`] for tests of what is built on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use super::page::{CHUNK_MAX, ChunkLink, Link, Page, PageLink, Place};
use super::page_codec::{check_page, decode_body, encode_body, page_id};
use super::source::{Sink, Source};
use crate::error::{Error, Result};
use crate::id::{ChunkId, PageId};

/// Objects held in memory by their ids. A clone is another handle of the same objects.
///
/// Pages are kept as the bytes of their bodies and decoded at every read, so that what goes through here obeys the rules of the format.
/// Every link has the place [`Place::Fresh`].
#[derive(Clone, Debug, Default)]
pub struct MemoryObjects(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pages: RwLock<HashMap<PageId, Bytes>>,
    chunks: RwLock<HashMap<ChunkId, Bytes>>,
    page_reads: AtomicU64,
    chunk_reads: AtomicU64,
    page_writes: AtomicU64,
    chunk_writes: AtomicU64,
    page_bytes: AtomicU64,
}

/// What was read and written, also what was there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounts {
    /// Pages read.
    pub page_reads: u64,
    /// Chunks read.
    pub chunk_reads: u64,
    /// Pages given to the sink.
    pub page_writes: u64,
    /// Chunks given to the sink.
    pub chunk_writes: u64,
    /// Bytes of the bodies of the pages given to the sink.
    pub page_bytes: u64,
}

impl MemoryObjects {
    /// Makes an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counts since the last call, and starts again at zero.
    #[must_use]
    pub fn take_counts(&self) -> MemoryCounts {
        MemoryCounts {
            page_reads: self.0.page_reads.swap(0, Ordering::Relaxed),
            chunk_reads: self.0.chunk_reads.swap(0, Ordering::Relaxed),
            page_writes: self.0.page_writes.swap(0, Ordering::Relaxed),
            chunk_writes: self.0.chunk_writes.swap(0, Ordering::Relaxed),
            page_bytes: self.0.page_bytes.swap(0, Ordering::Relaxed),
        }
    }

    /// Forgets a page, as if its pack were lost. Returns whether it was there.
    #[must_use]
    pub fn remove_page(&self, id: PageId) -> bool {
        self.0.pages.write().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some()
    }

    /// Forgets a chunk, as if its pack were lost. Returns whether it was there.
    #[must_use]
    pub fn remove_chunk(&self, id: ChunkId) -> bool {
        self.0.chunks.write().unwrap_or_else(PoisonError::into_inner).remove(&id).is_some()
    }

    /// Stores the body of a page without any check, to see what becomes of a bad one. Returns its link.
    #[must_use]
    pub fn insert_body(&self, body: Bytes) -> PageLink {
        let id = page_id(&body);
        self.0.pages.write().unwrap_or_else(PoisonError::into_inner).insert(id, body);
        Link { id, place: Place::Fresh }
    }
}

#[async_trait::async_trait]
impl Source for MemoryObjects {
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>> {
        self.0.page_reads.fetch_add(1, Ordering::Relaxed);
        let body = self.0.pages.read().unwrap_or_else(PoisonError::into_inner).get(&link.id).cloned();
        let body = body.ok_or_else(|| Error::damaged(format!("page {} isn't stored", link.id)).code("page_missing"))?;
        decode_body(&body).map(Arc::new)
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        self.0.chunk_reads.fetch_add(1, Ordering::Relaxed);
        let plain = self.0.chunks.read().unwrap_or_else(PoisonError::into_inner).get(&link.id).cloned();
        plain.ok_or_else(|| Error::damaged(format!("chunk {} isn't stored", link.id)).code("chunk_missing"))
    }
}

#[async_trait::async_trait]
impl Sink for MemoryObjects {
    async fn chunk(&mut self, plain: Bytes) -> Result<ChunkLink> {
        if plain.is_empty() || plain.len() > CHUNK_MAX {
            return Err(Error::internal(format!("a chunk of {} bytes was given to be stored", plain.len())));
        }
        self.0.chunk_writes.fetch_add(1, Ordering::Relaxed);
        let id = ChunkId::of(&plain);
        self.0.chunks.write().unwrap_or_else(PoisonError::into_inner).insert(id, plain);
        Ok(Link { id, place: Place::Fresh })
    }

    async fn page(&mut self, page: Page) -> Result<PageLink> {
        check_page(&page)?;
        let body = Bytes::from(encode_body(&page));
        self.0.page_writes.fetch_add(1, Ordering::Relaxed);
        self.0.page_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        Ok(self.insert_body(body))
    }
}
