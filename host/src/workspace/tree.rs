//! Directories as small tries of pages.
//!
//! A set of entries is one directory page when its body has at most [`super::page::DIRECTORY_MAX`] bytes; otherwise it is a split of [`FANOUT`] slots by
//! the next four bits of the SHA-256 of each name. So the pages depend on the entries alone, never on the order of edits, and a change
//! of one entry touches one small page of each level: four for a directory of 50,000 files, 3 KiB in all.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::page::{Entry, FANOUT, Page, PageLink, SplitSlot};
use super::page_codec::{check_entry, entry_len, is_one_page, same_entry};
use super::source::{Sink, Source};
use crate::error::{Error, Result};
use crate::id::PageId;

/// Levels of splits below which no two different names can still be together: the four-bit digits of a SHA-256.
const DEPTH_MAX: usize = 64;
/// Pages asked for at once.
pub(crate) const BATCH: usize = 64;

/// The SHA-256 of a name.
#[derive(Clone, Copy)]
pub(super) struct NameHash([u8; 32]);

impl NameHash {
    pub(super) fn of(name: &[u8]) -> Self {
        Self(Sha256::digest(name).into())
    }

    /// Returns the slot of a split at this depth.
    pub(super) fn slot(&self, depth: usize) -> usize {
        let byte = self.0.get(depth / 2).copied().unwrap_or(0);
        usize::from(if depth.is_multiple_of(2) { byte >> 4 } else { byte & 0xf })
    }
}

/// The error for a page of another kind than its place asks for, or one that contradicts the page above it.
pub(crate) fn misplaced(id: PageId, why: &str) -> Error {
    Error::damaged(format!("page {id} {why}")).code("page_damaged")
}

/// Checks that a page holds what the split above it says.
pub(crate) fn check_totals(slot: &SplitSlot, page: &Page) -> Result<()> {
    let (entries, bytes) = match page {
        Page::Directory(entries) => (entries.len() as u64, entries.iter().map(entry_len).sum()),
        Page::Split(slots) => slots.iter().flatten().fold((0, 0), |(entries, bytes), slot| (entries + slot.entries, bytes + slot.bytes)),
        _ => return Err(misplaced(slot.page.id, "isn't a directory")),
    };
    if (entries, bytes) == (slot.entries, slot.bytes) {
        Ok(())
    } else {
        Err(misplaced(slot.page.id, "has other totals than the page above it says"))
    }
}

/// Returns the entry of that name, reading only the pages on the way to it.
///
/// # Errors
/// As [`Source::page`].
pub async fn lookup(source: &dyn Source, directory: &PageLink, name: &[u8]) -> Result<Option<Entry>> {
    let hash = NameHash::of(name);
    let mut page = source.page(directory).await?;
    let mut id = directory.id;
    for depth in 0..DEPTH_MAX {
        let slot = match &*page {
            Page::Directory(entries) => {
                return Ok(entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|at| entries[at].clone()));
            }
            Page::Split(slots) => match slots.get(hash.slot(depth)) {
                Some(Some(slot)) => slot.clone(),
                _ => return Ok(None),
            },
            _ => return Err(misplaced(id, "isn't a directory")),
        };
        page = source.page(&slot.page).await?;
        id = slot.page.id;
        check_totals(&slot, &page)?;
    }
    Err(misplaced(id, "is split too often"))
}

/// Returns all entries in ascending order of their names, fetching pages in batches.
///
/// # Errors
/// As [`Source::page`].
pub async fn list(source: &dyn Source, directory: &PageLink) -> Result<Vec<Entry>> {
    let page = source.page(directory).await?;
    match &*page {
        Page::Directory(entries) => Ok(entries.clone()),
        Page::Split(slots) => list_slots(source, slots, &[]).await,
        _ => Err(misplaced(directory.id, "isn't a directory")),
    }
}

