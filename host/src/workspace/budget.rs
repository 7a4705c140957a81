//! The memory that objects and changed names take. Data of edits moves to the spool's file when it gets much; these can't, so they are
//! counted against a budget that the filesystems of a turn share.

use std::mem::size_of;
use std::sync::Arc;

use bytes::Bytes;

use super::node::{Body, Edit, Node};
use super::spool::Spool;

/// What the maps that hold objects and names cost for each of them, in bytes: measured, rounded up.
const OVERHEAD: u64 = 64;

/// A filesystem's share of the budget. Gives it back when it is dropped.
#[derive(Debug)]
pub(super) struct Budget {
    spool: Arc<Spool>,
    taken: u64,
}

impl Budget {
    pub(super) fn new(spool: Arc<Spool>) -> Self {
        Self { spool, taken: 0 }
    }

    /// Counts an object that came into memory.
    pub(super) fn add_node(&mut self, node: &Node) {
        self.take(of_node(node));
    }

    /// Counts an object that left.
    pub(super) fn remove_node(&mut self, node: &Node) {
        self.give(of_node(node));
    }

    /// Counts a changed name.
    pub(super) fn add_edit(&mut self, name: &Bytes) {
        self.take(of_edit(name));
    }

    /// Counts a name that is as stored again.
    pub(super) fn remove_edit(&mut self, name: &Bytes) {
        self.give(of_edit(name));
    }

    fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        self.spool.take_table(bytes);
    }

    fn give(&mut self, bytes: u64) {
        self.taken -= bytes.min(self.taken);
        self.spool.give_table(bytes);
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.spool.give_table(self.taken);
    }
}

fn of_node(node: &Node) -> u64 {
    let target = match &node.body {
        Body::Symlink(target) => target.len() as u64,
        _ => 0,
    };
    size_of::<Node>() as u64 + OVERHEAD + target
}

fn of_edit(name: &Bytes) -> u64 {
    (size_of::<Bytes>() + size_of::<Edit>()) as u64 + OVERHEAD + name.len() as u64
}
