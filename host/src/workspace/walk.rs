//! Everything below a directory, as a stream in bounded memory.

use std::collections::VecDeque;

use bytes::Bytes;

use super::page::{Entry, Node, Page, PageLink, Root, SplitSlot};
use super::source::Source;
use super::tree::{BATCH, check_path, check_totals, misplaced};
use crate::error::{Error, Result};

/// Longest path in bytes that is followed: far above the limit on a workspace, and low enough to end what names itself over and over.
pub const PATH_MAX: usize = 64 << 10;

/// One entry on the way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The names from the top down to the entry, joined by `/`, without one at the front.
    pub path: Bytes,
    /// The entry.
    pub entry: Entry,
}

/// A page that is still to be read.
struct Waiting {
    link: PageLink,
    /// The path of its directory.
    path: Bytes,
    /// For a part of a split directory: the slots that lead to it, and what the last says.
    slot: Option<(Vec<usize>, SplitSlot)>,
}

/// Walks over everything below a directory.
///
/// A directory comes before what is in it; beyond that the order is fixed by the tree, but isn't that of the names. Pages are fetched in
/// batches, and the memory in use doesn't grow with the tree, only with the directories that wait to be read.
pub struct Walk<'s> {
    source: &'s dyn Source,
    waiting: Vec<Waiting>,
    ready: VecDeque<Walked>,
    entries: u64,
    most: u64,
    exactly: bool,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("waiting", &self.waiting.len()).field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl<'s> Walk<'s> {
    /// Walks over a whole root, and fails at the end if it has another number of entries than the root says.
    #[must_use]
    pub fn new(source: &'s dyn Source, root: &Root) -> Self {
        Self { exactly: true, ..Self::below(source, &root.page, Bytes::new(), root.entries) }
    }

    /// Walks over what is below a directory; paths begin with `path`. Fails at more entries than `most`.
    #[must_use]
    pub fn below(source: &'s dyn Source, directory: &PageLink, path: Bytes, most: u64) -> Self {
        let top = Waiting { link: directory.clone(), path, slot: None };
        Self { source, waiting: vec![top], ready: VecDeque::new(), entries: 0, most, exactly: false }
    }

    /// Returns the next entry; none at the end.
    ///
    /// # Errors
    /// As [`Source::page`]; `Damaged` when there are more entries, or in the end fewer, than there should be.
    pub async fn next(&mut self) -> Result<Option<Walked>> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(Some(next));
            }
            if self.waiting.is_empty() {
                if self.exactly && self.entries != self.most {
                    return Err(Error::damaged(format!("a root has {} entries, and its record says {}", self.entries, self.most)));
                }
                return Ok(None);
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<()> {
        // Last in, first out, so that few wait: one directory's subdirectories are read before its neighbours'.
        let batch = self.waiting.split_off(self.waiting.len().saturating_sub(BATCH));
        let links: Vec<_> = batch.iter().rev().map(|waiting| waiting.link.clone()).collect();
        let pages = self.source.pages(&links).await?;
        let mut found = Vec::new();
        for (waiting, page) in batch.into_iter().rev().zip(pages) {
            if let Some((_, slot)) = &waiting.slot {
                check_totals(slot, &page)?;
            }
            let digits = waiting.slot.map(|(digits, _)| digits).unwrap_or_default();
            match &*page {
                Page::Directory(entries) => {
                    check_path(waiting.link.id, entries, &digits)?;
                    self.entries += entries.len() as u64;
                    if self.entries > self.most {
                        return Err(Error::damaged(format!("a tree has more than the {} entries that it may have", self.most)));
                    }
                    for entry in entries {
                        let path = join(&waiting.path, &entry.name)?;
                        if let Node::Directory(page) = &entry.node {
                            found.push(Waiting { link: page.clone(), path: path.clone(), slot: None });
                        }
                        self.ready.push_back(Walked { path, entry: entry.clone() });
                    }
                }
                Page::Split(slots) if digits.len() < 64 => {
                    for (digit, slot) in slots.iter().enumerate() {
                        if let Some(slot) = slot {
                            let digits = digits.iter().copied().chain([digit]).collect();
                            found.push(Waiting { link: slot.page.clone(), path: waiting.path.clone(), slot: Some((digits, slot.clone())) });
                        }
                    }
                }
                _ => return Err(misplaced(waiting.link.id, "isn't a directory")),
            }
        }
        self.waiting.extend(found.into_iter().rev());
        Ok(())
    }
}

/// Returns the path of an entry of a directory.
pub(crate) fn join(directory: &Bytes, name: &Bytes) -> Result<Bytes> {
    if directory.is_empty() {
        return Ok(name.clone());
    }
    if directory.len() + name.len() >= PATH_MAX {
        return Err(Error::damaged(format!("a tree has a path of more than {PATH_MAX} bytes")));
    }
    Ok([directory, &b"/"[..], name].concat().into())
}

#[cfg(test)]
pub(super) mod tests;
