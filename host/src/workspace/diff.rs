//! What differs between two roots. Pages with the same id are never read, so it costs what changed, not what is there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::link_table;
use super::page::{Content, Entry, FANOUT, LinkedFile, Node, Page, PageLink, Root, SplitSlot};
use super::page_codec::{same_content, same_entry};
use super::source::Source;
use super::tree::{BATCH, check_path, check_totals, list_slots, misplaced};
use super::walk::{Walk, join};
use crate::error::{Error, Result};

/// An entry that was added, removed or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The names from the top down to the entry, joined by `/`, without one at the front.
    pub path: Bytes,
    /// What was there. None when the entry was added.
    pub before: Option<EntryView>,
    /// What is there. None when the entry was removed.
    pub after: Option<EntryView>,
}

/// An entry with everything about it in one place: what a file with several names has lies in a table, elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryView {
    /// Permission bits.
    pub mode: u16,
    /// Time of the last modification, nanoseconds since 1970.
    pub mtime: i64,
    /// What it is.
    pub what: What,
    /// The number of a file with several names.
    pub linked: Option<u64>,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Its bytes.
        content: Content,
    },
    /// A directory. It is changed when its mode or time is; what is in it has changes of its own.
    Directory,
    /// A symbolic link and its target.
    Symlink(Bytes),
}

impl EntryView {
    /// Returns whether both have the same kind and the same bytes; mode and time may differ.
    #[must_use]
    pub fn same_bytes(&self, other: &Self) -> bool {
        match (&self.what, &other.what) {
            (What::File { size, content }, What::File { size: other_size, content: other_content }) => {
                size == other_size && same_content(content, other_content)
            }
            (What::Directory, What::Directory) => true,
            (What::Symlink(target), What::Symlink(other)) => target == other,
            _ => false,
        }
    }
}

/// Returns what is different in `root_b`, in ascending order of the paths' bytes. What is below a directory that came or went is listed, too.
///
/// # Errors
/// As [`Source::page`].
pub async fn diff(a: &dyn Source, root_a: &Root, b: &dyn Source, root_b: &Root) -> Result<Vec<Change>> {
    let mut differ = Differ {
        a: Side { source: a, links: root_a.links.clone(), files: HashMap::new() },
        b: Side { source: b, links: root_b.links.clone(), files: HashMap::new() },
        changes: Vec::new(),
        most: root_a.entries.saturating_add(root_b.entries),
        waiting: Vec::new(),
        named: HashMap::new(),
        named_by: HashSet::new(),
    };
    differ.push(Bytes::new(), Some(&root_a.page), Some(&root_b.page));
    differ.run().await?;
    differ.changed_links(root_b).await?;
    let mut changes = differ.changes;
    changes.sort_unstable_by(|x, y| x.path.cmp(&y.path));
    Ok(changes)
}

/// One of the two roots.
struct Side<'s> {
    source: &'s dyn Source,
    links: Option<PageLink>,
    files: HashMap<u64, Option<LinkedFile>>,
}

impl Side<'_> {
    async fn view(&mut self, entry: &Entry) -> Result<EntryView> {
        let what = match &entry.node {
            Node::File { size, content } => What::File { size: *size, content: content.clone() },
            Node::Directory(_) => What::Directory,
            Node::Symlink(target) => What::Symlink(target.clone()),
            Node::Linked(number) => {
                let file = self.file(*number).await?;
                let file =
                    file.ok_or_else(|| Error::damaged(format!("an entry names linked file {number}, which the table doesn't have")))?;
                let what = What::File { size: file.size, content: file.content };
                return Ok(EntryView { mode: file.mode, mtime: file.mtime, what, linked: Some(*number) });
            }
        };
        Ok(EntryView { mode: entry.mode, mtime: entry.mtime, what, linked: None })
    }

    async fn file(&mut self, number: u64) -> Result<Option<LinkedFile>> {
        if let Some(file) = self.files.get(&number) {
            return Ok(file.clone());
        }
        let file = match &self.links {
            Some(table) => link_table::get(self.source, table, number).await?,
            None => None,
        };
        self.files.insert(number, file.clone());
        Ok(file)
    }

    async fn pages(&self, links: &[Option<PageLink>]) -> Result<Vec<Option<Arc<Page>>>> {
        let wanted: Vec<_> = links.iter().flatten().cloned().collect();
        let mut pages = self.source.pages(&wanted).await?.into_iter();
        Ok(links.iter().map(|link| link.as_ref().and_then(|_| pages.next())).collect())
    }

    /// Checks a page against the one above it and returns its entries; of a split directory all below it.
    async fn entries(&self, id: crate::id::PageId, page: &Page, digits: &[usize]) -> Result<Vec<Entry>> {
        match page {
            Page::Directory(entries) => {
                check_path(id, entries, digits)?;
                Ok(entries.clone())
            }
            Page::Split(slots) => list_slots(self.source, slots, digits).await,
            _ => Err(misplaced(id, "isn't a directory")),
        }
    }
}

