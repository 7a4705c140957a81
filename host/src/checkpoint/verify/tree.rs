//! The pages of a checkpoint: every one is read and compared with its id and with what the page above says of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Found, Object, Owned, Owner};
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::RootRecord;
use crate::error::{Error, Result};
use crate::workspace::page::{Content, Entry, LinkedFile, Node, Page, PageLink, Part, Place, Root, SplitSlot};
use crate::workspace::source::Source as _;
use crate::workspace::tree::{BATCH, check_path, check_totals, misplaced};
use crate::workspace::walk::join;

/// Splits below which no two names can still be together.
const SPLITS_MAX: usize = 64;
/// Levels of list pages, far more than the largest file needs.
const LEVELS_MAX: u32 = 64;

/// A page to be read, and what it should be.
struct Task {
    link: PageLink,
    owner: Owner,
    what: What,
}

enum What {
    /// A directory at a path; of a split one also the slots that lead here, and what the last one says.
    Directory { path: Bytes, slot: Option<(Vec<usize>, SplitSlot)> },
    /// A part of a list that covers so many bytes.
    List { bytes: u64, level: u32 },
    /// A part of a table of linked files whose numbers are in this range; the last is exact.
    Table { from: u64, largest: Option<u64>, level: u32 },
}

/// One root while it is checked.
struct Walker<'a> {
    reader: &'a Reader,
    found: &'a mut Found,
    name: &'static str,
    entries: u64,
    bytes: u64,
    most: u64,
    /// How many pages there can be beside one for each entry: those of lists, by the bytes that they say they cover.
    pages_left: u64,
    /// Whether some page couldn't be read, so that totals mean nothing.
    incomplete: bool,
    tasks: Vec<Task>,
    /// For each number that entries name: how often.
    linked: BTreeMap<u64, u64>,
    /// For each number in the table: how many names it says there are.
    table: BTreeMap<u64, u64>,
}

/// Checks the pages of all roots, and notes what they name.
pub(super) async fn check_roots(reader: &Reader, record: &RootRecord, found: &mut Found) -> Result<()> {
    let roots = [("workspace", Some(&record.workspace)), ("state", Some(&record.state)), (".git", record.git.as_ref())];
    for (name, root) in roots {
        if let Some(root) = root {
            check_root(reader, name, root, found).await?;
        }
    }
    Ok(())
}

async fn check_root(reader: &Reader, name: &'static str, root: &Root, found: &mut Found) -> Result<()> {
    let top = found.own(Owned::Path(name, Bytes::new()));
    let mut walker = Walker {
        reader,
        found,
        name,
        entries: 0,
        bytes: 0,
        most: root.entries,
        pages_left: root.entries.saturating_mul(4).saturating_add(root.bytes >> 15).saturating_add(64),
        incomplete: false,
        tasks: Vec::new(),
        linked: BTreeMap::new(),
        table: BTreeMap::new(),
    };
    if let Some(table) = &root.links {
        walker.push(table, top, What::Table { from: 0, largest: None, level: 0 });
    }
    walker.push(&root.page, top, What::Directory { path: Bytes::new(), slot: None });
    walker.run().await?;
    walker.totals(root, top)
}

