//! The store: the only thing that replicas share. Objects have a [`Key`]; the mutable ones are documents, written by compare-and-swap.
//!
//! One code path serves every kind of store. Packs and other immutable objects go through [`Store::put_pack`] and [`Store::put_immutable`],
//! mutable ones through `load`, `create` and `replace` in [`cas`].

pub mod cache;
pub mod cas;
pub mod counters;
pub mod document;
pub mod keys;
pub mod probe;

mod backend;
mod failure;
mod file;
pub(crate) mod marker;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};

pub use self::backend::{Options, is_option};
pub use self::cas::Mark;
pub use self::counters::Counts;
pub use self::keys::{BootNonce, Key, Nonce, Prefix, SessionHash};
pub use self::probe::Abilities;
use crate::clock::{SharedClock, UnixNanos};
use crate::drill::{self, Point};
use crate::error::{Error, Result};
pub use crate::id::PACK_MAX;
use crate::id::PackId;
use crate::random::SharedRandom;

/// A store. Clones share the connection and the counters.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    counters: counters::Counters,
}

struct Inner {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    scheme: backend::Scheme,
    name: String,
    clock: SharedClock,
    random: SharedRandom,
    abilities: probe::Cell,
    /// Makes the same connection again with a fault in it, for the self-test.
    url_and_options: Option<(String, Options)>,
}

impl fmt::Debug for Store {
    // The options hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.inner.name)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.name)
    }
}

/// An object that was read whole.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its bytes.
    pub bytes: Bytes,
    /// When it was written, by the store's own clock.
    pub modified: UnixNanos,
}

/// An object as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the store's own clock.
    pub modified: UnixNanos,
    /// Differs when the object was written again.
    pub mark: Mark,
}

/// What a listing found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The objects in the order of their keys.
    pub objects: Vec<Listed>,
    /// Paths below the store's prefix that aren't keys of this program. They are never deleted.
    pub foreign: Vec<String>,
}

impl Store {
    /// Opens the store at `url` and makes it one when nothing is there yet: `file:///folder`, `memory:`, `s3://bucket/prefix`, `gs://...`, `az://...`.
    ///
    /// Two objects are read: the marker, which is created in a new store, and the remembered result of [`Store::probe`], which is run when there is none.
    ///
    /// # Errors
    /// `Config` (`store_url`, `store_options`); `Store`: `not_a_store` when something else is there, `bucket_missing`, `store_denied`,
    /// `store_unreachable`, `store_full`, `store_read_only`; `TooNew` when a newer version made it.
    pub async fn open(url: &str, options: &Options, clock: SharedClock, random: SharedRandom) -> Result<Self> {
        let store = Self::connect(url, options, clock, random)?;
        store.mark().await?;
        store.probe_or_remember().await?;
        Ok(store)
    }

    /// Opens the store at `url`, which must be there.
    ///
    /// # Errors
    /// As [`Store::open`], and `NotFound` with the code `store_missing`.
    pub async fn open_existing(url: &str, options: &Options, clock: SharedClock, random: SharedRandom) -> Result<Self> {
        let store = Self::connect(url, options, clock, random)?;
        if !store.is_marked().await? {
            return Err(Error::not_found(format!("there is no store at {store}"))
                .code("store_missing")
                .hint("`landfall run` makes one; or correct `[store] url` or --store"));
        }
        store.remember().await?;
        Ok(store)
    }

    fn connect(url: &str, options: &Options, clock: SharedClock, random: SharedRandom) -> Result<Self> {
        let opened = backend::open(url, options, &random)?;
        let abilities = match opened.scheme {
            // Nothing lies between this process and the bytes, and both are exercised by the conformance suite.
            backend::Scheme::File | backend::Scheme::Memory => Abilities::ALL,
            _ => Abilities::UNKNOWN,
        };
        Ok(Self::assemble(opened, Some((url.to_owned(), options.clone())), abilities, clock, random))
    }

    /// Makes an empty store in memory. Clones and [`Store::as_replica`] share its objects.
    #[must_use]
    pub fn memory(clock: SharedClock, random: SharedRandom) -> Self {
        Self::with_backend(Arc::new(object_store::memory::InMemory::new()), "", Abilities::ALL, clock, random)
    }

