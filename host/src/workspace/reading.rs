//! Reading files: what is in memory at once, stored chunks as they are needed.

use std::ops::Range;

use bytes::Bytes;

use super::content::{ReadPlan, Recent, StoredContent};
use super::fault::FsResult;
use super::handle::{Handle, READ_MAX, ReadAt};
use super::list;
use super::page::{CHUNK_MAX, ChunkLink, Content, Part};
use super::source::Source;
use crate::error::{Error, Result};

/// How far ahead of a reader that reads in order chunks are asked for, in bytes.
const AHEAD: u64 = 4 << 20;
/// Most bytes that one hint asks for.
const ADVICE_MAX: u64 = 16 << 20;

/// Reads up to `len` bytes at `offset`.
pub(super) async fn read_at(handle: &Handle, offset: u64, len: usize) -> FsResult<ReadAt> {
    let filesystem = handle.filesystem();
    let (plan, end) = {
        let mut state = filesystem.state_of(handle.generation())?;
        let file = state.file_mut(handle.node())?;
        let left = file.size().saturating_sub(offset);
        let len = len.min(READ_MAX).min(usize::try_from(left).unwrap_or(usize::MAX));
        let end = len as u64 == left;
        if len == 0 {
            return Ok(ReadAt { bytes: Bytes::new(), end: left == 0 });
        }
        (file.plan(offset, len)?, end)
    };
    let source = &**filesystem.source();
    let (bytes, used) = match plan {
        ReadPlan::Ready(bytes) => return Ok(ReadAt { bytes, end }),
        ReadPlan::Stored { base, range, sequential } => {
            let (bytes, recent) = stored(source, &base, range, sequential).await?;
            (bytes, recent.map(|recent| (base, recent)))
        }
        ReadPlan::Mixed { base, mut buffer, offset, gaps } => {
            let mut last: Option<Recent> = None;
            for gap in gaps {
                let at = usize::try_from(gap.start - offset).unwrap_or(usize::MAX);
                let bytes = match last.as_ref().and_then(|last| last.slice(&gap)) {
                    Some(bytes) => bytes,
                    None => {
                        let (bytes, recent) = stored(source, &base, gap, false).await?;
                        last = recent.or(last);
                        bytes
                    }
                };
                buffer[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            (buffer.into(), last.map(|recent| (base, recent)))
        }
    };
    if let Some((base, recent)) = used
        && let Ok(mut state) = filesystem.state_of(handle.generation())
    {
        // An object that is gone meanwhile needs no chunk.
        let _ = state.remember(handle.node(), &base, recent);
    }
    Ok(ReadAt { bytes, end })
}

/// Reads a range of stored content. Also returns its last chunk, when the file has others.
pub(super) async fn stored(
    source: &dyn Source,
    base: &StoredContent,
    range: Range<u64>,
    sequential: bool,
) -> Result<(Bytes, Option<Recent>)> {
    if let Content::Inline(_) = &*base.content {
        return Ok((list::read(source, &base.content, base.size, range).await?, None));
    }
    let ahead = if sequential && base.size > CHUNK_MAX as u64 { AHEAD } else { 0 };
    let parts = list::parts(source, &base.content, base.size, range.start..range.end.saturating_add(ahead)).await?;
    let chunks: Vec<ChunkLink> = parts.iter().filter_map(|at| chunk(&at.part)).collect();
    if chunks.len() > 1 {
        source.prefetch(&chunks);
    }
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    let mut recent = None;
    for at in parts.iter().take_while(|at| at.offset < range.end) {
        let covers = at.range();
        let (from, to) = (range.start.max(covers.start), range.end.min(covers.end));
        match &at.part {
            Part::Hole(_) => all.resize(all.len() + usize::try_from(to - from).unwrap_or(usize::MAX), 0),
            Part::Chunk(link, stored) => {
                let bytes = source.chunk(link).await?;
                if bytes.len() != *stored as usize {
                    let message = format!("chunk {} has {} bytes, and its file says {stored}", link.id, bytes.len());
                    return Err(Error::damaged(message).code("chunk_damaged"));
                }
                let chunk = Recent { start: covers.start, bytes };
                let wanted = chunk.slice(&(from..to)).unwrap_or_default();
                if wanted.len() == len {
                    return Ok((wanted, Some(chunk)));
                }
                all.extend_from_slice(&wanted);
                recent = Some(chunk);
            }
        }
    }
    if all.len() != len {
        return Err(Error::damaged("a file has fewer bytes than its size says").code("page_damaged"));
    }
    Ok((all.into(), recent))
}

/// Asks the source to load a range of a file's stored chunks.
pub(super) async fn prefetch(handle: &Handle, offset: u64, len: u64) -> FsResult<()> {
    let filesystem = handle.filesystem();
    let base = {
        let mut state = filesystem.state_of(handle.generation())?;
        if state.directory(handle.node()).is_ok() {
            return Ok(());
        }
        state.file_mut(handle.node())?.base()
    };
    // As `posix_fadvise` has it, no length means all the rest.
    let len = if len == 0 { ADVICE_MAX } else { len.min(ADVICE_MAX) };
    let source = filesystem.source();
    let parts = list::parts(&**source, &base.content, base.size, offset..offset.saturating_add(len)).await?;
    let chunks: Vec<ChunkLink> = parts.iter().filter_map(|at| chunk(&at.part)).collect();
    if !chunks.is_empty() {
        source.prefetch(&chunks);
    }
    Ok(())
}

fn chunk(part: &Part) -> Option<ChunkLink> {
    match part {
        Part::Chunk(link, _) => Some(link.clone()),
        Part::Hole(_) => None,
    }
}
