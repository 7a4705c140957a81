//! What is to be made, planned in batches of bounded size while the pages are walked.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;

use super::links::{Leads, judge};
use super::write::Last;
use super::{MaterialiseOptions, Materialised, shown};
use crate::checkpoint::reader::Reader;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ChunkId;
use crate::workspace::page::{Content, Entry, LinkedFile, Location, Node, Page, PageLink, Part, Place, Root};
use crate::workspace::path::is_dot_git;
use crate::workspace::source::Source as _;

/// Pages fetched together.
const PAGES: usize = 64;
/// Files and pieces of files planned together.
const BATCH: usize = 16 << 10;

/// The path of something in the folder, as names from the top.
pub(super) type Names = Arc<Vec<Bytes>>;

/// A directory to be made.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) path: Names,
    pub(super) mode: u16,
    pub(super) mtime: i64,
}

/// A file to be made.
#[derive(Debug)]
pub(super) struct File {
    pub(super) directory: Names,
    pub(super) name: Bytes,
    pub(super) mode: u16,
    pub(super) mtime: i64,
    pub(super) size: u64,
    /// Pieces that aren't written yet. Who writes the last one sets mode and time.
    pub(super) left: AtomicUsize,
    /// Whether its one piece is all of it: then the writer of the piece makes it.
    pub(super) single: bool,
}

/// A piece of a file that is one chunk.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: Arc<File>,
    pub(super) id: ChunkId,
    pub(super) at: Location,
    pub(super) offset: u64,
}

/// Planned work.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// In an order in which each comes after its parent.
    pub(super) directories: Vec<Directory>,
    /// Files to be made before their pieces are written, with what is inline; finished when they have no pieces.
    pub(super) created: Vec<(Arc<File>, Bytes)>,
    pub(super) pieces: Vec<Piece>,
}

/// A page to be read: of a directory, or of a list of a file's parts.
enum Next {
    Directory(PageLink, Names),
    /// A file and the offset at which the list begins.
    List(PageLink, Arc<File>, u64),
}

impl Next {
    fn link(&self) -> &PageLink {
        match self {
            Self::Directory(link, _) | Self::List(link, ..) => link,
        }
    }
}

/// Walks the pages of a root.
pub(super) struct Planner<'a> {
    reader: &'a Reader,
    root: &'a Root,
    options: &'a MaterialiseOptions,
    /// A stack: the walk goes in depth, so that what waits is bounded.
    stack: Vec<Next>,
    entries: u64,
    /// Pages walked. Pages may name one page many times, so a small pack could stand for a walk without end.
    pages: u64,
    report: Materialised,
    table: HashMap<u64, LinkedFile>,
    /// The first path of each linked file and how many names were found.
    named: HashMap<u64, (Names, u32)>,
    last: Last,
}

impl<'a> Planner<'a> {
    pub(super) fn new(reader: &'a Reader, root: &'a Root, options: &'a MaterialiseOptions) -> Self {
        let stack = vec![Next::Directory(root.page.clone(), Names::default())];
        let (table, named) = (HashMap::new(), HashMap::new());
        Self { reader, root, options, stack, entries: 0, pages: 0, report: Materialised::default(), table, named, last: Last::default() }
    }

    /// Reads the table of files with several names.
    pub(super) async fn read_link_table(&mut self) -> Result<()> {
        let mut waiting: VecDeque<PageLink> = self.root.links.iter().cloned().collect();
        while !waiting.is_empty() {
            let some: Vec<_> = waiting.drain(..waiting.len().min(PAGES)).collect();
            for page in self.reader.pages(&some).await? {
                match &*page {
                    Page::LinkTable(files) => self.table.extend(files.iter().map(|file| (file.number, file.clone()))),
                    Page::LinkTableSplit(children) => waiting.extend(children.iter().map(|(page, _)| page.clone())),
                    _ => return Err(damaged("the table of linked files has a page of another kind")),
                }
                // Each file in it has a name in the tree, so it can't be larger. This also ends tables that name pages again and again.
                if self.table.len() as u64 > self.root.entries || waiting.len() as u64 > self.root.entries {
                    return Err(damaged("the table of linked files is larger than the tree"));
                }
            }
        }
        Ok(())
    }

