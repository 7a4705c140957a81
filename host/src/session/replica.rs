//! Replicas: the living processes on a store, and how others tell that one has died.
//!
//! Each process has one object, renewed every third of a lease. A watcher takes a process for dead when the object showed no change for a whole
//! lease on the watcher's own monotonic boot clock (no clock is compared with another machine's), when the object is gone, or at once when it
//! names a process of this very host that isn't there any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::head::Owner;
use crate::clock::UnixNanos;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Digest;
use crate::store::cas::{Created, Replaced, Version};
use crate::store::document::Document;
use crate::store::{Key, Nonce, Prefix, Store};

/// How long a lease lasts without a sign of life where nothing else is configured.
pub const LEASE: Duration = Duration::from_secs(60);
/// The shortest lease that may be configured.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease that may be configured.
pub const LEASE_MAX: Duration = Duration::from_secs(600);
/// Signs of life in a lease.
const RENEWALS: u32 = 3;
/// Most silent processes watched at a time.
const WATCHED_MAX: usize = 1024;

/// A process of this machine, as others of the same machine can look for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The running kernel and the process namespace: equal only where the process id means the same.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// When it started, in the kernel's ticks: tells it from a later process with the same id.
    pub started: u64,
}

impl Process {
    /// Returns this process; none where the kernel doesn't tell (no `/proc`).
    #[must_use]
    pub fn current() -> Option<Self> {
        let pid = std::process::id();
        match started(pid) {
            Started::At(started) if !crate::drill::hides_process() => Some(Self { host: host()?, pid, started }),
            _ => None,
        }
    }

    /// Whether this is a process of this host that isn't running any more. False when that can't be told.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        host().is_some_and(|host| host == self.host)
            && match started(self.pid) {
                Started::At(started) => started != self.started,
                Started::Gone => true,
                Started::Unknown => false,
            }
    }
}

/// The kernel's boot id and the number of the process namespace.
fn host() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.to_str()?))
}

/// What the kernel says of a process id.
enum Started {
    /// A process with it started then, in the kernel's ticks.
    At(u64),
    /// There is none, or it has ended.
    Gone,
    /// It doesn't say.
    Unknown,
}

/// Start time of a process: field 22 of its `stat` (proc_pid_stat(5)). A zombie has ended. Only what surely isn't there counts as gone.
fn started(pid: u32) -> Started {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && std::path::Path::new("/proc/self/stat").exists() => {
            return Started::Gone;
        }
        Err(_) => return Started::Unknown,
    };
    // The second field, the command in parentheses, may hold blanks and parentheses itself.
    let Some((_, rest)) = stat.rsplit_once(')') else { return Started::Unknown };
    let mut fields = rest.split_ascii_whitespace();
    match (fields.next(), fields.nth(18).and_then(|ticks| ticks.parse().ok())) {
        (Some("Z" | "X"), _) => Started::Gone,
        (Some(_), Some(ticks)) => Started::At(ticks),
        _ => Started::Unknown,
    }
}

/// A process's object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRecord {
    /// Its name and boot nonce.
    pub owner: Owner,
    /// Where it answers HTTP; none for a command.
    pub url: Option<String>,
    /// The program's version.
    pub version: String,
    /// The process, where it can be told.
    pub process: Option<Process>,
    /// When it started, by its own clock.
    pub started: UnixNanos,
    /// How long it may be silent before others take it for dead, in milliseconds: each process has its own lease.
    pub lease_ms: u64,
}

impl Document for ReplicaRecord {
    const KIND: &'static str = "replica";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "replica_damaged";

    fn check(&self) -> Result<()> {
        let lease = Duration::from_millis(self.lease_ms);
        if (LEASE_MIN..=LEASE_MAX).contains(&lease) { Ok(()) } else { Err(Error::damaged(format!("its lease of {lease:?} isn't one"))) }
    }
}

