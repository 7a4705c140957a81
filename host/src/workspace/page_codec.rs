//! Pages as bytes. `host/docs/FORMAT.md` has the same rules in words; `tests/verify_store.py` has them in Python.
//!
//! A stored page is `[version, body, hints]` in deterministic CBOR. The body is what its id is a hash of. The hints say where each
//! page and chunk that the body names lies, in the order in which the body names them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::cbor::{self, Malformed, Out, Reader};
use super::page::{
    CHUNK_MAX, ChunkLink, Content, DIRECTORY_MAX, Entry, FANOUT, Home, INLINE_MAX, Link, LinkedFile, Location, Node, PAGE_MAX, PARTS_MAX,
    Page, PageLink, Part, Place, SplitSlot,
};
use crate::error::{Error, Result};
use crate::id::{ChunkId, Digest, PackId, PageId, SessionRef};

mod hints;
pub use hints::{HintContext, Spot};

/// Version of the stored form that this program writes and reads.
pub const VERSION: u64 = 1;
/// Longest stored page in bytes: a body of [`PAGE_MAX`] and the longest hints that it can need.
pub const STORED_PAGE_MAX: usize = 256 << 10;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes.
pub const TARGET_MAX: usize = 4095;
/// Most entries that one directory may claim to have: far above the limit on a workspace, and low enough to bound every walk.
pub const DIRECTORY_ENTRIES_MAX: u64 = 1 << 24;
/// Largest file size, file number and offset: what fits a signed 64-bit number.
pub const SIZE_MAX: u64 = i64::MAX.cast_unsigned();

/// What precedes a body when its id is computed, so that no page has the id of a chunk.
const DOMAIN: &[u8] = b"landfall:page:1\0";
/// Shortest encoded entry: a hard link with a name of one byte.
const ENTRY_MIN: u64 = 5;

/// The kinds of a body.
mod kind {
    pub(super) const DIRECTORY: u64 = 0;
    pub(super) const SPLIT: u64 = 1;
    pub(super) const LIST: u64 = 2;
    pub(super) const LIST_SPLIT: u64 = 3;
    pub(super) const LINK_TABLE: u64 = 4;
    pub(super) const LINK_TABLE_SPLIT: u64 = 5;
}

/// The kinds of an entry.
mod node {
    pub(super) const FILE: u64 = 0;
    pub(super) const DIRECTORY: u64 = 1;
    pub(super) const SYMLINK: u64 = 2;
    pub(super) const LINKED: u64 = 3;
}

/// The forms of a content that isn't inline.
mod form {
    pub(super) const CHUNK: u64 = 0;
    pub(super) const PARTS: u64 = 1;
    pub(super) const LIST: u64 = 2;
}

/// Returns the id of the page with this body.
#[must_use]
pub fn page_id(body: &[u8]) -> PageId {
    PageId::from_bytes(Sha256::new().chain_update(DOMAIN).chain_update(body).finalize().into())
}

/// Returns a page's canonical body.
#[must_use]
pub fn encode_body(page: &Page) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    put_page(&mut out, page);
    out
}

/// Returns the length in bytes of an entry within a body.
#[must_use]
pub fn entry_len(entry: &Entry) -> u64 {
    let mut count = cbor::Count::default();
    put_entry(&mut count, entry);
    count.0 as u64
}

/// Returns the length in bytes of the body of a directory page with so many entries of so many bytes in all.
#[must_use]
pub fn directory_len(entries: u64, bytes: u64) -> u64 {
    let mut count = cbor::Count::default();
    cbor::put_uint(&mut count, entries); // An array's head is as long as the number's.
    2 + count.0 as u64 + bytes
}

/// Returns whether so many entries of so many bytes in all are one directory page. One entry always is, however long its link's target.
#[must_use]
pub fn is_one_page(entries: u64, bytes: u64) -> bool {
    entries <= 1 || directory_len(entries, bytes) <= DIRECTORY_MAX as u64
}

