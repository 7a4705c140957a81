//! Git's commits, trees and blobs as files of a `git` root, each by its id: those of the pin beside the imported pack, those made in the
//! session in its own root. So a tree or a commit is one small read, without a git directory and whatever the size of the pack.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryKind;

use super::checkout::{GitMode, Oid};
use super::imported::find;
use crate::error::{Error, Result};
use crate::workspace::list;
use crate::workspace::page::{Content, Node, Root};
use crate::workspace::source::Source;

/// Largest commit or tree that is read, in bytes: both are held in memory.
const OBJECT_MAX: u64 = 64 << 20;

/// A kind of object, and the folder of a `git` root that holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// In `commits`.
    Commit,
    /// In `trees`.
    Tree,
    /// In `blobs`.
    Blob,
}

impl ObjectKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Commit, Self::Tree, Self::Blob];

    /// Returns the folder's name.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Commit => "commits",
            Self::Tree => "trees",
            Self::Blob => "blobs",
        }
    }

    /// Returns git's name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }

    fn git(self) -> gix::objs::Kind {
        match self {
            Self::Commit => gix::objs::Kind::Commit,
            Self::Tree => gix::objs::Kind::Tree,
            Self::Blob => gix::objs::Kind::Blob,
        }
    }
}

/// Returns the id that git gives to an object.
///
/// # Errors
/// `Internal` when SHA-1 can't be computed: the bytes show a known attack on it.
pub fn object_id(kind: ObjectKind, bytes: &[u8]) -> Result<Oid> {
    let hash = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind.git(), bytes)
        .map_err(|error| Error::internal("an object's id can't be computed").source(error))?;
    let mut id = [0; 20];
    id.copy_from_slice(&hash.as_bytes()[..20]);
    Ok(id)
}

/// Returns the id that git gives to a file's content as a blob, reading it piece by piece.
///
/// # Errors
/// As [`Source::chunk`], and [`object_id`].
pub async fn content_id(source: &dyn Source, content: &Content, size: u64) -> Result<Oid> {
    const PIECE: u64 = 4 << 20;
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(format!("blob {size}\0").as_bytes());
    let mut at = 0;
    while at < size {
        let end = at.saturating_add(PIECE).min(size);
        hasher.update(&list::read(source, content, size, at..end).await?);
        at = end;
    }
    let hash = hasher.try_finalize().map_err(|error| Error::internal("an object's id can't be computed").source(error))?;
    let mut id = [0; 20];
    id.copy_from_slice(&hash.as_bytes()[..20]);
    Ok(id)
}

/// What an entry of a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeEntry {
    /// Another tree.
    Tree(Oid),
    /// A file, a link or a submodule.
    Leaf(GitMode, Oid),
}

/// The entries of a tree by name.
pub type TreeEntries = BTreeMap<Bytes, TreeEntry>;

/// Reads the body of a tree. Modes of old gits are taken for what a checkout makes of them.
///
/// # Errors
/// `Damaged` when it isn't one.
pub fn parse_tree(bytes: &[u8]) -> Result<TreeEntries> {
    let mut entries = TreeEntries::new();
    for entry in TreeRefIter::from_bytes(bytes, gix::hash::Kind::Sha1) {
        let entry = entry.map_err(|_| Error::damaged("a tree of git can't be read").code("import_damaged"))?;
        let mut id = [0; 20];
        id.copy_from_slice(&entry.oid.as_bytes()[..20]);
        let what = match entry.mode.kind() {
            EntryKind::Tree => TreeEntry::Tree(id),
            EntryKind::Blob => TreeEntry::Leaf(GitMode::File, id),
            EntryKind::BlobExecutable => TreeEntry::Leaf(GitMode::Executable, id),
            EntryKind::Link => TreeEntry::Leaf(GitMode::Symlink, id),
            EntryKind::Commit => TreeEntry::Leaf(GitMode::Submodule, id),
        };
        entries.insert(Bytes::copy_from_slice(entry.filename), what);
    }
    Ok(entries)
}

/// Writes the body of a tree: git sorts a directory as if its name ended with a slash.
#[must_use]
pub fn write_tree(entries: &TreeEntries) -> Vec<u8> {
    let mut sorted: Vec<(Vec<u8>, &Bytes, &TreeEntry)> = entries
        .iter()
        .map(|(name, entry)| {
            let mut key = name.to_vec();
            if matches!(entry, TreeEntry::Tree(_)) {
                key.push(b'/');
            }
            (key, name, entry)
        })
        .collect();
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut out = Vec::new();
    for (_, name, entry) in sorted {
        let (mode, id) = match entry {
            TreeEntry::Tree(id) => ("40000", id),
            TreeEntry::Leaf(mode, id) => (mode.as_octal(), id),
        };
        out.extend_from_slice(mode.as_bytes());
        out.push(b' ');
        out.extend_from_slice(name);
        out.push(0);
        out.extend_from_slice(id);
    }
    out
}

/// The objects of a session: its own and its pin's. Trees that were read are kept.
#[derive(Debug)]
pub struct Objects<'a> {
    source: &'a dyn Source,
    roots: Vec<&'a Root>,
    trees: Mutex<HashMap<Oid, Arc<TreeEntries>>>,
}

