//! The disk cache: ranges of packs kept on this machine, so that a pack is fetched from the store once.
//!
//! A range is one file, named by pack, offset and length. Packs are immutable, so a file never gets old; it can only be damaged, and
//! its reader finds that out by the hashes of the objects in it and then calls [`DiskCache::forget`]. Several processes may use one folder:
//! files appear by rename, are removed by whoever trims, and a file that has gone is a miss. Losing the folder loses only time, so nothing is synced
//! and no failure to write is an error.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps};

use crate::clock::{SharedClock, UnixNanos};
use crate::error::{Error, Result};
use crate::id::PackId;

const SHARDS: usize = 256;
/// A file's time of last use is renewed at most this often.
const TOUCH_NANOS: i64 = 600 * 1_000_000_000;
/// A temporary file older than this was left by a process that died.
const LEFTOVER_NANOS: i64 = 3_600 * 1_000_000_000;

/// The ranges of one shard by pack: offset and length in bytes.
type Shard = HashMap<PackId, Vec<(u32, u32)>>;

/// A folder of ranges of packs, bounded in bytes, the least recently used removed first. Cheap to share behind an [`Arc`].
///
/// Its calls block on the disk: call them where blocking is allowed.
pub struct DiskCache {
    dir: PathBuf,
    budget: u64,
    clock: SharedClock,
    shards: Mutex<Vec<Option<Shard>>>,
    /// Bytes in the folder when it was last looked through, and what this process has added since.
    counted: AtomicU64,
    added: AtomicU64,
    temp: AtomicU64,
    warned: AtomicBool,
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskCache").field("dir", &self.dir).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl DiskCache {
    /// Opens the cache in a folder, which is made (mode 0700) when it is missing. The first write brings it under `budget` bytes.
    ///
    /// # Errors
    /// `Local` when the folder can't be made or belongs to somebody else.
    pub fn open(dir: &Path, budget: u64, clock: SharedClock) -> Result<Arc<Self>> {
        let failed = |e: std::io::Error| {
            Error::local(format!("the cache folder {} can't be used", dir.display()))
                .source(e)
                .hint("name another folder, or have this one made writable")
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let stat = rustix::fs::stat(dir).map_err(|e| failed(e.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Error::local(format!("the cache folder {} belongs to user {}", dir.display(), stat.st_uid))
                .hint("name a folder of your own: what is cached may be private"));
        }
        rustix::fs::chmod(dir, Mode::RWXU).map_err(|e| failed(e.into()))?;
        std::fs::create_dir_all(dir.join("tmp")).map_err(failed)?;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            budget,
            clock,
            shards: Mutex::new((0..SHARDS).map(|_| None).collect()),
            // Not looked through yet: that may take long, so the first write does it, on its own thread.
            counted: AtomicU64::new(budget),
            added: AtomicU64::new(0),
            temp: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        }))
    }

    /// Returns `len` bytes of a pack from offset `from` on, when a range that covers them is here. They aren't verified.
    #[must_use]
    pub fn get(&self, pack: PackId, from: u32, len: u32) -> Option<Bytes> {
        loop {
            let (start, length) = *self
                .with_shard(pack, |shard| {
                    shard.get(&pack).and_then(|ranges| ranges.iter().find(|range| covers(**range, from, len)).copied())
                })
                .as_ref()?;
            if let Some(bytes) = self.read(pack, (start, length), from, len) {
                return Some(bytes);
            }
            // Another process removed it, or it is cut off: it is no longer here, and another range may do.
            self.drop_range(pack, (start, length));
        }
    }

    /// Keeps bytes of a pack that begin at offset `from`. Replaces ranges that lie within.
    pub fn put(&self, pack: PackId, from: u32, bytes: &[u8]) {
        let Ok(len) = u32::try_from(bytes.len()) else { return };
        if len == 0 || u64::from(len) > self.budget / 4 {
            return;
        }
        let known = |shard: &mut Shard| shard.get(&pack).is_some_and(|ranges| ranges.iter().any(|range| covers(*range, from, len)));
        if self.with_shard(pack, known) {
            return;
        }
        if let Err(error) = self.write(pack, (from, len), bytes) {
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(folder = %self.dir.display(), %error, "can't write to the cache; going on without");
            }
            return;
        }
        let within = self.with_shard(pack, |shard| {
            let ranges = shard.entry(pack).or_default();
            let within: Vec<_> = ranges.iter().copied().filter(|range| covers((from, len), range.0, range.1)).collect();
            ranges.retain(|range| !within.contains(range));
            ranges.push((from, len));
            within
        });
        for range in within {
            if range != (from, len) {
                let _ = std::fs::remove_file(self.path(pack, range));
            }
        }
        // Other processes add too: look through the folder now and then, not only when this one's own count says it is full.
        let added = self.added.fetch_add(u64::from(len), Ordering::Relaxed) + u64::from(len);
        if added > self.budget / 8 || added + self.counted.load(Ordering::Relaxed) > self.budget {
            self.trim();
        }
    }

    /// Removes everything of a pack: some of it was found damaged.
    pub fn forget(&self, pack: PackId) {
        let ranges = self.with_shard(pack, |shard| shard.remove(&pack)).unwrap_or_default();
        for range in ranges {
            let _ = std::fs::remove_file(self.path(pack, range));
        }
    }

    /// Returns the bytes in the cache as far as this process knows.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.counted.load(Ordering::Relaxed) + self.added.load(Ordering::Relaxed)
    }

    /// Looks through the folder and, when it holds more than the budget, removes the least recently used ranges until nine tenths of it are left.
    /// Does nothing while another process does this.
    pub fn trim(&self) {
        let Some(_lock) = self.lock() else {
            // The other one brings it under the budget.
            self.counted.store(self.budget / 10 * 9, Ordering::Relaxed);
            self.added.store(0, Ordering::Relaxed);
            return;
        };
        self.remove_leftovers();
        let mut files = Vec::new();
        let mut total = 0;
        for shard in 0..SHARDS {
            let dir = self.dir.join(format!("{shard:02x}"));
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                total += meta.len();
                files.push((mtime(&meta), meta.len(), entry.path()));
            }
        }
        if total > self.budget {
            files.sort_unstable();
            for (_, len, path) in files {
                if total <= self.budget / 10 * 9 {
                    break;
                }
                if std::fs::remove_file(&path).is_ok() {
                    total -= len;
                }
            }
            // What is left is found again shard by shard.
            self.lock_shards().fill_with(|| None);
        }
        self.counted.store(total, Ordering::Relaxed);
        self.added.store(0, Ordering::Relaxed);
    }

    fn lock(&self) -> Option<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.dir.join("lock"), flags, Mode::RUSR | Mode::WUSR).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(file)
    }

    fn remove_leftovers(&self) {
        let before = self.clock.now().saturating_sub(LEFTOVER_NANOS);
        for entry in std::fs::read_dir(self.dir.join("tmp")).into_iter().flatten().flatten() {
            if entry.metadata().is_ok_and(|meta| mtime(&meta) < before) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, pack: PackId, (start, len): (u32, u32)) -> PathBuf {
        self.dir.join(format!("{:02x}", pack.as_bytes()[0])).join(format!("{pack}-{start}-{len}"))
    }

    fn read(&self, pack: PackId, range: (u32, u32), from: u32, len: u32) -> Option<Bytes> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::open(self.path(pack, range), flags, Mode::empty()).ok()?);
        let meta = file.metadata().ok()?;
        if meta.len() != u64::from(range.1) {
            let _ = std::fs::remove_file(self.path(pack, range));
            return None;
        }
        let mut bytes = vec![0; len as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, u64::from(from - range.0)).ok()?;
        let now = self.clock.now();
        if now.saturating_sub(mtime(&meta)) > TOUCH_NANOS {
            let _ = rustix::fs::futimens(&file, &times(now));
        }
        Some(bytes.into())
    }

    fn write(&self, pack: PackId, range: (u32, u32), bytes: &[u8]) -> std::io::Result<()> {
        let (temp, mut file) = loop {
            let name = format!("{}-{}", std::process::id(), self.temp.fetch_add(1, Ordering::Relaxed));
            let temp = self.dir.join("tmp").join(name);
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match rustix::fs::open(&temp, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => break (temp, File::from(file)),
                // Left by, or made by, a process of the same number (containers have their own numbers).
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let written = file.write_all(bytes).and_then(|()| {
            rustix::fs::futimens(&file, &times(self.clock.now()))?;
            let path = self.path(pack, range);
            match rustix::fs::renameat(CWD, &temp, CWD, &path) {
                Err(rustix::io::Errno::NOENT) => {
                    // The first range of its shard.
                    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                    rustix::fs::renameat(CWD, &temp, CWD, &path)?;
                }
                other => other?,
            }
            Ok(())
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(CWD, &temp, AtFlags::empty());
        }
        written
    }

    fn drop_range(&self, pack: PackId, range: (u32, u32)) {
        self.with_shard(pack, |shard| {
            if let Some(ranges) = shard.get_mut(&pack) {
                ranges.retain(|have| *have != range);
            }
        });
    }

    fn lock_shards(&self) -> MutexGuard<'_, Vec<Option<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_shard<T>(&self, pack: PackId, f: impl FnOnce(&mut Shard) -> T) -> T {
        let number = pack.as_bytes()[0];
        let mut shards = self.lock_shards();
        f(shards[usize::from(number)].get_or_insert_with(|| read_shard(&self.dir.join(format!("{number:02x}")))))
    }
}

fn covers((start, length): (u32, u32), from: u32, len: u32) -> bool {
    start <= from && u64::from(from) + u64::from(len) <= u64::from(start) + u64::from(length)
}

fn read_shard(dir: &Path) -> Shard {
    let mut shard = Shard::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let mut parts = name.to_str().unwrap_or_default().split('-');
        if let (Some(Ok(pack)), Some(Ok(start)), Some(Ok(len)), None) =
            (parts.next().map(str::parse), parts.next().map(str::parse), parts.next().map(str::parse), parts.next())
        {
            shard.entry(pack).or_default().push((start, len));
        }
    }
    shard
}

fn mtime(meta: &std::fs::Metadata) -> UnixNanos {
    use std::os::unix::fs::MetadataExt as _;
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

fn times(at: UnixNanos) -> Timestamps {
    let time = Timespec { tv_sec: at.div_euclid(1_000_000_000), tv_nsec: at.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests;