/// Returns whether two entries are the same value. Where their content lies doesn't matter.
#[must_use]
pub fn same_entry(a: &Entry, b: &Entry) -> bool {
    let (mut left, mut right) = (Vec::with_capacity(128), Vec::with_capacity(128));
    put_entry(&mut left, a);
    put_entry(&mut right, b);
    left == right
}

/// Returns whether two contents are the same value. Where they lie doesn't matter.
#[must_use]
pub fn same_content(a: &Content, b: &Content) -> bool {
    let (mut left, mut right) = (Vec::with_capacity(128), Vec::with_capacity(128));
    put_content(&mut left, a);
    put_content(&mut right, b);
    left == right
}

fn put_page(out: &mut impl Out, page: &Page) {
    cbor::put_array(out, 2);
    match page {
        Page::Directory(entries) => {
            cbor::put_uint(out, kind::DIRECTORY);
            cbor::put_array(out, entries.len());
            for entry in entries {
                put_entry(out, entry);
            }
        }
        Page::Split(slots) => {
            cbor::put_uint(out, kind::SPLIT);
            cbor::put_array(out, slots.len());
            for slot in slots {
                match slot {
                    None => cbor::put_null(out),
                    Some(slot) => {
                        cbor::put_array(out, 3);
                        cbor::put_bytes(out, slot.page.id.as_bytes());
                        cbor::put_uint(out, slot.bytes);
                        cbor::put_uint(out, slot.entries);
                    }
                }
            }
        }
        Page::List(parts) => {
            cbor::put_uint(out, kind::LIST);
            put_parts(out, parts);
        }
        Page::ListSplit(children) => {
            cbor::put_uint(out, kind::LIST_SPLIT);
            put_children(out, children);
        }
        Page::LinkTable(files) => {
            cbor::put_uint(out, kind::LINK_TABLE);
            cbor::put_array(out, files.len());
            for file in files {
                put_linked_file(out, file);
            }
        }
        Page::LinkTableSplit(children) => {
            cbor::put_uint(out, kind::LINK_TABLE_SPLIT);
            put_children(out, children);
        }
    }
}

fn put_entry(out: &mut impl Out, entry: &Entry) {
    let (items, kind) = match &entry.node {
        Node::File { .. } => (6, node::FILE),
        Node::Directory(_) => (5, node::DIRECTORY),
        Node::Symlink(_) => (5, node::SYMLINK),
        Node::Linked(_) => (3, node::LINKED),
    };
    cbor::put_array(out, items);
    cbor::put_bytes(out, &entry.name);
    cbor::put_uint(out, kind);
    if !matches!(entry.node, Node::Linked(_)) {
        cbor::put_uint(out, u64::from(entry.mode));
        cbor::put_int(out, entry.mtime);
    }
    match &entry.node {
        Node::File { size, content } => {
            cbor::put_uint(out, *size);
            put_content(out, content);
        }
        Node::Directory(page) => cbor::put_bytes(out, page.id.as_bytes()),
        Node::Symlink(target) => cbor::put_bytes(out, target),
        Node::Linked(number) => cbor::put_uint(out, *number),
    }
}

fn put_content(out: &mut impl Out, content: &Content) {
    match content {
        Content::Inline(bytes) => cbor::put_bytes(out, bytes),
        Content::Parts(parts) => match parts.as_slice() {
            // By far the commonest: the length is the file's size.
            [Part::Chunk(chunk, _)] => {
                cbor::put_array(out, 2);
                cbor::put_uint(out, form::CHUNK);
                cbor::put_bytes(out, chunk.id.as_bytes());
            }
            _ => {
                cbor::put_array(out, 2);
                cbor::put_uint(out, form::PARTS);
                put_parts(out, parts);
            }
        },
        Content::List(page) => {
            cbor::put_array(out, 2);
            cbor::put_uint(out, form::LIST);
            cbor::put_bytes(out, page.id.as_bytes());
        }
    }
}

fn put_parts(out: &mut impl Out, parts: &[Part]) {
    cbor::put_array(out, parts.len());
    for part in parts {
        match part {
            Part::Chunk(chunk, len) => {
                cbor::put_array(out, 2);
                cbor::put_bytes(out, chunk.id.as_bytes());
                cbor::put_uint(out, u64::from(*len));
            }
            Part::Hole(len) => cbor::put_uint(out, *len),
        }
    }
}

