//! Where the data of edits lies: in memory up to a budget, above it in an unlinked file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::{Exceeded, FsError, FsResult};
use crate::error::Error;

/// The data of a turn's edits, shared by its filesystems.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    memory: u64,
    disk: u64,
    in_memory: AtomicU64,
    tables: u64,
    in_tables: AtomicU64,
    area: Mutex<Area>,
}

/// The spool file and which parts of it are free.
#[derive(Debug, Default)]
struct Area {
    file: Option<File>,
    end: u64,
    used: u64,
    rooms: u64,
    /// Free ranges below `end`: offset and length; neighbours are joined.
    free: BTreeMap<u64, u64>,
}

/// Ranges of the file are made of whole blocks of this many bytes.
const BLOCK: u64 = 4096;
/// Most ranges in use: each takes room in memory too.
const ROOMS_MAX: u64 = 1 << 20;
/// Free ranges looked at for one that is large enough. Above that, the end of the file is as good: free ranges take no disk space.
const SEARCH_MAX: usize = 64;

impl Spool {
    /// Default of the bytes kept in memory: 32 MiB.
    pub const MEMORY: u64 = 32 << 20;

    /// Bytes of memory that objects and changed names may take: 256 MiB, some 500,000 new files.
    pub const TABLES: u64 = 256 << 20;

    /// Makes a spool with at most `memory` bytes in memory and, in an unlinked file made in `directory` when it is first needed, at
    /// most `disk` bytes.
    #[must_use]
    pub fn new(directory: PathBuf, memory: u64, disk: u64) -> Self {
        Self {
            directory,
            memory,
            disk,
            in_memory: AtomicU64::new(0),
            tables: Self::TABLES,
            in_tables: AtomicU64::new(0),
            area: Mutex::default(),
        }
    }

    /// Sets how many bytes of memory objects and changed names may take; the default is [`Spool::TABLES`].
    #[must_use]
    pub fn tables(mut self, bytes: u64) -> Self {
        self.tables = bytes;
        self
    }

