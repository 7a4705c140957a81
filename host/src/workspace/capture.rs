//! Turning edits into pages and chunks.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::fault::FsResult;
use super::filesystem::Filesystem;
use super::node::{Body, Edit, NodeId, TOP};
use super::page::{Content, Entry, LinkedFile, Node as Stored, PageLink, Root};
use super::source::Sink;
use super::state::State;
use super::{link_table, save, tree};
use crate::error::{Error, Result};

/// What a capture gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The root with exact totals. Its places may be [`super::page::Place::Fresh`]: the sink resolves them.
    pub root: Root,
    /// Whether it differs from the base; if not, it is the base's.
    pub changed: bool,
}

/// Writes what was edited since the base to `sink`, and nothing else; reads only the pages and chunks on the way to the edits.
///
/// The filesystem stays as it is, edits included: it can be used and captured again. While it runs, calls that change something
/// answer `Busy`. To go on without writing the same things again, call [`Filesystem::rebase`] once the objects are stored.
///
/// # Errors
/// Those of the source, the sink and the spool; `Conflict` when another capture is running.
pub async fn capture(filesystem: &Filesystem, sink: &mut dyn Sink) -> Result<Captured> {
    let (plan, _frozen) = {
        let mut state = filesystem.state();
        if state.frozen {
            return Err(Error::conflict("the workspace is being captured already"));
        }
        if let (Some(base), false) = (&state.base, state.is_edited()) {
            let root = base.clone();
            state.captured = Some((state.version, root.clone()));
            return Ok(Captured { root, changed: false });
        }
        let plan = Plan::of(&state)?;
        state.frozen = true;
        (plan, Frozen(filesystem))
    };
    let root = plan.write(filesystem, sink).await?;
    let mut state = filesystem.state();
    let same = |base: &Root| {
        let links = |root: &Root| root.links.as_ref().map(|link| link.id);
        (base.page.id, links(base)) == (root.page.id, links(&root))
    };
    let base = state.base.clone().filter(same);
    let captured = Captured { changed: base.is_none(), root: base.unwrap_or(root) };
    state.captured = Some((state.version, captured.root.clone()));
    Ok(captured)
}

/// Keeps a filesystem from changing, also when the capture is given up half-way.
struct Frozen<'a>(&'a Filesystem);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.state().frozen = false;
    }
}

/// The edits of a filesystem, taken down at one moment.
struct Plan {
    base: Option<Root>,
    /// Edited directories, each before those in it.
    directories: Vec<PlannedDirectory>,
    /// Files of the base's link table that are edited, or gone.
    linked: BTreeMap<u64, Option<NodeId>>,
    entries: u64,
    bytes: u64,
}

struct PlannedDirectory {
    id: NodeId,
    base: Option<PageLink>,
    edits: Vec<(Bytes, PlannedEdit)>,
}

enum PlannedEdit {
    Gone,
    Linked(u64),
    Node { id: NodeId, mode: u16, mtime: i64, what: Planned },
}

enum Planned {
    File {
        several: bool,
    },
    /// With its page, when the directory itself is as it is stored.
    Directory(Option<PageLink>),
    Symlink(Bytes),
}

impl Plan {
    fn of(state: &State) -> FsResult<Self> {
        let mut directories = Vec::new();
        let mut waiting = vec![TOP];
        while let Some(id) = waiting.pop() {
            let directory = state.directory(id)?;
            let mut edits = Vec::with_capacity(directory.edits.len());
            let mut below = Vec::new();
            for (name, edit) in &directory.edits {
                let edit = match edit {
                    Edit::Gone => PlannedEdit::Gone,
                    Edit::Linked(number) => PlannedEdit::Linked(*number),
                    Edit::Node(id) => {
                        let node = state.node(*id)?;
                        let what = match &node.body {
                            Body::File { .. } => Planned::File { several: node.names > 1 },
                            Body::Symlink(target) => Planned::Symlink(target.clone()),
                            Body::Directory(directory) if directory.edits.is_empty() && directory.base.is_some() => {
                                Planned::Directory(directory.base.clone())
                            }
                            Body::Directory(_) => {
                                below.push(*id);
                                Planned::Directory(None)
                            }
                        };
                        PlannedEdit::Node { id: *id, mode: node.mode, mtime: node.modified, what }
                    }
                };
                edits.push((name.clone(), edit));
            }
            waiting.extend(below.into_iter().rev());
            directories.push(PlannedDirectory { id, base: directory.base.clone(), edits });
        }
        let linked = state.linked_edits.clone();
        Ok(Self { base: state.base.clone(), directories, linked, entries: state.usage.entries, bytes: state.usage.bytes })
    }

