//! From a git tree to pages and content. The same commit gives the same pages on every replica: modes are git's, every time is the
//! commit's, and nothing of this machine goes in.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

pub use super::checkout::GitMode;
use super::checkout::{Oid, Step, Tree, show};
use super::remote::{Progress, ProgressSink};
use crate::error::{Error, Result};
use crate::workspace::list::{self, ContentBuilder};
use crate::workspace::page::{ChunkLink, Content, Entry, Node, Page, PageLink, Root};
use crate::workspace::source::{Sink, Source};
use crate::workspace::tree;

/// Most warnings that an import keeps; the rest is counted.
pub const WARNINGS_MAX: usize = 100;
/// Longest shown path of a warning in bytes.
const WARNING_PATH_MAX: usize = 256;
/// A pointer file of Git LFS is shorter than this, in bytes (its specification).
const LFS_POINTER_MAX: usize = 1_024;

/// Something of a commit that a session gets in another form than its author may expect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// What it is.
    pub kind: WarningKind,
    /// The path; bytes that aren't UTF-8 are shown as `\xNN`.
    pub path: String,
}

/// What a [`Warning`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// A submodule: an empty directory.
    Submodule,
    /// A file kept in Git LFS: its pointer.
    LfsPointer,
    /// A name that isn't UTF-8: it is carried, and guests see it escaped.
    NotUtf8,
}

/// The warnings of an import.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warnings {
    /// The first of them, at most [`WARNINGS_MAX`].
    pub first: Vec<Warning>,
    /// How many there were in all.
    pub total: u64,
}

impl Warnings {
    /// Returns them as sentences, the last of which counts those that aren't kept.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self
            .first
            .iter()
            .map(|warning| match warning.kind {
                WarningKind::Submodule => format!("{} is a submodule: its directory is empty", warning.path),
                WarningKind::LfsPointer => format!("{} is kept in Git LFS: the file is its pointer", warning.path),
                WarningKind::NotUtf8 => format!("{} has a name that isn't UTF-8: it is kept, and guests see it in this form", warning.path),
            })
            .collect();
        let more = self.total.saturating_sub(texts.len() as u64);
        if more > 0 {
            texts.push(format!("{more} more files of the commit come in another form"));
        }
        texts
    }

    fn add(&mut self, kind: WarningKind, parents: &[Folder], name: &[u8]) {
        self.total += 1;
        if self.first.len() >= WARNINGS_MAX {
            return;
        }
        let mut path = String::new();
        for folder in parents.iter().skip(1) {
            path.push_str(&show(&folder.name));
            path.push('/');
        }
        path.push_str(&show(name));
        if path.len() > WARNING_PATH_MAX {
            let mut end = WARNING_PATH_MAX;
            while !path.is_char_boundary(end) {
                end -= 1;
            }
            path.truncate(end);
            path.push('…');
        }
        self.first.push(Warning { kind, path });
    }
}

/// A commit's tree as pages that a sink took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedTree {
    /// The files, as `git checkout` would lay them out.
    pub workspace: Root,
    /// For each file, link and submodule a file of the same path that holds its git mode and id ([`blob_content`]).
    pub blobs: Root,
    /// The trees of git that it is made of: their ids as 40 hex digits, and their bodies as files.
    pub trees: BTreeMap<String, Node>,
    /// What came in another form.
    pub warnings: Warnings,
}

/// A directory under construction.
#[derive(Default)]
struct Folder {
    name: Bytes,
    entries: BTreeMap<Bytes, Option<Entry>>,
    blobs: BTreeMap<Bytes, Option<Entry>>,
}

#[derive(Default)]
struct Totals {
    entries: u64,
    bytes: u64,
    files: u64,
    blobs: u64,
}