    /// Plans the next batch; none when the walk is done.
    pub(super) async fn next(&mut self) -> Result<Option<Work>> {
        let mut work = Work::default();
        while !self.stack.is_empty() && work.pieces.len() + work.created.len() + work.directories.len() < BATCH {
            let some = self.stack.split_off(self.stack.len().saturating_sub(PAGES));
            self.pages += some.len() as u64;
            // Each page of a sound tree has an entry of its own or is above one that has, or covers at least some pages of a file.
            if self.pages > 4096 + self.root.entries.saturating_mul(4) + self.root.bytes / 4096 {
                return Err(damaged("it has more pages than its entries and bytes can need"));
            }
            let links: Vec<_> = some.iter().map(|next| next.link().clone()).collect();
            let pages = self.reader.pages(&links).await?;
            let mut found = Vec::new();
            // The stack's top is its end: the first of a directory is walked first, in the order in which packs hold it.
            for (next, page) in some.into_iter().zip(pages).rev() {
                match (next, &*page) {
                    (Next::Directory(_, path), Page::Directory(entries)) => {
                        for entry in entries {
                            self.entry(&path, entry, &mut work, &mut found)?;
                        }
                    }
                    (Next::Directory(_, path), Page::Split(slots)) => {
                        found.extend(slots.iter().flatten().map(|slot| Next::Directory(slot.page.clone(), Arc::clone(&path))));
                    }
                    (Next::List(_, file, offset), Page::List(parts)) => {
                        // One more than its pieces was counted for the list itself, so that nobody finishes the file too early.
                        plan_parts(&file, parts, offset, &mut work)?;
                        list_done(&file, &mut work);
                    }
                    (Next::List(_, file, mut offset), Page::ListSplit(children)) => {
                        for (child, bytes) in children {
                            file.left.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            found.push(Next::List(child.clone(), Arc::clone(&file), offset));
                            offset = offset.checked_add(*bytes).filter(|end| *end <= file.size).ok_or_else(|| too_long(&file))?;
                        }
                        list_done(&file, &mut work);
                    }
                    _ => return Err(damaged("a page is of another kind than what names it")),
                }
            }
            self.stack.extend(found.into_iter().rev());
        }
        let empty = work.directories.is_empty() && work.created.is_empty() && work.pieces.is_empty();
        Ok(if empty && self.stack.is_empty() { None } else { Some(work) })
    }

