//! How big a filesystem may get, and how big it is.

use super::fault::{Exceeded, FsError, FsResult};

/// Limits of one filesystem. Going over one is refused before anything changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most entries of every kind, the top directory not counted; a file with two names counts twice.
    pub entries: u64,
    /// Most bytes in all files together, by their lengths; unlinked files count while they are open.
    pub bytes: u64,
    /// Longest file in bytes.
    pub file: u64,
    /// Longest name in bytes, at most 255.
    pub name: usize,
    /// Longest path in bytes, both of one given to a call and of an object's own from the top directory.
    pub path: usize,
    /// Most directories on the way from the top directory to an object, itself counted.
    pub depth: usize,
    /// Longest target of a symbolic link in bytes.
    pub target: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 16 << 30, file: 4 << 30, name: 255, path: 4096, depth: 256, target: 4095 }
    }
}

impl Limits {
    /// The limits of `/tmp`: 1 GiB, otherwise the defaults.
    #[must_use]
    pub fn temporary() -> Self {
        Self { bytes: 1 << 30, file: 1 << 30, ..Self::default() }
    }
}

/// How much of its limits a filesystem uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Entries of every kind, the top directory not counted.
    pub entries: u64,
    /// Sum of the lengths in bytes of all files that have a name.
    pub bytes: u64,
    /// Sum of the lengths in bytes of files that are open and have no name any more.
    pub unlinked: u64,
}

impl Usage {
    /// Checks that so many entries and bytes may come to it.
    pub(super) fn room(&self, limits: &Limits, entries: u64, bytes: u64) -> FsResult<()> {
        // A base may be over a limit that was lowered since: then only growth is refused.
        if entries > 0 && self.entries.saturating_add(entries) > limits.entries {
            return Err(FsError::InsufficientSpace(Exceeded::Entries { limit: limits.entries }));
        }
        if bytes > 0 && self.bytes.saturating_add(self.unlinked).saturating_add(bytes) > limits.bytes {
            return Err(FsError::InsufficientSpace(Exceeded::Bytes { limit: limits.bytes }));
        }
        Ok(())
    }
}
