//! Instantiating a guest, a whole call of one, and loading a compiled component from the cache.
//!
//! `cargo bench -p landfall --bench component`. Needs the built guests (`cargo xtask guests`); with `LANDFALL_BENCH_COMPONENT=FILE.wasm`
//! that file is loaded too (a Python component of 18 MB, for example).

#![allow(clippy::expect_used, reason = "a benchmark that can't be set up ends")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use landfall::capability::checkpoints::{CheckpointService, Reference, SessionCheckpoint};
use landfall::capability::progress::CollectedEvents;
use landfall::capability::refusal::Refusal;
use landfall::capability::types::{Change, FileInfo};
use landfall::clock::{SharedClock, SystemClock};
use landfall::component::{
    CacheOptions, Call, Cancel, Engine, EngineOptions, GuestLimits, GuestRequest, Loaded, Trigger, instantiate, invoke,
};
use landfall::id::RunId;
use landfall::policy::grants::Grants;
use landfall::random::SystemRandom;
use landfall::workspace::memory::MemoryObjects;
use landfall::workspace::source::Source;
use landfall::workspace::{Limits, Spool, Workspace};

#[derive(Debug)]
struct None;

#[async_trait::async_trait]
impl CheckpointService for None {
    async fn save(&self, _: &str, _: &Workspace) -> Result<SessionCheckpoint, Refusal> {
        Err(Refusal::Other(String::new()))
    }
    async fn list(&self) -> Result<Vec<SessionCheckpoint>, Refusal> {
        Ok(Vec::new())
    }
    async fn stat(&self, _: &Reference, _: &str) -> Result<FileInfo, Refusal> {
        Err(Refusal::Other(String::new()))
    }
    async fn read(&self, _: &Reference, _: &str, _: u64, _: u64) -> Result<Vec<u8>, Refusal> {
        Ok(Vec::new())
    }
    async fn diff(&self, _: &Reference, _: Option<&Reference>, _: &Workspace) -> Result<Vec<Change>, Refusal> {
        Ok(Vec::new())
    }
    async fn restore(&self, _: &Reference, _: bool, _: &Workspace) -> Result<(), Refusal> {
        Ok(())
    }
}

fn call(workspace: &Workspace) -> Call {
    Call {
        request: GuestRequest {
            run: RunId::new_v7(1_700_000_000_000, [7; 10]),
            session: "bench".to_owned(),
            turn: 1,
            attempt: 1,
            trigger: Trigger::Manual,
            input: "world".to_owned(),
            attachments: Vec::new(),
            params: Vec::new(),
        },
        workspace: workspace.clone(),
        checkpoints: Arc::new(None),
        repository: Option::None,
        schedules: Option::None,
        outbound: Option::None,
        events: Arc::new(CollectedEvents::default()),
        config: BTreeMap::new(),
        args: Vec::new(),
        env: Vec::new(),
        limits: GuestLimits::default(),
        grants: Grants::own("bench".parse().expect("a name")),
    }
}

fn engine(pooling: bool, cache: &Path) -> Engine {
    let options = EngineOptions { pooling, cache: Some(CacheOptions::new(cache)), ..EngineOptions::default() };
    Engine::new(&options, Arc::new(SystemClock), Arc::new(SystemRandom)).expect("an engine")
}

fn guest(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    target.join("components").join(format!("{name}.wasm"))
}

fn calls(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("components");
    let source: Arc<dyn Source> = Arc::new(MemoryObjects::new());
    let clock: SharedClock = Arc::new(SystemClock);
    let spool = Arc::new(Spool::new(std::env::temp_dir(), 32 << 20, 1 << 30));
    let workspace = Workspace::open(&source, &clock, &spool, Limits::default(), Limits::temporary(), Option::None, Option::None);
    for (name, pooling) in [("pooled", true), ("on demand", false)] {
        let engine = engine(pooling, &cache);
        let hello: Arc<Loaded> = runtime.block_on(engine.load(guest("hello"))).expect("hello");
        criterion.bench_function(&format!("instantiate hello, {name}"), |bencher| {
            bencher.iter_batched(
                || call(&workspace),
                |call| runtime.block_on(instantiate(&engine, &hello, call)).expect("an instance"),
                BatchSize::SmallInput,
            );
        });
        criterion.bench_function(&format!("call hello, {name}"), |bencher| {
            bencher.iter_batched(
                || call(&workspace),
                |call| runtime.block_on(invoke(&engine, &hello, call, &Cancel::never())).expect("a call"),
                BatchSize::SmallInput,
            );
        });
    }
}

fn loads(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("components");
    let large = std::env::var_os("LANDFALL_BENCH_COMPONENT").map(PathBuf::from);
    for path in [Some(guest("hello")), large].into_iter().flatten() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // Compiles and keeps it.
        runtime.block_on(engine(true, &cache).load(&path)).expect("a component");
        let mut group = criterion.benchmark_group("load");
        group.sample_size(20);
        group.bench_function(format!("{name}, compiled and cached, new engine"), |bencher| {
            bencher.iter_batched(
                || engine(true, &cache),
                |engine| (runtime.block_on(engine.load(&path)).expect("a component"), engine),
                BatchSize::PerIteration,
            );
        });
        let warm = engine(true, &cache);
        runtime.block_on(warm.load(&path)).expect("a component");
        group.bench_function(format!("{name}, in memory"), |bencher| {
            bencher.iter(|| runtime.block_on(warm.load(&path)).expect("a component"));
        });
        group.finish();
    }
}

criterion_group!(benches, calls, loads);
criterion_main!(benches);
