//! Packs: the immutable objects that hold a checkpoint's frames. A pack's name is the SHA-256 of its bytes.
//!
//! A pack is the magic, frames back to back (content first, then pages with children before parents), a footer in CBOR with a salt, the footer's
//! length (u32 LE) and the end magic. Readers find objects by the hints in pages; the footer is for rebuilding and verifying.
//! `host/docs/FORMAT.md` specifies the byte form.

use bytes::Bytes;
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

use super::frame::{self, FRAME_HEADER, FRAME_PLAIN_MAX, FRAME_STORED_MAX};
use crate::error::{Error, ErrorKind, Result};
pub use crate::id::PACK_MAX;
use crate::id::PackId;
use crate::store::Key;
use crate::workspace::page::Home;

/// The first bytes of every pack.
pub const MAGIC: &[u8; 8] = b"LFPACK1\n";
/// The last bytes of every pack.
pub const END_MAGIC: &[u8; 8] = b"LFPEND1\n";
/// Length in bytes of what follows the footer: its length and the end magic.
pub const TRAILER: usize = 12;
/// Stored bytes at which a pack is closed.
pub const PACK_TARGET: usize = 16 << 20;
/// Most bytes of a pack's footer.
pub const FOOTER_MAX: usize = 4 << 20;
/// Most objects (chunks and pages) of a pack.
pub const OBJECTS_MAX: usize = 256 << 10;

const FOOTER_VERSION: u64 = 1;
/// Length in bytes of a pack's salt.
pub const SALT_LEN: usize = 16;

/// Random bytes in a pack, so that no pack ever has the name of another, whatever they hold. A collector may then delete a pack by its name
/// as late as it likes: nobody can have stored it again meanwhile.
pub type Salt = [u8; SALT_LEN];

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The plain bytes of one or more chunks.
    Content,
    /// One stored page.
    Page,
}

/// A frame as the footer lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameEntry {
    /// What it holds.
    pub kind: FrameKind,
    /// Offset in bytes of its first stored byte in the pack.
    pub offset: u32,
    /// Length in bytes, header included.
    pub stored: u32,
    /// Length in bytes when decoded: the sum of `objects`.
    pub plain: u32,
    /// Lengths in bytes of the objects in it, in order and without gaps.
    pub objects: Vec<u32>,
}

/// Returns the key of a pack of this home.
#[must_use]
pub fn key(home: &Home, id: PackId) -> Key {
    match home {
        Home::Session(session) => Key::SessionPack(session.clone(), id),
        Home::Repository(repository) => Key::RepositoryPack(*repository, id),
    }
}

/// Puts frames together to a pack.
#[derive(Debug)]
pub struct PackBuilder {
    bytes: Vec<u8>,
    frames: Vec<FrameEntry>,
    objects: usize,
}

