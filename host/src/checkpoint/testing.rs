//! What the tests of packs share: trees of files, and a store whose objects can be damaged.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutPayload};

use super::reader::Reader;
use super::writer::{PackWriter, WriterOptions, Written};
use crate::clock::SystemClock;
use crate::error::Result;
use crate::id::PackId;
use crate::random::SystemRandom;
use crate::store::{Abilities, Store};
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page::{CHUNK_MAX, Content, Entry, Home, INLINE_MAX, Link, Node, Page, PageLink, Part, Root};
use crate::workspace::source::{Sink, Source};
use crate::workspace::tree;

pub(crate) const MTIME: i64 = 1_600_000_000_123_456_789;

/// Bytes that don't compress, other ones for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

/// Text that compresses, other text for each seed.
pub(crate) fn text(seed: u64, len: usize) -> Bytes {
    let mut out = String::new();
    let mut line = 0;
    while out.len() < len {
        out.push_str(&format!("line {line} of file {seed}: the quick brown fox jumps over the lazy dog\n"));
        line += 1;
    }
    out.truncate(len);
    out.into()
}

pub(crate) fn home() -> Arc<Home> {
    Arc::new(Home::Session(crate::id::SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42".parse().unwrap() }))
}

/// A store in memory and a handle on its raw objects.
pub(crate) fn store() -> (Store, Arc<InMemory>) {
    let objects = Arc::new(InMemory::new());
    (Store::with_backend(objects.clone(), "", Abilities::ALL, Arc::new(SystemClock), Arc::new(SystemRandom)), objects)
}

async fn path_of(objects: &InMemory, pack: PackId) -> object_store::path::Path {
    use futures::TryStreamExt as _;
    let all: Vec<_> = objects.list(None).try_collect().await.unwrap();
    all.into_iter().map(|meta| meta.location).find(|path| path.as_ref().ends_with(&pack.to_string())).unwrap()
}

pub(crate) async fn raw(objects: &InMemory, pack: PackId) -> Bytes {
    objects.get(&path_of(objects, pack).await).await.unwrap().bytes().await.unwrap()
}

pub(crate) async fn overwrite(objects: &InMemory, pack: PackId, bytes: Bytes) {
    objects.put(&path_of(objects, pack).await, PutPayload::from_bytes(bytes)).await.unwrap();
}

pub(crate) async fn remove(objects: &InMemory, pack: PackId) {
    objects.delete(&path_of(objects, pack).await).await.unwrap();
}

/// What a path of a tree is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    File(Bytes),
    Symlink(Bytes),
    Directory,
}

pub(crate) type Tree = BTreeMap<String, Item>;

pub(crate) fn files(list: impl IntoIterator<Item = (String, Bytes)>) -> Tree {
    list.into_iter().map(|(path, bytes)| (path, Item::File(bytes))).collect()
}

#[derive(Default)]
struct Folder {
    items: BTreeMap<String, Item>,
    folders: BTreeMap<String, Self>,
}

/// Stores content as one that captures a turn does: inline, one chunk, or parts of 256 KiB.
pub(crate) async fn put_content(sink: &mut dyn Sink, bytes: &Bytes) -> Result<Content> {
    if bytes.len() <= INLINE_MAX {
        return Ok(Content::Inline(bytes.clone()));
    }
    let step = if bytes.len() <= CHUNK_MAX { bytes.len() } else { 256 << 10 };
    let mut parts = Vec::new();
    for from in (0..bytes.len()).step_by(step) {
        let part = bytes.slice(from..bytes.len().min(from + step));
        let len = part.len() as u32;
        parts.push(Part::Chunk(sink.chunk(part).await?, len));
    }
    if parts.len() <= 16 {
        return Ok(Content::Parts(parts));
    }
    let mut lists = Vec::new();
    for some in parts.chunks(200) {
        let len = some.iter().map(|part| if let Part::Chunk(_, len) = part { u64::from(*len) } else { 0 }).sum();
        lists.push((sink.page(Page::List(some.to_vec())).await?, len));
    }
    Ok(Content::List(if lists.len() == 1 { lists.remove(0).0 } else { sink.page(Page::ListSplit(lists)).await? }))
}

fn put_folder<'a>(sink: &'a mut dyn Sink, folder: Folder) -> futures::future::BoxFuture<'a, Result<PageLink>> {
    Box::pin(async move {
        let mut changes = BTreeMap::new();
        let mut add = |name: &str, mode, node| {
            let name = Bytes::copy_from_slice(name.as_bytes());
            changes.insert(name.clone(), Some(Entry { name, mode, mtime: MTIME, node }));
        };
        for (name, item) in folder.items {
            match item {
                Item::File(bytes) => {
                    let content = put_content(sink, &bytes).await?;
                    add(&name, 0o644, Node::File { size: bytes.len() as u64, content });
                }
                Item::Symlink(target) => add(&name, 0o777, Node::Symlink(target)),
                Item::Directory => {
                    let page = sink.page(Page::Directory(Vec::new())).await?;
                    add(&name, 0o755, Node::Directory(page));
                }
            }
        }
        for (name, folder) in folder.folders {
            let page = put_folder(sink, folder).await?;
            add(&name, 0o750, Node::Directory(page));
        }
        tree::update(&MemoryObjects::new(), sink, None, changes).await
    })
}