/// Imports a checked tree. The walk runs on a thread of its own, at most a few batches ahead of the sink.
///
/// # Errors
/// `Remote` when objects are damaged, `Limit`, and what the sink gives.
pub(super) async fn import(tree: Tree, sink: &mut dyn Sink, progress: Option<&ProgressSink>) -> Result<ImportedTree> {
    let mtime = tree.time.saturating_mul(1_000_000_000);
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Vec<Step>>(1);
    let walk = tokio::task::spawn_blocking(move || tree.walk(&mut |batch| sender.blocking_send(batch).is_ok()));
    let mut importer = Importer {
        mtime,
        stack: vec![Folder::default()],
        totals: Totals::default(),
        trees: BTreeMap::new(),
        warnings: Warnings::default(),
    };
    while let Some(batch) = receiver.recv().await {
        for step in batch {
            importer.step(step, sink).await?;
        }
        if let Some(progress) = progress {
            progress(Progress::Imported { files: importer.totals.files, bytes: importer.totals.bytes });
        }
    }
    walk.await.map_err(|error| Error::internal("the import's thread failed").source(error))??;
    importer.finish(sink).await
}

struct Importer {
    mtime: i64,
    stack: Vec<Folder>,
    totals: Totals,
    trees: BTreeMap<String, Node>,
    warnings: Warnings,
}

impl Importer {
    async fn step(&mut self, step: Step, sink: &mut dyn Sink) -> Result<()> {
        match step {
            Step::Tree { id, body } => {
                if let std::collections::btree_map::Entry::Vacant(place) = self.trees.entry(hex::encode(id)) {
                    place.insert(Node::File { size: body.len() as u64, content: list::build(sink, None, &body).await? });
                }
            }
            Step::Enter(name) => {
                self.check_name(&name);
                self.stack.push(Folder { name, ..Folder::default() });
            }
            Step::Leave => {
                let folder = self.stack.pop().ok_or_else(|| Error::internal("a walk left more directories than it entered"))?;
                // Git's index has no directories, so a checkout makes none that would be empty.
                if !folder.entries.is_empty() {
                    let page = tree::update(&NoSource, sink, None, folder.entries).await?;
                    let blobs = tree::update(&NoSource, sink, None, folder.blobs).await?;
                    self.put(folder.name.clone(), 0o755, Node::Directory(page))?;
                    self.blobs(folder.name, Node::Directory(blobs))?;
                }
            }
            Step::File { name, executable, id, data } => {
                self.check_name(&name);
                let bytes = &data.bytes;
                if bytes.len() < LFS_POINTER_MAX && bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
                    self.warnings.add(WarningKind::LfsPointer, &self.stack, &name);
                }
                let size = bytes.len() as u64;
                let content = list::build(sink, None, bytes).await?;
                self.totals.bytes += size;
                self.totals.files += 1;
                let mode = if executable { GitMode::Executable } else { GitMode::File };
                self.blob(name.clone(), mode, &id)?;
                self.put(name, if executable { 0o755 } else { 0o644 }, Node::File { size, content })?;
            }
            Step::Symlink { name, id, target } => {
                self.check_name(&name);
                self.blob(name.clone(), GitMode::Symlink, &id)?;
                self.put(name, 0o777, Node::Symlink(target))?;
            }
            Step::Submodule { name, id } => {
                self.check_name(&name);
                self.warnings.add(WarningKind::Submodule, &self.stack, &name);
                let empty = tree::update(&NoSource, sink, None, BTreeMap::new()).await?;
                self.blob(name.clone(), GitMode::Submodule, &id)?;
                self.put(name, 0o755, Node::Directory(empty))?;
            }
        }
        Ok(())
    }

    fn check_name(&mut self, name: &[u8]) {
        if std::str::from_utf8(name).is_err() {
            self.warnings.add(WarningKind::NotUtf8, &self.stack, name);
        }
    }

    fn put(&mut self, name: Bytes, mode: u16, node: Node) -> Result<()> {
        self.totals.entries += 1;
        let mtime = self.mtime;
        let folder = self.stack.last_mut().ok_or_else(|| Error::internal("a walk left its top directory"))?;
        folder.entries.insert(name.clone(), Some(Entry { name, mode, mtime, node }));
        Ok(())
    }

    fn blobs(&mut self, name: Bytes, node: Node) -> Result<()> {
        self.totals.blobs += 1;
        let folder = self.stack.last_mut().ok_or_else(|| Error::internal("a walk left its top directory"))?;
        // Always the same mode and time: neither says anything here.
        folder.blobs.insert(name.clone(), Some(Entry { name, mode: 0o444, mtime: 0, node }));
        Ok(())
    }

    fn blob(&mut self, name: Bytes, mode: GitMode, id: &Oid) -> Result<()> {
        self.blobs(name, Node::File { size: BLOB_LEN as u64, content: Content::Inline(blob_content(mode, id)) })
    }

    async fn finish(mut self, sink: &mut dyn Sink) -> Result<ImportedTree> {
        let top = self.stack.pop().filter(|_| self.stack.is_empty()).ok_or_else(|| Error::internal("a walk ended inside a directory"))?;
        let page = tree::update(&NoSource, sink, None, top.entries).await?;
        let blobs = tree::update(&NoSource, sink, None, top.blobs).await?;
        let files = self.totals.blobs;
        Ok(ImportedTree {
            workspace: Root { page, links: None, entries: self.totals.entries, bytes: self.totals.bytes },
            blobs: Root { page: blobs, links: None, entries: files, bytes: 0 },
            trees: self.trees,
            warnings: self.warnings,
        })
    }
}