    /// Writes content in the order of the paths, then pages from the leaves up.
    async fn write(self, filesystem: &Filesystem, sink: &mut dyn Sink) -> Result<Root> {
        let source = &**filesystem.source();
        let base_links = self.base.as_ref().and_then(|root| root.links.as_ref());
        let mut next = match base_links {
            Some(table) => link_table::largest(source, table).await?.map_or(0, |largest| largest + 1),
            None => 0,
        };
        let mut contents: HashMap<NodeId, (Content, u64)> = HashMap::new();
        let mut numbers: HashMap<NodeId, u64> = HashMap::new();
        let mut table: BTreeMap<u64, Option<LinkedFile>> = BTreeMap::new();
        for directory in &self.directories {
            for (_, edit) in &directory.edits {
                let PlannedEdit::Node { id, what: Planned::File { several }, .. } = edit else { continue };
                if contents.contains_key(id) {
                    continue;
                }
                contents.insert(*id, save::content(filesystem, *id, sink).await?);
                if *several {
                    numbers.insert(*id, next);
                    next += 1;
                }
            }
        }
        for (number, id) in &self.linked {
            let file = match id {
                Some(id) => Some(linked_file(filesystem, *number, *id, save::content(filesystem, *id, sink).await?)?),
                None => None,
            };
            table.insert(*number, file);
        }
        for (id, number) in &numbers {
            let content = contents.get(id).cloned().ok_or_else(incomplete)?;
            table.insert(*number, Some(linked_file(filesystem, *number, *id, content)?));
        }
        let links = link_table::update(source, sink, base_links, table).await?;
        let mut pages: HashMap<NodeId, PageLink> = HashMap::new();
        for directory in self.directories.into_iter().rev() {
            let mut changes = BTreeMap::new();
            for (name, edit) in directory.edits {
                let entry = match edit {
                    PlannedEdit::Gone => None,
                    PlannedEdit::Linked(number) => Some((0, 0, Stored::Linked(number))),
                    PlannedEdit::Node { id, mode, mtime, what } => Some(match what {
                        Planned::File { .. } => match numbers.get(&id) {
                            Some(number) => (0, 0, Stored::Linked(*number)),
                            None => {
                                let (content, size) = contents.remove(&id).ok_or_else(incomplete)?;
                                (mode, mtime, Stored::File { size, content })
                            }
                        },
                        Planned::Directory(Some(link)) => (mode, mtime, Stored::Directory(link)),
                        Planned::Directory(None) => (mode, mtime, Stored::Directory(pages.remove(&id).ok_or_else(incomplete)?)),
                        Planned::Symlink(target) => (mode, mtime, Stored::Symlink(target)),
                    }),
                };
                let entry = entry.map(|(mode, mtime, node)| Entry { name: name.clone(), mode, mtime, node });
                changes.insert(name, entry);
            }
            let page = tree::update(source, sink, directory.base.as_ref(), changes).await?;
            pages.insert(directory.id, page);
        }
        let page = pages.remove(&TOP).ok_or_else(incomplete)?;
        Ok(Root { page, links, entries: self.entries, bytes: self.bytes })
    }
}

fn linked_file(filesystem: &Filesystem, number: u64, id: NodeId, (content, size): (Content, u64)) -> Result<LinkedFile> {
    let state = filesystem.state();
    let node = state.node(id)?;
    Ok(LinkedFile { number, names: node.names, mode: node.mode, mtime: node.modified, size, content })
}

fn incomplete() -> Error {
    Error::internal("a capture has missed an edited object")
}