impl Default for PackBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl PackBuilder {
    /// Starts an empty pack.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: MAGIC.to_vec(), frames: Vec::new(), objects: 0 }
    }

    /// Returns the bytes that the pack would have if it were closed now, or a little more.
    #[must_use]
    pub fn len(&self) -> usize {
        // A footer entry is at most 18 bytes and 5 for each object.
        self.bytes.len() + TRAILER + 16 + SALT_LEN + 18 * self.frames.len() + 5 * self.objects
    }

    /// Returns whether the pack has no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of objects in it.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// Returns whether a frame of so many stored bytes and objects still fits under [`PACK_MAX`] and the other limits.
    #[must_use]
    pub fn has_room(&self, stored: usize, objects: usize) -> bool {
        let footer = 16 + SALT_LEN + 18 * (self.frames.len() + 1) + 5 * (self.objects + objects);
        self.len() + stored + 18 + 5 * objects <= PACK_MAX && footer <= FOOTER_MAX && self.objects + objects <= OBJECTS_MAX
    }

    /// Appends a stored frame and returns its offset in the pack in bytes.
    ///
    /// # Errors
    /// `Internal` when it has no room or the numbers don't fit together.
    pub fn push(&mut self, kind: FrameKind, stored: &[u8], objects: Vec<u32>) -> Result<u32> {
        let plain = frame::plain_len(stored)?;
        if objects.iter().map(|&len| len as usize).sum::<usize>() != plain || !self.has_room(stored.len(), objects.len()) {
            return Err(Error::internal(format!("a frame of {} bytes doesn't fit into the pack being made", stored.len())));
        }
        let fits = |n: usize| u32::try_from(n).map_err(|e| Error::internal("a pack above 4 GiB was asked for").source(e));
        let entry = FrameEntry { kind, offset: fits(self.bytes.len())?, stored: fits(stored.len())?, plain: fits(plain)?, objects };
        let offset = entry.offset;
        self.objects += entry.objects.len();
        if self.bytes.capacity() - self.bytes.len() < stored.len() {
            // Doubling would leave up to as much unused memory as a pack has bytes.
            self.bytes.reserve_exact(stored.len().max(self.bytes.len().clamp(4 << 10, 2 << 20)));
        }
        self.bytes.extend_from_slice(stored);
        self.frames.push(entry);
        Ok(offset)
    }

    /// Closes the pack and returns its name, its bytes and its frames.
    #[must_use]
    pub fn finish(self, salt: &Salt) -> (PackId, Bytes, Vec<FrameEntry>) {
        let Self { mut bytes, frames, .. } = self;
        let footer = encode_footer(&frames, salt);
        bytes.extend_from_slice(&footer);
        bytes.extend_from_slice(&u32::try_from(footer.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(END_MAGIC);
        let bytes = Bytes::from(bytes);
        (PackId::of(&bytes), bytes, frames)
    }
}

fn encode_footer(frames: &[FrameEntry], salt: &Salt) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + 24 * frames.len());
    let mut e = Encoder::new(&mut out);
    // Writing to a Vec can't fail.
    let _ = (|| {
        e.array(3)?.u64(FOOTER_VERSION)?.array(frames.len() as u64)?;
        for frame in frames {
            let kind = match frame.kind {
                FrameKind::Content => 0,
                FrameKind::Page => 1,
            };
            e.array(5)?.u8(kind)?.u32(frame.offset)?.u32(frame.stored)?.u32(frame.plain)?.array(frame.objects.len() as u64)?;
            for &len in &frame.objects {
                e.u32(len)?;
            }
        }
        e.bytes(salt)?;
        Ok::<_, minicbor::encode::Error<std::convert::Infallible>>(())
    })();
    out
}

/// Reads a pack's footer from the whole pack and checks that it describes every byte of it.
///
/// # Errors
/// `Damaged` (code `pack_damaged`), `TooNew` (`pack_too_new`) when the footer has a later version. The caller adds the pack's name.
pub fn read_footer(pack: &[u8]) -> Result<Vec<FrameEntry>> {
    if pack.len() < MAGIC.len() + TRAILER || pack.len() > PACK_MAX {
        return Err(damaged(format!("a pack has {} to {PACK_MAX} bytes, this one {}", MAGIC.len() + TRAILER, pack.len())));
    }
    if !pack.starts_with(MAGIC) || !pack.ends_with(END_MAGIC) {
        return Err(damaged("the magic bytes at the ends are missing: it isn't a pack, or it is cut off"));
    }
    let trailer = pack.len() - TRAILER;
    let length = pack[trailer..].first_chunk().map_or(0, |&length| u32::from_le_bytes(length)) as usize;
    if length > FOOTER_MAX || length > trailer - MAGIC.len() {
        return Err(damaged(format!("it declares a footer of {length} bytes")));
    }
    let frames_end = trailer - length;
    let frames = decode_footer(&pack[frames_end..trailer])?;
    let mut offset = MAGIC.len();
    let mut in_pages = false;
    for frame in &frames {
        if frame.offset as usize != offset || (in_pages && frame.kind == FrameKind::Content) {
            return Err(damaged(format!("the frame listed at {} isn't at its place", frame.offset)));
        }
        in_pages |= frame.kind == FrameKind::Page;
        offset = offset.saturating_add(frame.stored as usize);
    }
    if offset != frames_end {
        return Err(damaged(format!("its frames end at {offset}, its footer begins at {frames_end}")));
    }
    Ok(frames)
}