/// A directory, or a part of a split one with what the page above says of it.
type Part = (PageLink, Option<SplitSlot>);

/// Two directories, or two parts of them in the same place, with different pages.
struct Pair {
    path: Bytes,
    /// The slots that lead to the parts of split directories.
    digits: Vec<usize>,
    a: Option<Part>,
    b: Option<Part>,
}

struct Differ<'s> {
    a: Side<'s>,
    b: Side<'s>,
    changes: Vec<Change>,
    most: u64,
    waiting: Vec<Pair>,
    /// The entries of the second root with several names that were compared: how many of each number, and their paths.
    named: HashMap<u64, u32>,
    named_by: HashSet<Bytes>,
}

impl Differ<'_> {
    fn push(&mut self, path: Bytes, a: Option<&PageLink>, b: Option<&PageLink>) {
        if a.map(|link| link.id) != b.map(|link| link.id) {
            let whole = |link: &PageLink| (link.clone(), None);
            self.waiting.push(Pair { path, digits: Vec::new(), a: a.map(whole), b: b.map(whole) });
        }
    }

    async fn run(&mut self) -> Result<()> {
        while !self.waiting.is_empty() {
            let batch = self.waiting.split_off(self.waiting.len().saturating_sub(BATCH));
            let link = |part: &Option<Part>| part.as_ref().map(|(link, _)| link.clone());
            let links_a: Vec<_> = batch.iter().map(|pair| link(&pair.a)).collect();
            let links_b: Vec<_> = batch.iter().map(|pair| link(&pair.b)).collect();
            let (pages_a, pages_b) = futures::try_join!(self.a.pages(&links_a), self.b.pages(&links_b))?;
            for ((pair, page_a), page_b) in batch.into_iter().zip(pages_a).zip(pages_b) {
                for (side, page) in [(&pair.a, &page_a), (&pair.b, &page_b)] {
                    if let (Some((_, Some(slot))), Some(page)) = (side, page) {
                        check_totals(slot, page)?;
                    }
                }
                self.pair(pair, page_a.as_deref(), page_b.as_deref()).await?;
            }
        }
        Ok(())
    }

    async fn pair(&mut self, pair: Pair, page_a: Option<&Page>, page_b: Option<&Page>) -> Result<()> {
        let splits = |page: Option<&Page>| match page {
            Some(Page::Split(slots)) => Some(slots.clone()),
            None => Some(vec![None; FANOUT]),
            _ => None,
        };
        if let (Some(slots_a), Some(slots_b)) = (splits(page_a), splits(page_b)) {
            if pair.digits.len() >= 64 {
                return Err(Error::damaged("a directory is split too often"));
            }
            for (digit, (a, b)) in slots_a.into_iter().zip(slots_b).enumerate() {
                if a.as_ref().map(|slot| slot.page.id) != b.as_ref().map(|slot| slot.page.id) {
                    let part = |slot: SplitSlot| (slot.page.clone(), Some(slot));
                    let digits = pair.digits.iter().copied().chain([digit]).collect();
                    self.waiting.push(Pair { path: pair.path.clone(), digits, a: a.map(part), b: b.map(part) });
                }
            }
            return Ok(());
        }
        // When only one of them is split it is hardly more than a page larger, or much has changed.
        let entries_a = match (&pair.a, page_a) {
            (Some((link, _)), Some(page)) => self.a.entries(link.id, page, &pair.digits).await?,
            _ => Vec::new(),
        };
        let entries_b = match (&pair.b, page_b) {
            (Some((link, _)), Some(page)) => self.b.entries(link.id, page, &pair.digits).await?,
            _ => Vec::new(),
        };
        let (mut left, mut right) = (entries_a.into_iter().peekable(), entries_b.into_iter().peekable());
        while let Some(name) = left.peek().into_iter().chain(right.peek()).map(|entry| entry.name.clone()).min() {
            let path = join(&pair.path, &name)?;
            self.entry(path, left.next_if(|entry| entry.name == name), right.next_if(|entry| entry.name == name)).await?;
        }
        Ok(())
    }

    async fn entry(&mut self, path: Bytes, a: Option<Entry>, b: Option<Entry>) -> Result<()> {
        let page = |entry: &Option<Entry>| match entry.as_ref().map(|entry| &entry.node) {
            Some(Node::Directory(page)) => Some(page.clone()),
            _ => None,
        };
        let (page_a, page_b) = (page(&a), page(&b));
        let number = match b.as_ref().map(|entry| &entry.node) {
            Some(Node::Linked(number)) => Some(*number),
            _ => None,
        };
        if let Some(number) = number {
            *self.named.entry(number).or_default() += 1;
            self.named_by.insert(path.clone());
        }
        let changed = match (&a, &b) {
            (Some(x), Some(y)) if page_a.is_some() && page_b.is_some() => (x.mode, x.mtime) != (y.mode, y.mtime),
            // A file with several names is the same entry when its number is; what it has may still have changed.
            (Some(x), Some(y)) => number.is_some() || !same_entry(x, y),
            _ => true,
        };
        if changed {
            self.change(path.clone(), a.as_ref(), b.as_ref()).await?;
        }
        self.push(path, page_a.as_ref(), page_b.as_ref());
        Ok(())
    }

    async fn change(&mut self, path: Bytes, a: Option<&Entry>, b: Option<&Entry>) -> Result<()> {
        if self.changes.len() as u64 >= self.most {
            return Err(Error::damaged("a tree has more entries than its root says"));
        }
        let before = match a {
            Some(entry) => Some(self.a.view(entry).await?),
            None => None,
        };
        let after = match b {
            Some(entry) => Some(self.b.view(entry).await?),
            None => None,
        };
        // One file that has got or lost its second name: nothing that can be seen at the first.
        if let (Some(before), Some(after)) = (&before, &after)
            && before.same_bytes(after)
            && (before.mode, before.mtime) == (after.mode, after.mtime)
        {
            return Ok(());
        }
        self.changes.push(Change { path, before, after });
        Ok(())
    }

    /// Finds the names of files that have changed in the table while their entries are the same.
    async fn changed_links(&mut self, root_b: &Root) -> Result<()> {
        let (Some(table_a), Some(table_b)) = (self.a.links.clone(), self.b.links.clone()) else {
            return Ok(());
        };
        if table_a.id == table_b.id {
            return Ok(());
        }
        let (only_a, only_b) = link_table::difference(self.a.source, &table_a, self.b.source, &table_b).await?;
        let before: HashMap<_, _> = only_a.into_iter().map(|file| (file.number, file)).collect();
        let changed = |file: &LinkedFile| {
            before.get(&file.number).is_some_and(|old| {
                (old.mode, old.mtime, old.size) != (file.mode, file.mtime, file.size) || !same_content(&old.content, &file.content)
            })
        };
        let mut numbers: HashMap<_, _> = only_b.iter().filter(|file| changed(file)).map(|file| (file.number, file.names)).collect();
        numbers.retain(|number, names| {
            *names = names.saturating_sub(self.named.get(number).copied().unwrap_or(0));
            *names > 0
        });
        // The table doesn't say which entries name a file, so they have to be looked for, until all are found. Those that weren't compared
        // stand on pages of both roots.
        let source = self.b.source;
        let mut walk = Walk::new(source, root_b);
        while !numbers.is_empty() {
            let Some(walked) = walk.next().await? else { break };
            let Node::Linked(number) = walked.entry.node else { continue };
            let Some(names) = numbers.get_mut(&number) else { continue };
            if self.named_by.contains(&walked.path) {
                continue;
            }
            *names -= 1;
            if *names == 0 {
                numbers.remove(&number);
            }
            self.change(walked.path, Some(&walked.entry), Some(&walked.entry)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
