//! Turns that are stopped after their guest has ended: while their edits are uploaded, and at their commit.

use std::sync::Arc;
use std::time::Duration;

use landfall::ErrorKind;
use landfall::cancel::{CancelReason, Canceller};
use landfall::clock::SystemClock;
use landfall::component::EngineOptions;
use landfall::config::Config;
use landfall::host::Host;
use landfall::id::{RunId, SessionRef};
use landfall::random::SystemRandom;
use landfall::session::record::{RunRecord, Status};
use landfall::session::selector::Selector;
use landfall::store::{Abilities, Store};
use landfall::trigger::{RunEvent, TurnRequest};
use landfall_tests::fault_store::{Fault, FaultStore, HeldBack};
use landfall_tests::turns::{OnRepository, Seen, Turns, agent, run};
use object_store::memory::InMemory;
use tokio::task::JoinHandle;

/// A store whose writes can be held back.
struct World {
    turns: Turns,
    faults: FaultStore,
}

impl World {
    fn new() -> Self {
        let faults = FaultStore::new(Arc::new(InMemory::new()));
        let store = Store::with_backend(Arc::new(faults.clone()), "", Abilities::ALL, Arc::new(SystemClock), Arc::new(SystemRandom));
        Self { turns: Turns { store, ..Turns::new().unwrap() }, faults }
    }
}

/// A turn that goes on in a task.
struct Going {
    task: JoinHandle<landfall::Result<RunRecord>>,
    seen: Arc<Seen>,
    canceller: Canceller,
}

impl Going {
    fn begin(host: &Host, agent: &str, input: &str) -> Self {
        let (canceller, cancel) = Canceller::new();
        let seen = Arc::new(Seen::default());
        let request = TurnRequest::new(agent.parse().unwrap(), "s".parse().unwrap(), input);
        let task = {
            let (host, seen) = (host.clone(), Arc::clone(&seen));
            tokio::spawn(async move { host.run(request, seen, cancel).await })
        };
        Self { task, seen, canceller }
    }

    /// Waits until its write has come to where it is held back.
    async fn comes_to(&mut self, held: &mut HeldBack) {
        tokio::select! {
            () = held.has_come() => {}
            ended = &mut self.task => panic!("the turn ended before that write: {ended:?}"),
        }
    }

    fn run(&self) -> RunId {
        let seen = self.seen.0.lock().unwrap();
        seen.iter().find_map(|event| if let RunEvent::Accepted { run } = event { Some(*run) } else { None }).unwrap()
    }

    /// Returns how it ended. The write is held back still: who waits for it, waits for ever.
    async fn ended(self) -> landfall::Result<RunRecord> {
        tokio::time::timeout(Duration::from_secs(60), self.task).await.expect("the turn waits for a write that never ends").unwrap()
    }
}

fn session(agent: &str) -> SessionRef {
    SessionRef { agent: agent.parse().unwrap(), session: "s".parse().unwrap() }
}

/// A repository whose branch moves on later.
struct Origin {
    on: OnRepository,
    first: String,
}

impl Origin {
    async fn new(turns: Turns) -> Self {
        let on = OnRepository::new(turns).await.unwrap();
        on.repository.write("a.rs", b"// TODO: begin\n").unwrap();
        let first = on.repository.commit("first").unwrap();
        Self { on, first }
    }

    /// A host with an agent on it.
    fn host(&self, guest: &str) -> Host {
        self.on.turns.host("one", &[("todo", self.on.agent(guest))]).unwrap()
    }

    fn moves_on(&self) {
        self.on.repository.write("a.rs", b"// FIXME: go on\n").unwrap();
        self.on.repository.commit("second").unwrap();
    }
}

