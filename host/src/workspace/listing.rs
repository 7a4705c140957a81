//! Reading a directory's names while it may change.

use bytes::Bytes;

use super::fault::FsResult;
use super::handle::Handle;
use super::stat::Kind;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name's bytes, usually UTF-8; [`super::path::display`] gives a text for any.
    pub name: Bytes,
    /// What it names.
    pub kind: Kind,
}

/// A stream over the names of a directory in ascending order of their bytes. It shows each name that was there all the time exactly
/// once; names made or removed meanwhile are shown or not. `.` and `..` aren't among them.
#[derive(Debug)]
pub struct DirectoryStream {
    directory: Handle,
    last: Option<Bytes>,
}

impl DirectoryStream {
    /// Returns the next name, or none at the end.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset, `Host` when the directory can't be loaded.
    pub async fn next(&mut self) -> FsResult<Option<DirectoryEntry>> {
        todo!()
    }
}