    /// Counts memory of objects and names. Never refuses: who makes more of them asks [`Spool::check_tables`] first.
    pub(super) fn take_table(&self, bytes: u64) {
        self.in_tables.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what [`Spool::take_table`] counted.
    pub(super) fn give_table(&self, bytes: u64) {
        self.in_tables.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Refuses when objects and names take all the memory that they may.
    pub(super) fn check_tables(&self) -> FsResult<()> {
        if self.in_tables() < self.tables {
            return Ok(());
        }
        Err(FsError::InsufficientSpace(Exceeded::Tables { limit: self.tables }))
    }

    /// Returns how many bytes of edits lie in memory, and how many in the file.
    #[must_use]
    pub fn used(&self) -> (u64, u64) {
        (self.in_memory.load(Ordering::Relaxed), self.area().used)
    }

    /// Returns how many bytes of memory objects and changed names take.
    #[must_use]
    pub fn in_tables(&self) -> u64 {
        self.in_tables.load(Ordering::Relaxed)
    }

    /// Takes a part of the memory budget; false when that much isn't left.
    pub(super) fn take_memory(&self, bytes: u64) -> bool {
        self.in_memory
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| used.checked_add(bytes).filter(|sum| *sum <= self.memory))
            .is_ok()
    }

    /// Gives back what [`Spool::take_memory`] took.
    pub(super) fn give_memory(&self, bytes: u64) {
        self.in_memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reserves room for at least `len` bytes in the file and returns its range.
    pub(super) fn allocate(&self, len: u64) -> FsResult<Room> {
        let len = len.max(1).next_multiple_of(BLOCK);
        let mut area = self.area();
        if area.used.saturating_add(len) > self.disk || area.rooms >= ROOMS_MAX {
            return Err(self.full());
        }
        if area.file.is_none() {
            let file = tempfile::tempfile_in(&self.directory).map_err(|error| self.failed("making", error))?;
            area.file = Some(file);
        }
        area.used += len;
        area.rooms += 1;
        let found = area.free.iter().take(SEARCH_MAX).find(|(_, free)| **free >= len).map(|(offset, free)| (*offset, *free));
        let offset = match found {
            Some((offset, free)) => {
                area.free.remove(&offset);
                if free > len {
                    area.free.insert(offset + len, free - len);
                }
                offset
            }
            None => {
                let offset = area.end;
                area.end += len;
                offset
            }
        };
        Ok(Room { offset, len })
    }

    /// Gives a range back.
    pub(super) fn release(&self, room: Room) {
        let mut area = self.area();
        area.used = area.used.saturating_sub(room.len);
        area.rooms = area.rooms.saturating_sub(1);
        let Room { mut offset, mut len } = room;
        if let Some((before, free)) = area.free.range(..offset).next_back().map(|(before, free)| (*before, *free))
            && before + free == offset
        {
            area.free.remove(&before);
            (offset, len) = (before, free + len);
        }
        if let Some(free) = area.free.remove(&(offset + len)) {
            len += free;
        }
        if offset + len == area.end {
            area.end = offset;
            if let Some(file) = &area.file {
                // Only gives space back: a failure costs nothing but that.
                let _ = file.set_len(offset);
            }
            return;
        }
        area.free.insert(offset, len);
        if let Some(file) = &area.file {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(file, flags, room.offset, room.len);
        }
    }

    /// Writes into a range, `at` bytes from its start.
    pub(super) fn write(&self, room: Room, at: u64, data: &[u8]) -> FsResult<()> {
        let area = self.area();
        let Some(file) = &area.file else { return Err(FsError::Host(Error::internal("the spool file was never made"))) };
        file.write_all_at(data, room.offset + at).map_err(|error| self.failed("writing", error))
    }

    /// Reads from a range, `at` bytes from its start.
    pub(super) fn read(&self, room: Room, at: u64, buffer: &mut [u8]) -> FsResult<()> {
        let area = self.area();
        let Some(file) = &area.file else { return Err(FsError::Host(Error::internal("the spool file was never made"))) };
        file.read_exact_at(buffer, room.offset + at).map_err(|error| self.failed("reading", error))
    }

    fn area(&self) -> MutexGuard<'_, Area> {
        self.area.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self) -> FsError {
        FsError::InsufficientSpace(Exceeded::Spool { limit: self.disk })
    }

    fn failed(&self, doing: &str, error: io::Error) -> FsError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.full(),
            _ => FsError::Host(
                Error::local(format!("{doing} the spool file in {}", self.directory.display()))
                    .hint("check that the cache folder exists and can be written")
                    .source(error),
            ),
        }
    }
}

/// A range of the spool file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    offset: u64,
    /// Length in bytes.
    pub(super) len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_are_joined_and_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().into(), 0, 1 << 20);
        let rooms: Vec<_> = (0..4).map(|_| spool.allocate(5000).unwrap()).collect();
        assert_eq!(spool.used(), (0, 4 * 8192));
        spool.write(rooms[3], 0, b"last").unwrap();
        spool.release(rooms[0]);
        spool.release(rooms[2]);
        spool.release(rooms[1]);
        let joined = spool.allocate(3 * 8192).unwrap();
        assert_eq!(joined.offset, 0);
        let mut buffer = [0; 4];
        spool.read(rooms[3], 0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"last");
        spool.release(joined);
        spool.release(rooms[3]);
        assert_eq!(spool.used(), (0, 0));
        assert_eq!(spool.area().end, 0);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "the file has no name");
    }

    #[test]
    fn both_budgets_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().into(), 10, 8192);
        assert!(spool.take_memory(10));
        assert!(!spool.take_memory(1));
        spool.give_memory(4);
        assert!(spool.take_memory(4));
        let room = spool.allocate(8192).unwrap();
        assert!(matches!(spool.allocate(1), Err(FsError::InsufficientSpace(Exceeded::Spool { limit: 8192 }))));
        spool.release(room);
        spool.allocate(1).unwrap();
    }
}