    /// Makes a store of any `object_store`, with what it is known to be able to do. `prefix` is empty or segments joined by `/`.
    #[must_use]
    pub fn with_backend(
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
        abilities: Abilities,
        clock: SharedClock,
        random: SharedRandom,
    ) -> Self {
        let name = objects.to_string();
        let opened = backend::Opened { objects, prefix: prefix.to_owned(), scheme: backend::Scheme::Memory, name };
        Self::assemble(opened, None, abilities, clock, random)
    }

    fn assemble(
        opened: backend::Opened,
        url_and_options: Option<(String, Options)>,
        abilities: Abilities,
        clock: SharedClock,
        random: SharedRandom,
    ) -> Self {
        let backend::Opened { objects, prefix, scheme, name } = opened;
        let inner = Inner { objects, prefix, scheme, name, clock, random, abilities: probe::Cell::new(abilities), url_and_options };
        Self { inner: Arc::new(inner), counters: counters::Counters::default() }
    }

    /// Returns another handle on the same objects with its own clock, randomness and counters, as another replica has it.
    #[must_use]
    pub fn as_replica(&self, clock: SharedClock, random: SharedRandom) -> Self {
        let Inner { objects, prefix, scheme, name, .. } = &*self.inner;
        let opened = backend::Opened { objects: Arc::clone(objects), prefix: prefix.clone(), scheme: *scheme, name: name.clone() };
        Self::assemble(opened, self.inner.url_and_options.clone(), self.abilities(), clock, random)
    }

