//! The state of a filesystem behind its lock, and the steps that all operations are made of.
//!
//! Nothing here waits. A step that needs a page which isn't in memory ends with [`Stop::Need`] before it has changed anything; the caller
//! loads the page without the lock and takes the whole operation from its start.

mod edits;
mod handles;
mod names;
mod stored;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

pub(super) use self::names::stored_kind;
use super::budget::Budget;
use super::content::{FileData, Recent, StoredContent};
use super::fault::{FsError, FsResult};
use super::filesystem::Setup;
use super::limits::Usage;
use super::listing::Listings;
use super::node::{Body, Directory, Edit, Node, NodeId, Nodes, TOP, mix};
use super::page::{Entry, PageLink, Root, SplitSlot};
use super::page_cache::PageCache;
use super::stat::Stat;
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
    /// What the base says, never a hard link.
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
}

fn lost() -> FsError {
    FsError::Host(Error::internal("an object of the workspace is missing from memory"))
}
