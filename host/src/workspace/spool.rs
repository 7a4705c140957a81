//! Where the data of edits lies: in memory up to a budget, above it in an unlinked file.

use std::path::PathBuf;

/// The data of a turn's edits, shared by its filesystems.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    memory: u64,
    disk: u64,
}

impl Spool {
    /// Default of the bytes kept in memory: 32 MiB.
    pub const MEMORY: u64 = 32 << 20;

    /// Makes a spool with at most `memory` bytes in memory and, in an unlinked file made in `directory` when it is first needed, at
    /// most `disk` bytes.
    #[must_use]
    pub fn new(directory: PathBuf, memory: u64, disk: u64) -> Self {
        Self { directory, memory, disk }
    }
}
