//! Ordered sequences as trees of pages whose borders the content decides: what list pages and link tables have in common.
//!
//! Items are taken in order and a page ends after an item that says so by its own value, or when it is full. The children of a level are
//! taken in the same way. So the pages depend on the items alone; after an edit the old borders come back within a page or two, and
//! everything behind them is used again unread.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::page::{Link, PAGE_MAX, Page, PageLink, Place};
use super::page_codec::{encode_body, page_id};
use super::source::{Sink, Source};
use super::tree::{BATCH, misplaced};
use crate::error::{Error, Result};
use crate::id::PageId;

/// Levels of splits that a real sequence can't reach: every split but the last of its level has at least two children.
const LEVELS_MAX: usize = 64;
/// Bytes of a body around its items.
const AROUND: usize = 8;
/// Longest child of a split: array head, id, key.
const CHILD_MAX: usize = 1 + 34 + 9;
/// Children per split: one in so many page ids ends a split.
const FAN: u8 = 64;

/// What a sequence is of. Items and pages cover ranges of positions: bytes of a file, or numbers of linked files.
pub(super) trait Kind: Send + Sync {
    /// An item of a leaf.
    type Item: Clone + Send + Sync;
    /// A sequence of at most so many items is kept by its owner as they are, not as pages.
    const FEW: usize;
    /// Room in bytes that a leaf must have left to take any one more item.
    const ROOM: usize;
    /// Returns the bytes to count for an item; a [`Kind::join`] may not change it.
    fn len(item: &Self::Item) -> usize;
    /// Returns whether a leaf ends after this item. None: it may not, even when it is full, because the next item may join this one.
    fn ends(item: &Self::Item) -> Option<bool>;
    /// Joins `next` to `last` when they are one item.
    fn join(last: &mut Self::Item, next: &Self::Item) -> bool;
    /// Returns an item's range when the items before it end at `start`. None when it overlaps them or is out of bounds.
    fn range(start: u64, item: &Self::Item) -> Option<Range<u64>>;
    /// Returns a child's end from the number stored with it, when the children before it end at `start`.
    fn end(start: u64, key: u64) -> Option<u64>;
    /// Returns the number to store with a child that covers this range.
    fn key(range: &Range<u64>) -> u64;
    /// Makes a leaf page.
    fn leaf(items: Vec<Self::Item>) -> Page;
    /// Makes a split page.
    fn split(children: Vec<(PageLink, u64)>) -> Page;
    /// Opens a page of this kind.
    fn open(page: &Page) -> Option<Opened<'_, Self::Item>>;
}

