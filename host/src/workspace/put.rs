//! Putting back what another stored tree has, without reading or copying a byte of it.

use bytes::Bytes;

use super::content::FileData;
use super::fault::FsError;
use super::node::{Body, Edit, Home, Node, NodeId};
use super::page::Content;
use super::resolve::Resolved;
use super::stat::{Follow, Kind};
use super::state::{State, Step};
use crate::clock::UnixNanos;

/// A file or a symbolic link of a stored tree that this filesystem's source can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredLeaf {
    /// Permission bits.
    pub mode: u16,
    /// Time of the last modification.
    pub modified: UnixNanos,
    /// What it is.
    pub body: LeafBody,
}

/// What a [`StoredLeaf`] is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeafBody {
    /// A file.
    File {
        /// Its length in bytes.
        size: u64,
        /// Its bytes.
        content: Content,
    },
    /// A symbolic link and its target, verbatim.
    Symlink(Bytes),
}

impl State {
    /// Puts a stored file or link at a path, in place of a file or link that is there.
    pub(super) fn put_at(&mut self, start: NodeId, path: &[u8], leaf: &StoredLeaf) -> Step<()> {
        self.writable()?;
        let mut place = match self.resolve(start, path, Follow::No)? {
            Resolved::Directory(_) => return Err(FsError::IsDirectory.into()),
            Resolved::Named(place) => place,
        };
        let size = match &leaf.body {
            LeafBody::File { size, .. } => *size,
            LeafBody::Symlink(_) => 0,
        };
        if size > self.setup.limits.file {
            return Err(FsError::FileTooLarge.into());
        }
        self.nameable(&place)?;
        self.usage.room(&self.setup.limits, 1, size)?;
        if let Some(child) = place.child.take() {
            if self.child_kind(&child)? == Kind::Directory {
                return Err(FsError::IsDirectory.into());
            }
            self.remove(&place, child)?;
        }
        // From here on nothing can fail for want of a page.
        let body = match &leaf.body {
            LeafBody::File { size, content } => {
                Body::File { data: FileData::stored(content.clone(), *size, &self.setup.spool), number: None }
            }
            LeafBody::Symlink(target) => Body::Symlink(target.clone()),
        };
        let inode = self.new_inode();
        let mut node = Node::new(inode, leaf.mode, leaf.modified, body);
        node.names = 1;
        node.home = Some(Home { directory: place.directory, name: place.name.clone() });
        node.edited = true;
        let id = self.nodes.add(node);
        self.usage.bytes = self.usage.bytes.saturating_add(size);
        self.insert_name(place.directory, &place.name, Edit::Node(id))?;
        Ok(())
    }
}
