//! Storing a file's content, with what is stored of it already.

use std::collections::HashMap;

use bytes::Bytes;

use super::filesystem::Filesystem;
use super::handle::{Handle, READ_MAX};
use super::list::ContentBuilder;
use super::node::{Body, NodeId};
use super::page::{ChunkLink, Content, Page, PageLink, Part};
use super::source::Sink;
use crate::error::Result;
use crate::id::ChunkId;

/// Stores the content of a file and returns it with its length in bytes. Content that isn't edited is returned as it is.
pub(super) async fn content(filesystem: &Filesystem, id: NodeId, sink: &mut dyn Sink) -> Result<(Content, u64)> {
    let (base, size, edited, handle) = {
        let mut state = filesystem.state();
        let Body::File { data, .. } = &state.node(id)?.body else {
            return Err(crate::error::Error::internal("the content of something that isn't a file was to be stored"));
        };
        let (base, size, edited) = (data.base(), data.size(), data.is_edited());
        state.open(id)?;
        let handle = Handle::new(filesystem.clone(), id, state.generation);
        (base, size, edited, handle)
    };
    if !edited {
        return Ok(((*base.content).clone(), size));
    }
    let mut sink = Reuse::new(sink, &base.content);
    let mut builder = ContentBuilder::new(&mut sink, Some(&**filesystem.source()));
    let mut at = 0;
    while at < size {
        let read = handle.read_at(at, READ_MAX).await?;
        builder.push(&read.bytes).await?;
        at += read.bytes.len() as u64;
    }
    builder.finish().await
}

/// A sink that stores no chunk of a file again that its base has.
struct Reuse<'a> {
    sink: &'a mut dyn Sink,
    known: HashMap<ChunkId, ChunkLink>,
}

impl<'a> Reuse<'a> {
    fn new(sink: &'a mut dyn Sink, base: &Content) -> Self {
        let parts = match base {
            Content::Parts(parts) => parts.as_slice(),
            Content::Inline(_) | Content::List(_) => &[],
        };
        let known = parts.iter().filter_map(|part| match part {
            Part::Chunk(link, _) => Some((link.id, link.clone())),
            Part::Hole(_) => None,
        });
        Self { sink, known: known.collect() }
    }
}

#[async_trait::async_trait]
impl Sink for Reuse<'_> {
    async fn chunk(&mut self, plain: Bytes) -> Result<ChunkLink> {
        if !self.known.is_empty()
            && let Some(link) = self.known.get(&ChunkId::of(&plain))
        {
            return Ok(link.clone());
        }
        self.sink.chunk(plain).await
    }

    async fn page(&mut self, page: Page) -> Result<PageLink> {
        self.sink.page(page).await
    }
}
