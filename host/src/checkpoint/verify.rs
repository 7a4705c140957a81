//! Verifying a checkpoint against the store: that everything it needs is there, is what its id says, and adds up.
//!
//! Every page is read from the store, never from a cache of an earlier turn. A *deep* verification also reads every pack whole, compares it with
//! its name and every chunk with its id, so that no flipped byte of any pack that the checkpoint uses goes unseen. A *shallow* one only asks
//! whether the packs are there and long enough. Damage doesn't end the work: all of it is found, with the files that it touches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use self::packs::check_packs;
use self::tree::check_roots;
use super::reader::Reader;
use super::root::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChunkId, PackId, PageId};
use crate::store::Store;
use crate::workspace::page::{Home, Location};

mod packs;
mod tree;

/// Pages that a verification keeps in memory, in bytes: those of a checkpoint are read once each, but neighbours come together.
const PAGE_MEMORY: usize = 32 << 20;
/// Files named for one damaged object; of more only the number is said.
pub const FILES_MAX: usize = 100;

/// How much is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// All pages, and that every pack is there and long enough.
    Shallow,
    /// All pages and all content, and every byte of every pack in use.
    Deep,
}

/// What is damaged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    /// The root record: its id, or its totals.
    Record,
    /// A whole pack: it is missing, too short, or bytes of it that nobody's id covers aren't its own.
    Pack(Arc<Home>, PackId),
    /// A page.
    Page(PageId),
    /// A chunk.
    Chunk(ChunkId),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record => f.write_str("root record"),
            Self::Pack(_, id) => write!(f, "pack {id}"),
            Self::Page(id) => write!(f, "page {id}"),
            Self::Chunk(id) => write!(f, "chunk {id}"),
        }
    }
}

/// A damaged object and what it means.
#[derive(Debug)]
pub struct Damage {
    /// The object.
    pub object: Object,
    /// Where it should be. None for the record.
    pub location: Option<Location>,
    /// The key of the pack that holds it, below the store's prefix. None for the record.
    pub key: Option<String>,
    /// What is wrong with it.
    pub error: Error,
    /// Files and directories that can't be read whole, as `/workspace/src/a.rs`, at most [`FILES_MAX`]. A directory stands for all below it. None:
    /// nothing of this checkpoint is touched, as when the damage is in bytes that only an older one uses.
    pub files: Vec<String>,
    /// How many there are in all.
    pub files_total: u64,
}

/// What a verification found.
#[derive(Debug, Default)]
pub struct Report {
    /// Entries seen below all roots.
    pub entries: u64,
    /// Sum of the lengths in bytes of all files seen; a file with several names counts once.
    pub bytes: u64,
    /// Pages that were read and are right. A page that is used twice counts twice.
    pub pages: u64,
    /// Chunks that were compared with their ids. A chunk that is used twice counts once for each place that it is stored at.
    pub chunks: u64,
    /// Packs that the checkpoint uses.
    pub packs: u64,
    /// Bytes of those packs that were read and compared with the packs' names; of a shallow verification the packs' lengths.
    pub pack_bytes: u64,
    /// What is damaged, in the order of the objects.
    pub damage: Vec<Damage>,
}

