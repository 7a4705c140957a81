//! What a store enforces, and the self-test that finds out.
//!
//! The design stands on three things: an upload whose bytes were changed on the way is refused, an exclusive create of an existing object is
//! refused, and an update that names an old version is refused. Servers differ, and silently, so each is tried. Where the first isn't enforced every
//! pack is read back; where one of the others isn't, more than one replica is refused.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector};
use object_store::{ClientOptions, ObjectStore as _, PutMode, PutOptions};
use serde::{Deserialize, Serialize};

use super::cas::{Created, Loaded, Replaced};
use super::document::Document;
use super::failure::{self, Failure};
use super::{Key, Nonce, Prefix, Store, backend};
use crate::clock::UnixNanos;
use crate::error::{Error, ErrorKind, Result};

/// How long a remembered result holds.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// What a store enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abilities {
    /// An upload whose bytes were changed on the way is refused. Where this is false, every pack is read back.
    pub checks_uploads: bool,
    /// An exclusive create of an existing object is refused.
    pub exclusive_create: bool,
    /// An update that names an old version is refused.
    pub conditional_update: bool,
}

impl Abilities {
    /// Everything is enforced.
    pub const ALL: Self = Self { checks_uploads: true, exclusive_create: true, conditional_update: true };
    /// Nothing is known: uploads are read back; conditions are relied on, as there is no other way to write.
    pub const UNKNOWN: Self = Self { checks_uploads: false, exclusive_create: true, conditional_update: true };

    /// Whether more than one replica may use the store.
    #[must_use]
    pub const fn allows_replicas(self) -> bool {
        self.exclusive_create && self.conditional_update
    }
}

/// The abilities known now.
#[derive(Debug)]
pub(super) struct Cell(Mutex<Abilities>);

impl Cell {
    pub(super) const fn new(abilities: Abilities) -> Self {
        Self(Mutex::new(abilities))
    }

    pub(super) fn get(&self) -> Abilities {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, abilities: Abilities) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = abilities;
    }
}

/// What the self-test found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// What the store enforces.
    pub abilities: Abilities,
    /// Each thing that was tried, in order.
    pub checks: Vec<Check>,
}

/// One thing that was tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What should be so.
    pub what: &'static str,
    /// Whether it is; none where it can't be tried on this kind of store.
    pub holds: Option<bool>,
    /// What it means when it doesn't hold or can't be tried.
    pub note: Option<&'static str>,
}

/// A scratch object.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scratch {
    pub(crate) round: u32,
}

impl Document for Scratch {
    const KIND: &'static str = "probe";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "probe_damaged";
}

/// A remembered result.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remembered {
    /// What was found.
    pub(crate) abilities: Abilities,
    /// When, by the clock of the process that found it.
    pub(crate) at: UnixNanos,
}

impl Document for Remembered {
    const KIND: &'static str = "probed";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "probe_damaged";
}

impl Store {
    /// Tests what the store enforces, with scratch objects below `probe/`, and works by it from now on.
    ///
    /// # Errors
    /// `Store` when the store can't be read, written or listed, or gives back other bytes than it got.
    pub async fn probe(&self) -> Result<Report> {
        let key = Key::Probe(Nonce::draw(&**self.random()));
        let report = self.probe_with(&key).await;
        // Whatever was found, the scratch object goes; a leftover does no harm.
        let _ = self.delete(&key).await;
        let report = report.map_err(|error| error.context(format!("testing the store {self}")))?;
        self.inner.abilities.set(report.abilities);
        Ok(report)
    }

    async fn probe_with(&self, key: &Key) -> Result<Report> {
        let wrong =
            |what: &str| Error::store(format!("the store doesn't work: {what}")).code("store_failed").hint("use another server or bucket");
        let Created::Done(first) = self.create(key, &Scratch { round: 1 }).await? else {
            return Err(wrong("a new object was there before"));
        };
        let read = self.load::<Scratch>(key).await?.filter(|read| read.value.round == 1);
        let old = read.ok_or_else(|| wrong("an object that was just written isn't there"))?;
        let exclusive_create = self.refuses(key, PutMode::Create).await?;
        // A create that wasn't refused has replaced the object: begin again from what is there.
        let base = if exclusive_create {
            first
        } else {
            self.load::<Scratch>(key).await?.ok_or_else(|| wrong("an object that was just written isn't there"))?.version
        };
        let Replaced::Done(_) = self.replace(key, &base, &Scratch { round: 2 }).await? else {
            return Err(wrong("an update of the current version was refused"));
        };
        let conditional_update = self.refuses(key, PutMode::Update(old.version.update().clone())).await?;
        let listed = self.list(&Prefix::Probes).await?.objects.iter().any(|listed| listed.key == *key);
        if !listed {
            return Err(wrong("an object that was just written isn't listed"));
        }
        let checks_uploads = self.refuses_changed_bytes(key).await?;
        self.delete(key).await?;
        if self.size(key).await?.is_some() {
            return Err(wrong("a deleted object is still there"));
        }
        let alone = "more than one replica is refused on this store";
        let abilities =
            Abilities { checks_uploads: checks_uploads.unwrap_or(self.abilities().checks_uploads), exclusive_create, conditional_update };
        let check = |what, holds: Option<bool>, note| Check { what, holds, note: if holds == Some(true) { None } else { Some(note) } };
        Ok(Report {
            abilities,
            checks: vec![
                check("objects can be written, read, listed and deleted", Some(true), ""),
                check("an exclusive create of an existing object is refused", Some(exclusive_create), alone),
                check("an update of an old version is refused", Some(conditional_update), alone),
                check(
                    "an upload that was changed on the way is refused",
                    checks_uploads,
                    if self.is_local() {
                        "nothing lies between this process and the store"
                    } else {
                        "every pack is read back after it was written"
                    },
                ),
            ],
        })
    }