fn put_children(out: &mut impl Out, children: &[(PageLink, u64)]) {
    cbor::put_array(out, children.len());
    for (page, key) in children {
        cbor::put_array(out, 2);
        cbor::put_bytes(out, page.id.as_bytes());
        cbor::put_uint(out, *key);
    }
}

fn put_linked_file(out: &mut impl Out, file: &LinkedFile) {
    cbor::put_array(out, 6);
    cbor::put_uint(out, file.number);
    cbor::put_uint(out, u64::from(file.names));
    cbor::put_uint(out, u64::from(file.mode));
    cbor::put_int(out, file.mtime);
    cbor::put_uint(out, file.size);
    put_content(out, &file.content);
}

/// Returns the length in bytes of a part within a list page, taking the longest form for a hole, whose length changes as neighbours join it.
pub(super) fn part_len(part: &Part) -> usize {
    match part {
        Part::Hole(_) => 9,
        Part::Chunk(..) => {
            let mut count = cbor::Count::default();
            put_parts(&mut count, std::slice::from_ref(part));
            count.0 - 1
        }
    }
}

/// Returns the length in bytes of a linked file within a table page.
pub(super) fn linked_file_len(file: &LinkedFile) -> usize {
    let mut count = cbor::Count::default();
    put_linked_file(&mut count, file);
    count.0
}

/// Returns the stored form of a page for a pack of the home that `here` names.
///
/// # Errors
/// `Internal` when `here` doesn't know where a fresh object lies, or when the page breaks a rule of the format.
pub fn encode_stored(page: &Page, here: &dyn HintContext) -> Result<Vec<u8>> {
    let body = encode_body(page);
    check(page, body.len()).map_err(|Malformed(rule)| Error::internal(format!("a page to be stored {rule}")))?;
    let mut out = Vec::with_capacity(body.len() + body.len() / 4 + 64);
    cbor::put_array(&mut out, 3);
    cbor::put_uint(&mut out, VERSION);
    cbor::put_bytes(&mut out, &body);
    hints::put(&mut out, page, here)?;
    if out.len() > STORED_PAGE_MAX {
        return Err(Error::internal(format!("a stored page would have {} bytes, and at most {STORED_PAGE_MAX} can be read", out.len())));
    }
    Ok(out)
}

/// Reads a stored page that was found at `from`, and checks it against its id and every rule of the format.
///
/// # Errors
/// `Damaged` (`page_damaged`) when the bytes aren't the page's or break a rule; `TooNew` when a newer version wrote them.
pub fn decode_stored(id: PageId, bytes: &Bytes, from: &Location) -> Result<Page> {
    let damaged = |Malformed(rule): Malformed| damaged(id, Some(from), rule);
    if bytes.len() > STORED_PAGE_MAX {
        return Err(damaged(Malformed("is longer than a page can be")));
    }
    let mut reader = Reader::new(bytes);
    reader.array_of(3).map_err(damaged)?;
    let version = reader.uint().map_err(damaged)?;
    if version == 0 {
        return Err(damaged(Malformed("has a version that there never was")));
    }
    if version > VERSION {
        return Err(Error::too_new(format!("page {id} is of format version {version}, and this program reads version {VERSION}"))
            .code("page_too_new")
            .hint("upgrade landfall on this machine"));
    }
    let body = reader.bytes().map_err(damaged)?;
    if page_id(&body) != id {
        return Err(damaged(Malformed("doesn't match its id")));
    }
    let mut places = hints::Places::read(&mut reader, from).map_err(damaged)?;
    let page = read_body(&body, &mut places).map_err(damaged)?;
    places.end().map_err(damaged)?;
    Ok(page)
}

/// Reads a body alone. Its links have no known place ([`Place::Fresh`]).
///
/// # Errors
/// `Damaged` (`page_damaged`) when it breaks a rule of the format.
pub fn decode_body(body: &Bytes) -> Result<Page> {
    read_body(body, &mut hints::Nowhere).map_err(|Malformed(rule)| damaged(page_id(body), None, rule))
}