/// Writes a tree to a sink in path order and returns its root.
pub(crate) async fn put_tree(sink: &mut dyn Sink, tree: &Tree) -> Result<Root> {
    let mut top = Folder::default();
    let (mut bytes, mut folders) = (0, std::collections::BTreeSet::new());
    for (path, item) in tree {
        let mut folder = &mut top;
        let (parents, name) = path.rsplit_once('/').map_or((None, path.as_str()), |(parents, name)| (Some(parents), name));
        let mut so_far = String::new();
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            folder = folder.folders.entry(part.to_owned()).or_default();
            so_far = format!("{so_far}/{part}");
            folders.insert(so_far.clone());
        }
        if let Item::File(content) = item {
            bytes += content.len() as u64;
        }
        folder.items.insert(name.to_owned(), item.clone());
    }
    let entries = (tree.len() + folders.len()) as u64;
    Ok(Root { page: put_folder(sink, top).await?, links: None, entries, bytes })
}

/// Writes a tree to a store and returns its root with places.
pub(crate) async fn stored(store: &Store, tree: &Tree) -> (Root, Written) {
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let root = put_tree(&mut writer, tree).await.unwrap();
    let written = writer.finish().await.unwrap();
    (writer.resolve_root(&root).unwrap(), written)
}

/// Reads content back.
pub(crate) async fn get_content(source: &dyn Source, content: &Content) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut lists = Vec::new();
    let mut take = Vec::new();
    match content {
        Content::Inline(bytes) => out.extend_from_slice(bytes),
        Content::Parts(parts) => take.extend(parts.iter().cloned()),
        Content::List(page) => lists.push(page.clone()),
    }
    while let Some(link) = lists.pop() {
        match &*source.page(&link).await? {
            Page::List(parts) => take.extend(parts.iter().cloned()),
            Page::ListSplit(children) => lists.extend(children.iter().rev().map(|(page, _)| page.clone())),
            other => panic!("not a list: {other:?}"),
        }
    }
    for part in take {
        match part {
            Part::Chunk(link, _) => out.extend_from_slice(&source.chunk(&link).await?),
            Part::Hole(len) => out.resize(out.len() + len as usize, 0),
        }
    }
    Ok(out)
}

/// Reads a whole tree back, level by level. Empty directories are items; others are not.
pub(crate) async fn get_tree(reader: &Reader, root: &Root) -> Result<Tree> {
    let mut found = Tree::new();
    let mut level = vec![(String::new(), root.page.clone(), true)];
    while !level.is_empty() {
        let links: Vec<_> = level.iter().map(|(_, link, _)| link.clone()).collect();
        let pages = reader.pages(&links).await?;
        let mut next = Vec::new();
        for ((path, _, whole), page) in level.into_iter().zip(pages) {
            match &*page {
                Page::Split(slots) => next.extend(slots.iter().flatten().map(|slot| (path.clone(), slot.page.clone(), false))),
                Page::Directory(entries) => {
                    if entries.is_empty() && whole && !path.is_empty() {
                        found.insert(path.clone(), Item::Directory);
                    }
                    for entry in entries {
                        let name = String::from_utf8(entry.name.to_vec()).unwrap();
                        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                        match &entry.node {
                            Node::File { content, .. } => {
                                found.insert(path, Item::File(get_content(reader, content).await?.into()));
                            }
                            Node::Symlink(target) => drop(found.insert(path, Item::Symlink(target.clone()))),
                            Node::Directory(link) => next.push((path, link.clone(), true)),
                            Node::Linked(_) => {}
                        }
                    }
                }
                other => panic!("not a directory: {other:?}"),
            }
        }
        level = next;
    }
    Ok(found)
}

/// Reads one file by its path.
pub(crate) async fn get_file(source: &dyn Source, root: &Root, path: &str) -> Result<Vec<u8>> {
    let mut page: PageLink = root.page.clone();
    for name in path.split('/') {
        let entry = tree::lookup(source, &page, name.as_bytes()).await?.unwrap();
        match entry.node {
            Node::Directory(link) => page = link,
            Node::File { content, .. } => return get_content(source, &content).await,
            other => panic!("{other:?}"),
        }
    }
    panic!("{path} is a directory")
}

/// A chunk's link that says it is another chunk.
pub(crate) fn renamed<I: Copy>(link: &Link<I>, id: I) -> Link<I> {
    Link { id, place: link.place.clone() }
}
