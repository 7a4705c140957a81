//! Compaction: after many turns a tree lies in many small packs, and a whole restore would need a request for each. Its content and pages are written
//! again into few. Ids don't change, only places; older checkpoints keep their own copies until retention drops them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;

use super::mark::Marker;
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::error::{Error, Result};
use crate::id::{ChunkId, PackId, PageId, SessionRef};
use crate::session::Sessions;
use crate::store::{Key, Prefix};
use crate::workspace::page::{ChunkLink, Content, Home, LinkedFile, Node, Page, PageLink, Part, Place, Root};
use crate::workspace::page_codec::{Reference, references};
use crate::workspace::source::{Sink as _, Source as _};

/// Packs of fewer bytes are small: those of turns are a few KiB.
const SMALL: u64 = 4 << 20;
/// So many small packs of one checkpoint are worth the work.
pub const SMALL_MAX: usize = 32;
/// Bytes of pages and content held in memory.
const MEMORY: usize = 64 << 20;

/// What a compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Compacted {
    /// Packs that the checkpoint needed before.
    pub packs_before: u64,
    /// Packs that it needs now.
    pub packs_after: u64,
    /// Bytes of the packs that were written.
    pub written: u64,
}

/// Writes a session's checkpoint again, when it lies in more than [`SMALL_MAX`] small packs or ones that are mostly unused. None when there is no
/// need, or when a run goes on or changed the session meanwhile: then nothing has changed, and a later call does it.
///
/// # Errors
/// `Damaged`, `Store`.
pub async fn compact(sessions: &Sessions, session: &SessionRef) -> Result<Option<Compacted>> {
    let store = sessions.store();
    let Some(snapshot) = sessions.load(session).await? else { return Ok(None) };
    let Some(from) = snapshot.head.checkpoint.clone().filter(|_| snapshot.head.lease.is_none()) else { return Ok(None) };
    let home = Arc::new(Home::Session(session.clone()));
    let mut marker = Marker::new(store);
    marker.checkpoint(&from.root).await?;
    let listed = store.list(&Prefix::SessionPacks(session.clone())).await?.objects;
    let sizes: HashMap<PackId, u64> = listed
        .into_iter()
        .filter_map(|object| match object.key {
            Key::SessionPack(_, pack) => Some((pack, object.size)),
            _ => None,
        })
        .collect();
    // Packs of a parent and of a repository stay as they are: they are others' to keep.
    let used: Vec<(PackId, u64)> = marker.packs().filter(|(of, ..)| **of == *home).map(|(_, pack, bytes)| (pack, bytes)).collect();
    let size = |pack: &PackId| sizes.get(pack).copied().unwrap_or(0);
    let victims: HashSet<PackId> =
        used.iter().filter(|(pack, bytes)| size(pack) < SMALL || bytes * 2 < size(pack)).map(|(pack, _)| *pack).collect();
    let wasted: u64 = used.iter().filter(|(pack, _)| victims.contains(pack)).map(|(pack, bytes)| size(pack).saturating_sub(*bytes)).sum();
    if victims.len() <= SMALL_MAX && wasted < 2 * SMALL {
        return Ok(None);
    }
    let reader = Reader::new(store.clone(), None, MEMORY);
    let writer = PackWriter::new(store.clone(), Arc::clone(&home), WriterOptions::default());
    let mut moving = Moving { reader, writer, victims, moved: HashMap::new() };
    let mut roots = Vec::new();
    for root in [Some(&from.root.workspace), Some(&from.root.state), from.root.git.as_ref()] {
        roots.push(match root {
            Some(root) => Some(moving.root(root).await?),
            None => None,
        });
    }
    let written = moving.writer.finish().await?;
    let mut roots = roots.into_iter().map(|root| root.map(|root| moving.writer.resolve_root(&root)).transpose());
    let mut next = || roots.next().unwrap_or(Ok(None));
    let missing = || Error::internal("a compacted checkpoint has lost a root");
    let root = RootRecord {
        workspace: next()?.ok_or_else(missing)?,
        state: next()?.ok_or_else(missing)?,
        git: next()?,
        pin: from.root.pin.clone(),
    };
    let to = Checkpoint::new(root);
    if to.id != from.id {
        return Err(Error::internal(format!("compacting checkpoint {} gave another one, {}", from.id, to.id)));
    }
    // The very head that was read, not one that looks like it: packs that were uploaded under an older one may be collected.
    let Ok(head) = snapshot.head.relocate(&from, &to) else { return Ok(None) };
    if sessions.replace_exactly(session, &snapshot, &head).await?.is_none() {
        return Ok(None);
    }
    let mut after = Marker::new(store);
    after.checkpoint(&to.root).await?;
    let (before, after) = (marker.packs().count() as u64, after.packs().count() as u64);
    Ok(Some(Compacted { packs_before: before, packs_after: after, written: written.bytes }))
}

