//! Checking a checkpoint against its ids: every page, every reference, every total, and when asked every byte of content.
//!
//! A damaged object doesn't end the check: what can't be reached through it is left out, and the rest is looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt as _;

use super::pack;
use super::reader::Reader;
use super::root::{Checkpoint, RootRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChunkId, PackId};
use crate::workspace::page::{ChunkLink, Content, Entry, Home, Node, Page, PageLink, Part, Place, Root};
use crate::workspace::path::display;
use crate::workspace::source::Source as _;
use crate::workspace::{link_table, list};

/// Pages that are asked for at a time.
const BATCH: usize = 256;
/// Chunks that are read at a time.
const AT_ONCE: usize = 8;
/// Most files that a damaged object is said to touch.
const FILES_MAX: usize = 20;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Pages that were read and are what their ids say.
    pub pages: u64,
    /// Chunks that were read and are what their ids say; none in a shallow check.
    pub chunks: u64,
    /// Bytes of those chunks.
    pub bytes: u64,
    /// Packs that something lies in.
    pub packs: u64,
    /// What is wrong, in the order it was found.
    pub damage: Vec<Damage>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The object: a page, a chunk, a pack or a root, with its id.
    pub object: String,
    /// What is wrong with it.
    pub why: String,
    /// Files and directories that it touches, as guests see them; at most 20.
    pub files: Vec<String>,
}

/// Checks a checkpoint. `deep` reads all content too; without it only the presence of the packs is looked at.
///
/// # Errors
/// `Store` when the store can't be read. Damage is in the report.
pub async fn verify(reader: &Reader, checkpoint: &Checkpoint, deep: bool) -> Result<Report> {
    let mut check = Check { reader, deep, report: Report::default(), packs: BTreeMap::new(), chunks: HashMap::new(), wanted: Vec::new() };
    let RootRecord { workspace, state, git, .. } = &checkpoint.root;
    if Checkpoint::new(checkpoint.root.clone()).id != checkpoint.id {
        check.damaged(format!("checkpoint {}", checkpoint.id), "its root record doesn't hash to its id", String::from("/"));
    }
    for (name, root) in [("/workspace", Some(workspace)), ("/state", Some(state)), ("/.git", git.as_ref())] {
        if let Some(root) = root {
            check.root(name, root).await?;
        }
    }
    check.content().await?;
    check.presence().await?;
    Ok(check.report)
}

struct Check<'r> {
    reader: &'r Reader,
    deep: bool,
    report: Report,
    packs: BTreeMap<(Home, PackId), BTreeSet<String>>,
    /// Chunks that were wanted before, and what became of them.
    chunks: HashMap<ChunkId, u32>,
    wanted: Vec<(ChunkLink, u32, String)>,
}

/// A page that is to be read: what it is part of, and by which path.
struct Waiting {
    link: PageLink,
    path: String,
}