/// This process on a store: its object is there before its first lease and gone after its last.
#[derive(Debug)]
pub struct Replica {
    store: Store,
    record: ReplicaRecord,
    version: tokio::sync::Mutex<Option<Version>>,
    stopped: AtomicBool,
    watched: Mutex<HashMap<Owner, (Digest, Duration)>>,
}

impl Replica {
    /// Draws this process's nonce. Nobody knows of it before [`Replica::announce`]; what takes no lease needn't be known.
    #[must_use]
    pub fn new(store: Store, name: crate::id::ReplicaName, url: Option<String>, process: Option<Process>) -> Self {
        let owner = Owner { replica: name, boot: Nonce::draw(&**store.random()) };
        let record = ReplicaRecord {
            owner,
            url,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process,
            started: store.clock().now(),
            lease_ms: millis(LEASE),
        };
        Self { store, record, version: tokio::sync::Mutex::new(None), stopped: AtomicBool::new(false), watched: Mutex::default() }
    }

    /// Sets how long this process may be silent before others take it for dead: [`LEASE_MIN`] to [`LEASE_MAX`], else the nearer of them.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.record.lease_ms = millis(lease.clamp(LEASE_MIN, LEASE_MAX));
        self
    }

    /// Whether this process has made itself unknown: it takes no lease any more.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns how long this process may be silent before others take it for dead.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.record.lease_ms)
    }

    /// Makes this process known: once, before its first lease.
    ///
    /// # Errors
    /// `Store`; with the code `store_unconditional` when another process is alive on a store that doesn't enforce conditional writes.
    pub async fn announce(&self) -> Result<()> {
        let key = key(&self.record.owner);
        match self.store.create(&key, &self.record).await? {
            Created::Done(version) => {
                *self.version.lock().await = Some(version);
                self.refuse_company().await
            }
            // An earlier call was cut off after it had made it.
            Created::Exists(found) if found.value == self.record => {
                *self.version.lock().await = Some(found.version);
                self.refuse_company().await
            }
            Created::Exists(_) => Err(Error::internal(format!("{key} exists already, though its nonce was just drawn"))),
        }
    }

    /// Makes this process and makes it known.
    ///
    /// # Errors
    /// As [`Replica::announce`].
    pub async fn start(store: Store, name: crate::id::ReplicaName, url: Option<String>, process: Option<Process>) -> Result<Self> {
        let replica = Self::new(store, name, url, process);
        replica.announce().await?;
        Ok(replica)
    }

    /// On a store without conditional writes nothing keeps two processes apart, so the second one doesn't start.
    async fn refuse_company(&self) -> Result<()> {
        if self.store.abilities().allows_replicas() {
            return Ok(());
        }
        for listed in self.store.list(&Prefix::Replicas).await?.objects {
            let Key::Replica(replica, boot) = listed.key else { continue };
            let other = Owner { replica, boot };
            if other != self.record.owner && !self.is_gone(&other).await? {
                self.stop().await?;
                return Err(Error::store(format!("{} doesn't enforce conditional writes, and replica {} is at work on it", self.store, other.replica))
                    .code("store_unconditional")
                    .hint("use a store that does (`landfall doctor` tests it), or only one process; a dead one's object in replicas/ may be deleted"));
            }
        }
        Ok(())
    }

    /// Returns the name and boot nonce by which leases name this process.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.record.owner
    }

    /// Shows a sign of life. Has to be called three times in a [`Replica::lease`]; a process that can't do it for a whole one has to stop its guests.
    ///
    /// # Errors
    /// `Store`; `Conflict` with the code `replica_gone` when somebody removed the object: others take this process for dead.
    pub async fn renew(&self) -> Result<()> {
        let mut held = self.version.lock().await;
        let key = key(&self.record.owner);
        let gone = || {
            Error::conflict(format!("{key} was removed: other replicas take this process for dead"))
                .code("replica_gone")
                .hint("its runs go on elsewhere")
        };
        let version = held.clone().ok_or_else(gone)?;
        match self.store.replace(&key, &version, &self.record).await? {
            Replaced::Done(version) => *held = Some(version),
            // Only this process writes it, so a refused write was one of its own whose answer came late.
            Replaced::Refused(found) => *held = Some(found.version),
            Replaced::Gone => {
                *held = None;
                return Err(gone());
            }
        }
        Ok(())
    }

    /// Makes this process known again after a time without a sign of life, in which others may have taken its leases over. Its guests of before
    /// have to be stopped by then.
    ///
    /// # Errors
    /// `Store`.
    pub async fn revive(&self) -> Result<()> {
        if self.is_stopped() {
            return Ok(());
        }
        match self.renew().await {
            Err(error) if error.stable_code() == "replica_gone" => {}
            result => return result,
        }
        let version = match self.store.create(&key(&self.record.owner), &self.record).await? {
            Created::Done(version) => version,
            Created::Exists(found) => found.version,
        };
        *self.version.lock().await = Some(version);
        Ok(())
    }

    /// Renews for as long as it is polled, and returns the reason when that failed for a whole lease.
    pub async fn keep_alive(&self) -> Error {
        let clock = self.store.clock();
        let mut last = clock.boot();
        loop {
            clock.sleep(self.lease() / RENEWALS).await;
            let began = clock.boot();
            // A request that hangs says nothing: the lease ends all the same.
            let rest = (last + self.lease()).saturating_sub(began);
            let renewed = tokio::select! {
                biased;
                renewed = self.renew() => renewed,
                () = clock.sleep(rest) => Err(Error::store(format!("{} didn't answer", self.store)).code("store_unreachable")),
            };
            match renewed {
                Ok(()) => last = began,
                Err(error) if error.stable_code() == "replica_gone" || clock.boot().saturating_sub(last) >= self.lease() => return error,
                Err(error) => tracing::warn!(error = %error.chain(), "this replica's sign of life could not be written"),
            }
        }
    }

    /// Makes this process unknown again, after it has given back its leases.
    ///
    /// # Errors
    /// `Store`.
    pub async fn stop(&self) -> Result<()> {
        self.stopped.store(true, Ordering::SeqCst);
        *self.version.lock().await = None;
        self.store.delete(&key(&self.record.owner)).await
    }

    /// Deletes the objects of processes that are gone: that they are gone is what a missing object says, too. Returns how many.
    ///
    /// # Errors
    /// `Store`.
    pub async fn sweep(&self) -> Result<usize> {
        let mut swept = 0;
        for listed in self.store.list(&Prefix::Replicas).await?.objects {
            let Key::Replica(replica, boot) = listed.key else { continue };
            let other = Owner { replica, boot };
            match self.is_gone(&other).await {
                Ok(true) => {
                    self.store.delete(&key(&other)).await?;
                    swept += 1;
                }
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Damaged => tracing::warn!(error = %error.chain(), "a sign of life can't be read"),
                Err(error) => return Err(error),
            }
        }
        Ok(swept)
    }

    /// Whether another process is known to be gone. The first look at a silent one only starts its time.
    ///
    /// # Errors
    /// `Store`; `Damaged`.
    pub async fn is_gone(&self, other: &Owner) -> Result<bool> {
        if *other == self.record.owner {
            return Ok(false);
        }
        let Some(found) = self.store.load::<ReplicaRecord>(&key(other)).await? else { return Ok(true) };
        if found.value.process.as_ref().is_some_and(Process::is_dead) {
            return Ok(true);
        }
        let now = self.store.clock().boot();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((digest, since)) = watched.get(other)
            && *digest == found.version.digest()
        {
            return Ok(now.saturating_sub(*since) >= Duration::from_millis(found.value.lease_ms));
        }
        if watched.len() >= WATCHED_MAX {
            watched.clear();
        }
        watched.insert(other.clone(), (found.version.digest(), now));
        Ok(false)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn key(owner: &Owner) -> Key {
    Key::Replica(owner.replica.clone(), owner.boot)
}