fn damaged(id: PageId, from: Option<&Location>, rule: &str) -> Error {
    let place = from.map(|from| format!(" (in pack {} at byte {})", from.pack, from.frame)).unwrap_or_default();
    Error::damaged(format!("page {id}{place} {rule}")).code("page_damaged").hint(
        "`landfall checkpoint verify` lists the files that are touched; an older checkpoint or a copy of the store may have them whole",
    )
}

/// Checks a page against the rules of the format that its bytes alone don't prove.
///
/// # Errors
/// `Damaged` with the rule that is broken.
pub fn check_page(page: &Page) -> Result<()> {
    let body = encode_body(page);
    check(page, body.len()).map_err(|Malformed(rule)| damaged(page_id(&body), None, rule))
}

/// Checks one entry, for callers that are about to store it.
///
/// # Errors
/// `Internal` with the rule that is broken.
pub fn check_entry(entry: &Entry) -> Result<()> {
    checked_entry(entry)
        .map_err(|Malformed(rule)| Error::internal(format!("entry {:?} {rule}", String::from_utf8_lossy(&entry.name).into_owned())))
}

fn read_body(body: &Bytes, places: &mut dyn hints::Placer) -> Result<Page, Malformed> {
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
fn read_all<T>(items: usize, mut read: impl FnMut() -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
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

fn check(page: &Page, body_len: usize) -> Result<(), Malformed> {
    if body_len > PAGE_MAX {
        return Err(Malformed("is longer than a page can be"));
    }
    match page {
        Page::Directory(entries) => {
            if entries.len() > 1 && body_len > DIRECTORY_MAX {
                return Err(Malformed("has more entries than fit one directory page"));
            }
            entries.iter().try_for_each(checked_entry)?;
            ascending(entries.windows(2).all(|pair| pair[0].name < pair[1].name))
        }
        Page::Split(slots) => checked_slots(slots),
        Page::List(parts) => checked_parts(parts).map(|_| ()),
        Page::ListSplit(children) => {
            let total = children.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes).filter(|_| *bytes > 0));
            if children.is_empty() || total.is_none_or(|total| total > SIZE_MAX) {
                return Err(Malformed("has a split list of impossible lengths"));
            }
            Ok(())
        }
        Page::LinkTable(files) => {
            files.iter().try_for_each(checked_linked_file)?;
            ascending(!files.is_empty() && files.windows(2).all(|pair| pair[0].number < pair[1].number))
        }
        Page::LinkTableSplit(children) => {
            ascending(!children.is_empty() && children.windows(2).all(|pair| pair[0].1 < pair[1].1))?;
            if children.last().is_some_and(|(_, largest)| *largest > SIZE_MAX) {
                Err(Malformed("has a number that is too large"))
            } else {
                Ok(())
            }
        }
    }
}

fn ascending(holds: bool) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed("has items that are missing, doubled or out of order")) }
}

fn checked_slots(slots: &[Option<SplitSlot>]) -> Result<(), Malformed> {
    if slots.len() != FANOUT {
        return Err(Malformed("has a split of the wrong number of slots"));
    }
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    for slot in slots.iter().flatten() {
        entries = entries.saturating_add(slot.entries);
        bytes = bytes.saturating_add(slot.bytes);
        let least = slot.entries.saturating_mul(ENTRY_MIN);
        // The longest entry is a link's name and target, or a name and a full set of parts.
        let most = slot.entries.saturating_mul((NAME_MAX + TARGET_MAX + 32) as u64);
        if slot.entries == 0 || !(least..=most).contains(&slot.bytes) {
            return Err(Malformed("has a split of impossible totals"));
        }
    }
    if entries > DIRECTORY_ENTRIES_MAX || is_one_page(entries, bytes) {
        return Err(Malformed("has a split of impossible totals"));
    }
    Ok(())
}