fn decode_footer(bytes: &[u8]) -> Result<Vec<FrameEntry>> {
    let mut d = Decoder::new(bytes);
    let malformed = |e: minicbor::decode::Error| damaged("its footer can't be decoded").source(e.to_string());
    if array(&mut d).map_err(malformed)? != 3 {
        return Err(damaged("its footer isn't an array of three"));
    }
    let version = d.u64().map_err(malformed)?;
    if version > FOOTER_VERSION {
        return Err(Error::too_new(format!("its footer has version {version}; this program reads version {FOOTER_VERSION}"))
            .code("pack_too_new")
            .hint("upgrade landfall on this machine"));
    }
    if version != FOOTER_VERSION {
        return Err(damaged(format!("its footer has version {version}")));
    }
    let count = array(&mut d).map_err(malformed)?;
    let mut frames = Vec::new();
    let mut objects_in_all = 0_u64;
    for _ in 0..count {
        if array(&mut d).map_err(malformed)? != 5 {
            return Err(damaged("a frame in its footer isn't an array of five"));
        }
        let kind = match d.u8().map_err(malformed)? {
            0 => FrameKind::Content,
            1 => FrameKind::Page,
            kind => return Err(damaged(format!("a frame in its footer has kind {kind}"))),
        };
        let offset = d.u32().map_err(malformed)?;
        let stored = d.u32().map_err(malformed)?;
        let plain = d.u32().map_err(malformed)?;
        let count = array(&mut d).map_err(malformed)?;
        objects_in_all = count.saturating_add(objects_in_all);
        // Every count is bounded by the footer's bytes and by the limit before a list grows to it.
        if objects_in_all > OBJECTS_MAX as u64 || count > (bytes.len() - d.position()) as u64 {
            return Err(damaged(format!("its footer lists {objects_in_all} objects or more")));
        }
        let mut objects = Vec::new();
        let mut sum = 0_u64;
        for _ in 0..count {
            let len = d.u32().map_err(malformed)?;
            sum += u64::from(len);
            if len == 0 {
                return Err(damaged("its footer lists an object of no bytes"));
            }
            objects.push(len);
        }
        let stored_range = FRAME_HEADER + 1..=FRAME_STORED_MAX;
        if sum != u64::from(plain) || plain as usize > FRAME_PLAIN_MAX || objects.is_empty() || !stored_range.contains(&(stored as usize)) {
            return Err(damaged(format!("the frame listed at {offset} has impossible lengths")));
        }
        if kind == FrameKind::Page && objects.len() != 1 {
            return Err(damaged(format!("the page frame listed at {offset} has {} objects", objects.len())));
        }
        frames.push(FrameEntry { kind, offset, stored, plain, objects });
    }
    let salt = d.bytes().map_err(malformed)?;
    let salt = Salt::try_from(salt).map_err(|_| damaged(format!("its salt has {} bytes", salt.len())))?;
    if d.position() != bytes.len() {
        return Err(damaged("bytes follow its footer's end"));
    }
    // One footer has one form: lengths in their shortest encoding, as the encoder writes them.
    if encode_footer(&frames, &salt) != bytes {
        return Err(damaged("its footer isn't in the canonical form"));
    }
    Ok(frames)
}

fn array(d: &mut Decoder<'_>) -> Result<u64, minicbor::decode::Error> {
    match d.datatype()? {
        Type::Array => Ok(d.array()?.unwrap_or(0)),
        other => Err(minicbor::decode::Error::type_mismatch(other)),
    }
}

/// Checks a whole pack: its name, its footer, and that every frame decodes to what the footer says. Returns the frames.
/// The objects' own hashes aren't checked here, since the footer doesn't hold ids.
///
/// # Errors
/// `Damaged` (code `pack_damaged`) naming the pack; `TooNew` (`pack_too_new`) when a newer version wrote it: its name is right, and what it holds
/// can't be said.
pub fn check(id: PackId, pack: &Bytes) -> Result<Vec<FrameEntry>> {
    let named = |cause: Error| match cause.kind() {
        ErrorKind::TooNew => cause.context(format!("reading pack {id}")),
        _ => Error::damaged(format!("pack {id} is damaged")).code("pack_damaged").source(cause),
    };
    if PackId::of(pack) != id {
        return Err(named(damaged(format!("its {} bytes have the SHA-256 {}", pack.len(), PackId::of(pack)))));
    }
    let frames = read_footer(pack).map_err(named)?;
    for entry in &frames {
        let (from, to) = (entry.offset as usize, entry.offset as usize + entry.stored as usize);
        let plain = frame::decode(&pack.slice(from..to)).map_err(named)?;
        if plain.len() != entry.plain as usize {
            return Err(named(damaged(format!("the frame at {from} has {} plain bytes, not {}", plain.len(), entry.plain))));
        }
    }
    Ok(frames)
}

fn damaged(message: impl Into<String>) -> Error {
    Error::damaged(message).code("pack_damaged")
}

#[cfg(test)]
mod tests;
