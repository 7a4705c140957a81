//! Hints: where the pages and chunks that a page names lie. They are stored beside the body and aren't part of the id.
//!
//! Stored as `[packs, frames, places]`:
//! - `packs`: each pack once, in the order of its first use, written relative to the home of the pack that holds the page, so that a
//!   session's packs can be copied to another place as they are;
//! - `frames`: each frame once: place in `packs`, offset, stored length;
//! - `places`: for each reference of the body in order: place in `frames`, offset in the frame's plain bytes and, for a page, the length
//!   of its stored form. A chunk's length is in the body.

use std::collections::HashMap;
use std::sync::Arc;

use super::read::read_all;
use super::references::{Reference, references};
use crate::error::{Error, Result};
use crate::id::{ChunkId, Digest, PACK_MAX, PackId, PageId, SessionRef};
use crate::workspace::cbor::{self, Malformed, Reader};
use crate::workspace::page::{Home, Link, Location, Page, Place};

/// Shortest stored frame in bytes: its header and one byte.
const FRAME_MIN: u32 = 6;
/// Largest number of plain bytes in a frame.
const FRAME_MAX: u32 = 1 << 20;

/// The kinds of a pack's home.
mod home {
    /// The pack that holds the page.
    pub(super) const HERE: u64 = 0;
    /// Another pack of the same home.
    pub(super) const SAME: u64 = 1;
    /// A pack of an imported repository.
    pub(super) const REPOSITORY: u64 = 2;
    /// A pack of another session.
    pub(super) const SESSION: u64 = 3;
}

/// Where an object lies, seen from a pack that is being written and so has no name yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spot {
    /// In the pack that is being written: frame offset, stored length of the frame, start in its plain bytes, length.
    Here {
        /// Offset in bytes of the frame's first stored byte in the pack.
        frame: u32,
        /// Length in bytes of the stored frame.
        stored: u32,
        /// Offset in bytes of the object in the frame's plain bytes.
        start: u32,
        /// Length in bytes of the object.
        len: u32,
    },
    /// In a sealed pack.
    At(Location),
}

/// What a writer of packs knows when it writes a page.
pub trait HintContext {
    /// Returns the home of the pack that is being written.
    fn home(&self) -> &Home;

    /// Returns where a chunk lies that this writer was given. Called for [`Place::Fresh`] links only.
    fn chunk(&self, id: ChunkId) -> Option<Spot>;

    /// Returns where a page lies that this writer was given. Called for [`Place::Fresh`] links only.
    fn page(&self, id: PageId) -> Option<Spot>;
}

/// Numbers things in the order of their first use.
struct Table<K>(HashMap<K, u64>, Vec<K>);

impl<K: Clone + Eq + std::hash::Hash> Table<K> {
    fn new() -> Self {
        Self(HashMap::new(), Vec::new())
    }

    fn number(&mut self, key: K) -> u64 {
        let next = self.1.len() as u64;
        *self.0.entry(key).or_insert_with_key(|key| {
            self.1.push(key.clone());
            next
        })
    }
}

/// Writes the hints of a page.
pub(super) fn put(out: &mut Vec<u8>, page: &Page, here: &dyn HintContext) -> Result<()> {
    let mut packs: Table<Option<(Arc<Home>, PackId)>> = Table::new();
    let mut frames: Table<(u64, u32, u32)> = Table::new();
    let mut places = Vec::new();
    let mut count = 0;
    let mut unknown = None;
    references(page, &mut |reference| {
        let spot = match reference {
            Reference::Page(Link { place: Place::At(at), .. }) | Reference::Chunk(Link { place: Place::At(at), .. }, _) => {
                Some(Spot::At(at.clone()))
            }
            Reference::Page(link) => here.page(link.id),
            Reference::Chunk(link, _) => here.chunk(link.id),
        };
        let (pack, frame, stored, start, len) = match spot {
            Some(Spot::Here { frame, stored, start, len }) => (None, frame, stored, start, len),
            Some(Spot::At(at)) => (Some((at.home, at.pack)), at.frame, at.stored, at.start, at.len),
            None => {
                unknown.get_or_insert_with(|| reference.to_string());
                return;
            }
        };
        let pack = packs.number(pack);
        cbor::put_uint(&mut places, frames.number((pack, frame, stored)));
        cbor::put_uint(&mut places, u64::from(start));
        count += 2;
        if matches!(reference, Reference::Page(_)) {
            cbor::put_uint(&mut places, u64::from(len));
            count += 1;
        }
    });
    if let Some(reference) = unknown {
        return Err(Error::internal(format!("a page to be stored names {reference}, which its writer was never given")));
    }
    cbor::put_array(out, 3);
    cbor::put_array(out, packs.1.len());
    for pack in &packs.1 {
        put_pack(out, pack.as_ref(), here.home());
    }
    cbor::put_array(out, frames.1.len() * 3);
    for (pack, frame, stored) in &frames.1 {
        cbor::put_uint(out, *pack);
        cbor::put_uint(out, u64::from(*frame));
        cbor::put_uint(out, u64::from(*stored));
    }
    cbor::put_array(out, count);
    out.extend_from_slice(&places);
    Ok(())
}

