//! Pages as bytes. `host/docs/FORMAT.md` has the same rules in words; `tests/verify_store.py` has them in Python.
//!
//! A stored page is `[version, body, hints]` in deterministic CBOR. The body is what its id is a hash of. The hints say where each
//! page and chunk that the body names lies, in the order in which the body names them.

mod hints;
mod read;
mod references;
mod rules;
mod write;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

pub use self::hints::{HintContext, Spot};
use self::read::read_body;
pub use self::references::{Reference, references};
use self::rules::{check, checked_entry};
use self::write::{put_content, put_entry, put_linked_file, put_page, put_parts};
use super::cbor::{self, Malformed, Reader};
use super::page::{Content, DIRECTORY_MAX, Entry, LinkedFile, Location, Page, Part};
use crate::error::{Error, Result};
use crate::id::PageId;

/// Version of the stored form that this program writes and reads.
pub const VERSION: u64 = 1;
/// Longest stored page in bytes: a body of [`PAGE_MAX`](super::page::PAGE_MAX) and the longest hints that it can need.
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

/// Reads a body alone. Its links have no known place ([`Fresh`](super::page::Place::Fresh)).
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

#[cfg(test)]
mod tests;
