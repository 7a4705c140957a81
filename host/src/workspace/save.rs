//! Storing a file's content, with what is stored of it already.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use super::filesystem::Filesystem;
use super::handle::Handle;
use super::node::NodeId;
use super::page::{ChunkLink, Content, Page, PageLink, Part};
use super::recut::{Edits, Written, recut};
use super::source::Sink;
use crate::error::Result;
use crate::id::ChunkId;

/// Stores the content of a file and returns it with its length in bytes. Content that isn't edited is returned as it is; of large
/// content only what lies around the edits is read and stored.
pub(super) async fn content(filesystem: &Filesystem, id: NodeId, sink: &mut dyn Sink) -> Result<(Content, u64)> {
    let (base, size, kept, ranges, file) = {
        let mut state = filesystem.state();
        let data = state.file_mut(id)?;
        let (base, size, kept, edited, ranges) = (data.base(), data.size(), data.kept(), data.is_edited(), data.written_ranges());
        if !edited {
            return Ok(((*base.content).clone(), size));
        }
        state.open(id)?;
        (base, size, kept, ranges, Handle::new(filesystem.clone(), id, state.generation))
    };
    let mut sink = Reuse::new(sink, &base.content);
    let edits = Edits { size, kept, written: &ranges };
    let content = recut(&**filesystem.source(), &mut sink, &base.content, base.size, edits, &WrittenTo(file)).await?;
    Ok((content, size))
}

/// The written ranges of an open file.
struct WrittenTo(Handle);

#[async_trait::async_trait]
impl Written for WrittenTo {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        Ok(self.0.read_at(range.start, len).await?.bytes)
    }
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
