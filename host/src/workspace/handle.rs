//! Handles: what a descriptor stands on. A handle keeps its object, whatever happens to its names.

use std::fmt;

use bytes::Bytes;

use super::fault::FsResult;
use super::filesystem::Filesystem;
use super::listing::DirectoryStream;
use super::stat::{Follow, Kind, NewTime, OpenHow, Stat};

/// An open object of a [`Filesystem`]. Cloning opens it once more; dropping closes it. A handle knows no rights and no offset.
///
/// Paths are bytes, `/`-separated and relative to a directory handle. A path that is absolute, or leaves that directory by `..` or by
/// a symbolic link, is `NotPermitted`; a NUL in it is `Invalid`, an empty path `NoEntry`. A name that isn't UTF-8 also answers to the
/// escaped form in which [`super::path::display`] shows it.
///
/// Every call may answer `BadDescriptor` after a reset, and `Host` when the store can't be read; calls that change something may
/// answer `Busy` during a capture.
pub struct Handle {
    filesystem: Filesystem,
}

/// Longest answer of one [`Handle::read_at`] in bytes.
pub const READ_MAX: usize = 1 << 20;

/// Bytes read from a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadAt {
    /// The bytes: as many as asked for, but no more than [`READ_MAX`] and none beyond the end of the file.
    pub bytes: Bytes,
    /// Whether the file ends with them.
    pub end: bool,
}

/// How a file is going to be read. Only a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Soon: loading may begin.
    WillNeed,
    /// In any other way.
    Other,
}

impl Handle {
    /// Returns the filesystem it belongs to.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Returns whether both stand on the same object.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        todo!()
    }

    /// Returns its kind: never a symbolic link, which can't be opened.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub fn kind(&self) -> FsResult<Kind> {
        todo!()
    }

    /// Returns its attributes.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub fn stat(&self) -> FsResult<Stat> {
        todo!()
    }

    /// Sets its times. The access time isn't kept: only `modified` counts.
    ///
    /// # Errors
    /// As all.
    pub fn set_times(&self, modified: NewTime) -> FsResult<()> {
        todo!()
    }

    // --- files -------------------------------------------------------------------------------------------------------------------

    /// Reads up to `len` bytes at `offset`.
    ///
    /// # Errors
    /// `IsDirectory`, or `Host` when content can't be loaded.
    pub async fn read_at(&self, offset: u64, len: usize) -> FsResult<ReadAt> {
        todo!()
    }

    /// Writes all of `data` at `offset` or nothing; a gap before it becomes zeros. Loads nothing.
    ///
    /// # Errors
    /// `IsDirectory`, `FileTooLarge`, `InsufficientSpace`, `Host` when the spool fails.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Writes all of `data` at the end of the file or nothing, and returns the offset where it begins.
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn append(&self, data: &[u8]) -> FsResult<u64> {
        todo!()
    }

    /// Cuts the file off or fills it up with zeros.
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn set_size(&self, size: u64) -> FsResult<()> {
        todo!()
    }

    /// Takes a hint about coming reads. Never waits for them.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> FsResult<()> {
        todo!()
    }

    /// Does nothing but check the handle: edits become durable with the turn, or with a named save, not before.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub fn sync(&self) -> FsResult<()> {
        self.kind().map(drop)
    }

    // --- directories -------------------------------------------------------------------------------------------------------------

    /// Returns a stream over the names of the directory, from its beginning.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub fn read_directory(&self) -> FsResult<DirectoryStream> {
        todo!()
    }

    /// Opens a file or a directory. A symbolic link at the end is followed or is `Loop`.
    ///
    /// # Errors
    /// `NoEntry`, `NotDirectory`, `IsDirectory`, `Exist`, `Loop`, `NotPermitted`, `NameTooLong`, `InsufficientSpace`, `Invalid`.
    pub async fn open_at(&self, path: &[u8], follow: Follow, how: OpenHow) -> FsResult<Self> {
        todo!()
    }

    /// Returns the attributes of what a path names.
    ///
    /// # Errors
    /// `NoEntry`, `NotDirectory`, `Loop`, `NotPermitted`, `NameTooLong`.
    pub async fn stat_at(&self, path: &[u8], follow: Follow) -> FsResult<Stat> {
        todo!()
    }

    /// Sets the times of what a path names.
    ///
    /// # Errors
    /// As [`Handle::stat_at`].
    pub async fn set_times_at(&self, path: &[u8], follow: Follow, modified: NewTime) -> FsResult<()> {
        todo!()
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// `Exist`, `NoEntry` when its parent is missing, `InsufficientSpace`, and those of paths.
    pub async fn create_directory_at(&self, path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Removes an empty directory. Handles on it stay valid; nothing can be made in it any more.
    ///
    /// # Errors
    /// `NotEmpty`, `NotDirectory`, `Busy` for the top directory, `Invalid` for a path that ends in `.`, and those of paths.
    pub async fn remove_directory_at(&self, path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Removes a name of a file, or a symbolic link. Handles on the file go on working.
    ///
    /// # Errors
    /// `IsDirectory`, and those of paths.
    pub async fn unlink_file_at(&self, path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Gives an object another name (POSIX `rename`): what had that name is replaced in the same step, an empty directory by a
    /// directory, anything else by anything but a directory. Two names of one file: nothing happens.
    ///
    /// # Errors
    /// `Invalid` when a directory would move into itself, `NotEmpty`, `IsDirectory`, `NotDirectory`, `CrossDevice`, `Busy`, and those
    /// of paths.
    pub async fn rename_at(&self, path: &[u8], new_directory: &Self, new_path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `NotPermitted` when it isn't a file, `Exist`, `CrossDevice`, `TooManyLinks`, `InsufficientSpace`, and those of paths.
    pub async fn link_at(&self, path: &[u8], follow: Follow, new_directory: &Self, new_path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Makes a symbolic link with `target`, verbatim.
    ///
    /// # Errors
    /// `NotPermitted` for an absolute target, `NoEntry` for an empty one, `Exist`, `InsufficientSpace`, and those of paths.
    pub async fn symlink_at(&self, target: &[u8], path: &[u8]) -> FsResult<()> {
        todo!()
    }

    /// Returns the target of a symbolic link, verbatim, even when it is absolute.
    ///
    /// # Errors
    /// `Invalid` when it isn't a symbolic link, and those of paths.
    pub async fn readlink_at(&self, path: &[u8]) -> FsResult<Bytes> {
        todo!()
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