impl<'a> Objects<'a> {
    /// Makes the view of these `git` roots, of which the first that has an object gives it.
    #[must_use]
    pub fn new(source: &'a dyn Source, roots: impl IntoIterator<Item = &'a Root>) -> Self {
        Self { source, roots: roots.into_iter().collect(), trees: Mutex::default() }
    }

    /// Returns the content of an object; none when none of the roots has it.
    ///
    /// # Errors
    /// As [`Source::page`]; `Damaged` when something else has its name.
    pub async fn find(&self, kind: ObjectKind, id: &Oid) -> Result<Option<(Content, u64)>> {
        let path = [kind.folder(), "/", &hex::encode(id)].concat();
        for root in &self.roots {
            match find(self.source, root, path.as_bytes()).await?.map(|entry| entry.node) {
                Some(Node::File { size, content }) => return Ok(Some((content, size))),
                Some(_) => return Err(damaged(kind, id)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Reads a commit or a tree, and checks that it is what its id says.
    ///
    /// # Errors
    /// As [`Objects::find`]; `Damaged` when it isn't there.
    pub async fn read(&self, kind: ObjectKind, id: &Oid) -> Result<Bytes> {
        let found = self.find(kind, id).await?;
        let (content, size) = found.filter(|(_, size)| *size <= OBJECT_MAX).ok_or_else(|| damaged(kind, id))?;
        let bytes = list::read(self.source, &content, size, 0..size).await?;
        if object_id(kind, &bytes)? == *id { Ok(bytes) } else { Err(damaged(kind, id)) }
    }

    /// Returns the entries of a tree.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub async fn tree(&self, id: &Oid) -> Result<Arc<TreeEntries>> {
        if let Some(entries) = self.trees.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            return Ok(Arc::clone(entries));
        }
        let entries = Arc::new(parse_tree(&self.read(ObjectKind::Tree, id).await?)?);
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).insert(*id, Arc::clone(&entries));
        Ok(entries)
    }

    /// Returns the mode and the id of a file at a path of a tree; none when there is no such file.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub async fn leaf(&self, tree: &Oid, path: &[u8]) -> Result<Option<(GitMode, Oid)>> {
        let mut tree = *tree;
        let mut parts = path.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            match (self.tree(&tree).await?.get(part), parts.peek().is_some()) {
                (Some(TreeEntry::Tree(below)), true) => tree = *below,
                (Some(TreeEntry::Leaf(mode, id)), false) => return Ok(Some((*mode, *id))),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Says whether a path lies inside of a submodule of a tree.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub async fn in_submodule(&self, tree: &Oid, path: &[u8]) -> Result<bool> {
        let mut tree = *tree;
        let mut parts = path.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            match self.tree(&tree).await?.get(part) {
                Some(TreeEntry::Tree(below)) => tree = *below,
                Some(TreeEntry::Leaf(GitMode::Submodule, _)) => return Ok(parts.peek().is_some()),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Returns the tree that `base` becomes by the edits (paths, and what is there then), and adds the trees that are new to `made`. None
    /// for a tree without entries, which git doesn't keep inside another.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub async fn edit(&self, base: Option<Oid>, edits: &[Edit<'_>], made: &mut Vec<(Oid, Vec<u8>)>) -> Result<Option<Oid>> {
        let mut entries = match &base {
            Some(base) => (*self.tree(base).await?).clone(),
            None => TreeEntries::new(),
        };
        let (mut below, mut here): (BTreeMap<&[u8], Vec<Edit<'_>>>, Vec<_>) = (BTreeMap::new(), Vec::new());
        for (path, leaf) in edits {
            match path.iter().position(|byte| *byte == b'/') {
                Some(at) => below.entry(&path[..at]).or_default().push((&path[at + 1..], *leaf)),
                None => here.push((*path, *leaf)),
            }
        }
        // What goes goes first, so that a directory can take a file's place and a file a directory's.
        for (name, _) in here.iter().filter(|(_, leaf)| leaf.is_none()) {
            if matches!(entries.get(*name), Some(TreeEntry::Leaf(..))) {
                entries.remove(*name);
            }
        }
        for (name, edits) in below {
            let old = match entries.get(name) {
                Some(TreeEntry::Tree(id)) => Some(*id),
                _ => None,
            };
            match Box::pin(self.edit(old, &edits, made)).await? {
                Some(id) => drop(entries.insert(Bytes::copy_from_slice(name), TreeEntry::Tree(id))),
                None if old.is_some() => drop(entries.remove(name)),
                None => {}
            }
        }
        for (name, leaf) in here {
            if let Some((mode, id)) = leaf {
                entries.insert(Bytes::copy_from_slice(name), TreeEntry::Leaf(mode, id));
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let bytes = write_tree(&entries);
        let id = object_id(ObjectKind::Tree, &bytes)?;
        if base != Some(id) {
            made.push((id, bytes));
        }
        Ok(Some(id))
    }
}

/// A path and the file, link or submodule that is there after an edit; none when it is gone.
pub type Edit<'a> = (&'a [u8], Option<(GitMode, Oid)>);

fn damaged(kind: ObjectKind, id: &Oid) -> Error {
    Error::damaged(format!("the {} {} of the session's history is missing or damaged", kind.name(), hex::encode(id))).code("git_damaged")
}

#[cfg(test)]
mod tests;
