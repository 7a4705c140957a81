//! The queue worker in one process: what a turn asks of the store, and many sessions at a time.

use std::time::{Duration, Instant};

use landfall::host::Host;
use landfall::session::RunState;
use landfall::session::record::RunRecord;
use landfall::trigger::TurnRequest;
use landfall::worker::{QueueWorker, WorkerOptions};
use landfall_tests::turns::{Turns, agent};

/// No listing of the whole queue falls into a test.
const NEVER: Duration = Duration::from_secs(3600);

fn worker(host: &Host) -> QueueWorker {
    QueueWorker::start(host.clone(), WorkerOptions { concurrency: 4, poll: NEVER })
}

async fn turn(worker: &QueueWorker, session: &str, input: &str) -> RunRecord {
    let request = TurnRequest::new("steps".parse().unwrap(), session.parse().unwrap(), input);
    let accepted = worker.submit(request).await.unwrap();
    match worker.wait(&accepted.session, accepted.run, Duration::from_secs(120)).await.unwrap() {
        RunState::Ended(record) => *record,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_warm_turn_makes_eight_requests_five_of_them_writes() {
    let turns = Turns::new().unwrap();
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
        landfall::clock::Clock::sleep(&landfall::clock::SystemClock, Duration::from_millis(10)).await;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: prints throughput, latencies and memory"]
async fn two_hundred_sessions_of_ten_turns() {
    const SESSIONS: usize = 200;
    const TURNS: usize = 10;
    let turns = Turns::new().unwrap();
    let host = turns.host("cache", &[("steps", agent("steps"))]).unwrap();
    let worker = worker(&host);
    turn(&worker, "warm", "say warm").await;
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4 / 1024
    };
    let (began, before) = (Instant::now(), host.store().counts());
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
    let mut memory = Vec::new();
    let mut took = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        took.extend(task.await.unwrap());
        if n % 50 == 0 {
            memory.push(resident());
        }
    }
    let (elapsed, after) = (began.elapsed(), host.store().counts());
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{} turns in {:.1} s: {:.0} a second; p50 {} ms, p99 {} ms; {:.1} requests a turn; resident {memory:?} MiB",
        took.len(),
        elapsed.as_secs_f64(),
        took.len() as f64 / elapsed.as_secs_f64(),
        at(50).as_millis(),
        at(99).as_millis(),
        (after.requests() - before.requests()) as f64 / took.len() as f64,
    );
}