impl Walker<'_> {
    fn push(&mut self, link: &PageLink, owner: Owner, what: What) {
        self.tasks.push(Task { link: link.clone(), owner, what });
    }

    async fn run(&mut self) -> Result<()> {
        while !self.tasks.is_empty() {
            let batch = self.tasks.split_off(self.tasks.len().saturating_sub(BATCH));
            self.pages_left = self.pages_left.saturating_sub(batch.len() as u64);
            if self.pages_left == 0 {
                self.incomplete = true;
                let owner = batch.first().map(|task| task.owner);
                let error = Error::damaged(format!("{} has more pages than its entries and bytes can need", self.name));
                return self.found.damage(Object::Record, None, error.code("record_damaged"), owner);
            }
            let links: Vec<_> = batch.iter().map(|task| task.link.clone()).collect();
            // Neighbours come together; when one of them fails each is asked for alone, to see which.
            let together = self.reader.pages(&links).await;
            let mut pages = together.ok().map(Vec::into_iter);
            for task in batch {
                let page = match pages.as_mut().and_then(Iterator::next) {
                    Some(page) => Ok(page),
                    None => self.reader.page(&task.link).await,
                };
                let at = match &task.link.place {
                    Place::At(at) => Some(at.clone()),
                    Place::Fresh => None,
                };
                if let Some(at) = &at {
                    self.found.want(at, None, task.owner);
                }
                let (id, owner) = (task.link.id, task.owner);
                let result = match page {
                    Ok(page) => self.page(task, &page),
                    Err(error) => Err(error),
                };
                match result {
                    Ok(()) => self.found.report.pages += 1,
                    Err(error) => {
                        self.incomplete = true;
                        self.found.damage(Object::Page(id), at.as_ref(), error, Some(owner))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn page(&mut self, task: Task, page: &Page) -> Result<()> {
        let id = task.link.id;
        match (task.what, page) {
            (What::Directory { path, slot }, Page::Directory(entries)) => {
                if let Some((digits, slot)) = &slot {
                    check_totals(slot, page)?;
                    check_path(id, entries, digits)?;
                }
                entries.iter().try_for_each(|entry| self.entry(&path, entry))
            }
            (What::Directory { path, slot }, Page::Split(slots)) => {
                let digits = match slot {
                    Some((digits, slot)) => {
                        check_totals(&slot, page)?;
                        digits
                    }
                    None => Vec::new(),
                };
                if digits.len() >= SPLITS_MAX {
                    return Err(misplaced(id, "is split too often"));
                }
                for (digit, slot) in slots.iter().enumerate() {
                    if let Some(slot) = slot {
                        let digits = digits.iter().copied().chain([digit]).collect();
                        let what = What::Directory { path: path.clone(), slot: Some((digits, slot.clone())) };
                        self.push(&slot.page, task.owner, what);
                    }
                }
                Ok(())
            }
            (What::List { bytes, .. }, Page::List(parts)) => {
                let sum: u64 = parts.iter().map(part_bytes).sum();
                if sum != bytes {
                    return Err(misplaced(id, "lists another number of bytes than the page above it or the file says"));
                }
                self.parts(parts, task.owner)
            }
            (What::List { bytes, level }, Page::ListSplit(children)) => {
                if level >= LEVELS_MAX || children.iter().map(|(_, bytes)| bytes).sum::<u64>() != bytes {
                    return Err(misplaced(id, "lists another number of bytes than the page above it or the file says"));
                }
                for (child, bytes) in children {
                    self.push(child, task.owner, What::List { bytes: *bytes, level: level + 1 });
                }
                Ok(())
            }
            (What::Table { from, largest, .. }, Page::LinkTable(files)) => {
                let in_range = files.first().is_none_or(|file| file.number >= from);
                if !in_range || largest.is_some_and(|largest| files.last().map(|file| file.number) != Some(largest)) {
                    return Err(misplaced(id, "has other numbers than the page above it says"));
                }
                files.iter().try_for_each(|file| self.linked_file(file))
            }
            (What::Table { from, largest, level }, Page::LinkTableSplit(children)) => {
                if level >= LEVELS_MAX || largest.is_some_and(|largest| children.last().map(|(_, last)| *last) != Some(largest)) {
                    return Err(misplaced(id, "has other numbers than the page above it says"));
                }
                let mut from = from;
                for (child, largest) in children {
                    self.push(child, task.owner, What::Table { from, largest: Some(*largest), level: level + 1 });
                    from = largest.saturating_add(1);
                }
                Ok(())
            }
            _ => Err(misplaced(id, "is of another kind than its place asks for")),
        }
    }

    fn entry(&mut self, directory: &Bytes, entry: &Entry) -> Result<()> {
        self.entries += 1;
        self.found.report.entries += 1;
        if self.entries > self.most {
            // What names itself over and over ends here.
            self.tasks.clear();
            return Err(Error::damaged(format!("{} has more entries than the {} that its record says", self.name, self.most)));
        }
        let path = join(directory, &entry.name)?;
        match &entry.node {
            Node::Directory(page) => {
                let owner = self.found.own(Owned::Path(self.name, path.clone()));
                self.push(page, owner, What::Directory { path, slot: None });
            }
            Node::File { size, content } => {
                let owner = self.found.own(Owned::Path(self.name, path));
                self.file(*size, content, owner)?;
            }
            Node::Linked(number) => {
                *self.linked.entry(*number).or_default() += 1;
                self.found.names.entry((self.name, *number)).or_default().push(path);
            }
            Node::Symlink(_) => {}
        }
        Ok(())
    }

    fn file(&mut self, size: u64, content: &Content, owner: Owner) -> Result<()> {
        self.bytes = self.bytes.saturating_add(size);
        self.found.report.bytes = self.found.report.bytes.saturating_add(size);
        match content {
            Content::Inline(_) => Ok(()),
            Content::Parts(parts) => self.parts(parts, owner),
            Content::List(page) => {
                self.push(page, owner, What::List { bytes: size, level: 0 });
                Ok(())
            }
        }
    }

    fn linked_file(&mut self, file: &LinkedFile) -> Result<()> {
        self.table.insert(file.number, u64::from(file.names));
        let owner = self.found.own(Owned::Linked(self.name, file.number));
        self.file(file.size, &file.content, owner)
    }

    fn parts(&mut self, parts: &[Part], owner: Owner) -> Result<()> {
        for part in parts {
            if let Part::Chunk(chunk, _) = part {
                let Place::At(at) = &chunk.place else {
                    return Err(Error::damaged(format!("chunk {} has no place", chunk.id)).code("hint_damaged"));
                };
                self.found.want(at, Some(chunk.id), owner);
            }
        }
        Ok(())
    }

    /// Compares what was seen with what the root says, when all was seen.
    fn totals(&mut self, root: &Root, top: Owner) -> Result<()> {
        if self.incomplete {
            return Ok(());
        }
        if (self.entries, self.bytes) != (root.entries, root.bytes) {
            let error = Error::damaged(format!(
                "{} has {} entries and {} bytes, and its record says {} and {}",
                self.name, self.entries, self.bytes, root.entries, root.bytes
            ));
            self.found.damage(Object::Record, None, error.code("record_damaged"), Some(top))?;
        }
        if self.linked != self.table {
            let number = self.linked.iter().chain(&self.table).find(|(number, _)| self.linked.get(number) != self.table.get(number));
            let number = number.map_or(0, |(number, _)| *number);
            let (names, said) = (self.linked.get(&number).copied().unwrap_or(0), self.table.get(&number).copied().unwrap_or(0));
            let error = Error::damaged(format!("linked file {number} of {} has {names} names, and the table says {said}", self.name));
            let table = root.links.as_ref().unwrap_or(&root.page);
            let owner = self.found.own(Owned::Linked(self.name, number));
            let at = match &table.place {
                Place::At(at) => Some(at),
                Place::Fresh => None,
            };
            self.found.damage(Object::Page(table.id), at, error.code("page_damaged"), Some(owner))?;
        }
        Ok(())
    }
}

fn part_bytes(part: &Part) -> u64 {
    match part {
        Part::Chunk(_, len) => u64::from(*len),
        Part::Hole(len) => *len,
    }
}
