//! From stored frames to pages and chunks, and the errors for those that aren't what they should be.

use bytes::Bytes;

use crate::checkpoint::frame;
use crate::checkpoint::root_codec::check_location;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChunkId, PageId};
use crate::workspace::page::{Home, Location, Page, Place};
use crate::workspace::page_codec::decode_stored;

/// A page's number among those that are wanted, its id, its frame and its place.
pub(super) type PageWork = (usize, PageId, Bytes, Location);

/// Decodes what can be decoded; what can't is left out.
pub(super) fn decode_all(work: Vec<PageWork>) -> Vec<(usize, PageId, Location, Page)> {
    let decode = |(number, id, stored, at): PageWork| decode_page(id, &stored, &at).ok().map(|page| (number, id, at, page));
    work.into_iter().filter_map(decode).collect()
}

pub(super) fn decode_page(id: PageId, stored: &Bytes, at: &Location) -> Result<Page> {
    let name = || format!("page {id} at byte {} of pack {} of {} is damaged", at.frame, at.pack, home_text(&at.home));
    let plain = frame::decode(stored).map_err(|e| damaged(name(), "page_damaged", e))?;
    let (start, end) = (at.start as usize, at.start as usize + at.len as usize);
    if plain.len() < end {
        return Err(damaged(name(), "page_damaged", Error::damaged(format!("its frame has {} bytes, not {end}", plain.len()))));
    }
    decode_stored(id, &plain.slice(start..end), at)
}

/// Makes the error for a chunk whose frame can't be decoded or holds something else.
pub(in crate::checkpoint) fn chunk_damaged(id: ChunkId, at: &Location, cause: Error) -> Error {
    damaged(format!("chunk {id} at byte {} of pack {} of {} is damaged", at.frame, at.pack, home_text(&at.home)), "chunk_damaged", cause)
}

pub(super) fn damaged(message: String, code: &'static str, cause: Error) -> Error {
    let error = Error::new(if cause.kind() == ErrorKind::TooNew { ErrorKind::TooNew } else { ErrorKind::Damaged }, message).code(code);
    let hint =
        "`landfall checkpoint verify` lists the files that are touched; an older checkpoint or a copy of the store may have them whole";
    error.hint(cause.next_step().map_or_else(|| hint.to_owned(), str::to_owned)).source(cause)
}

pub(super) fn placed(place: &Place, what: impl FnOnce() -> String) -> Result<&Location> {
    match place {
        Place::At(at) => check_location(at).map_err(|e| e.context(format!("reading {}", what()))).map(|()| at),
        Place::Fresh => Err(Error::internal(format!("{} was asked for before it was stored", what()))),
    }
}

pub(super) fn home_text(home: &Home) -> String {
    match home {
        Home::Session(session) => format!("session {session}"),
        Home::Repository(repository) => format!("repository {repository}"),
    }
}