/// What a cancelled first turn has to leave: the pin, its files as they were, and a session that goes on from there.
async fn stands_on_its_pin(host: &Host, record: &RunRecord, origin: &Origin) {
    assert_eq!((record.status, record.seq, record.workspace_rolled_back), (Status::Cancelled, 1, true), "{record:?}");
    assert_eq!(record.failure.as_ref().unwrap().code, "cancelled");
    assert!(record.output.is_none() && record.after.is_some(), "{record:?}");
    let head = host.session(&session("todo")).await.unwrap();
    assert_eq!((head.seq, head.turn, head.lease.is_none(), head.cancels.is_empty()), (1, 0, true, true));
    assert_eq!(head.checkpoint.as_ref().unwrap().root.pin.as_ref().unwrap().commit.to_string(), origin.first);
    let checkpoint = host.open(&Selector::Head(session("todo"))).await.unwrap();
    assert_eq!(&checkpoint.read("/workspace/a.rs", 0, 100).await.unwrap()[..], b"// TODO: begin\n");
    assert!(checkpoint.read("/workspace/REPORT.md", 0, 100).await.is_err(), "the edits are rolled back");
    let report = host.verify(&checkpoint, true).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    // The branch moves on; the pin doesn't.
    origin.moves_on();
    let next = run(host, "todo", "s", "").await.unwrap();
    assert_eq!((next.status, next.turn, next.seq), (Status::Completed, 1, 2), "{next:?}");
    assert_eq!(next.pin.unwrap().commit.to_string(), origin.first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_during_the_upload_ends_the_first_turn_as_cancelled_and_pinned() {
    let world = World::new();
    let origin = Origin::new(world.turns).await;
    let host = origin.host("todo-report");
    let mut pack = world.faults.hold("sessions/todo/s/packs/");
    let mut going = Going::begin(&host, "todo", "");
    going.comes_to(&mut pack).await;
    going.canceller.cancel(CancelReason::Requested);
    let record = going.ended().await.unwrap();
    stands_on_its_pin(&host, &record, &origin).await;
    drop(pack);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_in_the_head_is_seen_during_the_upload() {
    let world = World::new();
    let host = world.turns.host("one", &[("steps", agent("steps"))]).unwrap();
    let before = run(&host, "steps", "s", "write /workspace/a one").await.unwrap();
    assert_eq!(before.status, Status::Completed, "{before:?}");
    let mut pack = world.faults.hold("sessions/steps/s/packs/");
    let mut going = Going::begin(&host, "steps", "write /workspace/a two");
    going.comes_to(&mut pack).await;
    host.cancel_run(&session("steps"), going.run()).await.unwrap();
    let record = going.ended().await.unwrap();
    assert_eq!((record.status, record.workspace_rolled_back), (Status::Cancelled, true), "{record:?}");
    assert_eq!((record.after, record.seq), (before.after, 2));
    drop(pack);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_at_the_first_turn_s_commit_leaves_the_pin() {
    let world = World::new();
    let origin = Origin::new(world.turns).await;
    let host = origin.host("todo-report");
    let mut record = world.faults.hold("sessions/todo/s/runs/");
    let mut going = Going::begin(&host, "todo", "");
    going.comes_to(&mut record).await;
    // All that is left is the record and the head: the cancel goes into the head first.
    host.cancel_run(&session("todo"), going.run()).await.unwrap();
    record.let_through();
    let record = going.ended().await.unwrap();
    stands_on_its_pin(&host, &record, &origin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_a_save_meets_leaves_the_pin() {
    let world = World::new();
    let origin = Origin::new(world.turns).await;
    let host = origin.host("steps");
    let mut pack = world.faults.hold("sessions/todo/s/packs/");
    let mut going = Going::begin(&host, "todo", "write /workspace/b x\nsave half");
    going.comes_to(&mut pack).await;
    host.cancel_run(&session("todo"), going.run()).await.unwrap();
    pack.let_through();
    let record = going.ended().await.unwrap();
    assert_eq!((record.status, record.seq), (Status::Cancelled, 1), "{record:?}");
    let head = host.session(&session("todo")).await.unwrap();
    assert_eq!(head.checkpoint.unwrap().root.pin.unwrap().commit.to_string(), origin.first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_stops_the_upload() {
    let world = World::new();
    let mut config = Config::default();
    config.agents.insert("steps".parse().unwrap(), agent("steps"));
    let cache = world.turns.folder.path().join("one");
    let host = Host::builder(world.turns.store.clone(), config)
        .cache_dir(cache)
        .engine(EngineOptions { guests: 1, ..EngineOptions::default() })
        .lease(Duration::from_secs(2))
        .build()
        .unwrap();
    let mut pack = world.faults.hold("sessions/steps/s/packs/");
    let mut going = Going::begin(&host, "steps", "write /workspace/a one");
    going.comes_to(&mut pack).await;
    // No sign of life gets through: after a lease others may take this process for dead.
    world.faults.after("replicas/", 0, u32::MAX, Fault::Fail500);
    let error = going.ended().await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Conflict, "fenced"), "{error:?}");
    assert!(world.faults.hits() > 0);
    world.faults.heal();
    // Nothing of it was committed, and the session is free.
    let head = host.session(&session("steps")).await.unwrap();
    assert_eq!((head.seq, head.checkpoint.is_none(), head.lease.is_none()), (0, true, true));
    drop(pack);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_during_the_upload_gives_the_run_back() {
    let world = World::new();
    let host = world.turns.host("one", &[("steps", agent("steps"))]).unwrap();
    let mut pack = world.faults.hold("sessions/steps/s/packs/");
    let mut going = Going::begin(&host, "steps", "write /workspace/a one");
    going.comes_to(&mut pack).await;
    going.canceller.cancel(CancelReason::Shutdown);
    let error = going.ended().await.unwrap_err();
    assert_eq!(error.stable_code(), "drained", "{error:?}");
    let head = host.session(&session("steps")).await.unwrap();
    assert_eq!((head.seq, head.lease.is_none(), head.pending.unwrap().attempts), (0, true, 0));
    drop(pack);
}
