//! File content: bytes cut into chunks, and the lists of the chunks of large files.
//!
//! A file of at most [`INLINE_MAX`] bytes lies in its entry; one of at most [`CHUNK_MAX`] bytes is one chunk; a larger one is cut by FastCDC
//! (Xia et al., 2020: 64, 256 and 1024 KiB), so that an insert moves only the borders near it. Chunks of zeros are holes. More than
//! [`PARTS_MAX`] parts are a tree of list pages. All of that depends on the bytes alone; [`super::recut`] does it again after an edit,
//! around the edit only.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::{Buf as _, Bytes, BytesMut};
use fastcdc::v2020::FastCDC;

use super::page::{CHUNK_MAX, ChunkLink, Content, INLINE_MAX, PARTS_MAX, Page, PageLink, Part};
use super::page_codec::part_len;
use super::sequence::{self, Builder, Finished, Kind, Opened};
use super::source::{Sink, Source};
use crate::error::{Error, Result};
use crate::id::ChunkId;

/// Shortest chunk of a file that is cut, its last one apart, in bytes.
pub const CUT_MIN: usize = 64 << 10;
/// Usual length of a chunk of a file that is cut, in bytes.
pub const CUT_AVERAGE: usize = 256 << 10;

/// Returns the length of the first chunk of these bytes, which are all of the rest of a file, or its next [`CHUNK_MAX`] bytes.
#[must_use]
pub fn cut(bytes: &[u8]) -> usize {
    FastCDC::new(bytes, CUT_MIN, CUT_AVERAGE, CHUNK_MAX).cut(0, bytes.len()).1
}

/// Returns the length of the chunks that a run of at least [`CHUNK_MAX`] zeros is cut into.
pub(super) fn zero_cut() -> usize {
    static CUT: OnceLock<usize> = OnceLock::new();
    *CUT.get_or_init(|| cut(&vec![0; CHUNK_MAX]))
}

/// Lists of parts.
pub(super) struct Parts;

impl Kind for Parts {
    type Item = Part;
    const FEW: usize = PARTS_MAX;
    // A hole and a chunk: a leaf doesn't end after a hole.
    const ROOM: usize = 9 + 1 + 34 + 5;

    fn len(item: &Part) -> usize {
        part_len(item)
    }

    fn ends(item: &Part) -> Option<bool> {
        match item {
            // One in 64: about 2.5 KiB a page.
            Part::Chunk(chunk, _) => Some(chunk.id.as_bytes()[31].is_multiple_of(64)),
            Part::Hole(_) => None,
        }
    }

    fn join(last: &mut Part, next: &Part) -> bool {
        match (last, next) {
            (Part::Hole(last), Part::Hole(next)) => {
                *last += next;
                true
            }
            _ => false,
        }
    }

    fn range(start: u64, item: &Part) -> Option<Range<u64>> {
        let end = start.checked_add(len_of(item))?;
        Some(start..end)
    }

    fn end(start: u64, key: u64) -> Option<u64> {
        start.checked_add(key)
    }

    fn key(range: &Range<u64>) -> u64 {
        range.end - range.start
    }

    fn leaf(items: Vec<Part>) -> Page {
        Page::List(items)
    }

    fn split(children: Vec<(PageLink, u64)>) -> Page {
        Page::ListSplit(children)
    }

    fn open(page: &Page) -> Option<Opened<'_, Part>> {
        match page {
            Page::List(parts) => Some(Opened::Leaf(parts)),
            Page::ListSplit(children) => Some(Opened::Split(children)),
            _ => None,
        }
    }
}

fn len_of(part: &Part) -> u64 {
    match part {
        Part::Chunk(_, len) => u64::from(*len),
        Part::Hole(len) => *len,
    }
}

/// A part of a file and where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartAt {
    /// Offset in bytes in the file.
    pub offset: u64,
    /// The part.
    pub part: Part,
}

impl PartAt {
    /// Returns the bytes of the file that the part covers.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(len_of(&self.part))
    }
}