impl Check<'_> {
    fn damaged(&mut self, object: String, why: &str, file: String) {
        if let Some(known) = self.report.damage.iter_mut().find(|damage| damage.object == object) {
            if known.files.len() < FILES_MAX && !known.files.contains(&file) {
                known.files.push(file);
            }
            return;
        }
        self.report.damage.push(Damage { object, why: why.to_owned(), files: vec![file] });
    }

    /// Takes an error of a read: damage goes into the report, anything else ends the check.
    fn take(&mut self, object: String, error: Error, file: String) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::TooNew | ErrorKind::Limit) {
            return Err(error);
        }
        self.damaged(object, &error.chain(), file);
        Ok(())
    }

    fn note(&mut self, place: &Place, file: &str) {
        if let Place::At(at) = place {
            let files = self.packs.entry((Home::clone(&at.home), at.pack)).or_default();
            if files.len() < FILES_MAX {
                files.insert(file.to_owned());
            }
        }
    }

    async fn root(&mut self, name: &str, root: &Root) -> Result<()> {
        let linked = self.link_table(name, root).await?;
        let mut names: HashMap<u64, u32> = HashMap::new();
        let (mut entries, mut bytes) = (0_u64, linked.values().map(|(_, size)| size).sum::<u64>());
        let before = self.report.damage.len();
        let mut waiting = vec![Waiting { link: root.page.clone(), path: name.to_owned() }];
        while !waiting.is_empty() {
            let batch: Vec<Waiting> = waiting.split_off(waiting.len().saturating_sub(BATCH));
            for (Waiting { path, .. }, page) in self.pages(batch).await? {
                match &*page {
                    Page::Split(slots) => {
                        waiting.extend(slots.iter().flatten().map(|slot| Waiting { link: slot.page.clone(), path: path.clone() }));
                    }
                    Page::Directory(list) => {
                        for Entry { name, node, .. } in list {
                            entries += 1;
                            let path = format!("{path}/{}", display(name));
                            match node {
                                Node::Directory(link) => waiting.push(Waiting { link: link.clone(), path }),
                                Node::File { size, content } => {
                                    bytes += size;
                                    self.file(&path, *size, content).await?;
                                }
                                Node::Symlink(_) => {}
                                Node::Linked(number) => {
                                    *names.entry(*number).or_default() += 1;
                                    if !linked.contains_key(number) {
                                        self.damaged(
                                            format!("linked file {number} of {}", root.page.id),
                                            "it isn't in the root's table",
                                            path,
                                        );
                                    }
                                }
                            }
                        }
                    }
                    _ => self.damaged(format!("page {}", root.page.id), "a directory names a page of another kind", path),
                }
            }
        }
        // Totals can only be judged where everything could be read.
        if self.report.damage.len() > before {
            return Ok(());
        }
        for (number, (expected, _)) in &linked {
            if names.get(number).copied().unwrap_or(0) != *expected {
                self.damaged(
                    format!("linked file {number} of {name}"),
                    "it has another number of names than its table says",
                    name.to_owned(),
                );
            }
        }
        if (entries, bytes) != (root.entries, root.bytes) {
            let why = format!("it has {entries} entries and {bytes} bytes; its record says {} and {}", root.entries, root.bytes);
            self.damaged(format!("root {name} {}", root.page.id), &why, name.to_owned());
        }
        Ok(())
    }

    /// Reads the table of files with several names, and their content: number, names and size of each.
    async fn link_table(&mut self, name: &str, root: &Root) -> Result<BTreeMap<u64, (u32, u64)>> {
        let Some(table) = &root.links else { return Ok(BTreeMap::new()) };
        self.note(&table.place, name);
        let files = match link_table::list(self.reader, table).await {
            Ok(files) => files,
            Err(error) => {
                self.take(format!("link table {}", table.id), error, name.to_owned())?;
                return Ok(BTreeMap::new());
            }
        };
        self.report.pages += 1;
        let mut found = BTreeMap::new();
        for file in files {
            self.file(&format!("{name} (linked file {})", file.number), file.size, &file.content).await?;
            found.insert(file.number, (file.names, file.size));
        }
        Ok(found)
    }

    /// Reads pages together, and one by one where that fails, so that each damaged one is named.
    async fn pages(&mut self, batch: Vec<Waiting>) -> Result<Vec<(Waiting, Arc<Page>)>> {
        for one in &batch {
            self.note(&one.link.place, &one.path);
        }
        let links: Vec<PageLink> = batch.iter().map(|one| one.link.clone()).collect();
        if let Ok(pages) = self.reader.pages(&links).await {
            self.report.pages += pages.len() as u64;
            return Ok(batch.into_iter().zip(pages).collect());
        }
        let mut read = Vec::new();
        for one in batch {
            match self.reader.page(&one.link).await {
                Ok(page) => {
                    self.report.pages += 1;
                    read.push((one, page));
                }
                Err(error) => self.take(format!("page {}", one.link.id), error, one.path)?,
            }
        }
        Ok(read)
    }

    async fn file(&mut self, path: &str, size: u64, content: &Content) -> Result<()> {
        if let Content::List(link) = content {
            self.note(&link.place, path);
        }
        let parts = match list::parts(self.reader, content, size, 0..size).await {
            Ok(parts) => parts,
            Err(error) => return self.take(format!("content of {path}"), error, path.to_owned()),
        };
        let covered = parts.last().map_or(0, |part| part.range().end);
        let inline = match content {
            Content::Inline(bytes) => bytes.len() as u64,
            _ => 0,
        };
        if covered.max(inline) != size {
            self.damaged(format!("content of {path}"), "its parts don't add up to its size", path.to_owned());
        }
        for part in parts {
            if let Part::Chunk(link, len) = part.part {
                self.note(&link.place, path);
                if self.deep {
                    self.wanted.push((link, len, path.to_owned()));
                }
            }
        }
        if self.wanted.len() >= 4 * BATCH { self.content().await } else { Ok(()) }
    }

    /// Reads the chunks that were noted, each once.
    async fn content(&mut self) -> Result<()> {
        let wanted = std::mem::take(&mut self.wanted);
        let mut fresh = Vec::new();
        let mut again: HashSet<ChunkId> = HashSet::new();
        for (link, len, _) in &wanted {
            if !self.chunks.contains_key(&link.id) && again.insert(link.id) {
                fresh.push((link.clone(), *len));
            }
        }
        let reader = self.reader;
        let mut reads =
            futures::stream::iter(fresh.into_iter().map(|(link, len)| async move { (link.id, len, reader.chunk(&link).await) }))
                .buffered(AT_ONCE);
        let mut bad: HashMap<ChunkId, Error> = HashMap::new();
        while let Some((id, len, read)) = reads.next().await {
            match read {
                Ok(plain) if plain.len() == len as usize => {
                    self.chunks.insert(id, len);
                    self.report.chunks += 1;
                    self.report.bytes += u64::from(len);
                }
                Ok(plain) => drop(bad.insert(id, Error::damaged(format!("it has {} bytes instead of {len}", plain.len())))),
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::TooNew) => drop(bad.insert(id, error)),
                Err(error) => return Err(error),
            }
        }
        drop(reads);
        for (link, len, path) in wanted {
            if let Some(error) = bad.get(&link.id) {
                self.damaged(format!("chunk {}", link.id), &error.chain(), path);
            } else if self.chunks.get(&link.id).is_some_and(|known| *known != len) {
                self.damaged(format!("chunk {}", link.id), "it is named with different lengths", path);
            }
        }
        Ok(())
    }

    /// Looks whether each pack is there.
    async fn presence(&mut self) -> Result<()> {
        let packs = std::mem::take(&mut self.packs);
        self.report.packs = packs.len() as u64;
        for ((home, id), files) in packs {
            if self.reader.store().size(&pack::key(&home, id)).await?.is_none() {
                for file in files {
                    self.damaged(format!("pack {id}"), "it is missing", file);
                }
            }
        }
        Ok(())
    }
}
