//! What a filesystem promises, on pages and chunks in memory.

mod capture;
mod limits;
mod listing;
mod model;
mod posix;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::memory::MemoryObjects;
use super::page::Root;
use super::{Filesystem, Follow, FsResult, Handle, Limits, OpenHow, Setup, Spool};
use crate::clock::{Clock, UnixNanos};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub(super) struct Still(AtomicI64);

impl Still {
    pub(super) fn set(&self, now: UnixNanos) {
        self.0.store(now, Ordering::Relaxed);
    }
}

#[async_trait::async_trait]
impl Clock for Still {
    fn now(&self) -> UnixNanos {
        self.0.load(Ordering::Relaxed)
    }

    fn boot(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _span: Duration) {}
}

/// Everything that a filesystem needs, in memory.
pub(super) struct Ground {
    pub(super) objects: MemoryObjects,
    pub(super) clock: Arc<Still>,
    pub(super) spool: Arc<Spool>,
    folder: tempfile::TempDir,
}

impl Ground {
    pub(super) fn new() -> Self {
        Self::with_memory(Spool::MEMORY)
    }

    /// With so many bytes of memory for edits, and 64 MiB of disk.
    pub(super) fn with_memory(memory: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::new(folder.path().into(), memory, 64 << 20));
        Self { objects: MemoryObjects::new(), clock: Arc::new(Still(AtomicI64::new(1_000))), spool, folder }
    }

    /// With so many bytes for names and attributes.
    pub(super) fn with_tables(bytes: u64) -> Self {
        let mut ground = Self::new();
        ground.spool = Arc::new(Spool::new(ground.folder.path().into(), Spool::MEMORY, 64 << 20).tables(bytes));
        ground
    }

    pub(super) fn open(&self, limits: Limits, base: Option<Root>) -> Filesystem {
        let setup = Setup {
            source: Arc::new(self.objects.clone()),
            clock: Arc::clone(&self.clock) as _,
            spool: Arc::clone(&self.spool),
            limits,
            refuse_dot_git: true,
            number: 0,
        };
        Filesystem::new(setup, base)
    }

    pub(super) fn empty(&self) -> Filesystem {
        self.open(Limits::default(), None)
    }

    pub(super) async fn capture(&self, filesystem: &Filesystem) -> Root {
        super::capture::capture(filesystem, &mut self.objects.clone()).await.unwrap().root
    }

    /// Captures a filesystem and opens what was captured.
    pub(super) async fn reopen(&self, filesystem: &Filesystem) -> Filesystem {
        let root = self.capture(filesystem).await;
        self.open(filesystem.limits(), Some(root))
    }

    pub(super) fn spool_is_named(&self) -> bool {
        std::fs::read_dir(self.folder.path()).unwrap().next().is_some()
    }
}

pub(super) const CREATE: OpenHow = OpenHow { create: true, exclusive: false, directory: false, truncate: false, write: true };
pub(super) const READ: OpenHow = OpenHow { create: false, exclusive: false, directory: false, truncate: false, write: false };

pub(super) async fn open(filesystem: &Filesystem, path: &str, how: OpenHow) -> FsResult<Handle> {
    filesystem.root().open_at(path.as_bytes(), Follow::Yes, how).await
}

pub(super) async fn write(filesystem: &Filesystem, path: &str, data: &[u8]) {
    let how = OpenHow { truncate: true, ..CREATE };
    open(filesystem, path, how).await.unwrap().write_at(0, data).unwrap();
}

pub(super) async fn read(filesystem: &Filesystem, path: &str) -> Vec<u8> {
    read_all(&open(filesystem, path, READ).await.unwrap()).await
}

pub(super) async fn read_all(file: &Handle) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let read = file.read_at(all.len() as u64, 100_000).await.unwrap();
        all.extend_from_slice(&read.bytes);
        if read.end {
            return all;
        }
    }
}

pub(super) async fn mkdir(filesystem: &Filesystem, path: &str) {
    filesystem.root().create_directory_at(path.as_bytes()).await.unwrap();
}

pub(super) async fn names(filesystem: &Filesystem, path: &str) -> Vec<String> {
    let directory = open(filesystem, path, READ).await.unwrap();
    let mut stream = directory.read_directory().unwrap();
    let mut names = Vec::new();
    while let Some(entry) = stream.next().await.unwrap() {
        names.push(super::path::display(&entry.name).into_owned());
    }
    names
}

/// Shows a result's error by its variant's name, and `ok` for success.
pub(super) fn code<T>(result: FsResult<T>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => format!("{error:?}").split([' ', '(']).next().unwrap().to_owned(),
    }
}
