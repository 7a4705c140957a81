//! Going on from a captured root without its edits.

use std::collections::HashMap;

use bytes::Bytes;

use super::fault::FsResult;
use super::filesystem::Filesystem;
use super::node::{Body, Edit, NodeId, TOP};
use super::page::{Entry, LinkedFile, Node as Stored, PageLink, Root};
use super::state::{State, Step};
use crate::error::{Error, Result};

/// What the edited objects are in the new base.
#[derive(Default)]
struct Found {
    /// Pages of the edited directories, each before those in it.
    directories: Vec<(NodeId, PageLink)>,
    /// Entries of objects that stay in memory.
    entries: HashMap<(NodeId, Bytes), Entry>,
    /// Files of the new link table that stay in memory.
    linked: HashMap<u64, LinkedFile>,
}

impl Filesystem {
    /// Goes on from `root`, which has to be what [`super::capture::capture`] of this very state gave, with its places resolved and
    /// readable from the source: edits are dropped from memory and spool, handles stay valid. Without it a later capture writes the
    /// same objects again.
    ///
    /// # Errors
    /// Those of the source; the edits are then kept. `Internal` when the root isn't what was captured, or something was changed since.
    pub async fn rebase(&self, root: &Root) -> Result<()> {
        let (generation, version) = {
            let state = self.state();
            check(&state, root)?;
            (state.generation, state.version)
        };
        let mut found = Found::default();
        let mut waiting = vec![(TOP, root.page.clone())];
        while let Some((id, page)) = waiting.pop() {
            let names = kept_names(&self.state(), id)?;
            for name in names {
                let entry = self.run(generation, |state| state.stored_entry(&page, &name)).await?.ok_or_else(other)?;
                if let Stored::Linked(number) = entry.node {
                    self.find_linked(generation, root, number, &mut found).await?;
                }
                let child = edited_directory(&self.state(), id, &name)?;
                if let (Some(child), Stored::Directory(page)) = (child, &entry.node) {
                    waiting.push((child, page.clone()));
                }
                found.entries.insert((id, name), entry);
            }
            found.directories.push((id, page));
        }
        let numbers: Vec<u64> = self.state().linked_edits.iter().filter(|(_, id)| id.is_some()).map(|(number, _)| *number).collect();
        for number in numbers {
            self.find_linked(generation, root, number, &mut found).await?;
        }
        let mut state = self.state_of(generation)?;
        check(&state, root)?;
        if state.version != version {
            return Err(other());
        }
        state.take_base(root, found)?;
        Ok(())
    }

    async fn find_linked(&self, generation: u64, root: &Root, number: u64, found: &mut Found) -> Result<()> {
        let table = root.links.as_ref().ok_or_else(other)?;
        let file = self.run(generation, |state: &mut State| -> Step<LinkedFile> { state.link_in(table, number) }).await?;
        found.linked.insert(number, file);
        Ok(())
    }
}

fn other() -> Error {
    Error::internal("the root that a workspace was to go on from isn't what was captured of it")
}

fn check(state: &State, root: &Root) -> Result<()> {
    match &state.captured {
        Some((version, captured)) if *version == state.version && captured.page.id == root.page.id && !state.frozen => Ok(()),
        _ => Err(other()),
    }
}

/// Returns the edited names of a directory whose objects stay in memory: directories, and what is open.
fn kept_names(state: &State, id: NodeId) -> FsResult<Vec<Bytes>> {
    let mut names = Vec::new();
    for (name, edit) in &state.directory(id)?.edits {
        if let Edit::Node(child) = edit {
            let node = state.node(*child)?;
            if node.handles > 0 || node.directory().is_some() {
                names.push(name.clone());
            }
        }
    }
    Ok(names)
}

fn edited_directory(state: &State, id: NodeId, name: &Bytes) -> FsResult<Option<NodeId>> {
    let Some(Edit::Node(child)) = state.directory(id)?.edits.get(name) else { return Ok(None) };
    Ok(state.node(*child)?.directory().map(|_| *child))
}

impl State {
    fn take_base(&mut self, root: &Root, mut found: Found) -> FsResult<()> {
        for (id, page) in std::mem::take(&mut found.directories) {
            let edits = self.take_edits(id)?;
            let directory = self.directory_mut(id)?;
            directory.base = Some(page);
            directory.grown = 0;
            if !edits.is_empty() {
                directory.epoch += 1;
            }
            for (name, edit) in edits {
                if let Edit::Node(child) = edit {
                    self.settle(id, name, child, &mut found)?;
                }
            }
        }
        for (number, id) in std::mem::take(&mut self.linked_edits) {
            let Some(id) = id else { continue };
            match found.linked.get(&number) {
                Some(file) if self.node(id)?.handles > 0 => self.settle_linked(id, file)?,
                _ => self.remove_node(id),
            }
        }
        self.base = Some(root.clone());
        self.captured = None;
        Ok(())
    }

    /// Makes an edited object one that is as the base says, or forgets it.
    fn settle(&mut self, directory: NodeId, name: Bytes, id: NodeId, found: &mut Found) -> FsResult<()> {
        let Some(entry) = found.entries.remove(&(directory, name.clone())) else {
            self.remove_node(id);
            return Ok(());
        };
        if let Stored::Linked(number) = entry.node {
            return match found.linked.get(&number) {
                Some(file) => self.settle_linked(id, file),
                None => Ok(()),
            };
        }
        let spool = std::sync::Arc::clone(&self.setup.spool);
        let node = self.node_mut(id)?;
        node.edited = false;
        // A file that had several names for a while has one home again.
        node.home = Some(super::node::Home { directory, name: name.clone() });
        if let (Body::File { data, .. }, Stored::File { content, .. }) = (&mut node.body, entry.node) {
            data.rebase(content, &spool);
        }
        self.directory_mut(directory)?.cached.insert(name, id);
        Ok(())
    }

    fn settle_linked(&mut self, id: NodeId, file: &LinkedFile) -> FsResult<()> {
        let spool = std::sync::Arc::clone(&self.setup.spool);
        let node = self.node_mut(id)?;
        node.edited = false;
        node.home = None;
        if let Body::File { data, number } = &mut node.body {
            *number = Some(file.number);
            data.rebase(file.content.clone(), &spool);
        }
        self.linked_cached.insert(file.number, id);
        Ok(())
    }
}
