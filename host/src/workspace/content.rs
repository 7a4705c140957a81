//! A file's content: what is stored, and what was written over it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::extents::Extents;
use super::fault::FsResult;
use super::page::Content;
use super::spool::Spool;

/// The content of a file in memory. Bytes that lie neither in the written extents nor in the kept part of the base are zero.
#[derive(Debug)]
pub(super) struct FileData {
    base: Arc<Content>,
    /// Length of the base in bytes.
    base_size: u64,
    /// So many bytes of the base still count: fewer than `base_size` after the file was cut.
    kept: u64,
    size: u64,
    written: Extents,
    /// The chunk read last, for readers that go on in small steps.
    recent: Option<Recent>,
    /// Where a reader that reads in order reads next.
    next_read: u64,
}

/// A chunk that was read, and where it begins in the file.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    /// Offset in the base.
    pub(super) start: u64,
    /// Its bytes.
    pub(super) bytes: Bytes,
}

impl Recent {
    /// Returns the bytes of a range of the base, when this chunk holds all of them.
    pub(super) fn slice(&self, range: &Range<u64>) -> Option<Bytes> {
        let from = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.start)?).ok()?;
        (from <= to && to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

/// What a read needs beyond what is in memory.
#[derive(Debug)]
pub(super) enum ReadPlan {
    /// Nothing: these are the bytes.
    Ready(Bytes),
    /// Bytes of the base.
    Stored {
        /// The base.
        base: StoredContent,
        /// Which of its bytes.
        range: Range<u64>,
        /// Whether the reads so far went through the file in order.
        sequential: bool,
    },
    /// A mix: written bytes are in `buffer` already, the ranges of the base in `gaps` go between them.
    Mixed {
        /// The base.
        base: StoredContent,
        /// The answer so far.
        buffer: Vec<u8>,
        /// Offset of the buffer in the file.
        offset: u64,
        /// What is missing.
        gaps: Vec<Range<u64>>,
    },
}

/// A stored content and its length in bytes.
#[derive(Clone, Debug)]
pub(super) struct StoredContent {
    /// The content.
    pub(super) content: Arc<Content>,
    /// Its length.
    pub(super) size: u64,
}

impl FileData {
    /// A stored file.
    pub(super) fn stored(content: Content, size: u64, spool: &Arc<Spool>) -> Self {
        Self {
            base: Arc::new(content),
            base_size: size,
            kept: size,
            size,
            written: Extents::new(Arc::clone(spool)),
            recent: None,
            next_read: 0,
        }
    }

    /// An empty file.
    pub(super) fn empty(spool: &Arc<Spool>) -> Self {
        Self::stored(Content::Inline(Bytes::new()), 0, spool)
    }

    /// Returns the length in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the stored content that the edits are made on.
    pub(super) fn base(&self) -> StoredContent {
        StoredContent { content: Arc::clone(&self.base), size: self.base_size }
    }

    /// Returns how many bytes of the base, from its beginning, still count where nothing was written over them.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// Says whether the content may differ from the base.
    pub(super) fn is_edited(&self) -> bool {
        !self.written.is_empty() || self.kept != self.base_size || self.size != self.base_size
    }

    /// Returns what is written over the base, in ranges that don't touch each other.
    pub(super) fn written_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while let Some(range) = self.written.next_after(at) {
            at = range.end;
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Writes bytes; a gap before them becomes zeros.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> FsResult<()> {
        if data.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.written.write(offset, data) {
            // What was written beyond the end doesn't count and mustn't show when the file grows.
            self.written.cut(self.size);
            return Err(error);
        }
        self.size = self.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// Cuts the file off or fills it up with zeros.
    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.written.cut(size);
            self.kept = self.kept.min(size);
            self.recent = None;
        }
        self.size = size;
    }

    /// Looks up what a read of `len` bytes at `offset` needs; the range must lie within the file.
    pub(super) fn plan(&mut self, offset: u64, len: usize) -> FsResult<ReadPlan> {
        let end = offset + len as u64;
        // Who reads the beginning may want no more than that.
        let sequential = offset > 0 && offset == self.next_read;
        self.next_read = end;
        let untouched = self.written.next_after(offset).is_none_or(|range| range.start >= end);
        if untouched && end <= self.kept {
            let range = offset..end;
            if let Some(bytes) = self.recent.as_ref().and_then(|recent| recent.slice(&range)) {
                return Ok(ReadPlan::Ready(bytes));
            }
            if let Content::Inline(bytes) = &*self.base
                && let (Ok(from), Ok(to)) = (usize::try_from(offset), usize::try_from(end))
                && to <= bytes.len()
            {
                return Ok(ReadPlan::Ready(bytes.slice(from..to)));
            }
            return Ok(ReadPlan::Stored { base: self.base(), range, sequential });
        }
        let mut buffer = vec![0; len];
        let mut gaps = self.written.read(offset, &mut buffer)?;
        gaps.retain_mut(|gap| {
            gap.end = gap.end.min(self.kept);
            if gap.start >= gap.end {
                return false;
            }
            let Some(known) = self.recent.as_ref().and_then(|recent| recent.slice(gap)) else { return true };
            // The gap lies within the buffer, whose length is a `usize`.
            let at = usize::try_from(gap.start - offset).unwrap_or(usize::MAX);
            buffer[at..at + known.len()].copy_from_slice(&known);
            false
        });
        if gaps.is_empty() {
            return Ok(ReadPlan::Ready(buffer.into()));
        }
        Ok(ReadPlan::Mixed { base: self.base(), buffer, offset, gaps })
    }

    /// Keeps the chunk that a read has loaded, when the base is still the same.
    pub(super) fn remember(&mut self, base: &StoredContent, recent: Recent) {
        if Arc::ptr_eq(&self.base, &base.content) {
            self.recent = Some(recent);
        }
    }

    /// Lets go of the chunk read last.
    pub(super) fn forget_recent(&mut self) {
        self.recent = None;
    }

    /// Lets go of what only readers need.
    pub(super) fn rest(&mut self) {
        self.forget_recent();
        self.next_read = 0;
    }

    /// Goes on from what was stored of this very content.
    pub(super) fn rebase(&mut self, content: Content, spool: &Arc<Spool>) {
        let (size, next_read) = (self.size, self.next_read);
        *self = Self { next_read, ..Self::stored(content, size, spool) };
    }
}
