//! The table of a root's files with several names: by number, what such a file is.

use std::collections::BTreeMap;
use std::ops::Range;

use super::page::{LinkedFile, Page, PageLink};
use super::page_codec::linked_file_len;
use super::sequence::{self, Builder, Finished, Kind, Opened, Splice};
use super::source::{Sink, Source};
use crate::error::{Error, Result};

/// Files of one table page: numbers with the same quotient by this share one, as far as they fit.
const PER_PAGE: u64 = 64;

/// Tables of linked files.
struct Files;

impl Kind for Files {
    type Item = LinkedFile;
    const FEW: usize = 0;
    // Numbers and times, and a content of as many parts as an entry can have.
    const ROOM: usize = 48 + super::page::PARTS_MAX * 41;

    fn len(item: &LinkedFile) -> usize {
        linked_file_len(item)
    }

    fn ends(item: &LinkedFile) -> Option<bool> {
        Some(item.number % PER_PAGE == PER_PAGE - 1)
    }

    fn join(_last: &mut LinkedFile, _next: &LinkedFile) -> bool {
        false
    }

    fn range(start: u64, item: &LinkedFile) -> Option<Range<u64>> {
        let end = item.number.checked_add(1)?;
        (item.number >= start).then_some(item.number..end)
    }

    fn end(start: u64, key: u64) -> Option<u64> {
        let end = key.checked_add(1)?;
        (end > start).then_some(end)
    }

    fn key(range: &Range<u64>) -> u64 {
        range.end - 1
    }

    fn leaf(items: Vec<LinkedFile>) -> Page {
        Page::LinkTable(items)
    }

    fn split(children: Vec<(PageLink, u64)>) -> Page {
        Page::LinkTableSplit(children)
    }

    fn open(page: &Page) -> Option<Opened<'_, LinkedFile>> {
        match page {
            Page::LinkTable(files) => Some(Opened::Leaf(files)),
            Page::LinkTableSplit(children) => Some(Opened::Split(children)),
            _ => None,
        }
    }
}

/// Returns the file with this number, reading only the pages on the way to it.
///
/// # Errors
/// As [`Source::page`].
pub async fn get(source: &dyn Source, table: &PageLink, number: u64) -> Result<Option<LinkedFile>> {
    let found = sequence::items::<Files>(source, table, number..number.saturating_add(1)).await?;
    Ok(found.into_iter().next().map(|(_, file)| file))
}

/// Returns all files in ascending order of their numbers.
///
/// # Errors
/// As [`Source::page`].
pub async fn list(source: &dyn Source, table: &PageLink) -> Result<Vec<LinkedFile>> {
    Ok(sequence::items::<Files>(source, table, 0..u64::MAX).await?.into_iter().map(|(_, file)| file).collect())
}

/// Returns the largest number in use.
///
/// # Errors
/// As [`Source::page`].
pub async fn largest(source: &dyn Source, table: &PageLink) -> Result<Option<u64>> {
    Ok(match &*source.page(table).await? {
        Page::LinkTable(files) => files.last().map(|file| file.number),
        Page::LinkTableSplit(children) => children.last().map(|(_, largest)| *largest),
        _ => return Err(super::tree::misplaced(table.id, "isn't a table of linked files")),
    })
}

/// Returns the files of those pages of two tables that aren't pages of both: all files that differ, and some of their neighbours.
///
/// # Errors
/// As [`Source::page`].
pub(super) async fn difference(
    a: &dyn Source,
    table_a: &PageLink,
    b: &dyn Source,
    table_b: &PageLink,
) -> Result<(Vec<LinkedFile>, Vec<LinkedFile>)> {
    sequence::difference::<Files>(a, table_a, b, table_b).await
}

/// Returns the table that `base` becomes by the changes: for each number its new file, or none to remove it. None when no file is left.
///
/// Reads and writes only pages around the changed numbers. When nothing really changes, the answer is `base` itself and nothing is written.
///
/// # Errors
/// As [`Source::page`] and [`Sink::page`]; `Internal` when a file isn't under its own number.
pub async fn update(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: Option<&PageLink>,
    changes: BTreeMap<u64, Option<LinkedFile>>,
) -> Result<Option<PageLink>> {
    if changes.is_empty() {
        return Ok(base.cloned());
    }
    let mut splices = Vec::with_capacity(changes.len());
    for (number, file) in changes {
        if file.as_ref().is_some_and(|file| file.number != number) || number >= super::page_codec::SIZE_MAX {
            return Err(Error::internal(format!("linked file {number} was given under another number, or the number is too large")));
        }
        splices.push(Splice { range: number..number + 1, items: file.into_iter().collect() });
    }
    let mut builder = Builder::<Files>::new();
    match base {
        Some(base) => sequence::splice(source, base, splices, &mut builder).await?,
        None => splices.into_iter().flat_map(|splice| splice.items).try_for_each(|file| builder.push(file))?,
    }
    let finished = builder.finish();
    builder.flush(sink).await?;
    Ok(match finished {
        Finished::Page(top) => Some(top),
        Finished::Few(_) => None,
    })
}

#[cfg(test)]
mod tests;