struct Moving {
    reader: Reader,
    writer: PackWriter,
    victims: HashSet<PackId>,
    /// Pages that were looked at, by where they were.
    moved: HashMap<(PackId, u32), PageLink>,
}

impl Moving {
    async fn root(&mut self, root: &Root) -> Result<Root> {
        let page = self.page(&root.page).await?;
        let links = match &root.links {
            Some(links) => Some(self.page(links).await?),
            None => None,
        };
        Ok(Root { page, links, entries: root.entries, bytes: root.bytes })
    }

    fn leaves(&self, place: &Place) -> bool {
        matches!(place, Place::At(at) if self.victims.contains(&at.pack))
    }

    /// Returns a page's link after what is below it was moved; the same one when nothing was and it stays itself.
    fn page<'a>(&'a mut self, link: &'a PageLink) -> BoxFuture<'a, Result<PageLink>> {
        Box::pin(async move {
            let Place::At(at) = &link.place else {
                return Err(Error::damaged("a stored page names something that has no place").code("hint_damaged"));
            };
            if let Some(moved) = self.moved.get(&(at.pack, at.frame)) {
                return Ok(moved.clone());
            }
            let page = self.reader.page(link).await?;
            let (mut below, mut content) = (Vec::new(), Vec::new());
            references(&page, &mut |reference| match reference {
                Reference::Page(link) => below.push(link.clone()),
                Reference::Chunk(link, _) => content.push(link.clone()),
            });
            content.retain(|chunk| self.leaves(&chunk.place));
            if content.len() > 1 {
                self.reader.prefetch(&content);
            }
            let mut chunks = HashMap::new();
            for chunk in content {
                let plain = self.reader.chunk(&chunk).await?;
                chunks.insert(chunk.id, self.writer.chunk(plain).await?);
            }
            if below.len() > 1 {
                // Together, so that neighbours need few requests.
                self.reader.pages(&below).await?;
            }
            let mut pages = HashMap::new();
            for child in below {
                let moved = self.page(&child).await?;
                if moved != child {
                    pages.insert(child.id, moved);
                }
            }
            let moved = if self.leaves(&link.place) || !chunks.is_empty() || !pages.is_empty() {
                self.writer.page(with_links(&page, &pages, &chunks)).await?
            } else {
                link.clone()
            };
            self.moved.insert((at.pack, at.frame), moved.clone());
            Ok(moved)
        })
    }
}

/// Returns a page that names the same things at other places.
fn with_links(page: &Page, pages: &HashMap<PageId, PageLink>, chunks: &HashMap<ChunkId, ChunkLink>) -> Page {
    let page_link = |link: &PageLink| pages.get(&link.id).unwrap_or(link).clone();
    let part = |part: &Part| match part {
        Part::Chunk(chunk, len) => Part::Chunk(chunks.get(&chunk.id).unwrap_or(chunk).clone(), *len),
        Part::Hole(len) => Part::Hole(*len),
    };
    let content = |content: &Content| match content {
        Content::Inline(bytes) => Content::Inline(bytes.clone()),
        Content::Parts(parts) => Content::Parts(parts.iter().map(part).collect()),
        Content::List(link) => Content::List(page_link(link)),
    };
    let children = |children: &[(PageLink, u64)]| children.iter().map(|(link, key)| (page_link(link), *key)).collect();
    match page {
        Page::Directory(entries) => Page::Directory(
            entries
                .iter()
                .map(|entry| {
                    let node = match &entry.node {
                        Node::File { size, content: file } => Node::File { size: *size, content: content(file) },
                        Node::Directory(link) => Node::Directory(page_link(link)),
                        other => other.clone(),
                    };
                    crate::workspace::page::Entry { node, ..entry.clone() }
                })
                .collect(),
        ),
        Page::Split(slots) => Page::Split(
            slots
                .iter()
                .map(|slot| slot.as_ref().map(|slot| crate::workspace::page::SplitSlot { page: page_link(&slot.page), ..slot.clone() }))
                .collect(),
        ),
        Page::List(parts) => Page::List(parts.iter().map(part).collect()),
        Page::ListSplit(all) => Page::ListSplit(children(all)),
        Page::LinkTable(files) => {
            Page::LinkTable(files.iter().map(|file| LinkedFile { content: content(&file.content), ..file.clone() }).collect())
        }
        Page::LinkTableSplit(all) => Page::LinkTableSplit(children(all)),
    }
}