    /// Returns another handle whose counters start at zero and count into this one's too.
    #[must_use]
    pub fn metered(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), counters: self.counters.below() }
    }

    /// Returns the requests made through this handle and those below it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// Returns the clock that this handle was given.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Returns the randomness that this handle was given.
    #[must_use]
    pub fn random(&self) -> &SharedRandom {
        &self.inner.random
    }

    /// Whether the store lives in this process only.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.inner.scheme == backend::Scheme::Memory
    }

    /// Returns what the store is known to enforce.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        self.inner.abilities.get()
    }

    /// Reads a whole object of at most `max` bytes.
    ///
    /// # Errors
    /// `NotFound` with the code `object_missing`; `Damaged` when it is larger or its bytes end early (`object_truncated`); `Store`.
    /// An input (`Key::Input`) is also checked against the digest in its key.
    pub async fn get(&self, key: &Key, max: u64) -> Result<Object> {
        match self.get_if_present(key, max).await? {
            Some(object) => Ok(object),
            None => Err(missing(key, &self.inner.name)),
        }
    }

    /// As [`Store::get`], with none for an object that isn't there.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_if_present(&self, key: &Key, max: u64) -> Result<Option<Object>> {
        let Some((result, bytes)) = self.fetch(key, max).await? else { return Ok(None) };
        if let Key::Input(_, digest) = key
            && crate::id::sha256(&bytes) != *digest
        {
            return Err(Error::damaged(format!("{key} is damaged: its bytes don't match its name")).code("input_damaged").hint(RESTORE));
        }
        Ok(Some(Object { bytes, modified: unix_nanos(&result) }))
    }

    async fn fetch(&self, key: &Key, max: u64) -> Result<Option<(object_store::ObjectMeta, Bytes)>> {
        self.counters.get();
        let result = match self.inner.objects.get_opts(&self.path(key)?, GetOptions::default()).await {
            Ok(result) => result,
            Err(error) if failure::classify(&error) == failure::Failure::Missing => return Ok(None),
            Err(error) => return Err(self.explain("reading", key, error)),
        };
        let meta = result.meta.clone();
        if meta.size > max {
            return Err(Error::damaged(format!("{key} has {} bytes, over the limit of {max}", meta.size))
                .code("object_too_large")
                .hint(RESTORE));
        }
        let bytes = self.collect(key, result, meta.size).await?;
        Ok(Some((meta, bytes)))
    }

    /// Reads a range of an object's bytes, not empty.
    ///
    /// # Errors
    /// `NotFound` with the code `object_missing`; `Damaged` with the code `object_truncated` when the object ends before the range does; `Store`.
    pub async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Bytes> {
        if range.start >= range.end {
            return Err(Error::internal(format!("an empty range of {key} was asked for")));
        }
        self.counters.get();
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let result = match self.inner.objects.get_opts(&self.path(key)?, options).await {
            Ok(result) => result,
            Err(error) => {
                let error = self.explain("reading a range of", key, error);
                // A range that starts behind the end is an error of its own in each store (416, a range error): the size tells.
                return match self.size(key).await {
                    Ok(None) => Err(missing(key, &self.inner.name)),
                    Ok(Some(size)) if size < range.end => Err(truncated(key, size, range.end)),
                    _ => Err(error),
                };
            }
        };
        if result.range != range {
            return Err(truncated(key, result.range.end, range.end));
        }
        let len = range.end - range.start;
        self.collect(key, result, len).await
    }

    /// Reads a body, which must have exactly `len` bytes.
    async fn collect(&self, key: &Key, result: object_store::GetResult, len: u64) -> Result<Bytes> {
        let mut stream = result.into_stream();
        let mut whole = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(part) = stream.try_next().await.map_err(|error| self.explain("reading", key, error))? {
            // One part, the usual case of small objects, is passed on without a copy.
            match (first.take(), whole.is_empty()) {
                (None, true) => first = Some(part),
                (Some(before), _) => {
                    whole.extend_from_slice(&before);
                    whole.extend_from_slice(&part);
                }
                (None, false) => whole.extend_from_slice(&part),
            }
            if (first.as_ref().map_or(whole.len(), Bytes::len) as u64) > len {
                break;
            }
        }
        let bytes = first.unwrap_or_else(|| whole.freeze());
        self.counters.got(bytes.len() as u64);
        if bytes.len() as u64 != len {
            return Err(truncated(key, bytes.len() as u64, len));
        }
        Ok(bytes)
    }

    /// Returns an object's length in bytes, none when it isn't there.
    ///
    /// # Errors
    /// `Store`.
    pub async fn size(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.stat(key).await?.map(|listed| listed.size))
    }

    /// Returns an object's length and date, none when it isn't there.
    ///
    /// # Errors
    /// `Store`.
    pub async fn stat(&self, key: &Key) -> Result<Option<Listed>> {
        self.counters.head();
        match self.inner.objects.head(&self.path(key)?).await {
            Ok(meta) => Ok(Some(Listed { key: key.clone(), size: meta.size, modified: unix_nanos(&meta), mark: Mark::of(&meta) })),
            Err(error) if failure::classify(&error) == failure::Failure::Missing => Ok(None),
            Err(error) => Err(self.explain("looking for", key, error)),
        }
    }

    /// Stores an object whose key is the SHA-256 of its bytes: a pack of at most [`PACK_MAX`] bytes, or an input. Repeating it is harmless.
    ///
    /// When this returns, the store has these bytes: the name is checked before they are sent, the server checks them on arrival, and where it is
    /// known not to do that, or isn't known to, the object is read back.
    ///
    /// # Errors
    /// `Internal` when the key isn't the bytes' digest; `Limit` above [`PACK_MAX`]; `Store`; `Damaged` (`upload_damaged`) when other bytes arrived.
    pub async fn put_pack(&self, key: &Key, bytes: Bytes) -> Result<()> {
        let named = match key {
            Key::SessionPack(_, id) | Key::RepositoryPack(_, id) => PackId::of(&bytes) == *id,
            Key::Input(_, digest) => crate::id::sha256(&bytes) == *digest,
            _ => false,
        };
        if !named {
            return Err(Error::internal(format!("{key} isn't named by the SHA-256 of the bytes that it was to get")));
        }
        self.put_immutable(key, bytes).await
    }

    /// Stores an object that is never changed, only written again with the same meaning (an import's touch). Verified as [`Store::put_pack`].
    ///
    /// # Errors
    /// As [`Store::put_pack`].
    pub async fn put_immutable(&self, key: &Key, bytes: Bytes) -> Result<()> {
        if bytes.len() > PACK_MAX {
            return Err(Error::limit(format!("{key} has {} bytes, over the limit of {PACK_MAX}", bytes.len())).code("object_too_large"));
        }
        self.counters.put(bytes.len() as u64);
        let path = self.path(key)?;
        // Not `put`: that is the same, but says less about what it relies on. Overwriting is idempotent, so the client may repeat it.
        let options = PutOptions { mode: PutMode::Overwrite, ..PutOptions::default() };
        let points = match key {
            Key::RepositoryPack(..) => Some((Point::ImportUploadBefore, Point::ImportUploadAfter)),
            Key::SessionPack(..) | Key::Input(..) => Some((Point::UploadBefore, Point::UploadAfter)),
            // What a scheduler asks the store's time with is no part of a turn.
            _ => None,
        };
        if let Some((before, _)) = points {
            drill::pass(before);
        }
        self.inner.objects.put_opts(&path, bytes.clone().into(), options).await.map_err(|error| self.explain("writing", key, error))?;
        if let Some((_, after)) = points {
            drill::pass(after);
        }
        if !self.abilities().checks_uploads {
            let stored = self.get(key, PACK_MAX as u64).await?;
            if stored.bytes != bytes {
                return Err(Error::damaged(format!("{key} was damaged on its way to the store"))
                    .code("upload_damaged")
                    .hint("repeat it; if that goes on, check the network and the machine's memory"));
            }
        }
        Ok(())
    }

    /// Deletes an object. It is no error when it isn't there.
    ///
    /// # Errors
    /// `Store`.
    pub async fn delete(&self, key: &Key) -> Result<()> {
        self.counters.delete();
        match self.inner.objects.delete(&self.path(key)?).await {
            Ok(()) => Ok(()),
            Err(error) if failure::classify(&error) == failure::Failure::Missing => Ok(()),
            Err(error) => Err(self.explain("deleting", key, error)),
        }
    }

    /// Lists what lies below a prefix. Keys come in byte order.
    ///
    /// # Errors
    /// `Store`.
    pub async fn list(&self, prefix: &Prefix) -> Result<Listing> {
        self.counters.list();
        let path = keys::object_path(&self.inner.prefix, &prefix.to_string())?;
        let mut stream = self.inner.objects.list(Some(&path)).boxed();
        let mut listing = Listing::default();
        while let Some(meta) = stream.try_next().await.map_err(|error| self.explain("listing", prefix, error))? {
            let below = self.below_prefix(meta.location.as_ref());
            match below.parse() {
                Ok(key) => listing.objects.push(Listed { key, size: meta.size, modified: unix_nanos(&meta), mark: Mark::of(&meta) }),
                Err(_) => listing.foreign.push(below.to_owned()),
            }
        }
        listing.objects.sort_by_cached_key(|listed| listed.key.to_string());
        Ok(listing)
    }

    /// Lists the names one level below a prefix that stand for folders: agents below [`Prefix::Sessions`], sessions below [`Prefix::Agent`].
    ///
    /// # Errors
    /// `Store`.
    pub async fn list_folders(&self, prefix: &Prefix) -> Result<Vec<String>> {
        self.counters.list();
        let path = keys::object_path(&self.inner.prefix, &prefix.to_string())?;
        let result = self.inner.objects.list_with_delimiter(Some(&path)).await.map_err(|error| self.explain("listing", prefix, error))?;
        Ok(result.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect())
    }

    /// The folder of a file store.
    fn folder(&self) -> Option<std::path::PathBuf> {
        match (self.inner.scheme, &self.inner.url_and_options) {
            (backend::Scheme::File, Some((url, _))) => backend::folder(url).ok(),
            _ => None,
        }
    }

    fn below_prefix<'a>(&self, path: &'a str) -> &'a str {
        let prefix = &*self.inner.prefix;
        if prefix.is_empty() { path } else { path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path) }
    }

    fn path(&self, key: &Key) -> Result<object_store::path::Path> {
        keys::object_path(&self.inner.prefix, &key.to_string())
    }

    fn explain(&self, doing: &str, what: &impl fmt::Display, error: object_store::Error) -> Error {
        failure::explain(&self.inner.name, &format!("{doing} {what}"), error)
    }
}

/// What a reader of a damaged object does next.
pub(crate) const RESTORE: &str = "restore this object from a copy of the store (a versioned bucket keeps earlier versions)";

fn missing(key: &Key, store: &str) -> Error {
    Error::not_found(format!("{key} isn't in {store}")).code("object_missing")
}

fn truncated(key: &Key, size: u64, expected: u64) -> Error {
    Error::damaged(format!("{key} ends after {size} bytes, before {expected}")).code("object_truncated").hint(RESTORE)
}

/// Turns a store's date into nanoseconds since 1970. Dates that don't fit (before 1677, after 2262) become the nearest end.
fn unix_nanos(meta: &object_store::ObjectMeta) -> UnixNanos {
    let date = meta.last_modified;
    date.timestamp_nanos_opt().unwrap_or(if date.timestamp() < 0 { UnixNanos::MIN } else { UnixNanos::MAX })
}
