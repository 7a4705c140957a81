//! Where a workspace reads stored pages and chunks, and where it writes new ones. The rooms above and below implement these;
//! the workspace itself knows neither packs nor stores.

use std::sync::Arc;

use bytes::Bytes;

use super::page::{ChunkLink, Page, PageLink};
use crate::error::Result;

/// Reads stored objects. Every answer has been checked against the id asked for.
#[async_trait::async_trait]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Returns a page.
    ///
    /// # Errors
    /// `Damaged` when the stored bytes don't match the id or break the page rules, `Store` when they can't be had.
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>>;

    /// Returns a chunk's plain bytes.
    ///
    /// # Errors
    /// As [`Source::page`].
    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes>;

    /// Returns several pages in the order asked for. Implementations fetch neighbours together.
    ///
    /// # Errors
    /// As [`Source::page`].
    async fn pages(&self, links: &[PageLink]) -> Result<Vec<Arc<Page>>> {
        let mut pages = Vec::with_capacity(links.len());
        for link in links {
            pages.push(self.page(link).await?);
        }
        Ok(pages)
    }

    /// Tells the source that these chunks will be asked for soon, in this order. A hint: it may do nothing.
    fn prefetch(&self, _links: &[ChunkLink]) {}

    /// Returns a link to a chunk of this content that is known to be stored and referenced by the base, when one was seen.
    fn known_chunk(&self, _id: crate::id::ChunkId) -> Option<ChunkLink> {
        None
    }
}

/// Takes new objects. What it returns may be [`super::page::Place::Fresh`]: valid as a part of later pages given to the same sink.
#[async_trait::async_trait]
pub trait Sink: Send {
    /// Stores a chunk's plain bytes, 1 to [`super::page::CHUNK_MAX`] of them, and returns its link.
    ///
    /// # Errors
    /// `Store` when an upload failed, `Local` when a spool did.
    async fn chunk(&mut self, plain: Bytes) -> Result<ChunkLink>;

    /// Stores a page and returns its link. Pages that it names must have been stored before.
    ///
    /// # Errors
    /// As [`Sink::chunk`].
    async fn page(&mut self, page: Page) -> Result<PageLink>;
}