fn checked_entry(entry: &Entry) -> Result<(), Malformed> {
    if entry.name.is_empty()
        || entry.name.len() > NAME_MAX
        || matches!(&entry.name[..], b"." | b"..")
        || entry.name.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        return Err(Malformed("has an entry with a name that isn't allowed"));
    }
    if entry.mode > 0o777 {
        return Err(Malformed("has a mode beyond the nine permission bits"));
    }
    match &entry.node {
        Node::File { size, content } => checked_content(*size, content),
        Node::Directory(_) => Ok(()),
        Node::Symlink(target) => {
            if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                return Err(Malformed("has a symbolic link with a target that isn't allowed"));
            }
            Ok(())
        }
        Node::Linked(number) => {
            if entry.mode != 0 || entry.mtime != 0 || *number > SIZE_MAX {
                return Err(Malformed("has a hard link with a mode, a time or a number that isn't allowed"));
            }
            Ok(())
        }
    }
}

fn checked_linked_file(file: &LinkedFile) -> Result<(), Malformed> {
    if file.names == 0 || file.number > SIZE_MAX || file.mode > 0o777 {
        return Err(Malformed("has a linked file of impossible numbers"));
    }
    checked_content(file.size, &file.content)
}

fn checked_content(size: u64, content: &Content) -> Result<(), Malformed> {
    let small = size <= INLINE_MAX as u64;
    let fits = match content {
        Content::Inline(bytes) => bytes.len() as u64 == size && small,
        Content::Parts(parts) => checked_parts(parts)? == size && !small && parts.len() <= PARTS_MAX,
        Content::List(_) => !small && size <= SIZE_MAX,
    };
    if fits { Ok(()) } else { Err(Malformed("has a content that doesn't fit its size")) }
}

/// Checks parts and returns the number of bytes that they cover.
fn checked_parts(parts: &[Part]) -> Result<u64, Malformed> {
    let (mut total, mut after_hole) = (0_u64, false);
    for part in parts {
        let len = match part {
            Part::Chunk(_, len) if *len > 0 && *len as usize <= CHUNK_MAX => u64::from(*len),
            // Two holes in a row would be two forms of one value.
            Part::Hole(len) if *len > 0 && !after_hole => *len,
            _ => return Err(Malformed("has a part of an impossible length")),
        };
        after_hole = matches!(part, Part::Hole(_));
        total = total.checked_add(len).filter(|total| *total <= SIZE_MAX).ok_or(Malformed("has a part of an impossible length"))?;
    }
    if total == 0 { Err(Malformed("has no parts")) } else { Ok(total) }
}

/// A page or a chunk that a page names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference<'p> {
    /// A page.
    Page(&'p PageLink),
    /// A chunk and its length in bytes.
    Chunk(&'p ChunkLink, u32),
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(link) => write!(f, "page {}", link.id),
            Self::Chunk(link, _) => write!(f, "chunk {}", link.id),
        }
    }
}

/// Calls `each` with everything that a page names, in the order of its body.
pub fn references<'p>(page: &'p Page, each: &mut dyn FnMut(Reference<'p>)) {
    fn parts<'p>(parts: &'p [Part], each: &mut dyn FnMut(Reference<'p>)) {
        for part in parts {
            if let Part::Chunk(chunk, len) = part {
                each(Reference::Chunk(chunk, *len));
            }
        }
    }
    fn content<'p>(content: &'p Content, each: &mut dyn FnMut(Reference<'p>)) {
        match content {
            Content::Inline(_) => {}
            Content::Parts(all) => parts(all, each),
            Content::List(page) => each(Reference::Page(page)),
        }
    }
    match page {
        Page::Directory(entries) => {
            for entry in entries {
                match &entry.node {
                    Node::File { content: file, .. } => content(file, each),
                    Node::Directory(page) => each(Reference::Page(page)),
                    Node::Symlink(_) | Node::Linked(_) => {}
                }
            }
        }
        Page::Split(slots) => slots.iter().flatten().for_each(|slot| each(Reference::Page(&slot.page))),
        Page::List(all) => parts(all, each),
        Page::ListSplit(children) | Page::LinkTableSplit(children) => children.iter().for_each(|(page, _)| each(Reference::Page(page))),
        Page::LinkTable(files) => files.iter().for_each(|file| content(&file.content, each)),
    }
}

#[cfg(test)]
mod tests;
