//! A tree that is needed only for a moment: the workspace as it is now, for a comparison in the middle of a turn.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::id::{ChunkId, PageId};
use crate::workspace::page::{ChunkLink, Link, Page, PageLink, Place};
use crate::workspace::page_codec::{encode_body, page_id};
use crate::workspace::source::{Sink, Source};

/// Most bytes of new content that a comparison holds in memory. Beyond it paths can still be compared, but not content.
const CONTENT_MAX: usize = 64 << 20;

/// Takes what a capture writes and keeps it in memory, over the source of everything else.
#[derive(Debug)]
pub(super) struct Scratch {
    below: Arc<dyn Source>,
    pages: HashMap<PageId, Arc<Page>>,
    chunks: HashMap<ChunkId, Bytes>,
    held: usize,
}

impl Scratch {
    pub(super) fn new(below: Arc<dyn Source>) -> Self {
        Self { below, pages: HashMap::new(), chunks: HashMap::new(), held: 0 }
    }
}

#[async_trait::async_trait]
impl Sink for Scratch {
    async fn chunk(&mut self, plain: Bytes) -> Result<ChunkLink> {
        let id = ChunkId::of(&plain);
        if self.held + plain.len() <= CONTENT_MAX && !self.chunks.contains_key(&id) {
            self.held += plain.len();
            self.chunks.insert(id, plain);
        }
        Ok(Link { id, place: Place::Fresh })
    }

    async fn page(&mut self, page: Page) -> Result<PageLink> {
        let id = page_id(&encode_body(&page));
        self.pages.insert(id, Arc::new(page));
        Ok(Link { id, place: Place::Fresh })
    }
}

#[async_trait::async_trait]
impl Source for Scratch {
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>> {
        match self.pages.get(&link.id) {
            Some(page) => Ok(Arc::clone(page)),
            None => self.below.page(link).await,
        }
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        match (self.chunks.get(&link.id), &link.place) {
            (Some(plain), _) => Ok(plain.clone()),
            (None, Place::At(_)) => self.below.chunk(link).await,
            (None, Place::Fresh) => Err(Error::limit(format!("more than {CONTENT_MAX} bytes of new content can't be compared at once"))
                .code("diff_too_large")
                .hint("name fewer paths")),
        }
    }

    fn prefetch(&self, links: &[ChunkLink]) {
        self.below.prefetch(links);
    }
}