/// Length in bytes of a file of [`ImportedTree::blobs`].
pub const BLOB_LEN: usize = 21;

/// Returns the content of a file of [`ImportedTree::blobs`]: one letter (`f` file, `x` executable, `l` link, `s` submodule) and the
/// 20 bytes of the object's id.
#[must_use]
pub fn blob_content(mode: GitMode, id: &Oid) -> Bytes {
    let letter = match mode {
        GitMode::File => b'f',
        GitMode::Executable => b'x',
        GitMode::Symlink => b'l',
        GitMode::Submodule => b's',
    };
    let mut bytes = Vec::with_capacity(BLOB_LEN);
    bytes.push(letter);
    bytes.extend_from_slice(id);
    bytes.into()
}

/// Reads what [`blob_content`] writes.
#[must_use]
pub fn read_blob_content(bytes: &[u8]) -> Option<(GitMode, Oid)> {
    let (letter, id) = bytes.split_first()?;
    let mode = match letter {
        b'f' => GitMode::File,
        b'x' => GitMode::Executable,
        b'l' => GitMode::Symlink,
        b's' => GitMode::Submodule,
        _ => return None,
    };
    Some((mode, id.try_into().ok()?))
}

/// Stores a file of this machine as content.
pub(super) async fn store_file(sink: &mut dyn Sink, path: &Path) -> Result<(Content, u64)> {
    let failed = |error| Error::local(format!("{} can't be read", path.display())).source(error);
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut builder = ContentBuilder::new(sink, None);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).await.map_err(failed)?;
        if count == 0 {
            break;
        }
        builder.push(&buffer[..count]).await?;
    }
    builder.finish().await
}

/// Makes a directory of nothing but files and directories, all with the mode 0644 or 0755 and one time.
pub(super) async fn store_directory(sink: &mut dyn Sink, mtime: i64, nodes: impl IntoIterator<Item = (String, Node)>) -> Result<PageLink> {
    let mut entries = BTreeMap::new();
    for (name, node) in nodes {
        let name = Bytes::from(name);
        let mode = if matches!(node, Node::Directory(_)) { 0o755 } else { 0o444 };
        entries.insert(name.clone(), Some(Entry { name, mode, mtime, node }));
    }
    tree::update(&NoSource, sink, None, entries).await
}

/// Reads nothing: directories that are built from nothing need no source.
#[derive(Debug)]
pub(super) struct NoSource;

#[async_trait::async_trait]
impl Source for NoSource {
    async fn page(&self, link: &PageLink) -> Result<std::sync::Arc<Page>> {
        Err(Error::internal(format!("page {} was asked for while a directory was built from nothing", link.id)))
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        Err(Error::internal(format!("chunk {} was asked for while a directory was built from nothing", link.id)))
    }
}