/// A page of a sequence.
pub(super) enum Opened<'p, I> {
    /// Items.
    Leaf(&'p [I]),
    /// Children with their numbers.
    Split(&'p [(PageLink, u64)]),
}

/// Items that take the place of a range of positions. The range must begin and end at borders of items.
pub(super) struct Splice<I> {
    /// What is left out.
    pub(super) range: Range<u64>,
    /// What stands there instead.
    pub(super) items: Vec<I>,
}

/// What a sequence has become.
pub(super) enum Finished<I> {
    /// So few items that they need no page, or none.
    Few(Vec<I>),
    /// The top page.
    Page(PageLink),
}

struct Child {
    link: PageLink,
    range: Range<u64>,
}

/// Builds a sequence's pages. Nothing here waits: pages are kept until [`Builder::flush`] stores them.
pub(super) struct Builder<K: Kind> {
    items: Vec<K::Item>,
    items_len: usize,
    items_start: u64,
    end: u64,
    /// The children so far of the unfinished split of each level.
    levels: Vec<Vec<Child>>,
    /// The first items, one more than few.
    first: Vec<K::Item>,
    pending: Vec<Page>,
    /// Pages that are stored already, so that building one of them again writes nothing.
    known: HashMap<PageId, PageLink>,
}

impl<K: Kind> Builder<K> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            items_len: 0,
            items_start: 0,
            end: 0,
            levels: Vec::new(),
            first: Vec::new(),
            pending: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: K::Item) -> Result<()> {
        let range = K::range(self.end, &item).ok_or_else(|| Error::internal("an item of a list or table is out of its order"))?;
        self.end = range.end;
        if self.items.last_mut().is_some_and(|last| K::join(last, &item)) {
            // An item that can still be joined is the last of both, or of neither.
            if !self.is_many()
                && let Some(first) = self.first.last_mut()
            {
                K::join(first, &item);
            }
            return Ok(());
        }
        if self.first.len() <= K::FEW {
            self.first.push(item.clone());
        }
        if self.items.is_empty() {
            self.items_start = range.start;
        }
        self.items_len += K::len(&item);
        let ends = K::ends(&item);
        self.items.push(item);
        if ends.is_some_and(|ends| ends || AROUND + self.items_len + K::ROOM > PAGE_MAX) {
            self.close_leaf();
        }
        Ok(())
    }

    fn store(&mut self, page: Page) -> PageLink {
        let id = page_id(&encode_body(&page));
        if let Some(link) = self.known.get(&id) {
            return link.clone();
        }
        let link = Link { id, place: Place::Fresh };
        self.known.insert(id, link.clone());
        self.pending.push(page);
        link
    }

    fn close_leaf(&mut self) {
        let page = K::leaf(std::mem::take(&mut self.items));
        self.items_len = 0;
        let link = self.store(page);
        self.push_child(0, Child { link, range: self.items_start..self.end });
    }

    /// Adds a page to the splits of a level; level 0 has the leaves as its children.
    fn push_child(&mut self, level: usize, child: Child) {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        let children = &mut self.levels[level];
        // At least two children, so that every level is at most half as wide as the one below.
        let ends = child.link.id.as_bytes()[31].is_multiple_of(FAN) && !children.is_empty();
        children.push(child);
        if ends || AROUND + (children.len() + 1) * CHILD_MAX > PAGE_MAX {
            self.close_level(level);
        }
    }

    fn close_level(&mut self, level: usize) {
        let children = std::mem::take(&mut self.levels[level]);
        let range = children.first().map_or(0, |child| child.range.start)..children.last().map_or(0, |child| child.range.end);
        let page = K::split(children.into_iter().map(|child| (child.link, K::key(&child.range))).collect());
        let link = self.store(page);
        self.push_child(level + 1, Child { link, range });
    }

    /// Returns whether there are more than few items.
    pub(super) fn is_many(&self) -> bool {
        self.first.len() > K::FEW
    }

    /// Returns whether a stored page, whose height above the leaves this is, can be added as it is.
    fn takes_whole(&self, height: usize) -> bool {
        (self.is_many() || K::FEW == 0) && self.items.is_empty() && self.levels.iter().take(height).all(Vec::is_empty)
    }

    /// Ends the sequence and returns its top page, or its items when they are few.
    pub(super) fn finish(&mut self) -> Finished<K::Item> {
        if !self.is_many() && (K::FEW > 0 || self.end == 0) {
            return Finished::Few(std::mem::take(&mut self.first));
        }
        if !self.items.is_empty() {
            self.close_leaf();
        }
        let mut level = 0;
        loop {
            let above = self.levels.iter().skip(level + 1).any(|children| !children.is_empty());
            match self.levels.get(level).map(Vec::as_slice) {
                None | Some([]) if !above => return Finished::Few(Vec::new()),
                // Everything went up already.
                None | Some([]) => {}
                Some([only]) if !above => return Finished::Page(only.link.clone()),
                Some(_) => self.close_level(level),
            }
            level += 1;
        }
    }

    /// Stores the pages that are ready.
    pub(super) async fn flush(&mut self, sink: &mut dyn Sink) -> Result<()> {
        for page in self.pending.drain(..) {
            sink.page(page).await?;
        }
        Ok(())
    }
}

/// Takes a sequence apart and gives its items, or whole pages of it, to a builder, with splices put in.
struct Splicer<'a, K: Kind> {
    source: &'a dyn Source,
    builder: &'a mut Builder<K>,
    splices: std::iter::Peekable<std::vec::IntoIter<Splice<K::Item>>>,
    /// Where the old items are left out until.
    skip: u64,
}

