//! Compare-and-swap on documents, and how an unknown outcome is settled.
//!
//! A conditional write may land although its answer says otherwise: the answer is lost, or the client library repeats the request after a server
//! error and meets its own first try (412, 409). So an answer other than success is never believed: the object is read, and the write has
//! landed if the object's nonces hold the write's own. If they don't, and the object still is the version that was to be replaced, the same
//! bytes are sent again under the same condition, which is safe even when the first try lands late. Nothing is ever deleted on the way.
//!
//! Nothing outside this file looks at ETags.

use std::time::Duration;

use bytes::Bytes;
use object_store::{ObjectStore as _, PutMode, PutOptions, UpdateVersion};

use super::document::{self, DOCUMENT_MAX, Document, Encoded};
use super::failure::{self, Failure};
use super::{Key, Nonce, Store, unix_nanos};
use crate::clock::UnixNanos;
use crate::drill::{self, Safeguard};
use crate::error::{Error, Result};
use crate::id::Digest;

/// How often a write is sent, and an object read, before the outcome is given up as unknown.
const TRIES: u32 = 4;

/// A version of a document: what a [`Store::replace`] compares with.
#[derive(Clone, Debug)]
pub struct Version {
    update: UpdateVersion,
    nonces: Vec<Nonce>,
    digest: Digest,
}

impl Version {
    /// Returns the SHA-256 of the object's bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The backend's own version, for the self-test.
    pub(super) fn update(&self) -> &UpdateVersion {
        &self.update
    }
}

/// What a listing shows of an object's version: it differs when the object was written again. Only good for noticing that; what is to be replaced
/// has to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    e_tag: Option<String>,
    size: u64,
    modified: UnixNanos,
}

impl Mark {
    pub(super) fn of(meta: &object_store::ObjectMeta) -> Self {
        Self { e_tag: meta.e_tag.clone(), size: meta.size, modified: unix_nanos(meta) }
    }
}

/// A document as it was read.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// Its content.
    pub value: T,
    /// Its version.
    pub version: Version,
    /// When it was written, by the store's own clock.
    pub modified: UnixNanos,
}

/// The outcome of a [`Store::create`].
#[derive(Debug)]
pub enum Created<T> {
    /// It was written. When others have replaced it since, the version is an old one and a next replace is refused.
    Done(Version),
    /// Something was there before: this.
    Exists(Box<Loaded<T>>),
}

/// The outcome of a [`Store::replace`].
#[derive(Debug)]
pub enum Replaced<T> {
    /// It was replaced. When others have replaced it again since, the version is an old one and a next replace is refused.
    Done(Version),
    /// It wasn't the expected version: this is there.
    Refused(Box<Loaded<T>>),
    /// It isn't there any more.
    Gone,
}

/// A version that no object ever has: an ETag that no server gives, and the generation of an object before its first.
fn superseded() -> UpdateVersion {
    UpdateVersion { e_tag: Some("\"superseded\"".to_owned()), version: Some("1".to_owned()) }
}

/// What one try of a write showed.
enum Try {
    Landed(Version),
    Unknown(Failure, Error),
}