/// Returns all entries below a split whose path of slots from the top is `path`.
pub(super) async fn list_slots(source: &dyn Source, slots: &[Option<SplitSlot>], path: &[usize]) -> Result<Vec<Entry>> {
    // Last in, first out: the leaves of a first batch are read before the splits of the rest are opened, so that what waits stays small and
    // a page that stands in a wrong slot is found at once, before it can pretend to be many.
    let mut waiting: Vec<(SplitSlot, Vec<usize>)> = Vec::new();
    push_slots(&mut waiting, slots, path);
    let mut all = Vec::new();
    while !waiting.is_empty() {
        let batch = waiting.split_off(waiting.len().saturating_sub(BATCH));
        let links: Vec<_> = batch.iter().map(|(slot, _)| slot.page.clone()).collect();
        for ((slot, path), page) in batch.into_iter().zip(source.pages(&links).await?) {
            check_totals(&slot, &page)?;
            match &*page {
                Page::Directory(entries) => {
                    check_path(slot.page.id, entries, &path)?;
                    all.extend_from_slice(entries);
                }
                Page::Split(slots) if path.len() < DEPTH_MAX => push_slots(&mut waiting, slots, &path),
                _ => return Err(misplaced(slot.page.id, "is split too often")),
            }
        }
    }
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn push_slots(waiting: &mut Vec<(SplitSlot, Vec<usize>)>, slots: &[Option<SplitSlot>], path: &[usize]) {
    for (digit, slot) in slots.iter().enumerate().rev() {
        if let Some(slot) = slot {
            waiting.push((slot.clone(), path.iter().copied().chain([digit]).collect()));
        }
    }
}

/// Checks that the names of a leaf belong into the slots that lead to it. So no name can be in two leaves.
pub(crate) fn check_path(id: PageId, entries: &[Entry], path: &[usize]) -> Result<()> {
    for entry in entries {
        let hash = NameHash::of(&entry.name);
        if !path.iter().enumerate().all(|(depth, digit)| hash.slot(depth) == *digit) {
            return Err(misplaced(id, "has a name that belongs into another slot"));
        }
    }
    Ok(())
}

/// One change of a directory: the new entry of a name, or none to remove it.
struct Change {
    hash: NameHash,
    name: Bytes,
    entry: Option<Entry>,
}

/// A directory's part at some depth while it is being changed.
enum Sub {
    /// As it is stored.
    Stored(SplitSlot),
    /// Few enough entries for one page.
    Leaf { entries: Vec<Entry>, bytes: u64 },
    /// Too many for one page.
    Split { subs: Vec<Option<Self>>, entries: u64, bytes: u64 },
    /// Parts of a split that have become few enough for one page.
    Join { subs: Vec<Option<Self>>, entries: u64, bytes: u64 },
}

impl Sub {
    fn totals(&self) -> (u64, u64) {
        match self {
            Self::Stored(slot) => (slot.entries, slot.bytes),
            Self::Leaf { entries, bytes } => (entries.len() as u64, *bytes),
            Self::Split { entries, bytes, .. } | Self::Join { entries, bytes, .. } => (*entries, *bytes),
        }
    }
}

/// Returns the directory that `base` becomes by the changes: for each name its new entry, or none to remove it.
///
/// Reads and writes only pages on the way to a changed name (and those that become one page with them). When nothing really changes,
/// the answer is `base` itself and nothing is written. Without a base the directory starts empty; the page of an empty directory has no
/// entries.
///
/// # Errors
/// As [`Source::page`] and [`Sink::page`]; `Internal` when an entry breaks the rules of the format or isn't under its own name.
pub async fn update(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: Option<&PageLink>,
    changes: BTreeMap<Bytes, Option<Entry>>,
) -> Result<PageLink> {
    let mut list = Vec::with_capacity(changes.len());
    for (name, entry) in changes {
        if let Some(entry) = &entry {
            check_entry(entry)?;
            if entry.name != name {
                return Err(Error::internal(format!("entry {:?} was given under another name", String::from_utf8_lossy(&entry.name))));
            }
        }
        list.push(Change { hash: NameHash::of(&name), name, entry });
    }
    // By hash the changes of one page are together at every depth.
    list.sort_unstable_by_key(|change| change.hash.0);
    let (base, pages) = match base {
        None => (None, HashMap::new()),
        Some(link) => {
            let pages = load_touched(source, link, &list).await?;
            // The totals of the top page are stored nowhere; its own content says them.
            let (entries, bytes) = match pages.get(&link.id).map(|page| &**page) {
                None => (0, 0),
                Some(Page::Directory(entries)) => (entries.len() as u64, entries.iter().map(entry_len).sum()),
                Some(Page::Split(slots)) => slots.iter().flatten().fold((0, 0), |sum, slot| (sum.0 + slot.entries, sum.1 + slot.bytes)),
                Some(_) => return Err(misplaced(link.id, "isn't a directory")),
            };
            (Some(SplitSlot { page: link.clone(), bytes, entries }), pages)
        }
    };
    match edit(&pages, 0, base, list)? {
        Some(sub) => Ok(write(source, sink, sub).await?.page),
        None => sink.page(Page::Directory(Vec::new())).await,
    }
}

/// Reads the pages on the way to the changed names, one level after the other, each in batches.
async fn load_touched(source: &dyn Source, top: &PageLink, changes: &[Change]) -> Result<HashMap<PageId, Arc<Page>>> {
    let mut pages = HashMap::new();
    if changes.is_empty() {
        return Ok(pages);
    }
    let mut level: Vec<(Option<SplitSlot>, PageLink, &[Change])> = vec![(None, top.clone(), changes)];
    for depth in 0..=DEPTH_MAX {
        let mut next = Vec::new();
        for batch in level.chunks(BATCH) {
            let links: Vec<_> = batch.iter().map(|(_, link, _)| link.clone()).collect();
            for ((slot, link, changes), page) in batch.iter().zip(source.pages(&links).await?) {
                if let Some(slot) = slot {
                    check_totals(slot, &page)?;
                }
                if let Page::Split(slots) = &*page {
                    if depth == DEPTH_MAX {
                        return Err(misplaced(link.id, "is split too often"));
                    }
                    for changes in changes.chunk_by(|a, b| a.hash.slot(depth) == b.hash.slot(depth)) {
                        let slot = changes.first().and_then(|change| slots.get(change.hash.slot(depth))).and_then(Option::as_ref);
                        if let Some(slot) = slot {
                            next.push((Some(slot.clone()), slot.page.clone(), changes));
                        }
                    }
                }
                pages.insert(link.id, page);
            }
        }
        if next.is_empty() {
            break;
        }
        level = next;
    }
    Ok(pages)
}

/// Applies changes, all of which belong below `base`. None when nothing is left.
fn edit(pages: &HashMap<PageId, Arc<Page>>, depth: usize, base: Option<SplitSlot>, changes: Vec<Change>) -> Result<Option<Sub>> {
    if changes.is_empty() {
        return Ok(base.map(Sub::Stored));
    }
    let Some(base) = base else {
        return Ok(build(depth, changes.into_iter().filter_map(|change| change.entry).collect()));
    };
    let page =
        pages.get(&base.page.id).ok_or_else(|| Error::internal(format!("page {} wasn't loaded before it was edited", base.page.id)))?;
    match &**page {
        Page::Directory(entries) => Ok(match merge(entries, changes) {
            Some(entries) => build(depth, entries),
            None => Some(Sub::Stored(base)),
        }),
        Page::Split(slots) => {
            let mut parts: Vec<Vec<Change>> = (0..FANOUT).map(|_| Vec::new()).collect();
            for change in changes {
                parts[change.hash.slot(depth)].push(change);
            }
            let mut subs = Vec::with_capacity(FANOUT);
            let mut changed = false;
            for (slot, changes) in slots.iter().zip(parts) {
                let sub = edit(pages, depth + 1, slot.clone(), changes)?;
                changed |= match (&sub, slot) {
                    (Some(Sub::Stored(new)), Some(old)) => new.page.id != old.page.id,
                    (None, None) => false,
                    _ => true,
                };
                subs.push(sub);
            }
            Ok(if changed { split_or_join(subs) } else { Some(Sub::Stored(base)) })
        }
        _ => Err(misplaced(base.page.id, "isn't a directory")),
    }
}

/// Merges changes into sorted entries. None when they change nothing.
fn merge(entries: &[Entry], mut changes: Vec<Change>) -> Option<Vec<Entry>> {
    changes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut merged = Vec::with_capacity(entries.len() + changes.len());
    let mut old = entries.iter().peekable();
    let mut changed = false;
    for change in changes {
        while let Some(entry) = old.next_if(|entry| entry.name < change.name) {
            merged.push(entry.clone());
        }
        match (old.next_if(|entry| entry.name == change.name), change.entry) {
            (None, None) => {}
            (Some(old), Some(new)) if same_entry(old, &new) => merged.push(old.clone()),
            (_, new) => {
                changed = true;
                merged.extend(new);
            }
        }
    }
    merged.extend(old.cloned());
    changed.then_some(merged)
}

/// Makes a part from its entries alone. None when there are none.
fn build(depth: usize, mut entries: Vec<Entry>) -> Option<Sub> {
    if entries.is_empty() {
        return None;
    }
    let bytes = entries.iter().map(entry_len).sum();
    // At the greatest depth all names have the same SHA-256, so there is one.
    if is_one_page(entries.len() as u64, bytes) || depth >= DEPTH_MAX {
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        return Some(Sub::Leaf { entries, bytes });
    }
    let count = entries.len() as u64;
    let mut parts: Vec<Vec<Entry>> = (0..FANOUT).map(|_| Vec::new()).collect();
    for entry in entries {
        parts[NameHash::of(&entry.name).slot(depth)].push(entry);
    }
    let subs = parts.into_iter().map(|part| build(depth + 1, part)).collect();
    Some(Sub::Split { subs, entries: count, bytes })
}

fn split_or_join(subs: Vec<Option<Sub>>) -> Option<Sub> {
    let (entries, bytes) = subs.iter().flatten().map(Sub::totals).fold((0, 0), |sum, sub| (sum.0 + sub.0, sum.1 + sub.1));
    match entries {
        0 => None,
        _ if is_one_page(entries, bytes) => Some(Sub::Join { subs, entries, bytes }),
        _ => Some(Sub::Split { subs, entries, bytes }),
    }
}

/// Writes what isn't stored yet, children first.
async fn write(source: &dyn Source, sink: &mut dyn Sink, sub: Sub) -> Result<SplitSlot> {
    let (entries, bytes) = sub.totals();
    let page = match sub {
        Sub::Stored(slot) => return Ok(slot),
        Sub::Leaf { entries, .. } => Page::Directory(entries),
        Sub::Split { subs, .. } => {
            let mut slots = Vec::with_capacity(FANOUT);
            for sub in subs {
                slots.push(match sub {
                    Some(sub) => Some(Box::pin(write(source, sink, sub)).await?),
                    None => None,
                });
            }
            Page::Split(slots)
        }
        Sub::Join { subs, .. } => {
            let mut all = Vec::new();
            join(source, subs, &mut all).await?;
            if (all.len() as u64, all.iter().map(entry_len).sum()) != (entries, bytes) {
                return Err(Error::internal("a directory that became small enough for one page has other totals than its parts"));
            }
            all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Page::Directory(all)
        }
    };
    Ok(SplitSlot { page: sink.page(page).await?, bytes, entries })
}

/// Collects the entries of parts that are together small enough for one page.
async fn join(source: &dyn Source, subs: Vec<Option<Sub>>, all: &mut Vec<Entry>) -> Result<()> {
    let mut stored = Vec::new();
    for sub in subs.into_iter().flatten() {
        match sub {
            Sub::Leaf { entries, .. } => all.extend(entries),
            Sub::Stored(slot) => stored.push(slot),
            Sub::Join { subs, .. } | Sub::Split { subs, .. } => Box::pin(join(source, subs, all)).await?,
        }
    }
    let links: Vec<_> = stored.iter().map(|slot| slot.page.clone()).collect();
    for (slot, page) in stored.iter().zip(source.pages(&links).await?) {
        check_totals(slot, &page)?;
        match &*page {
            Page::Directory(entries) => all.extend_from_slice(entries),
            // A split is larger than a page, so it can't be a part of one.
            _ => return Err(misplaced(slot.page.id, "isn't a directory page, although its totals fit one")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
