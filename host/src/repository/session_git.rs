//! The `git` root of a session: the commits that its agent made. It holds
//!
//! - `HEAD`: the last of them, 40 hex digits and a line feed;
//! - `commits/<id>`, `trees/<id>`, `blobs/<id>`: the bodies of the objects that the pin doesn't have. A blob shares its chunks with the file
//!   that it was made of;
//! - `files`: the tree of HEAD as a checkout lays it out, which is what the next status compares with;
//! - `totals`: the number of entries below `files` and the sum of their sizes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::imported::find;
use super::objects::ObjectKind;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::workspace::list;
use crate::workspace::page::{Entry, Node, Page, PageLink, Root};
use crate::workspace::page_codec::{encode_body, page_id};
use crate::workspace::source::{Sink, Source};
use crate::workspace::tree;

/// Largest `HEAD` and `totals` in bytes.
const SMALL: u64 = 64;

/// A session's commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionGit {
    /// The last commit.
    pub head: CommitId,
    /// Its files as a checkout lays them out.
    pub files: Root,
    /// All of it.
    pub root: Root,
}

impl SessionGit {
    /// Opens the `git` root of a checkpoint.
    ///
    /// # Errors
    /// As [`Source::page`]; `Damaged` when it isn't what this module's text says.
    pub async fn open(source: &dyn Source, root: &Root) -> Result<Self> {
        let head = small(source, root, "HEAD").await?;
        let head = head.trim_end().parse().map_err(|_| damaged("its HEAD is no commit's id"))?;
        let totals = small(source, root, "totals").await?;
        let mut numbers = totals.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(entries)), Some(Ok(bytes)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
            return Err(damaged("its totals can't be read"));
        };
        let Some(Node::Directory(page)) = find(source, root, b"files").await?.map(|entry| entry.node) else {
            return Err(damaged("it has no files"));
        };
        Ok(Self { head, files: Root { page, links: None, entries, bytes }, root: root.clone() })
    }

    /// Returns the ids of all objects of a kind, with where they lie.
    ///
    /// # Errors
    /// As [`Source::page`].
    pub async fn objects(&self, source: &dyn Source, kind: ObjectKind) -> Result<Vec<Entry>> {
        match find(source, &self.root, kind.folder().as_bytes()).await?.map(|entry| entry.node) {
            Some(Node::Directory(page)) => tree::list(source, &page).await,
            Some(_) => Err(damaged("a folder of objects is something else")),
            None => Ok(Vec::new()),
        }
    }
}

fn damaged(why: &str) -> Error {
    Error::damaged(format!("the session's git root can't be used: {why}")).code("git_damaged")
}

async fn small(source: &dyn Source, root: &Root, name: &str) -> Result<String> {
    match find(source, root, name.as_bytes()).await?.map(|entry| entry.node) {
        Some(Node::File { size, content }) if size <= SMALL => {
            let bytes = list::read(source, &content, size, 0..size).await?;
            String::from_utf8(bytes.to_vec()).map_err(|_| damaged("a small file of it is no text"))
        }
        _ => Err(damaged(&format!("it has no {name}"))),
    }
}

/// What a commit adds to the root.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) head: CommitId,
    pub(super) files: PageLink,
    pub(super) totals: Totals,
    /// Objects by kind and id.
    pub(super) objects: Vec<(ObjectKind, String, Node)>,
}

/// Sums over a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Totals {
    fn of(root: &Root) -> Self {
        Self { entries: root.entries, bytes: root.bytes }
    }

    fn add(&mut self, node: &Node) {
        self.entries += 1;
        self.bytes += size(node);
    }

    fn take(&mut self, node: &Node) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size(node));
    }
}

fn size(node: &Node) -> u64 {
    match node {
        Node::File { size, .. } => *size,
        _ => 0,
    }
}