impl Store {
    /// Reads a document, none when there is none.
    ///
    /// # Errors
    /// `Damaged` when its bytes aren't what was written; `TooNew`; `Store`.
    pub async fn load<T: Document>(&self, key: &Key) -> Result<Option<Loaded<T>>> {
        let Some((meta, bytes)) = self.fetch(key, DOCUMENT_MAX as u64).await? else { return Ok(None) };
        let decoded = document::decode(&key.to_string(), &bytes)?;
        let update = UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() };
        let version = Version { update, nonces: decoded.nonces, digest: crate::id::sha256(&bytes) };
        Ok(Some(Loaded { value: decoded.value, version, modified: unix_nanos(&meta) }))
    }

    /// Writes a document where none is.
    ///
    /// # Errors
    /// `Store` with the code `outcome_unknown` when it can't be told whether it was written; other `Store` errors when it wasn't; `Limit`; errors
    /// of [`Store::load`] when what is there can't be read.
    pub async fn create<T: Document>(&self, key: &Key, value: &T) -> Result<Created<T>> {
        let nonces = [self.fresh_nonce()];
        let encoded = document::encode(value, &nonces)?;
        let mut last = None;
        for attempt in 0..TRIES {
            self.pause(attempt).await;
            let (failure, error) = match self.send(key, &encoded, &nonces, PutMode::Create).await {
                Ok(Try::Landed(version)) => return Ok(Created::Done(version)),
                Ok(Try::Unknown(failure, error)) => (failure, error),
                // An earlier try may still be on its way, whatever this one met.
                Err(error) if last.is_some() => return Err(unknown(key, error)),
                Err(error) => return Err(error),
            };
            if drill::disabled(Safeguard::UnknownOutcomes) {
                return Err(error);
            }
            match self.look::<T>(key).await {
                Ok(Some(found)) if found.version.digest == encoded.digest => return Ok(Created::Done(found.version)),
                Ok(Some(found)) if found.version.nonces.contains(&nonces[0]) => {
                    // It landed and was built upon. What is there isn't what the caller wrote, so neither may its version be: the next
                    // replace would go over what others wrote.
                    return Ok(Created::Done(Version { update: superseded(), nonces: nonces.to_vec(), digest: encoded.digest }));
                }
                Ok(Some(found)) => return Ok(Created::Exists(Box::new(found))),
                Ok(None) => last = Some((failure, error)),
                // What is there isn't a document of this kind: so it isn't ours either.
                Err(found) if found.kind() != crate::ErrorKind::Store => return Err(found),
                Err(found) => return Err(unknown(key, error.source(found))),
            }
        }
        Err(given_up(key, last))
    }

    /// Replaces a document if it still is the expected version.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub async fn replace<T: Document>(&self, key: &Key, expected: &Version, value: &T) -> Result<Replaced<T>> {
        let mut nonces = vec![self.fresh_nonce()];
        nonces.extend(expected.nonces.iter().take(document::NONCES_KEPT - 1));
        let encoded = document::encode(value, &nonces)?;
        let mut last = None;
        for attempt in 0..TRIES {
            self.pause(attempt).await;
            let condition =
                if drill::disabled(Safeguard::CompareAndSwap) { PutMode::Overwrite } else { PutMode::Update(expected.update.clone()) };
            let (failure, error) = match self.send(key, &encoded, &nonces, condition).await {
                Ok(Try::Landed(version)) => return Ok(Replaced::Done(version)),
                Ok(Try::Unknown(failure, error)) => (failure, error),
                Err(error) if last.is_some() => return Err(unknown(key, error)),
                Err(error) => return Err(error),
            };
            if drill::disabled(Safeguard::UnknownOutcomes) {
                return Err(error);
            }
            match self.look::<T>(key).await {
                Ok(Some(found)) if found.version.digest == encoded.digest => return Ok(Replaced::Done(found.version)),
                Ok(Some(found)) if found.version.nonces.contains(&nonces[0]) => {
                    // It landed and was built upon: our version is over, and the expected one is known to be.
                    return Ok(Replaced::Done(Version { update: expected.update.clone(), nonces, digest: encoded.digest }));
                }
                Ok(Some(found)) if found.version.digest == expected.digest => last = Some((failure, error)),
                Ok(Some(found)) => return Ok(Replaced::Refused(Box::new(found))),
                Ok(None) => return Ok(Replaced::Gone),
                Err(found) if found.kind() != crate::ErrorKind::Store => return Err(found),
                Err(found) => return Err(unknown(key, error.source(found))),
            }
        }
        Err(given_up(key, last))
    }

    /// Every write has its own: an answer that got lost is found again by it, and equal contents differ.
    fn fresh_nonce(&self) -> Nonce {
        if drill::disabled(Safeguard::Nonces) { Nonce::from_bytes([0; 16]) } else { Nonce::draw(&**self.random()) }
    }

    async fn send(&self, key: &Key, encoded: &Encoded, nonces: &[Nonce], mode: PutMode) -> Result<Try> {
        self.counters.put(encoded.bytes.len() as u64);
        let options = PutOptions { mode, ..PutOptions::default() };
        let bytes: Bytes = encoded.bytes.clone();
        match self.inner.objects.put_opts(&self.path(key)?, bytes.into(), options).await {
            Ok(result) => {
                let update = UpdateVersion { e_tag: result.e_tag, version: result.version };
                Ok(Try::Landed(Version { update, nonces: nonces.to_vec(), digest: encoded.digest }))
            }
            Err(error) => {
                let failure = failure::classify(&error);
                let error = self.explain("writing", key, error);
                if failure.is_unknown() { Ok(Try::Unknown(failure, error)) } else { Err(error) }
            }
        }
    }

    /// Reads the object after an unknown outcome, patiently.
    async fn look<T: Document>(&self, key: &Key) -> Result<Option<Loaded<T>>> {
        let mut result = self.load(key).await;
        for attempt in 1..TRIES {
            match &result {
                Err(error) if error.kind() == crate::ErrorKind::Store => {}
                _ => break,
            }
            self.pause(attempt).await;
            result = self.load(key).await;
        }
        result
    }

    /// Waits before a repeated try: 0, 100, 400, 900 ms, each up to half as long again, so that rivals don't march in step.
    async fn pause(&self, attempt: u32) {
        if attempt > 0 {
            let span = 100 * attempt * attempt;
            let [more] = crate::random::bytes::<1>(&**self.random());
            self.clock().sleep(Duration::from_millis(u64::from(span + span * u32::from(more) / 512))).await;
        }
    }
}

fn unknown(key: &Key, cause: Error) -> Error {
    Error::store(format!("it is unknown whether {key} was written"))
        .code("outcome_unknown")
        .hint("look at it again when the store answers; nothing was undone")
        .source(cause)
}

/// The object was readable all the time and never had the write. A last try may still be on its way only if it went unanswered.
fn given_up(key: &Key, last: Option<(Failure, Error)>) -> Error {
    match last {
        Some((Failure::Exists | Failure::Precondition, error)) => {
            Error::store(format!("{key} could not be written: the store refuses a write whose condition holds"))
                .code("store_failed")
                .source(error)
        }
        Some((_, error)) => unknown(key, error),
        None => Error::internal(format!("{key} was never sent")),
    }
}
