//! Objects in memory: those that are open, edited, or on the way to one that is.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::content::FileData;
use super::page::PageLink;
use super::stat::Kind;
use crate::clock::UnixNanos;

/// An object's place in [`Nodes`]. Used again once the object is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct NodeId(u32);

/// The top directory of every filesystem.
pub(super) const TOP: NodeId = NodeId(0);

/// An object.
#[derive(Debug)]
pub(super) struct Node {
    /// Tells objects apart for guests.
    pub(super) inode: u64,
    /// Permission bits.
    pub(super) mode: u16,
    /// Time of the last modification.
    pub(super) modified: UnixNanos,
    /// How many handles are open on it.
    pub(super) handles: u32,
    /// How many names it has. The top directory has one.
    pub(super) names: u32,
    /// Its one name. None for the top directory, for a removed object, and for a file that has or had several names since the base.
    pub(super) home: Option<Home>,
    /// Whether it is among the edits of its home (or, with a number, of the link table), so that a further change needs no note.
    pub(super) edited: bool,
    /// What it is.
    pub(super) body: Body,
}

/// A name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Home {
    /// The directory.
    pub(super) directory: NodeId,
    /// The name in it.
    pub(super) name: Bytes,
}

/// What an object is.
#[derive(Debug)]
pub(super) enum Body {
    /// A file.
    File {
        /// Its content.
        data: FileData,
        /// Its number in the base's link table, when it is there.
        number: Option<u64>,
    },
    /// A directory.
    Directory(Directory),
    /// A symbolic link and its target.
    Symlink(Bytes),
}

/// A directory: a page, and what is different from it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The stored directory; none for one made in this turn.
    pub(super) base: Option<PageLink>,
    /// Names whose entry differs from the base's.
    pub(super) edits: BTreeMap<Bytes, Edit>,
    /// Objects in memory whose entry is the base's.
    pub(super) cached: HashMap<Bytes, NodeId>,
    /// Entries more (or fewer) than in the base.
    pub(super) grown: i64,
    /// How often the base was replaced; part of the inodes of what it names.
    pub(super) epoch: u64,
}

/// What a name has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Edit {
    /// Removed.
    Gone,
    /// This object's.
    Node(NodeId),
    /// A name of this file of the base's link table.
    Linked(u64),
}

impl Node {
    /// Makes an object without names and handles.
    pub(super) fn new(inode: u64, mode: u16, modified: UnixNanos, body: Body) -> Self {
        Self { inode, mode, modified, handles: 0, names: 0, home: None, edited: false, body }
    }

    /// Returns its kind.
    pub(super) fn kind(&self) -> Kind {
        match self.body {
            Body::File { .. } => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
        }
    }

    /// Returns its length as `stat` shows it.
    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::File { data, .. } => data.size(),
            Body::Directory(_) => 0,
            Body::Symlink(target) => target.len() as u64,
        }
    }

    /// Returns it as a directory.
    pub(super) fn directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// Returns it as a directory.
    pub(super) fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// Returns a file's number in the base's link table.
    pub(super) fn number(&self) -> Option<u64> {
        match self.body {
            Body::File { number, .. } => number,
            _ => None,
        }
    }
}

/// The objects in memory of one filesystem.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
}

impl Nodes {
    /// Begins with the top directory.
    pub(super) fn new(mut top: Node) -> Self {
        top.names = 1;
        Self { nodes: vec![Some(top)], free: Vec::new() }
    }

    /// Adds an object.
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id.0 as usize] = Some(node);
            return id;
        }
        // Each object takes more than a byte, so 2^32 of them don't fit into any quota.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(Some(node));
        id
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<Node> {
        let node = self.nodes.get_mut(id.0 as usize)?.take();
        if node.is_some() {
            self.free.push(id);
        }
        node
    }

    /// Returns an object.
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    /// Returns an object.
    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }

    /// Returns how many objects there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the ids of all objects.
    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().zip(0..).filter(|(node, _)| node.is_some()).map(|(_, id)| NodeId(id))
    }
}

/// Mixes numbers into one that looks random (the finaliser of splitmix64, Steele et al. 2014).
pub(super) fn mix(parts: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in parts {
        state = state.wrapping_add(*part).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}

/// Returns the inode of what `name` names in the stored directory with this inode and epoch.
pub(super) fn stored_inode(directory: u64, epoch: u64, name: &[u8]) -> u64 {
    // FNV-1a (Fowler, Noll, Vo): fast for short names, and `mix` spreads it.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    mix(&[directory, epoch, hash])
}
