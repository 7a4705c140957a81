//! Looking into a checkpoint without running anything: list a directory, read a file. Fetches only what is looked at.

use std::sync::Arc;

use bytes::Bytes;

use super::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::workspace::page::{Content, Entry, Node, PageLink, Root};
use crate::workspace::path::display;
use crate::workspace::source::Source;
use crate::workspace::stat::Kind;
use crate::workspace::{link_table, list, tree};

/// A checkpoint that can be looked into.
#[derive(Clone, Debug)]
pub struct OpenCheckpoint {
    checkpoint: Checkpoint,
    source: Arc<dyn Source>,
}

/// An entry of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name; empty for a root.
    pub name: Bytes,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 0 to 0o777.
    pub mode: u16,
    /// Time of the last modification, nanoseconds since 1970.
    pub modified: UnixNanos,
    /// Length in bytes of a file or a link's target; 0 for a directory.
    pub size: u64,
    /// How many names a file has.
    pub names: u32,
    /// Where its bytes are.
    pub body: Body,
}

/// What an entry holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A file's content.
    File(Content),
    /// A directory's page.
    Directory(PageLink),
    /// A link's target, verbatim.
    Symlink(Bytes),
}

/// The roots that a checkpoint shows, by the paths under which guests see them.
const ROOTS: [&str; 2] = ["workspace", "state"];

impl OpenCheckpoint {
    /// Opens a checkpoint whose objects `source` reads.
    #[must_use]
    pub fn new(checkpoint: Checkpoint, source: Arc<dyn Source>) -> Self {
        Self { checkpoint, source }
    }

    /// Returns the checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns where its objects are read.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Returns the entry at an absolute path such as `/workspace/src/main.rs`. Links aren't followed.
    ///
    /// # Errors
    /// `Usage` for a path outside `/workspace` and `/state` or with `.` or `..` in it, `NotFound`, and those of the source.
    pub async fn stat(&self, path: &str) -> Result<Found> {
        let (root, parts) = self.split(path)?;
        let mut found = directory(Bytes::new(), root.page.clone());
        for (at, part) in parts.iter().enumerate() {
            let Body::Directory(page) = &found.body else {
                return Err(self.missing(path).hint(format!("/{} isn't a directory", parts[..at].join("/"))));
            };
            let Some(entry) = self.lookup(page, part).await? else {
                return Err(self.missing(path));
            };
            found = self.found(root, entry).await?;
        }
        Ok(found)
    }

    /// Returns the entries of a directory in the order of their name bytes.
    ///
    /// # Errors
    /// As [`OpenCheckpoint::stat`], and `Usage` when the path is no directory.
    pub async fn list(&self, path: &str) -> Result<Vec<Found>> {
        if path.trim_matches('/').is_empty() {
            let roots = [&self.checkpoint.root.workspace, &self.checkpoint.root.state];
            return Ok(ROOTS
                .iter()
                .zip(roots)
                .map(|(name, root)| directory(Bytes::from_static(name.as_bytes()), root.page.clone()))
                .collect());
        }
        let (root, _) = self.split(path)?;
        let Body::Directory(page) = self.stat(path).await?.body else {
            return Err(Error::usage(format!("{path} isn't a directory")).hint("`landfall checkpoint cat` shows a file"));
        };
        let mut entries = Vec::new();
        for entry in tree::list(&*self.source, &page).await? {
            entries.push(self.found(root, entry).await?);
        }
        Ok(entries)
    }

    /// Returns at most `length` bytes of a file from `offset`; fewer at its end. A link gives its target.
    ///
    /// # Errors
    /// As [`OpenCheckpoint::stat`], and `Usage` for a directory.
    pub async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes> {
        let found = self.stat(path).await?;
        self.read_found(path, &found, offset, length).await
    }

    /// As [`OpenCheckpoint::read`], for an entry that was found before.
    ///
    /// # Errors
    /// `Usage` for a directory, and those of the source.
    pub async fn read_found(&self, path: &str, found: &Found, offset: u64, length: u64) -> Result<Bytes> {
        match &found.body {
            Body::File(content) => list::read(&*self.source, content, found.size, offset..offset.saturating_add(length)).await,
            Body::Symlink(target) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(target.len());
                let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(target.len());
                Ok(target.slice(start..end))
            }
            Body::Directory(_) => Err(Error::usage(format!("{path} is a directory")).hint("`landfall checkpoint ls` lists it")),
        }
    }

    /// Finds a name; one that isn't UTF-8 also answers to the escaped form in which it is shown.
    async fn lookup(&self, page: &PageLink, name: &str) -> Result<Option<Entry>> {
        let entry = tree::lookup(&*self.source, page, name.as_bytes()).await?;
        if entry.is_some() || !name.contains('\\') {
            return Ok(entry);
        }
        Ok(tree::list(&*self.source, page).await?.into_iter().find(|entry| display(&entry.name) == name))
    }

    async fn found(&self, root: &Root, entry: Entry) -> Result<Found> {
        let Entry { name, mode, mtime, node } = entry;
        Ok(match node {
            Node::Directory(page) => Found { mode, modified: mtime, ..directory(name, page) },
            Node::File { size, content } => {
                Found { name, kind: Kind::File, mode, modified: mtime, size, names: 1, body: Body::File(content) }
            }
            Node::Symlink(target) => {
                Found { name, kind: Kind::Symlink, mode, modified: mtime, size: target.len() as u64, names: 1, body: Body::Symlink(target) }
            }
            Node::Linked(number) => {
                let table = root.links.as_ref().ok_or_else(|| dangling(&name, number))?;
                let file = link_table::get(&*self.source, table, number).await?.ok_or_else(|| dangling(&name, number))?;
                Found {
                    name,
                    kind: Kind::File,
                    mode: file.mode,
                    modified: file.mtime,
                    size: file.size,
                    names: file.names,
                    body: Body::File(file.content),
                }
            }
        })
    }

    fn split<'p>(&self, path: &'p str) -> Result<(&Root, Vec<&'p str>)> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let root = match parts.next() {
            Some("workspace") => &self.checkpoint.root.workspace,
            Some("state") => &self.checkpoint.root.state,
            _ => {
                return Err(Error::usage(format!("{path:?} is in no checkpoint"))
                    .hint("paths are as the agent sees them: /workspace/... and /state/...; /tmp is never kept"));
            }
        };
        let parts: Vec<&str> = parts.collect();
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(Error::usage(format!("{path:?} has . or .. in it")).hint("name the entry by its full path"));
        }
        Ok((root, parts))
    }

    fn missing(&self, path: &str) -> Error {
        Error::not_found(format!("checkpoint {} has no {path}", self.checkpoint.id)).code("no_such_path")
    }
}

fn directory(name: Bytes, page: PageLink) -> Found {
    Found { name, kind: Kind::Directory, mode: 0o755, modified: 0, size: 0, names: 1, body: Body::Directory(page) }
}

fn dangling(name: &[u8], number: u64) -> Error {
    Error::damaged(format!("{} names linked file {number}, which isn't in the root's table", display(name))).code("page_damaged")
}
