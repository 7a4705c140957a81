//! An engine for tests, and what a call of a guest needs.

#![expect(clippy::expect_used, reason = "a test can't go on without it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall::capability::checkpoints::{CheckpointService, Reference, SessionCheckpoint};
use landfall::capability::progress::{CollectedEvents, EventSink};
use landfall::capability::refusal::Refusal;
use landfall::capability::types::{Change, FileInfo};
use landfall::clock::{SharedClock, SystemClock};
use landfall::component::{CacheOptions, Call, Engine, EngineOptions, GuestLimits, GuestRequest, Trigger};
use landfall::id::RunId;
use landfall::policy::grants::Grants;
use landfall::random::SystemRandom;
use landfall::workspace::memory::MemoryObjects;
use landfall::workspace::source::Source;
use landfall::workspace::{Limits, Spool, Workspace};

/// Returns an engine that keeps compiled components over all tests: compiling one takes seconds.
///
/// # Panics
/// When the machine can't run one.
#[must_use]
pub fn engine(guests: u32) -> Engine {
    let cache = CacheOptions::new(crate::guests::target().join("test-components"));
    let options = EngineOptions { guests, cache: Some(cache), ..EngineOptions::default() };
    Engine::new(&options, Arc::new(SystemClock), Arc::new(SystemRandom)).expect("an engine")
}

/// Returns an empty workspace in memory.
#[must_use]
pub fn workspace(limits: Limits) -> Workspace {
    let source: Arc<dyn Source> = Arc::new(MemoryObjects::new());
    let clock: SharedClock = Arc::new(SystemClock);
    let spool = Arc::new(Spool::new(std::env::temp_dir(), 32 << 20, 1 << 30));
    Workspace::open(&source, &clock, &spool, limits, Limits::temporary(), None, None)
}

/// Returns a call with this input on an empty workspace, and the events that it will cause.
#[must_use]
pub fn call(input: &str) -> (Call, Arc<CollectedEvents>) {
    let events = Arc::new(CollectedEvents::default());
    let sink: Arc<dyn EventSink> = Arc::<CollectedEvents>::clone(&events);
    let request = GuestRequest {
        run: RunId::new_v7(1_700_000_000_000, [7; 10]),
        session: "probe".to_owned(),
        turn: 1,
        attempt: 1,
        trigger: Trigger::Manual,
        input: input.to_owned(),
        attachments: Vec::new(),
        params: Vec::new(),
    };
    let call = Call {
        request,
        workspace: workspace(Limits::default()),
        checkpoints: Arc::new(NoCheckpoints),
        repository: None,
        schedules: None,
        outbound: None,
        events: sink,
        config: BTreeMap::new(),
        args: Vec::new(),
        env: Vec::new(),
        limits: GuestLimits::default(),
        grants: Grants::own("tester".parse().expect("a name")),
    };
    (call, events)
}

/// The checkpoints of a session that has none and can't save any: for guests that are called without a turn around them.
#[derive(Debug)]
pub struct NoCheckpoints;

#[async_trait::async_trait]
impl CheckpointService for NoCheckpoints {
    async fn save(&self, _name: &str, _workspace: &Workspace) -> Result<SessionCheckpoint, Refusal> {
        Err(Refusal::Unavailable("no session".to_owned()))
    }

    async fn list(&self) -> Result<Vec<SessionCheckpoint>, Refusal> {
        Ok(Vec::new())
    }

    async fn stat(&self, _at: &Reference, path: &str) -> Result<FileInfo, Refusal> {
        Err(Refusal::NotFound(path.to_owned()))
    }

    async fn read(&self, _at: &Reference, path: &str, _offset: u64, _length: u64) -> Result<Vec<u8>, Refusal> {
        Err(Refusal::NotFound(path.to_owned()))
    }

    async fn diff(&self, _before: &Reference, _after: Option<&Reference>, _workspace: &Workspace) -> Result<Vec<Change>, Refusal> {
        Ok(Vec::new())
    }

    async fn restore(&self, _to: &Reference, _state: bool, _workspace: &Workspace) -> Result<(), Refusal> {
        Err(Refusal::NotFound("no checkpoint".to_owned()))
    }
}