impl<K: Kind> Splicer<'_, K> {
    /// Puts in the splices that stand before this position.
    fn splice_until(&mut self, position: u64) -> Result<()> {
        while let Some(splice) = self.splices.next_if(|splice| splice.range.start <= position) {
            self.put(splice)?;
        }
        Ok(())
    }

    fn put(&mut self, splice: Splice<K::Item>) -> Result<()> {
        self.skip = self.skip.max(splice.range.end);
        splice.items.into_iter().try_for_each(|item| self.builder.push(item))
    }

    async fn feed(&mut self, link: &PageLink, range: Range<u64>, height: usize, last: bool) -> Result<()> {
        // Splits are opened even when all of them is left out: what stands there instead may be made of the same pages.
        if height == 0 {
            self.splice_until(range.start)?;
            if range.end <= self.skip {
                return Ok(());
            }
        }
        // The last page of a sequence may have ended only because the sequence did.
        let untouched = self.splices.peek().is_none_or(|next| next.range.start >= range.end && !last) && self.skip <= range.start;
        if untouched && self.builder.takes_whole(height) {
            self.builder.end = range.end;
            self.builder.push_child(height, Child { link: link.clone(), range });
            return Ok(());
        }
        let page = self.source.page(link).await?;
        let mut start = range.start;
        match K::open(&page) {
            Some(Opened::Leaf(items)) if height == 0 => {
                for item in items {
                    let covers = K::range(start, item).ok_or_else(|| misplaced(link.id, "has items out of order"))?;
                    // A table has gaps between its items; a splice can lie in one.
                    self.splice_until(covers.start)?;
                    if covers.start >= self.skip {
                        self.builder.push(item.clone())?;
                    } else if covers.end > self.skip {
                        return Err(Error::internal("a part of a list was to be cut within an item"));
                    }
                    start = covers.end;
                }
            }
            Some(Opened::Split(children)) if height > 0 => {
                self.builder.known.extend(children.iter().map(|(child, _)| (child.id, child.clone())));
                for (at, (child, key)) in children.iter().enumerate() {
                    let end = K::end(start, *key).ok_or_else(|| misplaced(link.id, "has children out of order"))?;
                    Box::pin(self.feed(child, start..end, height - 1, last && at + 1 == children.len())).await?;
                    start = end;
                }
            }
            _ => return Err(misplaced(link.id, "is of another kind or height than its place asks for")),
        }
        if start == range.end { Ok(()) } else { Err(misplaced(link.id, "has other totals than the page above it says")) }
    }
}

/// Returns the height of a sequence's top page above its leaves, and where it ends.
async fn measure<K: Kind>(source: &dyn Source, top: &PageLink) -> Result<(usize, u64)> {
    let (mut link, mut end) = (top.clone(), None);
    for height in 0..LEVELS_MAX {
        let page = source.page(&link).await?;
        match K::open(&page) {
            Some(Opened::Leaf(items)) => {
                let own = || items.iter().try_fold(0, |start, item| K::range(start, item).map(|range| range.end));
                return end.or_else(own).map(|end| (height, end)).ok_or_else(|| misplaced(link.id, "has items out of order"));
            }
            Some(Opened::Split(children)) => {
                if end.is_none() {
                    end = children.iter().try_fold(0, |start, (_, key)| K::end(start, *key));
                }
                link = children.first().ok_or_else(|| misplaced(link.id, "has no children"))?.0.clone();
            }
            None => return Err(misplaced(link.id, "is of another kind than its place asks for")),
        }
    }
    Err(misplaced(top.id, "is split too often"))
}

/// Adds a stored sequence to a builder with splices put in, in ascending order of their ranges.
pub(super) async fn splice<K: Kind>(
    source: &dyn Source,
    top: &PageLink,
    splices: Vec<Splice<K::Item>>,
    builder: &mut Builder<K>,
) -> Result<()> {
    let (height, end) = measure::<K>(source, top).await?;
    builder.known.insert(top.id, top.clone());
    let mut splicer = Splicer { source, builder, splices: splices.into_iter().peekable(), skip: 0 };
    splicer.feed(top, 0..end, height, true).await?;
    while let Some(splice) = splicer.splices.next() {
        splicer.put(splice)?;
    }
    Ok(())
}

/// Most items that can be asked for at once, so that pages that name each other over and over can't fill the memory.
const ITEMS_MAX: usize = 1 << 20;

