//! The chunks that a view has seen named by pages: content that needn't be stored again.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::id::{ChunkId, PageId};
use crate::workspace::page::{ChunkLink, Link, Location, Page, Place};
use crate::workspace::page_codec::{Reference, references};

/// Most chunks remembered, about 10 MiB of them. What comes later isn't remembered, and is stored again when it is written.
const CHUNKS_MAX: usize = 64 << 10;
/// Most pages remembered as noted.
const PAGES_MAX: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Known(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    pages: HashSet<PageId>,
    chunks: HashMap<ChunkId, Location>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Known")
    }
}

impl Known {
    pub(super) fn note(&self, id: PageId, page: &Page) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.chunks.len() >= CHUNKS_MAX || inner.pages.len() >= PAGES_MAX || !inner.pages.insert(id) {
            return;
        }
        references(page, &mut |reference| {
            if let Reference::Chunk(Link { id, place: Place::At(at) }, _) = reference {
                inner.chunks.entry(*id).or_insert_with(|| at.clone());
            }
        });
    }

    pub(super) fn chunk(&self, id: ChunkId) -> Option<ChunkLink> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.chunks.get(&id).map(|at| Link { id, place: Place::At(at.clone()) })
    }
}