impl Report {
    /// Returns whether nothing is damaged.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

/// Verifies a checkpoint. Damage is part of the report.
///
/// # Errors
/// `Store` when the store can't be read, `TooNew` when a newer version wrote what it holds: then nothing can be said.
pub async fn verify(store: &Store, checkpoint: &Checkpoint, depth: Depth) -> Result<Report> {
    let reader = Reader::new(store.clone(), None, PAGE_MEMORY);
    let mut found = Found::default();
    let actual = Checkpoint::new(checkpoint.root.clone()).id;
    if actual != checkpoint.id {
        let error = Error::damaged(format!("checkpoint {} has a root record with the id {actual}", checkpoint.id)).code("record_damaged");
        found.damage(Object::Record, None, error, None)?;
    }
    check_roots(&reader, &checkpoint.root, &mut found).await?;
    check_packs(store, depth, &mut found).await?;
    Ok(found.report())
}

/// Whom a reference belongs to: a number in [`Found::owners`].
type Owner = u32;

/// A file, or a file with several names, that content belongs to.
#[derive(Clone, Debug)]
enum Owned {
    /// The root's name and the path.
    Path(&'static str, Bytes),
    /// The root's name and the number of a file with several names.
    Linked(&'static str, u64),
}

/// A chunk that is to be compared, as a page names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Wanted {
    frame: u32,
    stored: u32,
    start: u32,
    len: u32,
    /// None for a page, which has been checked; it only says that its pack is in use.
    chunk: Option<ChunkId>,
    owner: Owner,
}

/// What is wrong with an object, and whom it touches.
#[derive(Debug)]
struct Wrong {
    location: Option<Location>,
    error: Error,
    owners: Vec<Owner>,
}

/// What has been found so far.
#[derive(Debug, Default)]
struct Found {
    report: Report,
    owners: Vec<Owned>,
    /// The paths of files with several names.
    names: BTreeMap<(&'static str, u64), Vec<Bytes>>,
    packs: BTreeMap<(Arc<Home>, PackId), Vec<Wanted>>,
    wrong: BTreeMap<Object, Wrong>,
}

impl Found {
    fn own(&mut self, owned: Owned) -> Owner {
        self.owners.push(owned);
        u32::try_from(self.owners.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that something in a pack is used.
    fn want(&mut self, at: &Location, chunk: Option<ChunkId>, owner: Owner) {
        let wanted = Wanted { frame: at.frame, stored: at.stored, start: at.start, len: at.len, chunk, owner };
        self.packs.entry((Arc::clone(&at.home), at.pack)).or_default().push(wanted);
    }

    /// Notes damage. What isn't damage ends the verification.
    fn damage(&mut self, object: Object, location: Option<&Location>, error: Error, owner: Option<Owner>) -> Result<()> {
        if error.kind() != ErrorKind::Damaged {
            return Err(error.context(format!("verifying {object}")));
        }
        // A pack that is missing is one damage, not one for every page and chunk in it.
        let object = match location {
            Some(at) if error.stable_code() == "pack_missing" => Object::Pack(Arc::clone(&at.home), at.pack),
            _ => object,
        };
        let wrong = self.wrong.entry(object).or_insert_with(|| Wrong { location: location.cloned(), error, owners: Vec::new() });
        wrong.owners.extend(owner);
        Ok(())
    }

    fn report(mut self) -> Report {
        let mut damaged = Vec::with_capacity(self.wrong.len());
        for (object, wrong) in std::mem::take(&mut self.wrong) {
            let mut files: Vec<String> = wrong.owners.iter().flat_map(|owner| self.files(*owner)).collect();
            files.sort_unstable();
            files.dedup();
            let files_total = files.len() as u64;
            files.truncate(FILES_MAX);
            let key = wrong.location.as_ref().map(|at| super::pack::key(&at.home, at.pack).to_string());
            damaged.push(Damage { object, location: wrong.location, key, error: wrong.error, files, files_total });
        }
        Report { damage: damaged, packs: self.packs.len() as u64, ..self.report }
    }

    fn files(&self, owner: Owner) -> Vec<String> {
        let shown = |root: &str, path: &Bytes| match &path[..] {
            [] => format!("/{root}"),
            path => format!("/{root}/{}", crate::workspace::path::display(path)),
        };
        match self.owners.get(owner as usize) {
            None => Vec::new(),
            Some(Owned::Path(root, path)) => vec![shown(root, path)],
            Some(Owned::Linked(root, number)) => match self.names.get(&(*root, *number)) {
                Some(paths) => paths.iter().map(|path| shown(root, path)).collect(),
                None => vec![format!("/{root} (linked file {number})")],
            },
        }
    }
}

#[cfg(test)]
mod tests;
