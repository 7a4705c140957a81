//! Looking into the base: its directories and its link table, page by page.

use std::sync::Arc;

use super::{Need, State, Step, Stop};
use crate::error::Error;
use crate::workspace::page::{Entry, LinkedFile, Page, PageLink, SplitSlot};
use crate::workspace::tree::{NameHash, misplaced};

impl State {
    /// Returns a page that is in memory.
    pub(in crate::workspace) fn page(&mut self, link: &PageLink, slot: Option<&SplitSlot>) -> Step<Arc<Page>> {
        self.pages.get(&link.id).ok_or_else(|| Stop::Need(Box::new(Need { link: link.clone(), slot: slot.cloned() })))
    }

    /// Returns the entry of a stored directory.
    pub(in crate::workspace) fn stored_entry(&mut self, directory: &PageLink, name: &[u8]) -> Step<Option<Entry>> {
        let mut page = self.page(directory, None)?;
        let mut id = directory.id;
        let mut hash = None;
        for depth in 0.. {
            let slot = match &*page {
                Page::Directory(entries) => {
                    return Ok(entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|at| entries[at].clone()));
                }
                Page::Split(slots) => match slots.get(hash.get_or_insert_with(|| NameHash::of(name)).slot(depth)) {
                    Some(Some(slot)) if depth < 64 => slot.clone(),
                    _ => return Ok(None),
                },
                _ => return Err(misplaced(id, "isn't a directory").into()),
            };
            id = slot.page.id;
            page = self.page(&slot.page, Some(&slot))?;
        }
        Ok(None)
    }

    /// Returns how many entries a stored directory has.
    pub(in crate::workspace) fn stored_count(&mut self, directory: &PageLink) -> Step<u64> {
        match &*self.page(directory, None)? {
            Page::Directory(entries) => Ok(entries.len() as u64),
            Page::Split(slots) => Ok(slots.iter().flatten().map(|slot| slot.entries).sum()),
            _ => Err(misplaced(directory.id, "isn't a directory").into()),
        }
    }

    /// Returns a file of the base's link table.
    pub(in crate::workspace) fn stored_link(&mut self, number: u64) -> Step<LinkedFile> {
        match self.base.as_ref().and_then(|root| root.links.clone()) {
            Some(table) => self.link_in(&table, number),
            None => Err(dangling(number).into()),
        }
    }

    /// Returns a file of a stored link table.
    pub(in crate::workspace) fn link_in(&mut self, table: &PageLink, number: u64) -> Step<LinkedFile> {
        let mut link = table.clone();
        for _ in 0..64 {
            let page = self.page(&link, None)?;
            link = match &*page {
                Page::LinkTable(files) => {
                    let at = files.binary_search_by_key(&number, |file| file.number).map_err(|_| dangling(number))?;
                    return Ok(files[at].clone());
                }
                Page::LinkTableSplit(parts) => {
                    let at = parts.partition_point(|(_, largest)| *largest < number);
                    parts.get(at).map(|(link, _)| link.clone()).ok_or_else(|| dangling(number))?
                }
                _ => return Err(misplaced(link.id, "isn't a link table").into()),
            };
        }
        Err(dangling(number).into())
    }
}

fn dangling(number: u64) -> Error {
    Error::damaged(format!("an entry names linked file {number}, which the link table doesn't have")).code("page_damaged")
}