fn put_pack(out: &mut Vec<u8>, pack: Option<&(Arc<Home>, PackId)>, here: &Home) {
    let Some((home, pack)) = pack else {
        cbor::put_array(out, 1);
        cbor::put_uint(out, home::HERE);
        return;
    };
    match &**home {
        same if same == here => {
            cbor::put_array(out, 2);
            cbor::put_uint(out, home::SAME);
        }
        Home::Repository(url) => {
            cbor::put_array(out, 3);
            cbor::put_uint(out, home::REPOSITORY);
            cbor::put_bytes(out, url.as_bytes());
        }
        Home::Session(session) => {
            cbor::put_array(out, 4);
            cbor::put_uint(out, home::SESSION);
            cbor::put_text(out, session.agent.as_str());
            cbor::put_text(out, session.session.as_str());
        }
    }
    cbor::put_bytes(out, pack.as_bytes());
}

/// Gives the place of each reference in the order of the body.
pub(super) trait Placer {
    /// Returns the place of the next reference, a page.
    fn page(&mut self) -> Result<Place, Malformed>;
    /// Returns the place of the next reference, a chunk of so many bytes.
    fn chunk(&mut self, len: u32) -> Result<Place, Malformed>;
}

/// Knows no places.
pub(super) struct Nowhere;

impl Placer for Nowhere {
    fn page(&mut self) -> Result<Place, Malformed> {
        Ok(Place::Fresh)
    }

    fn chunk(&mut self, _len: u32) -> Result<Place, Malformed> {
        Ok(Place::Fresh)
    }
}

/// The hints of a stored page, as absolute places.
pub(super) struct Places<'r, 'b> {
    packs: Vec<(Arc<Home>, PackId)>,
    frames: Vec<(usize, u32, u32)>,
    reader: &'r mut Reader<'b>,
    left: usize,
}

impl<'r, 'b> Places<'r, 'b> {
    /// Reads the two tables; the places themselves are read as the body asks for them.
    pub(super) fn read(reader: &'r mut Reader<'b>, from: &Location) -> Result<Self, Malformed> {
        reader.array_of(3)?;
        let count = reader.array()?;
        let packs = read_all(count, || read_pack(reader, from))?;
        let count = reader.array()?;
        if count % 3 != 0 {
            return Err(Malformed("has a table of frames of the wrong length"));
        }
        let frames = read_all(count / 3, || {
            let pack =
                usize::try_from(reader.uint()?).ok().filter(|pack| *pack < packs.len()).ok_or(Malformed("has a hint beyond its packs"))?;
            let (frame, stored) = (reader.uint32()?, reader.uint32()?);
            if stored < FRAME_MIN || frame.checked_add(stored).is_none_or(|end| end as usize > PACK_MAX) {
                return Err(Malformed("has a hint to a frame that can't be one"));
            }
            Ok((pack, frame, stored))
        })?;
        let left = reader.array()?;
        Ok(Self { packs, frames, reader, left })
    }

    fn next(&mut self) -> Result<u32, Malformed> {
        self.left = self.left.checked_sub(1).ok_or(Malformed("has fewer hints than references"))?;
        self.reader.uint32()
    }

    fn place(&mut self, len: Option<u32>) -> Result<Place, Malformed> {
        let frame = self.next()?;
        let (pack, frame, stored) = *self.frames.get(frame as usize).ok_or(Malformed("has a hint beyond its frames"))?;
        let (home, pack) = self.packs.get(pack).ok_or(Malformed("has a hint beyond its packs"))?.clone();
        let start = self.next()?;
        let len = match len {
            Some(len) => len,
            None => self.next()?,
        };
        if len == 0 || start.checked_add(len).is_none_or(|end| end > FRAME_MAX) {
            return Err(Malformed("has a hint to an object that can't be in a frame"));
        }
        Ok(Place::At(Location { home, pack, frame, stored, start, len }))
    }

    /// Checks that the body asked for every place and that nothing follows.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.left > 0 {
            return Err(Malformed("has more hints than references"));
        }
        self.reader.end()
    }
}

impl Placer for Places<'_, '_> {
    fn page(&mut self) -> Result<Place, Malformed> {
        self.place(None)
    }

    fn chunk(&mut self, len: u32) -> Result<Place, Malformed> {
        self.place(Some(len))
    }
}

fn read_pack(reader: &mut Reader<'_>, from: &Location) -> Result<(Arc<Home>, PackId), Malformed> {
    let items = reader.array()?;
    match (reader.uint()?, items) {
        (home::HERE, 1) => Ok((from.home.clone(), from.pack)),
        (home::SAME, 2) => Ok((from.home.clone(), PackId::from_bytes(reader.digest()?))),
        (home::REPOSITORY, 3) => {
            let home = Home::Repository(Digest::from_bytes(reader.digest()?));
            Ok((Arc::new(home), PackId::from_bytes(reader.digest()?)))
        }
        (home::SESSION, 4) => {
            let bad = |_| Malformed("has a hint to a session whose name isn't allowed");
            let agent = reader.text()?.parse().map_err(bad)?;
            let session = reader.text()?.parse().map_err(bad)?;
            Ok((Arc::new(Home::Session(SessionRef { agent, session })), PackId::from_bytes(reader.digest()?)))
        }
        _ => Err(Malformed("has a hint to an unknown kind of home")),
    }
}