/// Writes the root that a commit leaves; `time` is nanoseconds since 1970. The root holds the sink's links.
pub(super) async fn write(source: &dyn Source, sink: &mut dyn Sink, before: Option<&SessionGit>, added: Added, time: i64) -> Result<Root> {
    let mut totals = before.map_or_else(Totals::default, |git| Totals::of(&git.root));
    let old_files = before.map_or_else(Totals::default, |git| Totals::of(&git.files));
    let base = before.map(|git| git.root.page.clone());
    let mut top: BTreeMap<Bytes, Option<Entry>> = BTreeMap::new();
    let put = |top: &mut BTreeMap<Bytes, Option<Entry>>, name: &'static str, node: Node| {
        let mode = if matches!(node, Node::Directory(_)) { 0o755 } else { 0o444 };
        let name = Bytes::from_static(name.as_bytes());
        top.insert(name.clone(), Some(Entry { name, mode, mtime: time, node }));
    };
    for (name, text) in [("HEAD", format!("{}\n", added.head)), ("totals", format!("{} {}\n", added.totals.entries, added.totals.bytes))] {
        if let Some(base) = &base
            && let Some(old) = tree::lookup(source, base, name.as_bytes()).await?
        {
            totals.take(&old.node);
        }
        let node = Node::File { size: text.len() as u64, content: list::build(sink, None, text.as_bytes()).await? };
        totals.add(&node);
        put(&mut top, name, node);
    }
    for kind in ObjectKind::ALL {
        let folder = match &base {
            Some(base) => tree::lookup(source, base, kind.folder().as_bytes()).await?,
            None => None,
        };
        let old = match folder.map(|entry| entry.node) {
            Some(Node::Directory(page)) => Some(page),
            Some(_) => return Err(damaged("a folder of objects is something else")),
            None => None,
        };
        let mut new = BTreeMap::new();
        for (_, id, node) in added.objects.iter().filter(|(of, ..)| *of == kind) {
            let name = Bytes::copy_from_slice(id.as_bytes());
            let there = match &old {
                Some(page) => tree::lookup(source, page, &name).await?.is_some(),
                None => false,
            };
            // Two files may be one object.
            if !there && !new.contains_key(&name) {
                totals.add(node);
                new.insert(name.clone(), Some(Entry { name, mode: 0o444, mtime: time, node: node.clone() }));
            }
        }
        if new.is_empty() {
            continue;
        }
        let page = tree::update(source, sink, old.as_ref(), new).await?;
        if old.is_none() {
            totals.entries += 1;
        }
        put(&mut top, kind.folder(), Node::Directory(page));
    }
    totals.entries = totals.entries.saturating_sub(old_files.entries) + added.totals.entries + u64::from(before.is_none());
    totals.bytes = totals.bytes.saturating_sub(old_files.bytes) + added.totals.bytes;
    put(&mut top, "files", Node::Directory(added.files));
    let page = tree::update(source, sink, base.as_ref(), top).await?;
    Ok(Root { page, links: None, entries: totals.entries, bytes: totals.bytes })
}

/// A file of a tree of files: mode, time and what it is; none when it is gone.
pub(super) type FileEdit = Option<(u16, i64, Node)>;

/// Returns the tree of files that `base` becomes by the edits, without directories that would be empty.
pub(super) async fn edit_files(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: &Root,
    edits: &BTreeMap<Bytes, FileEdit>,
    time: i64,
) -> Result<(PageLink, Totals)> {
    let mut totals = Totals::of(base);
    let edits: Vec<Edited<'_>> = edits.iter().map(|(path, edit)| (&path[..], edit)).collect();
    let page = edit_folder(source, sink, Some(&base.page), &edits, time, &mut totals).await?;
    Ok((page, totals))
}

/// A path and its edit.
type Edited<'a> = (&'a [u8], &'a FileEdit);

async fn edit_folder(
    source: &dyn Source,
    sink: &mut dyn Sink,
    base: Option<&PageLink>,
    edits: &[Edited<'_>],
    time: i64,
    totals: &mut Totals,
) -> Result<PageLink> {
    let mut below: BTreeMap<&[u8], Vec<Edited<'_>>> = BTreeMap::new();
    let mut here: Vec<Edited<'_>> = Vec::new();
    for (path, edit) in edits {
        match path.iter().position(|byte| *byte == b'/') {
            Some(at) => below.entry(&path[..at]).or_default().push((&path[at + 1..], edit)),
            None => here.push((path, edit)),
        }
    }
    let mut changes: BTreeMap<Bytes, Option<Entry>> = BTreeMap::new();
    for (name, edit) in here {
        let name = Bytes::copy_from_slice(name);
        let old = match base {
            Some(base) => tree::lookup(source, base, &name).await?,
            None => None,
        };
        // A directory of files goes with them; that of a submodule has none and goes by itself.
        let old = old.filter(|entry| match &entry.node {
            Node::Directory(page) => page.id == empty() && !below.contains_key(&name[..]),
            _ => true,
        });
        if let Some(old) = &old {
            totals.take(&old.node);
        }
        let entry = edit.as_ref().map(|(mode, mtime, node)| Entry { name: name.clone(), mode: *mode, mtime: *mtime, node: node.clone() });
        if let Some(entry) = &entry {
            totals.add(&entry.node);
        }
        if old.is_some() || entry.is_some() {
            changes.insert(name, entry);
        }
    }
    for (name, edits) in below {
        let name = Bytes::copy_from_slice(name);
        let old = match base {
            Some(base) => tree::lookup(source, base, &name).await?,
            None => None,
        };
        let (old_page, mtime) = match old.map(|entry| (entry.node, entry.mtime)) {
            Some((Node::Directory(page), mtime)) => (Some(page), mtime),
            _ => (None, time),
        };
        let page = Box::pin(edit_folder(source, sink, old_page.as_ref(), &edits, time, totals)).await?;
        if page.id == empty() {
            if old_page.is_some() {
                totals.entries = totals.entries.saturating_sub(1);
                changes.entry(name).or_insert(None);
            }
            continue;
        }
        totals.entries += u64::from(old_page.is_none());
        changes.insert(name.clone(), Some(Entry { name, mode: 0o755, mtime, node: Node::Directory(page) }));
    }
    tree::update(source, sink, base, changes).await
}

/// The id of a directory without entries.
fn empty() -> crate::id::PageId {
    page_id(&encode_body(&Page::Directory(Vec::new())))
}
