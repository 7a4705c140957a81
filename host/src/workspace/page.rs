//! Pages: the nodes of a workspace's Merkle tree, as values. The byte form is in [`super::page_codec`]; `host/docs/FORMAT.md` specifies it.
//!
//! A page has a canonical body, whose hash is its id, and beside it *hints*: where the pages and chunks that it names lie.
//! Hints aren't part of the id, so content that is written again elsewhere keeps its id.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::{ChunkId, Digest, PackId, PageId, SessionRef};

/// Which family of packs a pack belongs to, and so the key it has.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Home {
    /// The packs of a session (this one, or the one it was forked from).
    Session(SessionRef),
    /// The packs of an imported repository, named by the SHA-256 of its URL.
    Repository(Digest),
}

/// Where a stored object lies: a frame of a pack, and a range of the frame's plain bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The family of packs.
    pub home: Arc<Home>,
    /// The pack.
    pub pack: PackId,
    /// Offset in bytes of the frame's first stored byte in the pack.
    pub frame: u32,
    /// Length in bytes of the stored frame, its header included.
    pub stored: u32,
    /// Offset in bytes of the object in the frame's plain bytes.
    pub start: u32,
    /// Length in bytes of the object.
    pub len: u32,
}

/// Where an object lies, or that it has been made in this turn and isn't in a sealed pack yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In a sealed pack.
    At(Location),
    /// Known to the [`super::source::Sink`] that made the link; only that sink can resolve it.
    Fresh,
}

/// The id of a stored object and where it lies. Two links are the same thing when their ids are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Link<I> {
    /// The id, a hash of the content.
    pub id: I,
    /// Where it lies.
    pub place: Place,
}

/// A link to a page.
pub type PageLink = Link<PageId>;
/// A link to a chunk.
pub type ChunkLink = Link<ChunkId>;

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// At most [`INLINE_MAX`] bytes, held in the entry itself; also the empty file.
    Inline(Bytes),
    /// Up to [`PARTS_MAX`] parts in file order.
    Parts(Vec<Part>),
    /// More parts: the root of a tree of list pages.
    List(PageLink),
}

/// A run of a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The plain bytes of one chunk; length in bytes, 1 to [`CHUNK_MAX`].
    Chunk(ChunkLink, u32),
    /// So many zero bytes that are stored nowhere.
    Hole(u64),
}

/// Largest content held inside an entry, in bytes.
pub const INLINE_MAX: usize = 64;
/// Largest chunk in bytes. A file up to this size is one chunk.
pub const CHUNK_MAX: usize = 1 << 20;
/// Most parts held inside an entry; a file with more has list pages.
pub const PARTS_MAX: usize = 16;
/// Longest canonical body of a page in bytes.
pub const PAGE_MAX: usize = 16 << 10;
/// Longest canonical body of a directory page with two or more entries, in bytes: a larger directory is split. A change of one entry writes
/// a page of each level again, so this bounds what it costs, whatever the directory's size.
pub const DIRECTORY_MAX: usize = 4 << 10;

/// What an entry of a directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A regular file with one name.
    File {
        /// Length in bytes.
        size: u64,
        /// Its bytes.
        content: Content,
    },
    /// A directory: its page.
    Directory(PageLink),
    /// A symbolic link: the target, verbatim.
    Symlink(Bytes),
    /// One of several names of a file: its number in the root's table of linked files.
    Linked(u64),
}

/// An entry of a directory page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`; usually UTF-8, but any bytes that git can hold.
    pub name: Bytes,
    /// Permission bits, 0 to 0o777. Zero and ignored for [`Node::Linked`], where the table's entry counts.
    pub mode: u16,
    /// Time of the last modification, nanoseconds since 1970. Zero and ignored for [`Node::Linked`].
    pub mtime: i64,
    /// What it is.
    pub node: Node,
}

/// A page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Page {
    /// Entries of a directory in ascending order of their name bytes.
    Directory(Vec<Entry>),
    /// A directory that is split by the hash of the names: [`FANOUT`] slots, each none or a page (again one of these two kinds).
    Split(Vec<Option<SplitSlot>>),
    /// Parts of a file in order.
    List(Vec<Part>),
    /// A list that is split: sub-lists in order, with the number of file bytes each covers.
    ListSplit(Vec<(PageLink, u64)>),
    /// A part of the table of files with several names, in ascending order of their numbers.
    LinkTable(Vec<LinkedFile>),
    /// A link table that is split: sub-tables in order, each with the largest number in it.
    LinkTableSplit(Vec<(PageLink, u64)>),
}

/// Slots of a [`Page::Split`].
pub const FANOUT: usize = 16;

/// A used slot of a split directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitSlot {
    /// The page that holds the names of this slot.
    pub page: PageLink,
    /// Sum of the encoded lengths of all entries below, in bytes: decides when a split directory is joined again.
    pub bytes: u64,
    /// Number of entries below.
    pub entries: u64,
}

/// A file with several names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkedFile {
    /// Its number: unique within the root, never used again while the file lives.
    pub number: u64,
    /// How many entries name it.
    pub names: u32,
    /// Permission bits.
    pub mode: u16,
    /// Time of the last modification, nanoseconds since 1970.
    pub mtime: i64,
    /// Length in bytes.
    pub size: u64,
    /// Its bytes.
    pub content: Content,
}

/// One of the filesystems of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// The page of its top directory.
    pub page: PageLink,
    /// The table of files with several names, when there are any.
    pub links: Option<PageLink>,
    /// Number of entries of every kind, the top directory itself not counted; a file with two names counts twice.
    pub entries: u64,
    /// Sum of the files' lengths in bytes; a file with two names counts once.
    pub bytes: u64,
}
