//! The state of a filesystem behind its lock, and the steps that all operations are made of.
//!
//! Nothing here waits. A step that needs a page which isn't in memory ends with [`Stop::Need`] before it has changed anything; the caller
//! loads the page without the lock and takes the whole operation from its start.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::budget::Budget;
use super::content::{FileData, Recent, StoredContent};
use super::fault::{FsError, FsResult};
use super::filesystem::Setup;
use super::limits::Usage;
use super::listing::Listings;
use super::node::{Body, Directory, Edit, Home, Node, NodeId, Nodes, TOP, mix, stored_inode};
use super::page::{Entry, LinkedFile, Node as Stored, Page, PageLink, Root, SplitSlot};
use super::page_cache::PageCache;
use super::stat::{Kind, Stat};
use super::tree::NameHash;
use crate::clock::UnixNanos;
use crate::error::Error;
use crate::id::PageId;

/// Permission bits of directories made by guests.
pub(super) const DIRECTORY_MODE: u16 = 0o755;
/// Permission bits of files made by guests.
pub(super) const FILE_MODE: u16 = 0o644;
/// Permission bits of symbolic links, as Linux shows them.
pub(super) const SYMLINK_MODE: u16 = 0o777;
/// Objects in memory above which those that are neither open nor edited are forgotten.
const NODES_MAX: usize = 1 << 16;
/// Open files that keep the chunk they read last: each holds up to 1 MiB in memory.
const READERS_MAX: usize = 32;

/// Why a step ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// This page has to be loaded first.
    Need(Box<Need>),
    /// The names of this stored directory have to be listed first, because it is split.
    List(Box<PageLink>),
    /// It has to be found out first how many levels of directories this stored one holds.
    Measure(Box<PageLink>),
    /// This is the answer.
    Fail(FsError),
}

/// A page that has to be loaded, and what the page above it says about it.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) link: PageLink,
    pub(super) slot: Option<SplitSlot>,
}

/// The result of a step.
pub(super) type Step<T> = Result<T, Stop>;

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Fail(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(FsError::Host(error))
    }
}

/// What a name names.
#[derive(Clone, Debug)]
pub(super) enum Child {
    /// An object in memory.
    Node(NodeId),
    /// A file of the link table.
    Linked(u64),
    /// What the base says, never [`Stored::Linked`].
    Stored(Entry),
}

/// A filesystem's state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) setup: Setup,
    /// Counts resets.
    pub(super) generation: u64,
    /// Counts changes.
    pub(super) version: u64,
    pub(super) base: Option<Root>,
    pub(super) nodes: Nodes,
    /// Files of the link table that differ from it; none for those that are gone.
    pub(super) linked_edits: BTreeMap<u64, Option<NodeId>>,
    /// Files of the link table that are in memory and as it says.
    pub(super) linked_cached: HashMap<u64, NodeId>,
    pub(super) usage: Usage,
    pub(super) pages: PageCache,
    /// Levels of entries below stored directories, where that was asked for.
    pub(super) heights: HashMap<PageId, usize>,
    /// Whether a capture is running: nothing may change.
    pub(super) frozen: bool,
    /// What the last capture gave: the version it was of, and its root.
    pub(super) captured: Option<(u64, Root)>,
    /// Names of split directories that streams are going through.
    pub(super) listings: Listings,
    /// The files that keep the chunk they read last, the longest unread first.
    readers: VecDeque<NodeId>,
    /// The memory that objects and changed names take.
    budget: Budget,
    made: u64,
    sweep_at: usize,
}

impl State {
    /// Begins on a stored root or with nothing.
    pub(super) fn new(setup: Setup, base: Option<Root>, generation: u64) -> Self {
        let directory = Directory { base: base.as_ref().map(|root| root.page.clone()), ..Directory::default() };
        let top = Node::new(mix(&[setup.number, 0]), DIRECTORY_MODE, 0, Body::Directory(directory));
        let usage = base.as_ref().map_or_else(Usage::default, |root| Usage { entries: root.entries, bytes: root.bytes, unlinked: 0 });
        Self {
            budget: Budget::new(Arc::clone(&setup.spool)),
            setup,
            generation,
            version: 0,
            base,
            nodes: Nodes::new(top),
            linked_edits: BTreeMap::new(),
            linked_cached: HashMap::new(),
            usage,
            pages: PageCache::default(),
            heights: HashMap::new(),
            frozen: false,
            captured: None,
            listings: Listings::default(),
            readers: VecDeque::new(),
            made: 0,
            sweep_at: NODES_MAX,
        }
    }

    // --- objects -----------------------------------------------------------------------------------------------------------------