/// Returns the items that overlap a range of positions, each with where it starts; pages are fetched in batches, level by level.
pub(super) async fn items<K: Kind>(source: &dyn Source, top: &PageLink, range: Range<u64>) -> Result<Vec<(u64, K::Item)>> {
    let mut found = Vec::new();
    // Each page of a level with the range that the page above says; the top has none.
    let mut level: Vec<(PageLink, Option<Range<u64>>)> = vec![(top.clone(), None)];
    for _ in 0..LEVELS_MAX {
        let mut next = Vec::new();
        for batch in level.chunks(BATCH) {
            let links: Vec<_> = batch.iter().map(|(link, _)| link.clone()).collect();
            for ((link, covers), page) in batch.iter().zip(source.pages(&links).await?) {
                let mut start = covers.as_ref().map_or(0, |covers| covers.start);
                match K::open(&page) {
                    Some(Opened::Leaf(items)) => {
                        for item in items {
                            let at = K::range(start, item).ok_or_else(|| misplaced(link.id, "has items out of order"))?;
                            if at.start < range.end && at.end > range.start {
                                found.push((at.start, item.clone()));
                            }
                            start = at.end;
                        }
                    }
                    Some(Opened::Split(children)) => {
                        for (child, key) in children {
                            let end = K::end(start, *key).ok_or_else(|| misplaced(link.id, "has children out of order"))?;
                            if start < range.end && end > range.start {
                                next.push((child.clone(), Some(start..end)));
                            }
                            start = end;
                        }
                    }
                    None => return Err(misplaced(link.id, "is of another kind than its place asks for")),
                }
                if covers.as_ref().is_some_and(|covers| covers.end != start) {
                    return Err(misplaced(link.id, "has other totals than the page above it says"));
                }
                if found.len() > ITEMS_MAX || next.len() > ITEMS_MAX {
                    return Err(misplaced(top.id, "has more parts than can be read at once"));
                }
            }
        }
        if next.is_empty() {
            return Ok(found);
        }
        if !found.is_empty() {
            return Err(misplaced(top.id, "has leaves of different heights"));
        }
        level = next;
    }
    Err(misplaced(top.id, "is split too often"))
}

/// One of two sequences that are compared: the pages of one level, and how high it is above the leaves.
struct Level<'s> {
    source: &'s dyn Source,
    pages: Vec<PageLink>,
    height: usize,
}

impl Level<'_> {
    /// Goes down by one level; the leaves' items are `items`.
    async fn open<K: Kind>(&mut self, items: &mut Vec<K::Item>) -> Result<()> {
        let mut below = Vec::new();
        for batch in self.pages.chunks(BATCH) {
            for (link, page) in batch.iter().zip(self.source.pages(batch).await?) {
                match K::open(&page) {
                    Some(Opened::Leaf(all)) if self.height == 0 => items.extend_from_slice(all),
                    Some(Opened::Split(children)) if self.height > 0 => below.extend(children.iter().map(|(child, _)| child.clone())),
                    _ => return Err(misplaced(link.id, "is of another kind or height than its place asks for")),
                }
                if items.len() > ITEMS_MAX || below.len() > ITEMS_MAX {
                    return Err(misplaced(link.id, "has more parts than can be read at once"));
                }
            }
        }
        self.pages = below;
        self.height = self.height.saturating_sub(1);
        Ok(())
    }
}

/// Returns the items of those leaves of two sequences that aren't leaves of both.
pub(super) async fn difference<K: Kind>(
    a: &dyn Source,
    top_a: &PageLink,
    b: &dyn Source,
    top_b: &PageLink,
) -> Result<(Vec<K::Item>, Vec<K::Item>)> {
    let (height_a, height_b) = (measure::<K>(a, top_a).await?.0, measure::<K>(b, top_b).await?.0);
    let mut left = Level { source: a, pages: vec![top_a.clone()], height: height_a };
    let mut right = Level { source: b, pages: vec![top_b.clone()], height: height_b };
    let (mut items_a, mut items_b) = (Vec::new(), Vec::new());
    while !left.pages.is_empty() || !right.pages.is_empty() {
        let (down_a, down_b) = (left.height >= right.height, right.height >= left.height);
        if down_a && down_b {
            let ids = |pages: &[PageLink]| pages.iter().map(|page| page.id).collect::<HashSet<_>>();
            let (ids_a, ids_b) = (ids(&left.pages), ids(&right.pages));
            left.pages.retain(|page| !ids_b.contains(&page.id));
            right.pages.retain(|page| !ids_a.contains(&page.id));
        }
        if down_a {
            left.open::<K>(&mut items_a).await?;
        }
        if down_b {
            right.open::<K>(&mut items_b).await?;
        }
    }
    Ok((items_a, items_b))
}