    /// Works by a remembered result that is less than a day old, if there is one.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub(super) async fn remember(&self) -> Result<bool> {
        let Some(key) = self.remembered_as() else { return Ok(true) };
        Ok(self.remembered(&key).await?.1)
    }

    /// As [`Store::remember`]; without one, tests the store and remembers what it found. Local stores aren't tested.
    ///
    /// # Errors
    /// As [`Store::probe`].
    pub(super) async fn probe_or_remember(&self) -> Result<()> {
        let Some(key) = self.remembered_as() else { return Ok(()) };
        let (known, holds) = self.remembered(&key).await?;
        if holds {
            return Ok(());
        }
        let result = Remembered { abilities: self.probe().await?.abilities, at: self.clock().now() };
        match known {
            None => drop(self.create(&key, &result).await?),
            Some(known) => drop(self.replace(&key, &known.version, &result).await?),
        }
        Ok(())
    }

    async fn remembered(&self, key: &Key) -> Result<(Option<Loaded<Remembered>>, bool)> {
        let known = match self.load::<Remembered>(key).await {
            Ok(known) => known,
            // Nobody needs the object itself: what it said is found out again.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                tracing::warn!(%error, "the remembered result of the store's self-test is damaged; testing again");
                self.delete(key).await?;
                None
            }
            Err(error) => return Err(error),
        };
        let holds = known.as_ref().is_some_and(|known| {
            let age = self.clock().now().saturating_sub(known.value.at);
            (0..=i64::try_from(REMEMBERED.as_nanos()).unwrap_or(i64::MAX)).contains(&age)
        });
        if let (true, Some(known)) = (holds, &known) {
            self.inner.abilities.set(known.value.abilities);
        }
        Ok((known, holds))
    }

    /// Returns the key of the remembered result; none for a local store.
    fn remembered_as(&self) -> Option<Key> {
        let (url, options) = self.inner.url_and_options.as_ref().filter(|_| !self.is_local())?;
        // Another endpoint or version is another question. The options' values may be secret, and a hash of a short secret is no secret: only what
        // names the server goes in.
        let server = ["endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3", "aws_region", "region"];
        let mut question = format!("landfall:probe:1\0{}\0{url}", env!("CARGO_PKG_VERSION"));
        for value in server.iter().filter_map(|name| options.get(*name)) {
            question.push('\0');
            question.push_str(value);
        }
        let mut name = [0; 16];
        name.copy_from_slice(&crate::id::sha256(question.as_bytes()).as_bytes()[..16]);
        Some(Key::Probe(Nonce::from_bytes(name)))
    }

    fn is_local(&self) -> bool {
        matches!(self.inner.scheme, backend::Scheme::File | backend::Scheme::Memory)
    }

    /// Sends a write whose condition doesn't hold.
    async fn refuses(&self, key: &Key, mode: PutMode) -> Result<bool> {
        self.counters.put(0);
        // A document, since the next check goes on from it where it is accepted.
        let body = super::document::encode(&Scratch { round: 3 }, &[Nonce::draw(&**self.random())])?.bytes;
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.inner.objects.put_opts(&self.path(key)?, body.into(), options).await {
            Ok(_) => Ok(false),
            Err(error) => match failure::classify(&error) {
                Failure::Exists | Failure::Precondition => Ok(true),
                _ => Err(self.explain("writing", key, error)),
            },
        }
    }

    /// Sends an upload whose bytes are changed after its digest was taken. None where there is no way to try it.
    async fn refuses_changed_bytes(&self, key: &Key) -> Result<Option<bool>> {
        let (backend::Scheme::S3, Some((url, options))) = (self.inner.scheme, &self.inner.url_and_options) else { return Ok(None) };
        let sent = Bytes::from_static(b"what the digest is of");
        let arrives = Bytes::from_static(b"what the server gets!");
        let connector: Arc<dyn HttpConnector> = Arc::new(Changing(arrives));
        let changing = backend::open_through(url, options, self.random(), Some(connector))?;
        self.counters.put(sent.len() as u64);
        match changing.objects.put_opts(&self.path(key)?, sent.into(), PutOptions::default()).await {
            Ok(_) => Ok(Some(false)),
            Err(error) => match failure::classify(&error) {
                // Only a refusal of the bytes counts. A server that is out of order has checked nothing.
                Failure::Other | Failure::Denied if failure::refuses_bytes(&error) => Ok(Some(true)),
                _ => Err(self.explain("writing", key, error)),
            },
        }
    }
}

/// Makes connections that send other bytes than they were given, of the same length.
#[derive(Debug)]
struct Changing(Bytes);

impl HttpConnector for Changing {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(ChangingService { inner, body: self.0.clone() }))
    }
}

#[derive(Debug)]
struct ChangingService {
    inner: HttpClient,
    body: Bytes,
}

#[async_trait::async_trait]
impl HttpService for ChangingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = if body.content_length() == self.body.len() { self.body.clone().into() } else { body };
        self.inner.execute(HttpRequest::from_parts(parts, body)).await
    }
}
