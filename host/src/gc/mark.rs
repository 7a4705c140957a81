//! Marking: which packs a set of checkpoints needs, found by walking their pages. Content isn't read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::RootRecord;
use crate::error::{Error, Result};
use crate::id::PackId;
use crate::session::record::{RunRecord, Text};
use crate::store::Store;
use crate::workspace::page::{Home, Location, PageLink, Place, Root};
use crate::workspace::page_codec::{Reference, references};
use crate::workspace::source::Source as _;

/// Pages asked for at once.
const BATCH: usize = 64;
/// Bytes of pages held in memory while marking.
const MEMORY: usize = 16 << 20;

/// Packs and what of them is in use.
#[derive(Debug)]
pub(crate) struct Marker {
    reader: Reader,
    /// Pages that were walked, by where they lie: the same page at another place has other hints.
    seen: HashSet<(PackId, u32)>,
    /// Stored length in bytes of each frame in use.
    frames: HashMap<(Arc<Home>, PackId), HashMap<u32, u32>>,
}

impl Marker {
    /// Reads from the store alone: no cache of this machine decides what is deleted.
    pub(crate) fn new(store: &Store) -> Self {
        Self { reader: Reader::new(store.clone(), None, MEMORY), seen: HashSet::new(), frames: HashMap::new() }
    }

    /// Marks all that a checkpoint needs.
    ///
    /// # Errors
    /// As [`crate::workspace::source::Source::page`]: then the marks aren't whole, and nothing may be concluded from them.
    pub(crate) async fn checkpoint(&mut self, record: &RootRecord) -> Result<()> {
        for root in [Some(&record.workspace), Some(&record.state), record.git.as_ref()].into_iter().flatten() {
            self.root(root).await?;
        }
        Ok(())
    }

    /// Marks all that a root needs.
    ///
    /// # Errors
    /// As [`Marker::checkpoint`].
    pub(crate) async fn root(&mut self, root: &Root) -> Result<()> {
        let mut waiting: Vec<PageLink> = std::iter::once(&root.page).chain(&root.links).cloned().collect();
        while !waiting.is_empty() {
            let mut batch = waiting.split_off(waiting.len().saturating_sub(BATCH));
            let mut fresh = Vec::with_capacity(batch.len());
            for link in batch.drain(..) {
                let at = placed(&link.place)?.clone();
                self.used(&at);
                if self.seen.insert((at.pack, at.frame)) {
                    fresh.push(link);
                }
            }
            for page in self.reader.pages(&fresh).await? {
                let mut bad = None;
                references(&page, &mut |reference| match reference {
                    Reference::Page(link) => waiting.push(link.clone()),
                    Reference::Chunk(link, _) => match placed(&link.place) {
                        Ok(at) => self.used(at),
                        Err(error) => bad = Some(error),
                    },
                });
                if let Some(error) = bad {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Marks what a record itself refers to: long outputs and logs.
    pub(crate) fn texts(&mut self, record: &RunRecord) {
        for text in [&record.output, &record.log, &record.events] {
            if let Some(Text::Stored(stored)) = text {
                self.used(&stored.at);
            }
        }
    }

    fn used(&mut self, at: &Location) {
        self.frames.entry((Arc::clone(&at.home), at.pack)).or_default().insert(at.frame, at.stored);
    }

    /// Whether anything in a pack of this home is in use.
    pub(crate) fn is_used(&self, home: &Arc<Home>, pack: PackId) -> bool {
        self.frames.contains_key(&(Arc::clone(home), pack))
    }

    /// Returns the packs in use, with the sum of the stored lengths of what is used in each.
    pub(crate) fn packs(&self) -> impl Iterator<Item = (&Home, PackId, u64)> {
        self.frames.iter().map(|((home, pack), frames)| (&**home, *pack, frames.values().map(|stored| u64::from(*stored)).sum()))
    }
}

fn placed(place: &Place) -> Result<&Location> {
    match place {
        Place::At(at) => Ok(at),
        Place::Fresh => Err(Error::damaged("a stored page names something that has no place").code("hint_damaged")),
    }
}