    /// Returns an object that has to be there.
    pub(super) fn node(&self, id: NodeId) -> FsResult<&Node> {
        self.nodes.get(id).ok_or_else(lost)
    }

    /// Returns an object that has to be there.
    pub(super) fn node_mut(&mut self, id: NodeId) -> FsResult<&mut Node> {
        self.nodes.get_mut(id).ok_or_else(lost)
    }

    /// Returns an object as a directory.
    pub(super) fn directory(&self, id: NodeId) -> FsResult<&Directory> {
        self.node(id)?.directory().ok_or(FsError::NotDirectory)
    }

    /// Returns an object as a directory.
    pub(super) fn directory_mut(&mut self, id: NodeId) -> FsResult<&mut Directory> {
        self.node_mut(id)?.directory_mut().ok_or(FsError::NotDirectory)
    }

    /// Returns an object as a file.
    pub(super) fn file_mut(&mut self, id: NodeId) -> FsResult<&mut FileData> {
        match &mut self.node_mut(id)?.body {
            Body::File { data, .. } => Ok(data),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) => Err(FsError::BadDescriptor),
        }
    }

    /// Lets a file keep the chunk that a read has loaded, and the one that was read longest ago forget its own when too many do.
    pub(super) fn remember(&mut self, id: NodeId, base: &StoredContent, recent: Recent) -> FsResult<()> {
        self.file_mut(id)?.remember(base, recent);
        self.readers.retain(|reader| *reader != id);
        self.readers.push_back(id);
        if self.readers.len() > READERS_MAX
            && let Some(oldest) = self.readers.pop_front()
            && let Ok(file) = self.file_mut(oldest)
        {
            file.forget_recent();
        }
        Ok(())
    }

    /// Returns the attributes of an object.
    pub(super) fn stat_node(&self, id: NodeId) -> FsResult<Stat> {
        let node = self.node(id)?;
        Ok(Stat {
            kind: node.kind(),
            size: node.size(),
            modified: node.modified,
            links: u64::from(node.names),
            mode: node.mode,
            inode: node.inode,
        })
    }

    /// Returns an inode for a new object.
    pub(super) fn new_inode(&mut self) -> u64 {
        self.made += 1;
        mix(&[self.setup.number, 1, self.made])
    }

    fn linked_inode(&self, number: u64) -> u64 {
        mix(&[self.setup.number, 2, number])
    }

    /// Returns the clock's time.
    pub(super) fn now(&self) -> UnixNanos {
        self.setup.clock.now()
    }

    /// Says whether anything differs from the base.
    pub(super) fn is_edited(&self) -> bool {
        self.base.is_none() || !self.linked_edits.is_empty() || self.directory(TOP).is_ok_and(|top| !top.edits.is_empty())
    }

    /// Refuses to change anything during a capture.
    pub(super) fn writable(&self) -> FsResult<()> {
        if self.frozen { Err(FsError::Busy) } else { Ok(()) }
    }

    /// Refuses what may add objects or changed names when they take all the memory that they may, and during a capture.
    pub(super) fn growable(&self) -> FsResult<()> {
        self.writable()?;
        self.setup.spool.check_tables()
    }

    /// Takes an object into memory.
    pub(super) fn add_node(&mut self, node: Node) -> NodeId {
        self.budget.add_node(&node);
        self.nodes.add(node)
    }

    /// Forgets an object.
    pub(super) fn remove_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.remove(id) {
            for name in node.directory().into_iter().flat_map(|directory| directory.edits.keys()) {
                self.budget.remove_edit(name);
            }
            self.budget.remove_node(&node);
        }
    }

    /// Notes what has become of a name.
    fn edit_name(&mut self, directory: NodeId, name: &Bytes, edit: Edit) -> FsResult<()> {
        self.directory(directory)?;
        self.budget.add_edit(name);
        if self.directory_mut(directory)?.edits.insert(name.clone(), edit).is_some() {
            self.budget.remove_edit(name);
        }
        Ok(())
    }

    /// Takes the notes on a directory's names away.
    pub(super) fn take_edits(&mut self, id: NodeId) -> FsResult<BTreeMap<Bytes, Edit>> {
        let edits = std::mem::take(&mut self.directory_mut(id)?.edits);
        edits.keys().for_each(|name| self.budget.remove_edit(name));
        Ok(edits)
    }

    // --- pages -------------------------------------------------------------------------------------------------------------------

    /// Returns a page that is in memory.
    pub(super) fn page(&mut self, link: &PageLink, slot: Option<&SplitSlot>) -> Step<Arc<Page>> {
        self.pages.get(&link.id).ok_or_else(|| Stop::Need(Box::new(Need { link: link.clone(), slot: slot.cloned() })))
    }

    /// Returns the entry of a stored directory.
    pub(super) fn stored_entry(&mut self, directory: &PageLink, name: &[u8]) -> Step<Option<Entry>> {
        let mut page = self.page(directory, None)?;
        let mut id = directory.id;
        let mut hash = None;
        for depth in 0.. {
            let slot = match &*page {
                Page::Directory(entries) => {
                    return Ok(entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok().map(|at| entries[at].clone()));
                }
                Page::Split(slots) => match slots.get(hash.get_or_insert_with(|| NameHash::of(name)).slot(depth)) {
                    Some(Some(slot)) if depth < 64 => slot.clone(),
                    _ => return Ok(None),
                },
                _ => return Err(super::tree::misplaced(id, "isn't a directory").into()),
            };
            id = slot.page.id;
            page = self.page(&slot.page, Some(&slot))?;
        }
        Ok(None)
    }

    /// Returns how many entries a stored directory has.
    fn stored_count(&mut self, directory: &PageLink) -> Step<u64> {
        match &*self.page(directory, None)? {
            Page::Directory(entries) => Ok(entries.len() as u64),
            Page::Split(slots) => Ok(slots.iter().flatten().map(|slot| slot.entries).sum()),
            _ => Err(super::tree::misplaced(directory.id, "isn't a directory").into()),
        }
    }

    /// Returns a file of the base's link table.
    pub(super) fn stored_link(&mut self, number: u64) -> Step<LinkedFile> {
        match self.base.as_ref().and_then(|root| root.links.clone()) {
            Some(table) => self.link_in(&table, number),
            None => Err(dangling(number).into()),
        }
    }

    /// Returns a file of a stored link table.
    pub(super) fn link_in(&mut self, table: &PageLink, number: u64) -> Step<LinkedFile> {
        let mut link = table.clone();
        for _ in 0..64 {
            let page = self.page(&link, None)?;
            link = match &*page {
                Page::LinkTable(files) => {
                    let at = files.binary_search_by_key(&number, |file| file.number).map_err(|_| dangling(number))?;
                    return Ok(files[at].clone());
                }
                Page::LinkTableSplit(parts) => {
                    let at = parts.partition_point(|(_, largest)| *largest < number);
                    parts.get(at).map(|(link, _)| link.clone()).ok_or_else(|| dangling(number))?
                }
                _ => return Err(super::tree::misplaced(link.id, "isn't a link table").into()),
            };
        }
        Err(dangling(number).into())
    }

    // --- names -------------------------------------------------------------------------------------------------------------------

    /// Returns what a name names in a directory.
    pub(super) fn child(&mut self, id: NodeId, name: &[u8]) -> Step<Option<Child>> {
        let directory = self.directory(id)?;
        match directory.edits.get(name) {
            Some(Edit::Gone) => return Ok(None),
            Some(Edit::Node(node)) => return Ok(Some(Child::Node(*node))),
            Some(Edit::Linked(number)) => return Ok(Some(Child::Linked(*number))),
            None => {}
        }
        if let Some(node) = directory.cached.get(name) {
            return Ok(Some(Child::Node(*node)));
        }
        let Some(base) = directory.base.clone() else { return Ok(None) };
        Ok(self.stored_entry(&base, name)?.map(|entry| match entry.node {
            Stored::Linked(number) => Child::Linked(number),
            _ => Child::Stored(entry),
        }))
    }

    /// Says whether the base of a directory has a name.
    pub(super) fn in_base(&mut self, id: NodeId, name: &[u8]) -> Step<bool> {
        match self.directory(id)?.base.clone() {
            Some(base) => Ok(self.stored_entry(&base, name)?.is_some()),
            None => Ok(false),
        }
    }

    /// Returns how many entries a directory has.
    pub(super) fn count(&mut self, id: NodeId) -> Step<u64> {
        let directory = self.directory(id)?;
        let (grown, base) = (directory.grown, directory.base.clone());
        let stored = base.map_or(Ok(0), |base| self.stored_count(&base))?;
        Ok(stored.saturating_add_signed(grown))
    }

    /// Returns the kind of what a name names.
    pub(super) fn child_kind(&self, child: &Child) -> FsResult<Kind> {
        Ok(match child {
            Child::Node(id) => self.node(*id)?.kind(),
            Child::Linked(_) => Kind::File,
            Child::Stored(entry) => stored_kind(&entry.node),
        })
    }

    /// Returns the target of what a name names, when that is a symbolic link.
    pub(super) fn child_target(&self, child: &Child) -> FsResult<Option<Bytes>> {
        Ok(match child {
            Child::Node(id) => match &self.node(*id)?.body {
                Body::Symlink(target) => Some(target.clone()),
                _ => None,
            },
            Child::Stored(Entry { node: Stored::Symlink(target), .. }) => Some(target.clone()),
            _ => None,
        })
    }

    /// Returns the attributes of what a name names, without bringing it into memory.
    pub(super) fn child_stat(&mut self, directory: NodeId, child: &Child) -> Step<Stat> {
        match child {
            Child::Node(id) => Ok(self.stat_node(*id)?),
            Child::Linked(number) => {
                if let Some(id) = self.linked(*number) {
                    return Ok(self.stat_node(id)?);
                }
                let file = self.stored_link(*number)?;
                Ok(Stat {
                    kind: Kind::File,
                    size: file.size,
                    modified: file.mtime,
                    links: u64::from(file.names),
                    mode: file.mode,
                    inode: self.linked_inode(*number),
                })
            }
            Child::Stored(entry) => {
                let parent = self.node(directory)?;
                let epoch = parent.directory().map_or(0, |directory| directory.epoch);
                Ok(Stat {
                    kind: stored_kind(&entry.node),
                    size: match &entry.node {
                        Stored::File { size, .. } => *size,
                        Stored::Symlink(target) => target.len() as u64,
                        Stored::Directory(_) | Stored::Linked(_) => 0,
                    },
                    modified: entry.mtime,
                    links: 1,
                    mode: entry.mode,
                    inode: stored_inode(parent.inode, epoch, &entry.name),
                })
            }
        }
    }

    fn linked(&self, number: u64) -> Option<NodeId> {
        self.linked_edits.get(&number).copied().flatten().or_else(|| self.linked_cached.get(&number).copied())
    }

    /// Brings what a name names into memory.
    pub(super) fn load(&mut self, directory: NodeId, child: Child) -> Step<NodeId> {
        match child {
            Child::Node(id) => Ok(id),
            Child::Linked(number) => {
                if let Some(id) = self.linked(number) {
                    return Ok(id);
                }
                let file = self.stored_link(number)?;
                let data = FileData::stored(file.content, file.size, &self.setup.spool);
                let mut node = Node::new(self.linked_inode(number), file.mode, file.mtime, Body::File { data, number: Some(number) });
                node.names = file.names;
                let id = self.add_node(node);
                self.linked_cached.insert(number, id);
                Ok(id)
            }
            Child::Stored(entry) => {
                let parent = self.node(directory)?;
                let epoch = parent.directory().map_or(0, |directory| directory.epoch);
                let inode = stored_inode(parent.inode, epoch, &entry.name);
                let body = match entry.node {
                    Stored::File { size, content } => Body::File { data: FileData::stored(content, size, &self.setup.spool), number: None },
                    Stored::Directory(link) => Body::Directory(Directory { base: Some(link), ..Directory::default() }),
                    Stored::Symlink(target) => Body::Symlink(target),
                    Stored::Linked(_) => return Err(lost().into()),
                };
                let mut node = Node::new(inode, entry.mode, entry.mtime, body);
                node.names = 1;
                node.home = Some(Home { directory, name: entry.name.clone() });
                let id = self.add_node(node);
                self.directory_mut(directory)?.cached.insert(entry.name, id);
                Ok(id)
            }
        }
    }

    // --- changes -----------------------------------------------------------------------------------------------------------------

    /// Notes that an object's entry is no longer the base's, up to the top.
    pub(super) fn mark(&mut self, id: NodeId) -> FsResult<()> {
        self.version += 1;
        let mut id = id;
        loop {
            let node = self.node_mut(id)?;
            if node.edited {
                return Ok(());
            }
            if let Some(number) = node.number() {
                node.edited = node.names > 0;
                if node.edited {
                    self.linked_cached.remove(&number);
                    self.linked_edits.insert(number, Some(id));
                }
                return Ok(());
            }
            let Some(Home { directory, name }) = node.home.clone() else { return Ok(()) };
            node.edited = true;
            self.directory_mut(directory)?.cached.remove(&name);
            self.edit_name(directory, &name, Edit::Node(id))?;
            id = directory;
        }
    }

    /// Notes that a directory's names have changed.
    fn touch(&mut self, directory: NodeId) -> FsResult<()> {
        let now = self.now();
        self.node_mut(directory)?.modified = now;
        self.mark(directory)
    }

    /// Adds a name that wasn't there. What it names has to know its names already.
    pub(super) fn insert_name(&mut self, directory: NodeId, name: &Bytes, edit: Edit) -> FsResult<()> {
        self.edit_name(directory, name, edit)?;
        self.directory_mut(directory)?.grown += 1;
        self.usage.entries += 1;
        self.touch(directory)
    }

    /// Takes a name away. What it named has to learn of it.
    pub(super) fn remove_name(&mut self, directory: NodeId, name: &Bytes, in_base: bool) -> FsResult<()> {
        self.directory_mut(directory)?.cached.remove(name);
        if in_base {
            self.edit_name(directory, name, Edit::Gone)?;
        } else if self.directory_mut(directory)?.edits.remove(name).is_some() {
            self.budget.remove_edit(name);
        }
        self.directory_mut(directory)?.grown -= 1;
        self.usage.entries = self.usage.entries.saturating_sub(1);
        self.touch(directory)
    }

    /// Takes one name off an object; without names it lives on only while it is open.
    pub(super) fn drop_name(&mut self, id: NodeId) -> FsResult<()> {
        let node = self.node_mut(id)?;
        node.names = node.names.saturating_sub(1);
        let (names, open, size, number) = (node.names, node.handles > 0, node.size(), node.number());
        if names > 0 {
            return self.mark(id);
        }
        node.home = None;
        node.edited = false;
        let is_file = node.kind() == Kind::File;
        if let Body::File { number, .. } = &mut node.body {
            *number = None;
        }
        if let Some(number) = number {
            self.linked_cached.remove(&number);
            self.linked_edits.insert(number, None);
        }
        if is_file {
            self.usage.bytes = self.usage.bytes.saturating_sub(size);
        }
        if open {
            self.usage.unlinked += if is_file { size } else { 0 };
        } else {
            self.remove_node(id);
        }
        Ok(())
    }

    // --- handles -----------------------------------------------------------------------------------------------------------------

    /// Counts one more handle on an object.
    pub(super) fn open(&mut self, id: NodeId) -> FsResult<()> {
        self.node_mut(id)?.handles += 1;
        Ok(())
    }

    /// Counts one handle less, and forgets an object that nothing needs any more.
    pub(super) fn close(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.handles = node.handles.saturating_sub(1);
        if node.handles > 0 {
            return;
        }
        if let Body::File { data, .. } = &mut node.body {
            data.rest();
        }
        if node.names == 0 {
            if node.kind() == Kind::File {
                self.usage.unlinked = self.usage.unlinked.saturating_sub(node.size());
            }
            self.remove_node(id);
        } else if node.kind() != Kind::Directory {
            // Directories stay: they are on the way to what is asked for next.
            self.forget(id);
        }
    }

    /// Forgets an object that is neither open nor edited: the base has all there is to know. Returns the directory it was in.
    fn forget(&mut self, id: NodeId) -> Option<NodeId> {
        let node = self.nodes.get(id)?;
        if id == TOP || node.handles > 0 || node.edited || node.names == 0 {
            return None;
        }
        if node.directory().is_some_and(|directory| !directory.edits.is_empty() || !directory.cached.is_empty()) {
            return None;
        }
        if let Some(number) = node.number() {
            self.linked_cached.remove(&number);
            self.remove_node(id);
            return None;
        }
        let home = node.home.clone()?;
        let parent = self.nodes.get_mut(home.directory)?.directory_mut()?;
        if parent.cached.get(&home.name) != Some(&id) {
            return None;
        }
        parent.cached.remove(&home.name);
        self.remove_node(id);
        Some(home.directory)
    }

    /// Forgets all objects that nothing needs, from the leaves up, when there are many. Not for use within an operation.
    pub(super) fn sweep(&mut self) {
        if self.nodes.len() < self.sweep_at {
            return;
        }
        let ids: Vec<_> = self.nodes.ids().collect();
        for id in ids {
            let mut next = Some(id);
            while let Some(id) = next {
                next = self.forget(id);
            }
        }
        // Those that are needed would be looked at again in vain.
        self.sweep_at = self.nodes.len() + NODES_MAX;
    }
}

fn lost() -> FsError {
    FsError::Host(Error::internal("an object of the workspace is missing from memory"))
}

fn dangling(number: u64) -> Error {
    Error::damaged(format!("an entry names linked file {number}, which the link table doesn't have")).code("page_damaged")
}

/// Returns the kind of an entry of the base.
pub(super) fn stored_kind(node: &Stored) -> Kind {
    match node {
        Stored::File { .. } | Stored::Linked(_) => Kind::File,
        Stored::Directory(_) => Kind::Directory,
        Stored::Symlink(_) => Kind::Symlink,
    }
}
