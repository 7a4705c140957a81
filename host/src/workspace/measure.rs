//! How deep directories are, for the limit on depth when one is moved.

use std::collections::HashMap;

use super::fault::{FsError, FsResult};
use super::node::{Edit, NodeId, TOP};
use super::page::{Node, Page, PageLink};
use super::resolve::Place;
use super::source::Source;
use super::state::{State, Step, Stop};
use super::tree::{BATCH, misplaced};
use crate::error::Result;
use crate::id::PageId;

impl State {
    /// Checks that nothing below a directory gets too deep when it moves to a place.
    pub(super) fn deep_enough(&mut self, id: NodeId, place: &Place) -> Step<()> {
        let old = self.depth(id)?;
        let new = self.depth(place.directory)? + 1;
        if new <= old || new + self.height(id)? <= self.setup.limits.depth {
            return Ok(());
        }
        Err(FsError::NameTooLong.into())
    }

    /// Returns how many names lead from the top to an object.
    fn depth(&self, mut id: NodeId) -> FsResult<usize> {
        let mut depth = 0;
        while id != TOP {
            let Some(home) = &self.node(id)?.home else { break };
            id = home.directory;
            depth += 1;
        }
        Ok(depth)
    }

    /// Returns how many levels of entries are below a directory. What was removed from a stored directory of several pages still counts.
    fn height(&mut self, top: NodeId) -> Step<usize> {
        let mut most = 0;
        let mut waiting = vec![(top, 0)];
        while let Some((id, above)) = waiting.pop() {
            let base = self.directory(id)?.base.clone();
            let page = base.as_ref().map(|link| self.page(link, None)).transpose()?;
            let directory = self.directory(id)?;
            let mut count = |height: usize| most = most.max(above + height);
            match (page.as_deref(), &base) {
                (Some(Page::Directory(entries)), _) if !directory.edits.is_empty() => {
                    for entry in entries.iter().filter(|entry| !directory.edits.contains_key(&entry.name)) {
                        count(1);
                        if let Node::Directory(link) = &entry.node {
                            count(1 + self.stored_height(link)?);
                        }
                    }
                }
                (_, Some(link)) => count(self.stored_height(link)?),
                (_, None) => {}
            }
            for edit in directory.edits.values() {
                if *edit != Edit::Gone {
                    count(1);
                }
                if let Edit::Node(child) = edit
                    && self.node(*child)?.directory().is_some()
                {
                    waiting.push((*child, above + 1));
                }
            }
        }
        Ok(most)
    }

    fn stored_height(&self, link: &PageLink) -> Step<usize> {
        self.heights.get(&link.id).copied().ok_or_else(|| Stop::Measure(Box::new(link.clone())))
    }
}

/// Returns how many levels of entries are below a stored directory. Reads directory pages only.
pub(super) async fn height(source: &dyn Source, top: &PageLink) -> Result<usize> {
    let mut most = 0;
    // A page that is found again no deeper than before can't add anything, however many names lead to it.
    let mut seen: HashMap<PageId, usize> = HashMap::from([(top.id, 0)]);
    let mut waiting = vec![(top.clone(), 0)];
    while !waiting.is_empty() {
        let batch = waiting.split_off(waiting.len().saturating_sub(BATCH));
        let links: Vec<_> = batch.iter().map(|(link, _)| link.clone()).collect();
        for ((link, level), page) in batch.into_iter().zip(source.pages(&links).await?) {
            let mut push = |link: &PageLink, level: usize| {
                if seen.get(&link.id).is_none_or(|before| *before < level) {
                    seen.insert(link.id, level);
                    waiting.push((link.clone(), level));
                }
            };
            match &*page {
                Page::Directory(entries) => {
                    if !entries.is_empty() {
                        most = most.max(level + 1);
                    }
                    for entry in entries {
                        if let Node::Directory(link) = &entry.node {
                            push(link, level + 1);
                        }
                    }
                }
                Page::Split(slots) => slots.iter().flatten().for_each(|slot| push(&slot.page, level)),
                _ => return Err(misplaced(link.id, "isn't a directory")),
            }
        }
    }
    Ok(most)
}
