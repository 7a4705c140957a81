//! The packs of a checkpoint: whether they are there, and in a deep verification every byte of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};

use super::{Depth, Found, Object, Owner, Wanted};
use crate::checkpoint::frame;
use crate::checkpoint::pack::{self, PACK_MAX};
use crate::checkpoint::root_codec::check_location;
use crate::error::{Error, Result};
use crate::id::{ChunkId, PackId};
use crate::store::Store;
use crate::workspace::page::{Home, Location};

/// Packs in memory at a time.
const PACKS_AT_ONCE: usize = 3;
/// Requests for lengths at a time.
const LENGTHS_AT_ONCE: usize = 16;

/// What is wrong with an object of a pack.
struct Fault {
    object: Object,
    at: Location,
    error: Error,
    owners: Vec<Owner>,
}

/// What checking a pack gave.
#[derive(Default)]
struct Checked {
    bytes: u64,
    chunks: u64,
    faults: Vec<Fault>,
}

/// Checks the packs that were noted.
pub(super) async fn check_packs(store: &Store, depth: Depth, found: &mut Found) -> Result<()> {
    let packs: Vec<_> = found.packs.iter_mut().map(|(pack, wanted)| (pack.clone(), std::mem::take(wanted))).collect();
    let at_once = if depth == Depth::Deep { PACKS_AT_ONCE } else { LENGTHS_AT_ONCE };
    let mut checks = futures::stream::iter(packs)
        .map(|((home, id), wanted)| async move {
            match depth {
                Depth::Shallow => check_length(store, home, id, &wanted).await,
                Depth::Deep => check_whole(store, home, id, wanted).await,
            }
        })
        .buffer_unordered(at_once);
    while let Some(checked) = checks.try_next().await? {
        found.report.pack_bytes += checked.bytes;
        found.report.chunks += checked.chunks;
        for fault in checked.faults {
            let mut error = Some(fault.error);
            let mut owners = fault.owners.into_iter();
            // The first note keeps the error; the others only add whom it touches.
            loop {
                let owner = owners.next();
                let error = match error.take() {
                    Some(error) => error,
                    None if owner.is_some() => Error::damaged("as before"),
                    None => break,
                };
                found.damage(fault.object.clone(), Some(&fault.at), error, owner)?;
            }
        }
    }
    Ok(())
}

fn missing(id: PackId, key: &str) -> Error {
    Error::damaged(format!("pack {id} is missing ({key})"))
        .code("pack_missing")
        .hint("restore this object from a copy of the store, or go back to a checkpoint that doesn't need it")
}

fn of_all(home: &Arc<Home>, id: PackId, wanted: &[Wanted], error: Error) -> Fault {
    let mut owners: Vec<_> = wanted.iter().map(|wanted| wanted.owner).collect();
    owners.dedup();
    let at = Location { home: Arc::clone(home), pack: id, frame: 0, stored: 0, start: 0, len: 0 };
    Fault { object: Object::Pack(Arc::clone(home), id), at, error, owners }
}

async fn check_length(store: &Store, home: Arc<Home>, id: PackId, wanted: &[Wanted]) -> Result<Checked> {
    let key = pack::key(&home, id);
    let end = wanted.iter().map(|wanted| u64::from(wanted.frame) + u64::from(wanted.stored)).max().unwrap_or(0);
    let (bytes, faults) = match store.size(&key).await? {
        None => (0, vec![of_all(&home, id, wanted, missing(id, &key.to_string()))]),
        Some(size) if size < end => {
            let error = Error::damaged(format!("pack {id} has {size} bytes, and what is in it ends at {end}")).code("pack_damaged");
            (size, vec![of_all(&home, id, wanted, error)])
        }
        Some(size) => (size, Vec::new()),
    };
    Ok(Checked { bytes, chunks: 0, faults })
}

