//! Content after an edit. The result is exactly what [`super::list::ContentBuilder`] gives for the whole new file, but only what lies
//! around the edits is read, cut, hashed and stored: cutting starts at the last old border that an edit can't have moved, and stops at
//! the first old border behind the edit that is cut again.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::list::{self, Chunks, ContentBuilder, PartAt, Parts, to_usize, zero_cut};
use super::page::{CHUNK_MAX, Content, INLINE_MAX, Part};
use super::page_codec::same_content;
use super::sequence::{self, Builder, Splice};
use super::source::{Sink, Source};
use crate::error::{Error, Result};

/// Bytes behind a border that it may depend on: the cutter takes bytes in pairs, and the second may lie behind the cut.
const LOOK: u64 = 2;
/// Bytes of the base whose parts are looked up at once.
const LOOK_UP: u64 = 16 << 20;

/// How a file differs from its base.
#[derive(Clone, Copy, Debug)]
pub struct Edits<'e> {
    /// Its size in bytes.
    pub size: u64,
    /// How many of the base's bytes, from the first on, still show where nothing was written: the smallest size that the file has had
    /// since. What lies beyond and wasn't written is zeros.
    pub kept: u64,
    /// What was written: ascending ranges that don't touch each other, none of them empty or beyond the size.
    pub written: &'e [Range<u64>],
}

/// Gives the bytes that were written to a file.
#[async_trait::async_trait]
pub trait Written: Send + Sync {
    /// Returns the bytes of a range, which lies within one of the written ranges and has at most [`CHUNK_MAX`] bytes.
    ///
    /// # Errors
    /// `Local` when they can't be had.
    async fn read(&self, range: Range<u64>) -> Result<Bytes>;
}

/// Returns the content of an edited file. An edit that changes nothing gives the base's content.
///
/// # Errors
/// As [`Source::page`], [`Source::chunk`], [`Sink::chunk`] and [`Written::read`]; `Internal` when the edits contradict themselves.
pub async fn recut(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: &Content,
    base_size: u64,
    edits: Edits<'_>,
    written: &dyn Written,
) -> Result<Content> {
    let kept = edits.kept.min(base_size).min(edits.size);
    let in_order = edits.written.windows(2).all(|pair| pair[0].end < pair[1].start);
    if !in_order || edits.written.iter().any(|range| range.is_empty() || range.end > edits.size) {
        return Err(Error::internal("the written ranges of a file are empty, out of order or beyond its size"));
    }
    if edits.written.is_empty() && edits.size == base_size && kept == base_size {
        return Ok(base.clone());
    }
    let file = View { source, base, base_size, size: edits.size, kept, edits: edits.written, written };
    let cut = CHUNK_MAX as u64;
    let content = if edits.size <= cut || base_size <= cut { whole(&file, sink).await? } else { around(&file, sink).await? };
    // A new link to the same content may have another place, which an unchanged file shouldn't be given.
    Ok(if same_content(base, &content) { base.clone() } else { content })
}

/// The new file.
struct View<'a> {
    source: &'a dyn Source,
    base: &'a Content,
    base_size: u64,
    size: u64,
    kept: u64,
    edits: &'a [Range<u64>],
    written: &'a dyn Written,
}

/// Where a run of a file's bytes comes from.
enum Origin {
    Written,
    Base,
    Zeros,
}

