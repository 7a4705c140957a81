//! The queue worker in one process: what a turn asks of the store, and many sessions at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::clock::SystemClock;
use landfall::host::Host;
use landfall::random::SystemRandom;
use landfall::session::RunState;
use landfall::session::record::RunRecord;
use landfall::store::{Abilities, Store};
use landfall::trigger::TurnRequest;
use landfall::worker::{QueueWorker, WorkerOptions};
use landfall_tests::seaweed::Seaweed;
use landfall_tests::turns::{Turns, agent};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt as _};

/// How many turns run at a time.
const AT_A_TIME: usize = 4;

/// What a request takes on a store that is some way off.
const FAR: Duration = Duration::from_millis(20);

/// No listing of the whole queue falls into a test.
const NEVER: Duration = Duration::from_secs(3600);

fn worker(host: &Host) -> QueueWorker {
    QueueWorker::start(host.clone(), WorkerOptions { concurrency: AT_A_TIME, poll: NEVER })
}

async fn turn(worker: &QueueWorker, session: &str, input: &str) -> RunRecord {
    let request = TurnRequest::new("steps".parse().unwrap(), session.parse().unwrap(), input);
    let accepted = worker.submit(request).await.unwrap();
    match worker.wait(&accepted.session, accepted.run, Duration::from_secs(120)).await.unwrap() {
        RunState::Ended(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// A host on this backend.
fn on(backend: Arc<dyn ObjectStore>, prefix: &str) -> Turns {
    let store = Store::with_backend(backend, prefix, Abilities::ALL, Arc::new(SystemClock), Arc::new(SystemRandom));
    Turns { folder: tempfile::tempdir().unwrap(), store }
}

async fn eight_requests_five_of_them_writes(turns: &Turns) {
    let host = turns.host("cache", &[("steps", agent("steps"))]).unwrap();
    let worker = worker(&host);
    assert!(turn(&worker, "s", "append /workspace/log one").await.is_completed());
    for n in 0..3 {
        let before = host.store().counts();
        assert!(turn(&worker, "s", &format!("append /workspace/log {n}")).await.is_completed());
        let after = host.store().counts();
        // The head is read and the entry made; the queue is listed; lease, pack, record, head; and the entry is deleted.
        assert_eq!((after.requests() - before.requests(), after.puts - before.puts), (8, 5), "{before:?} {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_warm_turn_makes_eight_requests_five_of_them_writes() {
    eight_requests_five_of_them_writes(&Turns::new().unwrap()).await;
}

/// A slow store is asked no more often: nothing polls, and nothing is sent twice for want of an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_far_off_gets_the_same_requests() {
    let waits = ThrottleConfig {
        wait_get_per_call: FAR,
        wait_put_per_call: FAR,
        wait_list_per_call: FAR,
        wait_list_with_delimiter_per_call: FAR,
        wait_delete_per_call: FAR,
        ..ThrottleConfig::default()
    };
    let began = Instant::now();
    eight_requests_five_of_them_writes(&on(Arc::new(ThrottledStore::new(InMemory::new(), waits)), "")).await;
    assert!(began.elapsed() > FAR * 4 * 4, "the store was slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_accepted_by_other_means_is_driven_when_the_worker_is_told() {
    let turns = Turns::new().unwrap();
    let (acceptor, driver) =
        (turns.host("one", &[("steps", agent("steps"))]).unwrap(), turns.host("two", &[("steps", agent("steps"))]).unwrap());
    let request = TurnRequest::new("steps".parse().unwrap(), "s".parse().unwrap(), "say hello");
    let accepted = acceptor.submit(request).await.unwrap();
    assert!(matches!(acceptor.run_state(&accepted.session, accepted.run).await.unwrap(), RunState::Waiting { .. }));
    let worker = worker(&driver);
    worker.look_at(&accepted.session, accepted.run);
    let RunState::Ended(record) = worker.wait(&accepted.session, accepted.run, Duration::from_secs(120)).await.unwrap() else { panic!() };
    assert!(record.is_completed());
    assert_eq!(acceptor.session_of_run(accepted.run, None).await.unwrap(), accepted.session);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_task_was_dropped_is_settled_by_the_next_one() {
    let turns = Turns::new().unwrap();
    let host = turns.host("cache", &[("steps", agent("steps"))]).unwrap();
    let (session, agent) = ("s".parse().unwrap(), "steps".parse().unwrap());
    let of = landfall::id::SessionRef { agent, session };
    landfall_tests::turns::run(&host, "steps", "s", "append /workspace/log one").await.unwrap();
    let dropped = {
        let host = host.clone();
        tokio::spawn(async move { landfall_tests::turns::run(&host, "steps", "s", "append /workspace/log two\nsleep 600000").await })
    };
    while host.session(&of).await.unwrap().lease.is_none() {
        landfall::clock::Clock::sleep(&SystemClock, Duration::from_millis(10)).await;
    }
    dropped.abort();
    let _ = dropped.await;
    let last = landfall_tests::turns::run(&host, "steps", "s", "count /workspace/log").await.unwrap();
    assert!(last.is_completed(), "{last:?}");
    let runs = host.runs(&of, 10).await.unwrap();
    let codes: Vec<_> = runs.iter().map(|run| run.failure.as_ref().map(|failure| failure.code.as_str())).collect();
    assert_eq!(codes, [None, Some("abandoned"), None]);
    assert_eq!(host.output(&last).await.unwrap(), "1");
}

/// How many sessions take turns at the same time, and how many each.
const SESSIONS: usize = 200;
const TURNS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: prints throughput, latencies and memory"]
async fn two_hundred_sessions_of_ten_turns() {
    load("memory", Arc::new(InMemory::new()), "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: prints throughput, latencies and memory"]
async fn two_hundred_sessions_of_ten_turns_on_s3() {
    let server = Seaweed::shared().await;
    let url = server.fresh_url();
    let prefix = url.rsplit_once('/').unwrap().1;
    load("SeaweedFS", Arc::new(crate::store_conformance::client(&server)), prefix).await;
}

#[expect(clippy::print_stdout, reason = "a measurement's output")]
async fn load(what: &str, backend: Arc<dyn ObjectStore>, prefix: &str) {
    let ceiling = ceiling(&backend, &format!("{prefix}-ceiling")).await;
    let turns = on(backend, prefix);
    let host = turns.host("cache", &[("steps", agent("steps"))]).unwrap();
    let worker = worker(&host);
    turn(&worker, "warm", "say warm").await;
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024
    };
    let (began, before, mut memory) = (Instant::now(), host.store().counts(), vec![resident()]);
    let mut tasks = Vec::new();
    for session in 0..SESSIONS {
        let worker = worker.clone();
        tasks.push(tokio::spawn(async move {
            let mut took = Vec::new();
            for n in 0..TURNS {
                let began = Instant::now();
                let record = turn(&worker, &format!("s{session}"), &format!("append /workspace/log {n}")).await;
                assert!(record.is_completed(), "{record:?}");
                took.push(began.elapsed());
            }
            took
        }));
    }
    let mut took = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        took.extend(task.await.unwrap());
        if n % 50 == 49 {
            memory.push(resident());
        }
    }
    let (elapsed, after) = (began.elapsed(), host.store().counts());
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{what}: {} turns in {:.1} s: {:.0} a second, where the store alone gives the requests of {ceiling:.0} a second; p50 {} ms, p99 {} ms; \
         {:.1} requests a turn; resident {memory:?} MiB",
        took.len(),
        elapsed.as_secs_f64(),
        took.len() as f64 / elapsed.as_secs_f64(),
        at(50).as_millis(),
        at(99).as_millis(),
        (after.requests() - before.requests()) as f64 / took.len() as f64,
    );
}

/// How many turns a second the store could serve if a turn were nothing but its eight requests, with as many at a time as turns run at a time.
async fn ceiling(backend: &Arc<dyn ObjectStore>, prefix: &str) -> f64 {
    const ROUNDS: usize = 100;
    let began = Instant::now();
    let mut tasks = Vec::new();
    for task in 0..AT_A_TIME {
        let (backend, prefix) = (Arc::clone(backend), format!("{prefix}/{task}"));
        tasks.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                let at = |n: usize| object_store::path::Path::from(format!("{prefix}/{round}-{n}"));
                for n in 0..5 {
                    backend.put(&at(n), vec![7; 1500].into()).await.unwrap();
                }
                backend.get(&at(0)).await.unwrap().bytes().await.unwrap();
                backend.list_with_delimiter(Some(&prefix.as_str().into())).await.unwrap();
                backend.delete(&at(0)).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    (AT_A_TIME * ROUNDS) as f64 / began.elapsed().as_secs_f64()
}