async fn check_whole(store: &Store, home: Arc<Home>, id: PackId, wanted: Vec<Wanted>) -> Result<Checked> {
    let key = pack::key(&home, id);
    match store.get_if_present(&key, PACK_MAX as u64).await {
        Ok(Some(object)) => tokio::task::spawn_blocking(move || check_bytes(&home, id, &object.bytes, wanted))
            .await
            .map_err(|error| Error::internal("a pack could not be checked").source(error)),
        Ok(None) => Ok(Checked { faults: vec![of_all(&home, id, &wanted, missing(id, &key.to_string()))], ..Checked::default() }),
        Err(error) if error.kind() == crate::error::ErrorKind::Damaged => {
            let error = error.context(format!("pack {id} can't be read whole")).code("pack_damaged");
            Ok(Checked { faults: vec![of_all(&home, id, &wanted, error)], ..Checked::default() })
        }
        Err(error) => Err(error.context(format!("reading pack {id}"))),
    }
}

/// Compares a pack with its name, and each chunk that is used with its id.
fn check_bytes(home: &Arc<Home>, id: PackId, bytes: &Bytes, mut wanted: Vec<Wanted>) -> Checked {
    wanted.sort_unstable();
    let mut checked = Checked { bytes: bytes.len() as u64, ..Checked::default() };
    let mut open: Option<((u32, u32), Result<Bytes, String>)> = None;
    let mut bad: BTreeMap<(ChunkId, u32), Fault> = BTreeMap::new();
    let mut last: Option<(Wanted, bool)> = None;
    for wanted in &wanted {
        let Some(chunk) = wanted.chunk else { continue };
        let at =
            Location { home: Arc::clone(home), pack: id, frame: wanted.frame, stored: wanted.stored, start: wanted.start, len: wanted.len };
        // Several files may hold the same chunk: it is checked once.
        let same = last.filter(|(before, _)| Wanted { owner: wanted.owner, ..*before } == *wanted);
        if let Some((_, right)) = same {
            if !right && let Some(fault) = bad.get_mut(&(chunk, wanted.frame)) {
                fault.owners.push(wanted.owner);
            }
            continue;
        }
        if open.as_ref().is_none_or(|(frame, _)| *frame != (wanted.frame, wanted.stored)) {
            open = Some(((wanted.frame, wanted.stored), decode(bytes, &at)));
        }
        let right = match open.as_ref().map(|(_, plain)| plain) {
            Some(Ok(plain)) => match plain.get(wanted.start as usize..wanted.start as usize + wanted.len as usize) {
                Some(found) if ChunkId::of(found) == chunk => Ok(()),
                Some(_) => Err(format!("chunk {chunk} doesn't match its id")),
                None => Err(format!("chunk {chunk} lies beyond the end of its frame")),
            },
            Some(Err(error)) => Err(format!("chunk {chunk} can't be read: {error}")),
            None => Err(format!("chunk {chunk} can't be read")),
        };
        last = Some((*wanted, right.is_ok()));
        match right {
            Ok(()) => checked.chunks += 1,
            Err(error) => {
                let error = Error::damaged(format!("{error} (in pack {id} at byte {})", wanted.frame)).code("chunk_damaged");
                let fault =
                    bad.entry((chunk, wanted.frame)).or_insert_with(|| Fault { object: Object::Chunk(chunk), at, error, owners: vec![] });
                fault.owners.push(wanted.owner);
            }
        }
    }
    checked.faults.extend(bad.into_values());
    if let Err(error) = pack::check(id, bytes) {
        // Which files that touches the objects in it say; where none is, it is bytes that this checkpoint doesn't use.
        let fault = of_all(home, id, &[], error);
        checked.faults.push(fault);
    }
    checked
}

fn decode(bytes: &Bytes, at: &Location) -> Result<Bytes, String> {
    check_location(at).map_err(|error| error.chain())?;
    let (from, to) = (at.frame as usize, at.frame as usize + at.stored as usize);
    if to > bytes.len() {
        return Err("its frame lies beyond the end of the pack".into());
    }
    frame::decode(&bytes.slice(from..to)).map_err(|error| error.chain())
}
