//! Names that come and go, and what differs from the base by that.

use bytes::Bytes;

use super::State;
use crate::workspace::fault::FsResult;
use crate::workspace::node::{Body, Edit, Home, NodeId};
use crate::workspace::stat::Kind;

impl State {
    /// Notes that an object's entry is no longer the base's, up to the top.
    pub(in crate::workspace) fn mark(&mut self, id: NodeId) -> FsResult<()> {
        self.version += 1;
        let mut id = id;
        loop {
            let node = self.node_mut(id)?;
            if node.edited {
                return Ok(());
            }
            if let Some(number) = node.number() {
                node.edited = node.names > 0;
                if node.edited {
                    self.linked_cached.remove(&number);
                    self.linked_edits.insert(number, Some(id));
                }
                return Ok(());
            }
            let Some(Home { directory, name }) = node.home.clone() else { return Ok(()) };
            node.edited = true;
            self.directory_mut(directory)?.cached.remove(&name);
            self.edit_name(directory, &name, Edit::Node(id))?;
            id = directory;
        }
    }

    /// Notes that a directory's names have changed.
    fn touch(&mut self, directory: NodeId) -> FsResult<()> {
        let now = self.now();
        self.node_mut(directory)?.modified = now;
        self.mark(directory)
    }

    /// Adds a name that wasn't there. What it names has to know its names already.
    pub(in crate::workspace) fn insert_name(&mut self, directory: NodeId, name: &Bytes, edit: Edit) -> FsResult<()> {
        self.edit_name(directory, name, edit)?;
        self.directory_mut(directory)?.grown += 1;
        self.usage.entries += 1;
        self.touch(directory)
    }

    /// Takes a name away. What it named has to learn of it.
    pub(in crate::workspace) fn remove_name(&mut self, directory: NodeId, name: &Bytes, in_base: bool) -> FsResult<()> {
        self.directory_mut(directory)?.cached.remove(name);
        if in_base {
            self.edit_name(directory, name, Edit::Gone)?;
        } else if self.directory_mut(directory)?.edits.remove(name).is_some() {
            self.budget.remove_edit(name);
        }
        self.directory_mut(directory)?.grown -= 1;
        self.usage.entries = self.usage.entries.saturating_sub(1);
        self.touch(directory)
    }

    /// Takes one name off an object; without names it lives on only while it is open.
    pub(in crate::workspace) fn drop_name(&mut self, id: NodeId) -> FsResult<()> {
        let node = self.node_mut(id)?;
        node.names = node.names.saturating_sub(1);
        let (names, open, size, number) = (node.names, node.handles > 0, node.size(), node.number());
        if names > 0 {
            return self.mark(id);
        }
        node.home = None;
        node.edited = false;
        let is_file = node.kind() == Kind::File;
        if let Body::File { number, .. } = &mut node.body {
            *number = None;
        }
        if let Some(number) = number {
            self.linked_cached.remove(&number);
            self.linked_edits.insert(number, None);
        }
        if is_file {
            self.usage.bytes = self.usage.bytes.saturating_sub(size);
        }
        if open {
            self.usage.unlinked += if is_file { size } else { 0 };
        } else {
            self.remove_node(id);
        }
        Ok(())
    }
}