impl View<'_> {
    /// Returns the origin of the byte at an offset below the size, and how far it reaches.
    fn origin(&self, offset: u64) -> (Origin, u64) {
        let next = self.edits.partition_point(|range| range.end <= offset);
        let until = match self.edits.get(next) {
            Some(range) if range.start <= offset => return (Origin::Written, range.end),
            Some(range) => range.start,
            None => self.size,
        };
        if offset < self.kept { (Origin::Base, until.min(self.kept)) } else { (Origin::Zeros, until) }
    }

    /// Appends the bytes of a range to a buffer.
    async fn read(&self, range: Range<u64>, buffer: &mut BytesMut) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (origin, until) = self.origin(at);
            let until = until.min(range.end).min(at + CHUNK_MAX as u64);
            let len = to_usize(until - at)?;
            match origin {
                Origin::Zeros => buffer.resize(buffer.len() + len, 0),
                Origin::Base => buffer.extend_from_slice(&list::read(self.source, self.base, self.base_size, at..until).await?),
                Origin::Written => {
                    let bytes = self.written.read(at..until).await?;
                    if bytes.len() != len {
                        return Err(Error::internal("a written range of a file gave another number of bytes than it has"));
                    }
                    buffer.extend_from_slice(&bytes);
                }
            }
            at = until;
        }
        Ok(())
    }

    /// Returns the ranges whose bytes may differ from the base's, each from as far before it as a border may depend on it.
    fn changed(&self) -> Vec<Range<u64>> {
        let mut changed: Vec<_> = self.edits.iter().map(|range| range.start.saturating_sub(LOOK)..range.end).collect();
        if self.size != self.base_size || self.kept != self.base_size {
            // What is left at the end of a file is cut by other rules, so a moved end is a change of the bytes before it, too.
            changed.push(self.kept.saturating_sub(LOOK)..self.size.max(self.base_size));
            changed.sort_unstable_by_key(|range| range.start);
        }
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(changed.len());
        for range in changed {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

/// Cuts the whole new file.
async fn whole(file: &View<'_>, sink: &mut dyn Sink) -> Result<Content> {
    let mut builder = ContentBuilder::new(sink, Some(file.source));
    builder.before(file.base);
    let mut at = 0;
    let mut buffer = BytesMut::new();
    while at < file.size {
        let (origin, until) = file.origin(at);
        if matches!(origin, Origin::Zeros) {
            builder.zeros(until - at).await?;
            at = until;
            continue;
        }
        let until = until.min(at + CHUNK_MAX as u64);
        buffer.clear();
        file.read(at..until, &mut buffer).await?;
        builder.push(&buffer).await?;
        at = until;
    }
    Ok(builder.finish().await?.0)
}

/// The parts of the base near the place that is looked at.
struct Near<'a> {
    source: &'a dyn Source,
    base: &'a Content,
    size: u64,
    parts: Vec<PartAt>,
}

impl Near<'_> {
    /// Returns the part that covers this byte of the base.
    async fn part(&mut self, offset: u64, chunks: &mut Chunks<'_>) -> Result<PartAt> {
        let covers = |at: &&PartAt| at.range().contains(&offset);
        if let Some(found) = self.parts.iter().find(covers) {
            return Ok(found.clone());
        }
        self.parts = list::parts(self.source, self.base, self.size, offset..offset.saturating_add(LOOK_UP)).await?;
        chunks.know(self.parts.iter().map(|at| &at.part));
        self.parts.iter().find(covers).cloned().ok_or_else(|| Error::damaged("a file's parts are fewer than its size says"))
    }

    /// Returns the last border of the base at or before this byte, and the part in which it lies or begins. A hole is many chunks of zeros.
    async fn border(&mut self, offset: u64, chunks: &mut Chunks<'_>) -> Result<(u64, PartAt)> {
        let part = self.part(offset, chunks).await?;
        let border = match part.part {
            Part::Chunk(..) => part.offset,
            Part::Hole(_) => offset - (offset - part.offset) % zero_cut() as u64,
        };
        Ok((border, part))
    }
}

