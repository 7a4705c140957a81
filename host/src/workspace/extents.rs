//! The written parts of a file, as runs of bytes by their offset.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::fault::FsResult;
use super::spool::{Room, Spool};

/// Runs of written bytes that don't overlap. They count against the spool's budgets until they are dropped.
#[derive(Debug)]
pub(super) struct Extents {
    spool: Arc<Spool>,
    runs: BTreeMap<u64, Run>,
}

/// Longest run in bytes: what is moved between memory and spool at once.
const RUN_MAX: usize = 256 << 10;

/// What a run in memory takes beside its bytes, so that many short runs can't take far more than the budget.
const RUN_COST: usize = 96;

/// A run's bytes; never empty.
#[derive(Debug)]
enum Run {
    /// In memory, with what it took of the memory budget.
    Memory { bytes: Vec<u8>, taken: usize },
    /// In the spool file.
    Spooled { room: Room, len: usize },
}

impl Run {
    fn len(&self) -> usize {
        match self {
            Self::Memory { bytes, .. } => bytes.len(),
            Self::Spooled { len, .. } => *len,
        }
    }
}

impl Extents {
    /// Begins without any.
    pub(super) fn new(spool: Arc<Spool>) -> Self {
        Self { spool, runs: BTreeMap::new() }
    }

    /// Says whether nothing is written.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the first written range that ends after `from`: from `from` on at the earliest.
    pub(super) fn next_after(&self, from: u64) -> Option<Range<u64>> {
        let covering = self.runs.range(..=from).next_back().map(|(start, run)| *start..*start + run.len() as u64);
        if let Some(range) = covering.filter(|range| range.end > from) {
            return Some(from..range.end);
        }
        self.runs.range(from..).next().map(|(start, run)| *start..*start + run.len() as u64)
    }

    /// Writes over what was there. When the spool fails, a part of `data` may be written.
    pub(super) fn write(&mut self, mut at: u64, mut data: &[u8]) -> FsResult<()> {
        while !data.is_empty() {
            let next = self.runs.range(at + 1..).next().map_or(u64::MAX, |(start, _)| *start);
            let gap = usize::try_from(next - at).unwrap_or(usize::MAX);
            let mut done = 0;
            if let Some((start, run)) = self.runs.range_mut(..=at).next_back() {
                let inside = usize::try_from(at - *start).unwrap_or(usize::MAX);
                let len = run.len();
                if inside < len {
                    done = data.len().min(len - inside);
                    overwrite(&self.spool, run, inside, &data[..done])?;
                } else if inside == len && len < RUN_MAX {
                    done = append(&self.spool, run, &data[..data.len().min(RUN_MAX - len).min(gap)])?;
                }
            }
            if done == 0 {
                done = data.len().min(RUN_MAX).min(gap);
                let before = self.runs.range(..at).next_back().map_or(0, |(_, run)| run.len());
                let run = begin(&self.spool, &data[..done], before)?;
                self.runs.insert(at, run);
            }
            at += done as u64;
            data = &data[done..];
        }
        Ok(())
    }

    /// Copies what is written of the range that begins at `offset` into `buffer`, and returns the ranges of it that aren't.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> FsResult<Vec<Range<u64>>> {
        let end = offset + buffer.len() as u64;
        let mut gaps = Vec::new();
        let mut at = offset;
        let first = self.runs.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, run) in self.runs.range(first..end) {
            let range = *start..*start + run.len() as u64;
            if range.end <= at {
                continue;
            }
            if range.start > at {
                gaps.push(at..range.start);
                at = range.start;
            }
            let stop = range.end.min(end);
            let target = &mut buffer[index(at - offset)..index(stop - offset)];
            let inside = index(at - range.start);
            match run {
                Run::Memory { bytes, .. } => target.copy_from_slice(&bytes[inside..inside + target.len()]),
                Run::Spooled { room, .. } => self.spool.read(*room, inside as u64, target)?,
            }
            at = stop;
        }
        if at < end {
            gaps.push(at..end);
        }
        Ok(gaps)
    }

    /// Forgets what is written from `from` on.
    pub(super) fn cut(&mut self, from: u64) {
        for (_, run) in self.runs.split_off(&from) {
            release(&self.spool, &run);
        }
        if let Some((start, run)) = self.runs.iter_mut().next_back() {
            let keep = index(from - *start);
            match run {
                Run::Memory { bytes, .. } => bytes.truncate(keep),
                Run::Spooled { len, .. } => *len = keep.min(*len),
            }
        }
    }
}

/// Offsets within a run or a buffer: both are far smaller than the address space.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn begin(spool: &Spool, data: &[u8], before: usize) -> FsResult<Run> {
    if spool.take_memory((data.len() + RUN_COST) as u64) {
        return Ok(Run::Memory { bytes: data.to_vec(), taken: data.len() });
    }
    // A file that grows in small steps gets ever more room at once, so that it stays a few long runs.
    let room = spool.allocate(data.len().max(before.saturating_mul(2)).min(RUN_MAX) as u64)?;
    spooled(spool, room, data)
}

fn spooled(spool: &Spool, room: Room, data: &[u8]) -> FsResult<Run> {
    match spool.write(room, 0, data) {
        Ok(()) => Ok(Run::Spooled { room, len: data.len() }),
        Err(error) => {
            spool.release(room);
            Err(error)
        }
    }
}

fn overwrite(spool: &Spool, run: &mut Run, at: usize, data: &[u8]) -> FsResult<()> {
    match run {
        Run::Memory { bytes, .. } => {
            bytes[at..at + data.len()].copy_from_slice(data);
            Ok(())
        }
        Run::Spooled { room, .. } => spool.write(*room, at as u64, data),
    }
}

/// Appends what there is room for: zero bytes when there is none, and a new run has to begin.
fn append(spool: &Spool, run: &mut Run, data: &[u8]) -> FsResult<usize> {
    match run {
        Run::Memory { bytes, taken } => {
            let len = bytes.len() + data.len();
            if len > *taken {
                let wanted = len.max(*taken * 2).min(RUN_MAX);
                if !spool.take_memory((wanted - *taken) as u64) {
                    // The memory is used up: this run goes to the file and makes room for others.
                    let room = spool.allocate(RUN_MAX as u64)?;
                    let moved = spooled(spool, room, bytes)?;
                    release(spool, &std::mem::replace(run, moved));
                    return append(spool, run, data);
                }
                bytes.reserve_exact(wanted - bytes.len());
                *taken = wanted;
            }
            bytes.extend_from_slice(data);
            Ok(data.len())
        }
        Run::Spooled { room, len } => {
            let fits = data.len().min(index(room.len) - *len);
            spool.write(*room, *len as u64, &data[..fits])?;
            *len += fits;
            Ok(fits)
        }
    }
}

fn release(spool: &Spool, run: &Run) {
    match run {
        Run::Memory { taken, .. } => spool.give_memory((*taken + RUN_COST) as u64),
        Run::Spooled { room, .. } => spool.release(*room),
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        for (_, run) in std::mem::take(&mut self.runs) {
            release(&self.spool, &run);
        }
    }
}
