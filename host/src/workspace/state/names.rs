//! What names name: the edits of this turn first, then what is in memory, then the base.

use bytes::Bytes;

use super::{Child, State, Step, lost};
use crate::workspace::content::FileData;
use crate::workspace::fault::FsResult;
use crate::workspace::node::{Body, Directory, Edit, Home, Node, NodeId, stored_inode};
use crate::workspace::page::{Entry, Node as Stored};
use crate::workspace::stat::{Kind, Stat};

impl State {
    /// Returns what a name names in a directory.
    pub(in crate::workspace) fn child(&mut self, id: NodeId, name: &[u8]) -> Step<Option<Child>> {
        let directory = self.directory(id)?;
        match directory.edits.get(name) {
            Some(Edit::Gone) => return Ok(None),
            Some(Edit::Node(node)) => return Ok(Some(Child::Node(*node))),
            Some(Edit::Linked(number)) => return Ok(Some(Child::Linked(*number))),
            None => {}
        }
        if let Some(node) = directory.cached.get(name) {
            return Ok(Some(Child::Node(*node)));
        }
        let Some(base) = directory.base.clone() else { return Ok(None) };
        Ok(self.stored_entry(&base, name)?.map(|entry| match entry.node {
            Stored::Linked(number) => Child::Linked(number),
            _ => Child::Stored(entry),
        }))
    }

    /// Says whether the base of a directory has a name.
    pub(in crate::workspace) fn in_base(&mut self, id: NodeId, name: &[u8]) -> Step<bool> {
        match self.directory(id)?.base.clone() {
            Some(base) => Ok(self.stored_entry(&base, name)?.is_some()),
            None => Ok(false),
        }
    }

    /// Returns how many entries a directory has.
    pub(in crate::workspace) fn count(&mut self, id: NodeId) -> Step<u64> {
        let directory = self.directory(id)?;
        let (grown, base) = (directory.grown, directory.base.clone());
        let stored = base.map_or(Ok(0), |base| self.stored_count(&base))?;
        Ok(stored.saturating_add_signed(grown))
    }

    /// Returns the kind of what a name names.
    pub(in crate::workspace) fn child_kind(&self, child: &Child) -> FsResult<Kind> {
        Ok(match child {
            Child::Node(id) => self.node(*id)?.kind(),
            Child::Linked(_) => Kind::File,
            Child::Stored(entry) => stored_kind(&entry.node),
        })
    }

    /// Returns the target of what a name names, when that is a symbolic link.
    pub(in crate::workspace) fn child_target(&self, child: &Child) -> FsResult<Option<Bytes>> {
        Ok(match child {
            Child::Node(id) => match &self.node(*id)?.body {
                Body::Symlink(target) => Some(target.clone()),
                _ => None,
            },
            Child::Stored(Entry { node: Stored::Symlink(target), .. }) => Some(target.clone()),
            _ => None,
        })
    }

    /// Returns the attributes of what a name names, without bringing it into memory.
    pub(in crate::workspace) fn child_stat(&mut self, directory: NodeId, child: &Child) -> Step<Stat> {
        match child {
            Child::Node(id) => Ok(self.stat_node(*id)?),
            Child::Linked(number) => {
                if let Some(id) = self.linked(*number) {
                    return Ok(self.stat_node(id)?);
                }
                let file = self.stored_link(*number)?;
                Ok(Stat {
                    kind: Kind::File,
                    size: file.size,
                    modified: file.mtime,
                    links: u64::from(file.names),
                    mode: file.mode,
                    inode: self.linked_inode(*number),
                })
            }
            Child::Stored(entry) => {
                let parent = self.node(directory)?;
                let epoch = parent.directory().map_or(0, |directory| directory.epoch);
                Ok(Stat {
                    kind: stored_kind(&entry.node),
                    size: match &entry.node {
                        Stored::File { size, .. } => *size,
                        Stored::Symlink(target) => target.len() as u64,
                        Stored::Directory(_) | Stored::Linked(_) => 0,
                    },
                    modified: entry.mtime,
                    links: 1,
                    mode: entry.mode,
                    inode: stored_inode(parent.inode, epoch, &entry.name),
                })
            }
        }
    }

    fn linked(&self, number: u64) -> Option<NodeId> {
        self.linked_edits.get(&number).copied().flatten().or_else(|| self.linked_cached.get(&number).copied())
    }

    /// Brings what a name names into memory.
    pub(in crate::workspace) fn load(&mut self, directory: NodeId, child: Child) -> Step<NodeId> {
        match child {
            Child::Node(id) => Ok(id),
            Child::Linked(number) => {
                if let Some(id) = self.linked(number) {
                    return Ok(id);
                }
                let file = self.stored_link(number)?;
                let data = FileData::stored(file.content, file.size, &self.setup.spool);
                let mut node = Node::new(self.linked_inode(number), file.mode, file.mtime, Body::File { data, number: Some(number) });
                node.names = file.names;
                let id = self.add_node(node);
                self.linked_cached.insert(number, id);
                Ok(id)
            }
            Child::Stored(entry) => {
                let parent = self.node(directory)?;
                let epoch = parent.directory().map_or(0, |directory| directory.epoch);
                let inode = stored_inode(parent.inode, epoch, &entry.name);
                let body = match entry.node {
                    Stored::File { size, content } => Body::File { data: FileData::stored(content, size, &self.setup.spool), number: None },
                    Stored::Directory(link) => Body::Directory(Directory { base: Some(link), ..Directory::default() }),
                    Stored::Symlink(target) => Body::Symlink(target),
                    Stored::Linked(_) => return Err(lost().into()),
                };
                let mut node = Node::new(inode, entry.mode, entry.mtime, body);
                node.names = 1;
                node.home = Some(Home { directory, name: entry.name.clone() });
                let id = self.add_node(node);
                self.directory_mut(directory)?.cached.insert(entry.name, id);
                Ok(id)
            }
        }
    }
}

/// Returns the kind of an entry of the base.
pub(in crate::workspace) fn stored_kind(node: &Stored) -> Kind {
    match node {
        Stored::File { .. } | Stored::Linked(_) => Kind::File,
        Stored::Directory(_) => Kind::Directory,
        Stored::Symlink(_) => Kind::Symlink,
    }
}
