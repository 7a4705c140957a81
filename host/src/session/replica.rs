//! Replicas: the living processes on a store, and how others tell that one has died.
//!
//! Each process has one object, renewed every third of a lease. A watcher takes a process for dead when the object showed no change for a whole
//! lease on the watcher's own monotonic boot clock (no clock is compared with another machine's), when the object is gone, or at once when it
//! names a process of this very host that isn't there any more.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::head::Owner;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::Digest;
use crate::store::cas::{Created, Replaced, Version};
use crate::store::document::Document;
use crate::store::{Key, Nonce, Prefix, Store};

/// How long a lease lasts without a sign of life.
pub const LEASE: Duration = Duration::from_secs(60);
/// Time between two signs of life.
pub const RENEWAL: Duration = Duration::from_secs(20);
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
        Some(Self { host: host()?, pid, started: started(pid)? })
    }

    /// Whether this is a process of this host that isn't running any more. False when that can't be told.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        host().is_some_and(|host| host == self.host) && started(self.pid) != Some(self.started)
    }
}

/// The kernel's boot id and the number of the process namespace.
fn host() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.to_str()?))
}

/// Start time of a process: field 22 of its `stat` (proc_pid_stat(5)). A zombie has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the command in parentheses, may hold blanks and parentheses itself.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
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
}

impl Document for ReplicaRecord {
    const KIND: &'static str = "replica";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "replica_damaged";
}

/// This process on a store: its object is there before its first lease and gone after its last.
#[derive(Debug)]
pub struct Replica {
    store: Store,
    record: ReplicaRecord,
    version: tokio::sync::Mutex<Option<Version>>,
    watched: Mutex<HashMap<Owner, (Digest, Duration)>>,
}

impl Replica {
    /// Draws this process's nonce. Nobody knows of it before [`Replica::announce`]; what takes no lease needn't be known.
    #[must_use]
    pub fn new(store: Store, name: crate::id::ReplicaName, url: Option<String>, process: Option<Process>) -> Self {
        let owner = Owner { replica: name, boot: Nonce::draw(&**store.random()) };
        let record = ReplicaRecord { owner, url, version: env!("CARGO_PKG_VERSION").to_owned(), process, started: store.clock().now() };
        Self { store, record, version: tokio::sync::Mutex::new(None), watched: Mutex::default() }
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

    /// Shows a sign of life. Has to be called every [`RENEWAL`]; a process that can't do it for [`LEASE`] has to stop its guests.
    ///
    /// # Errors
    /// `Store`; `Conflict` with the code `replica_gone` when somebody removed the object: others take this process for dead.
    pub async fn renew(&self) -> Result<()> {
        let mut held = self.version.lock().await;
        let key = key(&self.record.owner);
        let gone = || {
            Error::conflict(format!("{key} was removed: other replicas take this process for dead"))
                .code("replica_gone")
                .hint("restart this process; its runs go on elsewhere")
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

    /// Renews for as long as it is polled, and returns the reason when that failed for a whole lease.
    pub async fn keep_alive(&self) -> Error {
        let mut last = self.store.clock().boot();
        loop {
            self.store.clock().sleep(RENEWAL).await;
            let began = self.store.clock().boot();
            match self.renew().await {
                Ok(()) => last = began,
                Err(error) if error.stable_code() == "replica_gone" || self.store.clock().boot().saturating_sub(last) >= LEASE => {
                    return error;
                }
                Err(error) => tracing::warn!(error = %error.chain(), "this replica's sign of life could not be written"),
            }
        }
    }

    /// Makes this process unknown again, after it has given back its leases.
    ///
    /// # Errors
    /// `Store`.
    pub async fn stop(&self) -> Result<()> {
        *self.version.lock().await = None;
        self.store.delete(&key(&self.record.owner)).await
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
            return Ok(now.saturating_sub(*since) >= LEASE);
        }
        if watched.len() >= WATCHED_MAX {
            watched.clear();
        }
        watched.insert(other.clone(), (found.version.digest(), now));
        Ok(false)
    }
}

fn key(owner: &Owner) -> Key {
    Key::Replica(owner.replica.clone(), owner.boot)
}
