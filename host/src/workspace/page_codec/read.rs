//! A page's body as it is read. Every count and length is bounded before memory is used.

use bytes::Bytes;

use super::hints;
use super::rules::check;
use super::{form, kind, node};
use crate::id::{ChunkId, PageId};
use crate::workspace::cbor::{Malformed, Reader};
use crate::workspace::page::{Content, Entry, Link, LinkedFile, Node, PAGE_MAX, PARTS_MAX, Page, PageLink, Part, SplitSlot};

pub(super) fn read_body(body: &Bytes, places: &mut dyn hints::Placer) -> Result<Page, Malformed> {
    let mut reader = Reader::new(body);
    reader.array_of(2)?;
    let kind = reader.uint()?;
    let items = reader.array()?;
    let reader = &mut reader;
    let page = match kind {
        kind::DIRECTORY => Page::Directory(read_all(items, || read_entry(reader, places))?),
        kind::SPLIT => Page::Split(read_all(items, || read_slot(reader, places))?),
        kind::LIST => Page::List(read_all(items, || read_part(reader, places))?),
        kind::LIST_SPLIT => Page::ListSplit(read_all(items, || read_child(reader, places))?),
        kind::LINK_TABLE => Page::LinkTable(read_all(items, || read_linked_file(reader, places))?),
        kind::LINK_TABLE_SPLIT => Page::LinkTableSplit(read_all(items, || read_child(reader, places))?),
        _ => return Err(Malformed("is of an unknown kind")),
    };
    reader.end()?;
    check(&page, body.len())?;
    Ok(page)
}

/// Reads so many items. The vector grows as items turn out to be there: a count alone reserves next to nothing.
pub(super) fn read_all<T>(items: usize, mut read: impl FnMut() -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::with_capacity(items.min(PAGE_MAX / 32));
    for _ in 0..items {
        all.push(read()?);
    }
    Ok(all)
}

fn read_page_link(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<PageLink, Malformed> {
    Ok(Link { id: PageId::from_bytes(reader.digest()?), place: places.page()? })
}

fn read_entry(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<Entry, Malformed> {
    let items = reader.array()?;
    let name = reader.bytes()?;
    let kind = reader.uint()?;
    let expected = match kind {
        node::FILE => 6,
        node::DIRECTORY | node::SYMLINK => 5,
        node::LINKED => 3,
        _ => return Err(Malformed("has an entry of an unknown kind")),
    };
    if items != expected {
        return Err(Malformed("has an array of the wrong length"));
    }
    if kind == node::LINKED {
        return Ok(Entry { name, mode: 0, mtime: 0, node: Node::Linked(reader.uint()?) });
    }
    let (mode, mtime) = (read_mode(reader)?, reader.int()?);
    let node = match kind {
        node::FILE => {
            let size = reader.uint()?;
            Node::File { size, content: read_content(reader, places, size)? }
        }
        node::DIRECTORY => Node::Directory(read_page_link(reader, places)?),
        _ => Node::Symlink(reader.bytes()?),
    };
    Ok(Entry { name, mode, mtime, node })
}

fn read_mode(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    u16::try_from(reader.uint()?).ok().filter(|mode| *mode <= 0o777).ok_or(Malformed("has a mode beyond the nine permission bits"))
}

fn read_content(reader: &mut Reader<'_>, places: &mut dyn hints::Placer, size: u64) -> Result<Content, Malformed> {
    if !reader.at_array() {
        return Ok(Content::Inline(reader.bytes()?));
    }
    reader.array_of(2)?;
    match reader.uint()? {
        form::CHUNK => {
            let id = ChunkId::from_bytes(reader.digest()?);
            let len = u32::try_from(size).map_err(|_| Malformed("has a chunk that is too long"))?;
            Ok(Content::Parts(vec![Part::Chunk(Link { id, place: places.chunk(len)? }, len)]))
        }
        form::PARTS => {
            let items = reader.array()?;
            if items > PARTS_MAX {
                return Err(Malformed("has more parts in an entry than are allowed"));
            }
            let parts = read_all(items, || read_part(reader, places))?;
            match parts.as_slice() {
                [Part::Chunk(..)] => Err(Malformed("has a content that isn't in its shortest form")),
                _ => Ok(Content::Parts(parts)),
            }
        }
        form::LIST => Ok(Content::List(read_page_link(reader, places)?)),
        _ => Err(Malformed("has a content of an unknown form")),
    }
}

fn read_part(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<Part, Malformed> {
    if !reader.at_array() {
        return Ok(Part::Hole(reader.uint()?));
    }
    reader.array_of(2)?;
    let id = ChunkId::from_bytes(reader.digest()?);
    let len = reader.uint32()?;
    Ok(Part::Chunk(Link { id, place: places.chunk(len)? }, len))
}

fn read_slot(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<Option<SplitSlot>, Malformed> {
    if reader.null() {
        return Ok(None);
    }
    reader.array_of(3)?;
    Ok(Some(SplitSlot { page: read_page_link(reader, places)?, bytes: reader.uint()?, entries: reader.uint()? }))
}

fn read_child(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<(PageLink, u64), Malformed> {
    reader.array_of(2)?;
    Ok((read_page_link(reader, places)?, reader.uint()?))
}

fn read_linked_file(reader: &mut Reader<'_>, places: &mut dyn hints::Placer) -> Result<LinkedFile, Malformed> {
    reader.array_of(6)?;
    let (number, names) = (reader.uint()?, reader.uint32()?);
    let (mode, mtime) = (read_mode(reader)?, reader.int()?);
    let size = reader.uint()?;
    Ok(LinkedFile { number, names, mode, mtime, size, content: read_content(reader, places, size)? })
}