    fn entry(&mut self, directory: &Names, entry: &Entry, work: &mut Work, found: &mut Vec<Next>) -> Result<()> {
        self.entries += 1;
        let path = || {
            let mut path = (**directory).clone();
            path.push(entry.name.clone());
            path
        };
        if self.entries > self.root.entries {
            return Err(damaged(format!("it has more than the {} entries it declares", self.root.entries)));
        }
        if !self.options.dot_git && is_dot_git(&entry.name) {
            return Err(Error::denied(format!("{} isn't made: git would run what it says", shown(&path()).display())).code("dot_git"));
        }
        match &entry.node {
            Node::Directory(page) => {
                let path = path();
                if path.len() > self.options.depth_max {
                    let max = self.options.depth_max;
                    return Err(Error::limit(format!("{} is deeper than {max} directories", shown(&path).display())));
                }
                let path = Arc::new(path);
                let made = Directory { path: Arc::clone(&path), mode: entry.mode, mtime: entry.mtime };
                self.report.directories += 1;
                self.last.directories.push(made.clone());
                work.directories.push(made);
                found.push(Next::Directory(page.clone(), path));
            }
            Node::Symlink(target) => {
                if judge(target, directory.len()) == Leads::Outside && !self.options.unsafe_links {
                    return Err(unsafe_link(&path(), target));
                }
                self.report.symlinks += 1;
                self.last.symlinks.push((Arc::clone(directory), entry.name.clone(), target.clone(), entry.mtime));
            }
            Node::File { size, content } => {
                self.file(directory, &entry.name, (entry.mode, entry.mtime), *size, content, work, found)?;
            }
            Node::Linked(number) => {
                if let Some((first, names)) = self.named.get_mut(number) {
                    *names += 1;
                    self.report.hard_links += 1;
                    self.last.hard_links.push((Arc::clone(first), Arc::clone(directory), entry.name.clone()));
                } else {
                    let Some(file) = self.table.get(number).cloned() else {
                        return Err(damaged(format!("{} is a name of the unknown linked file {number}", shown(&path()).display())));
                    };
                    self.named.insert(*number, (Arc::new(path()), 1));
                    self.file(directory, &entry.name, (file.mode, file.mtime), file.size, &file.content, work, found)?;
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a file, and where its work goes")]
    fn file(
        &mut self,
        directory: &Names,
        name: &Bytes,
        (mode, mtime): (u16, i64),
        size: u64,
        content: &Content,
        work: &mut Work,
        found: &mut Vec<Next>,
    ) -> Result<()> {
        self.report.files += 1;
        self.report.bytes = self.report.bytes.saturating_add(size);
        if self.report.bytes > self.root.bytes {
            return Err(damaged(format!("it has more than the {} bytes it declares", self.root.bytes)));
        }
        let single = matches!(content, Content::Parts(parts) if matches!(parts.as_slice(), [Part::Chunk(..)]));
        let left = AtomicUsize::new(0);
        let file = Arc::new(File { directory: Arc::clone(directory), name: name.clone(), mode, mtime, size, left, single });
        match content {
            Content::Inline(bytes) => work.created.push((file, bytes.clone())),
            Content::Parts(parts) => {
                plan_parts(&file, parts, 0, work)?;
                if !single {
                    work.created.push((file, Bytes::new()));
                }
            }
            Content::List(page) => {
                file.left.store(1, std::sync::atomic::Ordering::Relaxed);
                work.created.push((Arc::clone(&file), Bytes::new()));
                found.push(Next::List(page.clone(), file, 0));
            }
        }
        Ok(())
    }

    /// Checks the totals and returns what is left to be done when all content is written.
    pub(super) fn finish(self) -> Result<(Materialised, Last)> {
        let Self { root, entries, report, table, named, last, .. } = self;
        if entries != root.entries || report.bytes != root.bytes {
            let (found, said) = ((entries, report.bytes), (root.entries, root.bytes));
            return Err(damaged(format!("it has {} entries and {} bytes, and declares {} and {}", found.0, found.1, said.0, said.1)));
        }
        for (number, file) in &table {
            let names = named.get(number).map_or(0, |(_, names)| *names);
            if names != file.names {
                return Err(damaged(format!("linked file {number} has {names} names, and declares {}", file.names)));
            }
        }
        Ok((report, last))
    }
}

fn plan_parts(file: &Arc<File>, parts: &[Part], mut offset: u64, work: &mut Work) -> Result<()> {
    for part in parts {
        let len = match part {
            Part::Hole(len) => *len,
            Part::Chunk(chunk, len) => {
                let Place::At(at) = &chunk.place else {
                    return Err(Error::internal(format!("chunk {} isn't stored yet", chunk.id)));
                };
                crate::checkpoint::root_codec::check_location(at)?;
                if at.len != *len {
                    return Err(damaged(format!("chunk {} has {} bytes where it lies and {len} in its file", chunk.id, at.len)));
                }
                file.left.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                work.pieces.push(Piece { file: Arc::clone(file), id: chunk.id, at: at.clone(), offset });
                u64::from(*len)
            }
        };
        offset = offset.checked_add(len).filter(|end| *end <= file.size).ok_or_else(|| too_long(file))?;
    }
    Ok(())
}

/// Takes the count that a list page had; when nothing is left (it had only holes, or its pieces are written), the file is finished.
fn list_done(file: &Arc<File>, work: &mut Work) {
    if file.left.fetch_sub(1, std::sync::atomic::Ordering::AcqRel) == 1 {
        work.created.push((Arc::clone(file), Bytes::new()));
    }
}

fn too_long(file: &File) -> Error {
    damaged(format!("{} has more bytes than its size says", shown(std::slice::from_ref(&file.name)).display()))
}

pub(super) fn unsafe_link(path: &[Bytes], target: &[u8]) -> Error {
    Error::denied(format!("the link {} leads out of the folder, to {:?}", shown(path).display(), String::from_utf8_lossy(target)))
        .code("unsafe_link")
        .hint("--unsafe-links makes such links too")
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Damaged, format!("the tree is damaged: {}", message.into())).code("tree_damaged")
}
