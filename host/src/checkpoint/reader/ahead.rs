//! Reading ahead: frames that will be asked for soon, fetched together before they are.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use tokio::sync::OwnedMutexGuard;

use super::fetch::Flight;
use super::ranges::{Range, coalesce};
use super::{GAP, PREFETCHES, RANGE_MAX, Reader, SMALL_PACK};
use crate::checkpoint::root_codec::check_location;
use crate::checkpoint::writer::joined;
use crate::error::{Error, Result};
use crate::id::PackId;
use crate::workspace::page::{ChunkLink, Location, Place};

impl Reader {
    /// Fetches the frames of these chunks in the background, as far as memory allows.
    pub(super) fn read_ahead(&self, links: &[ChunkLink]) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut wanted = Vec::new();
        // Whoever asks for one of these meanwhile waits for it instead of fetching it too.
        let mut guards: HashMap<(PackId, u32), OwnedMutexGuard<()>> = HashMap::new();
        let mut bytes = 0;
        for link in links {
            let Place::At(at) = &link.place else { continue };
            let key = (at.pack, at.frame);
            if check_location(at).is_err() || guards.contains_key(&key) || self.shared.memory.has(key, at.stored) {
                continue;
            }
            bytes += at.stored as usize;
            if bytes > self.shared.memory.prefetch_max() {
                break;
            }
            let small = at.frame.saturating_add(at.stored) <= SMALL_PACK;
            let flight = if small { Flight::Pages(at.pack) } else { Flight::Frame(at.pack, at.frame) };
            if small && guards.keys().any(|(pack, _)| *pack == at.pack) {
                wanted.push(at.clone());
                continue;
            }
            let Ok(guard) = self.shared.flight(flight).try_lock_owned() else { continue };
            guards.insert(key, guard);
            wanted.push(at.clone());
        }
        if wanted.is_empty() {
            return;
        }
        let reader = self.clone();
        drop(runtime.spawn(async move {
            let _guards = guards;
            if let Ok(_slot) = Arc::clone(&reader.shared.prefetches).acquire_owned().await {
                let places: Vec<_> = wanted.iter().collect();
                // An error comes up again, with its name, when the chunk is asked for.
                if let Err(error) = reader.prefetch_frames(&places).await {
                    tracing::debug!(%error, "reading ahead failed");
                }
            }
        }));
    }

    async fn prefetch_frames(&self, places: &[&Location]) -> Result<()> {
        let ranges = coalesce(places.iter().map(|at| Range::of(at)), GAP, RANGE_MAX);
        let fetches = ranges.into_iter().map(|range| async move {
            let cached = match self.shared.cache.clone() {
                Some(cache) => {
                    let (pack, from, len) = (range.pack, range.from, range.len);
                    joined(tokio::task::spawn_blocking(move || Ok(cache.get(pack, from, len))).await)?
                }
                None => None,
            };
            match cached {
                Some(bytes) => self.shared.memory.put_range(range.pack, range.from, bytes),
                None => {
                    let bytes = self.fetch(&range.home, range.pack, range.from, range.len).await?;
                    self.keep_range(range.pack, range.from, bytes);
                }
            }
            Ok::<_, Error>(())
        });
        futures::stream::iter(fetches).buffer_unordered(PREFETCHES).try_collect().await
    }
}
