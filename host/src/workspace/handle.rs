//! Handles: what a descriptor stands on. A handle keeps its object, whatever happens to its names.

use std::fmt;

use bytes::Bytes;

use super::fault::{FsError, FsResult};
use super::filesystem::Filesystem;
use super::listing::DirectoryStream;
use super::node::NodeId;
use super::put::StoredLeaf;
use super::reading;
use super::resolve::Resolved;
use super::stat::{Follow, Kind, NewTime, OpenHow, Stat};
use super::state::{State, Step};

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
    node: NodeId,
    generation: u64,
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
    /// Wraps an object on which a handle was counted.
    pub(super) fn new(filesystem: Filesystem, node: NodeId, generation: u64) -> Self {
        Self { filesystem, node, generation }
    }

    /// Returns the object.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns which of the filesystem's trees the object is in.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the filesystem it belongs to.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Returns whether both stand on the same object.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.node == other.node && self.generation == other.generation && self.filesystem.same(&other.filesystem)
    }

    /// Returns its kind: never a symbolic link, which can't be opened.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub fn kind(&self) -> FsResult<Kind> {
        Ok(self.filesystem.state_of(self.generation)?.node(self.node)?.kind())
    }

    /// Returns its attributes.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub fn stat(&self) -> FsResult<Stat> {
        self.filesystem.state_of(self.generation)?.stat_node(self.node)
    }

    /// Sets its times. The access time isn't kept: only `modified` counts.
    ///
    /// # Errors
    /// As all.
    pub fn set_times(&self, modified: NewTime) -> FsResult<()> {
        self.filesystem.state_of(self.generation)?.set_times(self.node, modified)
    }

    // --- files -------------------------------------------------------------------------------------------------------------------

    /// Reads up to `len` bytes at `offset`.
    ///
    /// # Errors
    /// `IsDirectory`, or `Host` when content can't be loaded.
    pub async fn read_at(&self, offset: u64, len: usize) -> FsResult<ReadAt> {
        reading::read_at(self, offset, len).await
    }

    /// Writes all of `data` at `offset` or nothing; a gap before it becomes zeros. Loads nothing.
    ///
    /// # Errors
    /// `IsDirectory`, `FileTooLarge`, `InsufficientSpace`, `Host` when the spool fails.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        self.filesystem.state_of(self.generation)?.write(self.node, Some(offset), data).map(drop)
    }

    /// Writes all of `data` at the end of the file or nothing, and returns the offset where it begins.
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn append(&self, data: &[u8]) -> FsResult<u64> {
        self.filesystem.state_of(self.generation)?.write(self.node, None, data)
    }

    /// Cuts the file off or fills it up with zeros.
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn set_size(&self, size: u64) -> FsResult<()> {
        self.filesystem.state_of(self.generation)?.set_size(self.node, size)
    }

    /// Takes a hint about coming reads. Never waits for them.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> FsResult<()> {
        match advice {
            Advice::WillNeed => reading::prefetch(self, offset, len).await,
            Advice::Other => self.kind().map(drop),
        }
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
        self.filesystem.state_of(self.generation)?.directory(self.node)?;
        Ok(DirectoryStream::new(self.clone()))
    }

    /// Opens a file or a directory. A symbolic link at the end is followed or is `Loop`.
    ///
    /// # Errors
    /// `NoEntry`, `NotDirectory`, `IsDirectory`, `Exist`, `Loop`, `NotPermitted`, `NameTooLong`, `InsufficientSpace`, `Invalid`.
    pub async fn open_at(&self, path: &[u8], follow: Follow, how: OpenHow) -> FsResult<Self> {
        let node = self.run(|state| state.open_at(self.node, path, follow, how)).await?;
        Ok(Self::new(self.filesystem.clone(), node, self.generation))
    }

    /// Returns the attributes of what a path names.
    ///
    /// # Errors
    /// `NoEntry`, `NotDirectory`, `Loop`, `NotPermitted`, `NameTooLong`.
    pub async fn stat_at(&self, path: &[u8], follow: Follow) -> FsResult<Stat> {
        self.run(|state| match state.resolve(self.node, path, follow)? {
            Resolved::Directory(id) => Ok(state.stat_node(id)?),
            Resolved::Named(place) => {
                let child = state.existing(&place)?;
                state.child_stat(place.directory, &child)
            }
        })
        .await
    }

    /// Sets the times of what a path names.
    ///
    /// # Errors
    /// As [`Handle::stat_at`].
    pub async fn set_times_at(&self, path: &[u8], follow: Follow, modified: NewTime) -> FsResult<()> {
        self.run(|state| {
            let id = state.resolve_node(self.node, path, follow)?;
            Ok(state.set_times(id, modified)?)
        })
        .await
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// `Exist`, `NoEntry` when its parent is missing, `InsufficientSpace`, and those of paths.
    pub async fn create_directory_at(&self, path: &[u8]) -> FsResult<()> {
        self.run(|state| state.create_directory_at(self.node, path)).await
    }

    /// Removes an empty directory. Handles on it stay valid; nothing can be made in it any more.
    ///
    /// # Errors
    /// `NotEmpty`, `NotDirectory`, `Busy` for the top directory, `Invalid` for a path that ends in `.`, and those of paths.
    pub async fn remove_directory_at(&self, path: &[u8]) -> FsResult<()> {
        self.run(|state| state.remove_directory_at(self.node, path)).await
    }

    /// Puts a file or a link of another stored tree at a path, in place of a file or a link that is there: its content isn't read, and is what
    /// a later capture stores a link to.
    ///
    /// # Errors
    /// `IsDirectory`, `NoEntry` when its parent is missing, `InsufficientSpace`, `FileTooLarge`, and those of paths.
    pub async fn put_at(&self, path: &[u8], leaf: &StoredLeaf) -> FsResult<()> {
        self.run(|state| state.put_at(self.node, path, leaf)).await
    }

    /// Removes a name of a file, or a symbolic link. Handles on the file go on working.
    ///
    /// # Errors
    /// `IsDirectory`, and those of paths.
    pub async fn unlink_file_at(&self, path: &[u8]) -> FsResult<()> {
        self.run(|state| state.unlink_file_at(self.node, path)).await
    }

    /// Gives an object another name (POSIX `rename`): what had that name is replaced in the same step, an empty directory by a
    /// directory, anything else by anything but a directory. Two names of one file: nothing happens.
    ///
    /// # Errors
    /// `Invalid` when a directory would move into itself, `NotEmpty`, `IsDirectory`, `NotDirectory`, `CrossDevice`, `Busy`, and those
    /// of paths.
    pub async fn rename_at(&self, path: &[u8], new_directory: &Self, new_path: &[u8]) -> FsResult<()> {
        self.together(new_directory)?;
        self.run(|state| state.rename_at(self.node, path, new_directory.node, new_path)).await
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `NotPermitted` when it isn't a file, `Exist`, `CrossDevice`, `TooManyLinks`, `InsufficientSpace`, and those of paths.
    pub async fn link_at(&self, path: &[u8], follow: Follow, new_directory: &Self, new_path: &[u8]) -> FsResult<()> {
        self.together(new_directory)?;
        self.run(|state| state.link_at(self.node, path, follow, new_directory.node, new_path)).await
    }

    /// Makes a symbolic link with `target`, verbatim.
    ///
    /// # Errors
    /// `NotPermitted` for an absolute target, `NoEntry` for an empty one, `Exist`, `InsufficientSpace`, and those of paths.
    pub async fn symlink_at(&self, target: &[u8], path: &[u8]) -> FsResult<()> {
        self.run(|state| state.symlink_at(target, self.node, path)).await
    }

    /// Returns the target of a symbolic link, verbatim, even when it is absolute.
    ///
    /// # Errors
    /// `Invalid` when it isn't a symbolic link, and those of paths.
    pub async fn readlink_at(&self, path: &[u8]) -> FsResult<Bytes> {
        self.run(|state| state.readlink_at(self.node, path)).await
    }

    async fn run<T>(&self, step: impl FnMut(&mut State) -> Step<T>) -> FsResult<T> {
        self.filesystem.run(self.generation, step).await
    }

    /// Checks that another handle is on the same tree.
    fn together(&self, other: &Self) -> FsResult<()> {
        if !self.filesystem.same(&other.filesystem) {
            return Err(FsError::CrossDevice);
        }
        if self.generation == other.generation { Ok(()) } else { Err(FsError::BadDescriptor) }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        if let Ok(mut state) = self.filesystem.state_of(self.generation) {
            // The object is there as long as this handle is.
            let _ = state.open(self.node);
        }
        Self { filesystem: self.filesystem.clone(), node: self.node, generation: self.generation }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(mut state) = self.filesystem.state_of(self.generation) {
            state.close(self.node);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("node", &self.node).field("generation", &self.generation).finish_non_exhaustive()
    }
}
