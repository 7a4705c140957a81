//! Replicas on one store in one process: each with its own clock, so that a test decides who is silent for how long.

#![expect(clippy::unwrap_used, reason = "a test can't go on without it")]

use std::sync::Arc;

use landfall::checkpoint::root::{Checkpoint, RootRecord};
use landfall::id::{PackId, PageId, RunId, SessionRef};
use landfall::random::SystemRandom;
use landfall::session::queue::OnCrash;
use landfall::session::record::Input;
use landfall::session::{Acquired, Committed, Held, Origin, QueueEntry, Replica, RunRecord, Sessions, Status, Trigger};
use landfall::store::{Abilities, Store};
use landfall::workspace::page::{Home, Link, Location, Place, Root};
use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::clocks::ManualClock;
use crate::fault_store::FaultStore;

/// A store in memory with replicas on it.
#[derive(Debug, Clone)]
pub struct World {
    /// The objects themselves.
    pub objects: Arc<dyn ObjectStore>,
}

/// One replica.
#[derive(Debug)]
pub struct Member {
    /// Its sessions.
    pub sessions: Sessions,
    /// Its sign of life.
    pub replica: Arc<Replica>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    /// The faults between it and the store.
    pub faults: FaultStore,
    /// Its store, without faults.
    pub good: Store,
}

impl Default for World {
    fn default() -> Self {
        Self { objects: Arc::new(InMemory::new()) }
    }
}

impl World {
    /// Starts a replica.
    pub async fn member(&self, name: &str) -> Member {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000_000));
        let faults = FaultStore::new(Arc::clone(&self.objects));
        let store = Store::with_backend(Arc::new(faults.clone()), "", Abilities::ALL, clock.clone(), Arc::new(SystemRandom));
        let good = Store::with_backend(Arc::clone(&self.objects), "", Abilities::ALL, clock.clone(), Arc::new(SystemRandom));
        let replica = Arc::new(Replica::start(store.clone(), name.parse().unwrap(), None, None).await.unwrap());
        Member { sessions: Sessions::new(store, Arc::clone(&replica)), replica, clock, faults, good }
    }
}

/// Returns the name of a session of the agent `agent`.
#[must_use]
pub fn session(name: &str) -> SessionRef {
    SessionRef { agent: "agent".parse().unwrap(), session: name.parse().unwrap() }
}

/// Returns the `n`th run id.
#[must_use]
pub fn run(n: u64) -> RunId {
    RunId::new_v7(n, [0; 10])
}

/// Returns a checkpoint that differs from those of other numbers. Its pages are nowhere: heads and records don't look.
#[must_use]
pub fn checkpoint(n: u8) -> Checkpoint {
    let at = Location {
        home: Arc::new(Home::Session(session("s"))),
        pack: PackId::from_bytes([n; 32]),
        frame: 8,
        stored: 100,
        start: 0,
        len: 300,
    };
    let root = Root { page: Link { id: PageId::from_bytes([n; 32]), place: Place::At(at) }, links: None, entries: u64::from(n), bytes: 0 };
    Checkpoint::new(RootRecord { workspace: root.clone(), state: root, git: None, pin: None })
}

/// Returns a queue entry of a server's run that is made by `member`.
#[must_use]
pub fn entry(member: &Member, name: &str, n: u64) -> QueueEntry {
    QueueEntry {
        run: run(n),
        session: session(name),
        incarnation: None,
        input: Input::of(&format!("input {n}")),
        attachments: Vec::new(),
        trigger: Trigger::Manual,
        choice: None,
        args: None,
        params: Vec::new(),
        on_crash: OnCrash::Retry(3),
        attempts: 0,
        origin: Origin::Server,
        owner: member.sessions.owner().clone(),
        created: 0,
    }
}

/// Takes the lease on the session `s` for the `n`th run, which has to be free or that run's own.
pub async fn held(member: &Member, n: u64) -> Held {
    match member.sessions.acquire(&session("s"), run(n), None).await.unwrap() {
        Acquired::Held(held) => *held,
        other => unreachable!("{other:?}"),
    }
}

/// Returns the record of a run that completes and leaves the checkpoint of the number `left`.
#[must_use]
pub fn completed(member: &Member, held: &Held, left: u8) -> RunRecord {
    let mut record = member.sessions.new_record(held, Trigger::Manual, Origin::Server);
    record.status = Status::Completed;
    record.after = Some(checkpoint(left));
    record
}

/// Commits that record.
///
/// # Errors
/// As [`Sessions::commit`].
pub async fn commit(member: &Member, held: &mut Held, left: u8) -> landfall::Result<Committed> {
    let record = completed(member, held, left);
    member.sessions.commit(held, record, &[]).await
}