/// Cuts around the changes of a file that was and is large enough to be cut.
async fn around(file: &View<'_>, sink: &mut dyn Sink) -> Result<Content> {
    let mut chunks = Chunks::new(sink, Some(file.source));
    let mut near = Near { source: file.source, base: file.base, size: file.base_size, parts: Vec::new() };
    let mut changed = file.changed().into_iter().peekable();
    let mut splices: Vec<Splice<Part>> = Vec::new();
    let mut buffer = BytesMut::new();
    while let Some(first) = changed.next() {
        let (start, part) = near.border(first.start.min(file.base_size - 1), &mut chunks).await?;
        let mut splice = begin(&mut splices, start, &part);
        let (mut at, mut until) = (start, first.end);
        // The buffer holds the bytes from `at` on.
        buffer.clear();
        loop {
            if at >= file.size {
                // Whatever else has changed lay behind the new end.
                splice.range.end = file.base_size;
                changed.by_ref().for_each(drop);
                break;
            }
            while let Some(next) = changed.next_if(|next| next.start < at) {
                until = until.max(next.end);
            }
            if at >= until && at > start {
                let (border, part) = near.border(at, &mut chunks).await?;
                if border == at {
                    end(&mut splice, at, &part);
                    break;
                }
            }
            if let (Origin::Zeros, zeros_end) = file.origin(at) {
                let zeros = zeros_end - at;
                if zeros > CHUNK_MAX as u64 {
                    let holes = (zeros - CHUNK_MAX as u64) / zero_cut() as u64 * zero_cut() as u64;
                    if holes > 0 {
                        splice.items.push(Part::Hole(holes));
                        at += holes;
                        buffer.clear();
                        continue;
                    }
                }
            }
            if at < file.base_size {
                // The chunks that were here are the likeliest to come again.
                near.part(at, &mut chunks).await?;
            }
            let wanted = file.size.min(at + CHUNK_MAX as u64);
            file.read(at + buffer.len() as u64..wanted, &mut buffer).await?;
            let len = list::cut(&buffer);
            splice.items.push(chunks.store(&buffer[..len]).await?);
            let _cut = buffer.split_to(len);
            at += len as u64;
        }
        splices.push(splice);
    }
    let mut parts = Builder::<Parts>::new();
    match file.base {
        Content::List(top) => sequence::splice(file.source, top, splices, &mut parts).await?,
        Content::Parts(old) => put_few(old, splices, &mut parts)?,
        Content::Inline(_) => return Err(Error::damaged(format!("a file of more than {INLINE_MAX} bytes is inline"))),
    }
    list::finish(parts, chunks.sink).await
}

/// Starts a splice at a border of the base, or goes on with the last one when that ended within the same hole.
fn begin(splices: &mut Vec<Splice<Part>>, start: u64, part: &PartAt) -> Splice<Part> {
    let hole = matches!(part.part, Part::Hole(_));
    if let Some(mut last) = splices.pop_if(|last| hole && last.range.end > part.offset) {
        // It ended with the rest of the hole, of which only the piece up to here stays.
        if let Some(Part::Hole(rest)) = last.items.pop() {
            let stays = rest - (last.range.end - start);
            last.items.extend((stays > 0).then_some(Part::Hole(stays)));
        }
        return last;
    }
    let before = (start > part.offset).then(|| Part::Hole(start - part.offset));
    Splice { range: part.offset..part.offset, items: before.into_iter().collect() }
}

/// Ends a splice at a border of the base.
fn end(splice: &mut Splice<Part>, at: u64, part: &PartAt) {
    if at > part.offset {
        splice.range.end = part.range().end;
        splice.items.push(Part::Hole(part.range().end - at));
    } else {
        splice.range.end = at;
    }
}

/// Puts splices into the parts of a file that has no list.
fn put_few(old: &[Part], splices: Vec<Splice<Part>>, parts: &mut Builder<Parts>) -> Result<()> {
    let mut splices = splices.into_iter().peekable();
    let (mut offset, mut skip) = (0, 0);
    for part in old {
        let at = PartAt { offset, part: part.clone() };
        offset = at.range().end;
        while let Some(splice) = splices.next_if(|splice| splice.range.start <= at.offset) {
            skip = splice.range.end;
            splice.items.into_iter().try_for_each(|item| parts.push(item))?;
        }
        if at.offset >= skip {
            parts.push(at.part)?;
        }
    }
    splices.flat_map(|splice| splice.items).try_for_each(|item| parts.push(item))
}

#[cfg(test)]
mod tests;
