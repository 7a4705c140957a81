//! Objects that are open, and those that nothing needs any more.

use super::{NODES_MAX, State};
use crate::workspace::fault::FsResult;
use crate::workspace::node::{Body, NodeId, TOP};
use crate::workspace::stat::Kind;

impl State {
    /// Counts one more handle on an object.
    pub(in crate::workspace) fn open(&mut self, id: NodeId) -> FsResult<()> {
        self.node_mut(id)?.handles += 1;
        Ok(())
    }

    /// Counts one handle less, and forgets an object that nothing needs any more.
    pub(in crate::workspace) fn close(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.handles = node.handles.saturating_sub(1);
        if node.handles > 0 {
            return;
        }
        if let Body::File { data, .. } = &mut node.body {
            data.rest();
        }
        if node.names == 0 {
            if node.kind() == Kind::File {
                self.usage.unlinked = self.usage.unlinked.saturating_sub(node.size());
            }
            self.remove_node(id);
        } else if node.kind() != Kind::Directory {
            // Directories stay: they are on the way to what is asked for next.
            self.forget(id);
        }
    }

    /// Forgets an object that is neither open nor edited: the base has all there is to know. Returns the directory it was in.
    fn forget(&mut self, id: NodeId) -> Option<NodeId> {
        let node = self.nodes.get(id)?;
        if id == TOP || node.handles > 0 || node.edited || node.names == 0 {
            return None;
        }
        if node.directory().is_some_and(|directory| !directory.edits.is_empty() || !directory.cached.is_empty()) {
            return None;
        }
        if let Some(number) = node.number() {
            self.linked_cached.remove(&number);
            self.remove_node(id);
            return None;
        }
        let home = node.home.clone()?;
        let parent = self.nodes.get_mut(home.directory)?.directory_mut()?;
        if parent.cached.get(&home.name) != Some(&id) {
            return None;
        }
        parent.cached.remove(&home.name);
        self.remove_node(id);
        Some(home.directory)
    }

    /// Forgets all objects that nothing needs, from the leaves up, when there are many. Not for use within an operation.
    pub(in crate::workspace) fn sweep(&mut self) {
        if self.nodes.len() < self.sweep_at {
            return;
        }
        let ids: Vec<_> = self.nodes.ids().collect();
        for id in ids {
            let mut next = Some(id);
            while let Some(id) = next {
                next = self.forget(id);
            }
        }
        // Those that are needed would be looked at again in vain.
        self.sweep_at = self.nodes.len() + NODES_MAX;
    }
}