/// Returns the parts that overlap a range of a file, in order. Inline content has no parts. A range beyond the end is cut there.
///
/// # Errors
/// As [`Source::page`].
pub async fn parts(source: &dyn Source, content: &Content, size: u64, range: Range<u64>) -> Result<Vec<PartAt>> {
    let range = range.start..range.end.min(size);
    if range.is_empty() {
        return Ok(Vec::new());
    }
    match content {
        Content::Inline(_) => Ok(Vec::new()),
        Content::Parts(parts) => {
            let mut offset = 0_u64;
            let mut found = Vec::new();
            for part in parts {
                let at = PartAt { offset, part: part.clone() };
                offset = at.range().end;
                if at.offset < range.end && offset > range.start {
                    found.push(at);
                }
            }
            Ok(found)
        }
        Content::List(page) => {
            let found = sequence::items::<Parts>(source, page, range.clone()).await?;
            let found: Vec<_> = found.into_iter().map(|(offset, part)| PartAt { offset, part }).collect();
            // A list that is shorter than the file would otherwise read as an early end.
            match found.last() {
                Some(last) if last.range().end >= range.end => Ok(found),
                _ => Err(super::tree::misplaced(page.id, "lists fewer bytes than its file has")),
            }
        }
    }
}

/// Returns the bytes of a range of a file. A range beyond the end is cut there.
///
/// The caller bounds the range: all of it is held in memory.
///
/// # Errors
/// As [`Source::chunk`].
pub async fn read(source: &dyn Source, content: &Content, size: u64, range: Range<u64>) -> Result<Bytes> {
    let range = range.start..range.end.min(size);
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    if let Content::Inline(bytes) = content {
        let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
        return match (start, end) {
            (Ok(start), Ok(end)) if end <= bytes.len() => Ok(bytes.slice(start..end)),
            _ => Err(Error::damaged("an inline file has fewer bytes than its size says")),
        };
    }
    let parts = parts(source, content, size, range.clone()).await?;
    let chunks: Vec<_> = parts
        .iter()
        .filter_map(|at| match &at.part {
            Part::Chunk(chunk, _) => Some(chunk.clone()),
            Part::Hole(_) => None,
        })
        .collect();
    if chunks.len() > 1 {
        source.prefetch(&chunks);
    }
    let mut all = BytesMut::new();
    for at in &parts {
        let covers = at.range();
        let (start, end) = (range.start.max(covers.start) - covers.start, range.end.min(covers.end) - covers.start);
        match &at.part {
            Part::Hole(_) => all.resize(all.len() + to_usize(end - start)?, 0),
            Part::Chunk(chunk, len) => {
                let plain = source.chunk(chunk).await?;
                if plain.len() != *len as usize {
                    return Err(Error::damaged(format!("chunk {} has {} bytes, and its file says {len}", chunk.id, plain.len()))
                        .code("chunk_damaged"));
                }
                let wanted = plain.slice(to_usize(start)?..to_usize(end)?);
                if parts.len() == 1 {
                    return Ok(wanted);
                }
                all.extend_from_slice(&wanted);
            }
        }
    }
    Ok(all.freeze())
}

pub(super) fn to_usize(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::limit("a range of a file is larger than this machine's memory"))
}

/// Takes the bytes of a file in order and stores them as chunks.
///
/// At most [`CHUNK_MAX`] bytes are held, and what one call gives. Chunks that `base` knows aren't stored again.
pub struct ContentBuilder<'a> {
    chunks: Chunks<'a>,
    buffer: BytesMut,
    size: u64,
    parts: Builder<Parts>,
    /// Whether the file is known to be larger than one chunk.
    cutting: bool,
}

impl std::fmt::Debug for ContentBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentBuilder").field("size", &self.size).finish_non_exhaustive()
    }
}

impl<'a> ContentBuilder<'a> {
    /// Starts a file. `base` is asked for chunks that are stored already.
    pub fn new(sink: &'a mut dyn Sink, base: Option<&'a dyn Source>) -> Self {
        Self { chunks: Chunks::new(sink, base), buffer: BytesMut::new(), size: 0, parts: Builder::new(), cutting: false }
    }

    /// Says what the file was before, so that chunks that it keeps aren't stored again. Chunks of a list aren't looked at.
    pub fn before(&mut self, content: &Content) {
        if let Content::Parts(parts) = content {
            self.chunks.know(parts);
        }
    }

