//! Directory and link table pages that were used lately, so that most steps find theirs without waiting.

use std::sync::Arc;

use lru::LruCache;

use super::page::Page;
use crate::id::PageId;

/// Most bytes of pages kept, as [`cost`] counts them: 32 MiB. The pages are shared with the source's own cache.
const COST_MAX: usize = 32 << 20;
/// Pages that are kept however large they are: more than any one step looks at.
const KEEP_MIN: usize = 256;

/// Pages by their ids. What an id names never changes, so nothing here can be stale.
#[derive(Debug)]
pub(super) struct PageCache {
    pages: LruCache<PageId, Arc<Page>>,
    cost: usize,
}

impl Default for PageCache {
    fn default() -> Self {
        Self { pages: LruCache::unbounded(), cost: 0 }
    }
}

impl PageCache {
    /// Returns a page.
    pub(super) fn get(&mut self, id: &PageId) -> Option<Arc<Page>> {
        self.pages.get(id).cloned()
    }

    /// Keeps a page.
    pub(super) fn put(&mut self, id: PageId, page: Arc<Page>) {
        self.cost += cost(&page);
        if let Some(old) = self.pages.put(id, page) {
            self.cost -= cost(&old);
        }
        while self.cost > COST_MAX && self.pages.len() > KEEP_MIN {
            let Some((_, old)) = self.pages.pop_lru() else { break };
            self.cost -= cost(&old);
        }
    }
}

/// Estimates the bytes a page takes in memory.
fn cost(page: &Page) -> usize {
    256 + match page {
        Page::Directory(entries) => entries.len() * 256,
        Page::LinkTable(files) => files.len() * 256,
        Page::Split(slots) => slots.len() * 160,
        Page::List(parts) => parts.len() * 128,
        Page::ListSplit(parts) | Page::LinkTableSplit(parts) => parts.len() * 128,
    }
}