    /// Returns the number of bytes taken so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// As [`Sink::chunk`].
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            // One byte more than a chunk says that the file is to be cut.
            let room = (CHUNK_MAX + 1).saturating_sub(self.buffer.len()).min(bytes.len());
            self.buffer.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            self.cut_full().await?;
        }
        Ok(())
    }

    /// Takes so many zeros. A long run costs no more than a short one.
    ///
    /// # Errors
    /// As [`Sink::chunk`].
    pub async fn zeros(&mut self, mut len: u64) -> Result<()> {
        self.size += len;
        while len > 0 {
            if self.cutting && len > CHUNK_MAX as u64 && self.buffer.iter().all(|byte| *byte == 0) {
                len += self.buffer.len() as u64;
                self.buffer.clear();
                // As many as are cut before fewer than a chunk's most bytes are left.
                let holes = (len - CHUNK_MAX as u64) / zero_cut() as u64 * zero_cut() as u64;
                if holes > 0 {
                    self.parts.push(Part::Hole(holes))?;
                    len -= holes;
                    continue;
                }
            }
            let room = ((CHUNK_MAX + 1).saturating_sub(self.buffer.len()) as u64).min(len);
            self.buffer.resize(self.buffer.len() + to_usize(room)?, 0);
            len -= room;
            self.cut_full().await?;
        }
        Ok(())
    }

    async fn cut_full(&mut self) -> Result<()> {
        while self.buffer.len() > CHUNK_MAX {
            self.cutting = true;
            let len = cut(&self.buffer[..CHUNK_MAX]);
            self.take(len).await?;
        }
        Ok(())
    }

    async fn take(&mut self, len: usize) -> Result<()> {
        let part = self.chunks.store(&self.buffer[..len]).await?;
        self.buffer.advance(len);
        self.parts.push(part)?;
        if self.parts.is_many() {
            self.parts.flush(self.chunks.sink).await?;
        }
        Ok(())
    }

    /// Ends the file. Returns its content and its size in bytes.
    ///
    /// # Errors
    /// As [`Sink::chunk`] and [`Sink::page`].
    pub async fn finish(mut self) -> Result<(Content, u64)> {
        if self.size <= INLINE_MAX as u64 {
            return Ok((Content::Inline(self.buffer.freeze()), self.size));
        }
        while !self.buffer.is_empty() {
            let len = if self.cutting { cut(&self.buffer) } else { self.buffer.len() };
            self.take(len).await?;
        }
        Ok((finish(self.parts, self.chunks.sink).await?, self.size))
    }
}

/// Returns the content of a file that isn't inline from its parts, and stores the list pages that it needs.
pub(super) async fn finish(mut parts: Builder<Parts>, sink: &mut dyn Sink) -> Result<Content> {
    match parts.finish() {
        Finished::Few(parts) => Ok(Content::Parts(parts)),
        Finished::Page(top) => {
            parts.flush(sink).await?;
            Ok(Content::List(top))
        }
    }
}

/// Where the chunks of a file go.
pub(super) struct Chunks<'a> {
    pub(super) sink: &'a mut dyn Sink,
    base: Option<&'a dyn Source>,
    /// Chunks that the file had before.
    known: HashMap<ChunkId, ChunkLink>,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, base: Option<&'a dyn Source>) -> Self {
        Self { sink, base, known: HashMap::new() }
    }

    /// Remembers the chunks among these parts, so that they aren't stored again.
    pub(super) fn know<'p>(&mut self, parts: impl IntoIterator<Item = &'p Part>) {
        for part in parts {
            if let Part::Chunk(chunk, _) = part {
                self.known.insert(chunk.id, chunk.clone());
            }
        }
    }

    /// Stores the bytes of one chunk; zeros are a hole.
    pub(super) async fn store(&mut self, plain: &[u8]) -> Result<Part> {
        if plain.iter().all(|byte| *byte == 0) {
            return Ok(Part::Hole(plain.len() as u64));
        }
        let len = u32::try_from(plain.len()).map_err(|_| Error::internal("a chunk is too long"))?;
        if self.base.is_some() || !self.known.is_empty() {
            let id = ChunkId::of(plain);
            if let Some(known) = self.known.get(&id).cloned().or_else(|| self.base.and_then(|base| base.known_chunk(id))) {
                return Ok(Part::Chunk(known, len));
            }
        }
        Ok(Part::Chunk(self.sink.chunk(Bytes::copy_from_slice(plain)).await?, len))
    }
}

/// Stores a whole file that is in memory.
///
/// # Errors
/// As [`ContentBuilder::finish`].
pub async fn build(sink: &mut dyn Sink, base: Option<&dyn Source>, bytes: &[u8]) -> Result<Content> {
    let mut builder = ContentBuilder::new(sink, base);
    builder.push(bytes).await?;
    Ok(builder.finish().await?.0)
}

#[cfg(test)]
pub(super) mod tests;
