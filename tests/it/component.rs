//! Guests that behave, and guests that do all they can against the host: each gets its own answer, and the host goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use landfall::capability::checkpoints::{CheckpointService, Reference, SessionCheckpoint};
use landfall::capability::progress::{CollectedEvents, GuestEvent, LogStream};
use landfall::capability::refusal::Refusal;
use landfall::capability::types::{Change, FileInfo};
use landfall::component::{Call, Cancel, CancelReason, Canceller, Engine, GuestFailure, Invoked, Loaded, TrapKind, World, invoke};
use landfall::policy::grants::Capability;
use landfall::workspace::{Limits, Workspace};
use landfall::{Error, ErrorKind};
use landfall_tests::components::{self, NoCheckpoints};
use landfall_tests::guests;

async fn load(engine: &Engine, guest: &str) -> Arc<Loaded> {
    engine.load(guests::path(guest)).await.unwrap()
}

/// Runs a guest that is set up by `change`.
async fn run(guest: &str, input: &str, change: impl FnOnce(&mut Call)) -> (Invoked, Vec<GuestEvent>) {
    let engine = components::engine(4);
    let (mut call, events) = components::call(input);
    change(&mut call);
    let invoked = invoke(&engine, &*load(&engine, guest).await, call, &Cancel::never()).await.unwrap();
    (invoked, events.take())
}

fn failure(invoked: Invoked) -> GuestFailure {
    invoked.result.expect_err("the guest had to fail")
}

fn text(invoked: &Invoked) -> &str {
    std::str::from_utf8(&invoked.result.as_ref().unwrap().output).unwrap()
}

fn lines(events: &[GuestEvent]) -> Vec<(LogStream, &str)> {
    let line = |event| match event {
        &GuestEvent::Log { stream, ref line } => Some((stream, line.as_str())),
        _ => None,
    };
    events.iter().filter_map(line).collect()
}

#[tokio::test]
async fn an_agent_answers_and_its_lines_are_events() {
    let (invoked, events) = run("hello", "world", |_| ()).await;
    assert_eq!(text(&invoked), "hello world");
    assert_eq!(lines(&events), [(LogStream::Stdout, "turn 1 of tester/probe, attempt 1")]);
    assert!(invoked.usage.memory_peak > 0 && invoked.usage.cpu > Duration::ZERO && invoked.usage.log > 0);
    assert!(invoked.usage.wall >= invoked.usage.cpu);
}

#[tokio::test]
async fn an_agents_own_failure_is_a_value() {
    let (invoked, _) = run("hello", "fail: no work today", |_| ()).await;
    assert_eq!(failure(invoked), GuestFailure::Other("no work today".to_owned()));
}

#[tokio::test]
async fn a_command_gets_stdin_arguments_and_only_the_configured_environment() {
    let set_up = |call: &mut Call| {
        call.args = vec!["0".to_owned(), "--all".to_owned()];
        call.env = vec![("COLOUR".to_owned(), "never".to_owned())];
    };
    let (invoked, events) = run("exit-code", "input\nwithout end", set_up).await;
    assert_eq!(text(&invoked), "input\nwithout end");
    assert_eq!(lines(&events), [(LogStream::Stderr, "arguments: exit-code 0 --all"), (LogStream::Stderr, "environment: COLOUR=never")]);
}

#[tokio::test]
async fn a_commands_exit_code_is_its_failure() {
    let (invoked, _) = run("exit-code", "", |call| call.args = vec!["42".to_owned()]).await;
    let GuestFailure::ExitCode { code, stderr } = failure(invoked) else { panic!("no exit code") };
    // WASI 0.2 knows only good and bad ends: the C library makes 1 of every other code.
    assert_eq!(code, 1);
    assert!(stderr.contains("arguments: exit-code 42"), "{stderr}");
}

#[tokio::test]
async fn agents_and_commands_are_told_apart() {
    let engine = components::engine(1);
    assert_eq!(load(&engine, "exit-code").await.world(), World::Command);
    assert_eq!(load(&engine, "hello").await.world(), World::Agent);
}

#[tokio::test]
async fn traps_say_how_and_where() {
    let (invoked, _) = run("trap", "panic", |_| ()).await;
    let panicked = failure(invoked);
    let GuestFailure::Trap { kind, backtrace, stderr, .. } = &panicked else { panic!("{panicked:?}") };
    assert_eq!(*kind, TrapKind::Unreachable);
    assert!(stderr.contains("no such rule"), "{stderr}");
    assert!(panicked.to_string().contains("no such rule"), "{panicked}");
    assert!(backtrace.iter().any(|frame| frame.function.contains("panic")), "{backtrace:#?}");
    assert!(backtrace.iter().all(|frame| !frame.function.contains("_ZN") && !frame.function.contains("17h")), "{backtrace:#?}");

    let kinds =
        [("bounds", TrapKind::OutOfBounds), ("recursion", TrapKind::StackOverflow), ("recursion in memory", TrapKind::StackOverflow)];
    for (input, expected) in kinds {
        let (invoked, _) = run("trap", input, |_| ()).await;
        let failure = failure(invoked);
        assert!(matches!(&failure, GuestFailure::Trap { kind, .. } if *kind == expected), "{failure:?}");
    }
}

#[tokio::test]
async fn an_agent_that_exits_has_failed() {
    let (invoked, _) = run("trap", "exit", |_| ()).await;
    assert!(matches!(failure(invoked), GuestFailure::ExitCode { code: 1, .. }));
}

#[tokio::test]
async fn no_way_of_never_ending_outlasts_the_time_limit() {
    for way in ["loop", "calls", "sleep"] {
        let limit = Duration::from_millis(100);
        let (invoked, _) = run("spin", way, |call| call.limits.time = limit).await;
        assert!(invoked.usage.wall >= limit, "{way}");
        if way == "loop" {
            assert!(invoked.usage.cpu > Duration::ZERO);
        }
        assert_eq!(failure(invoked), GuestFailure::OutOfTime { limit }, "{way}");
    }
}

/// Runs a guest under a canceller that is used once the guest's first epoch has surely begun.
async fn cancelled(engine: &Engine, guest: &str, input: &str) -> Invoked {
    let component = load(engine, guest).await;
    let (canceller, cancel) = Canceller::new();
    let (call, _) = components::call(input);
    let engine = engine.clone();
    let running = tokio::spawn(async move { invoke(&engine, &component, call, &cancel).await.unwrap() });
    tokio::task::yield_now().await;
    canceller.cancel(CancelReason::Requested);
    running.await.unwrap()
}

#[tokio::test]
async fn no_way_of_never_ending_outlasts_a_cancel() {
    let engine = components::engine(2);
    for way in ["loop", "calls", "sleep"] {
        let invoked = cancelled(&engine, "spin", way).await;
        assert_eq!(failure(invoked), GuestFailure::Cancelled(CancelReason::Requested), "{way}");
    }
}

#[tokio::test]
async fn memory_is_bounded_and_a_guest_may_live_with_less() {
    const MEGABYTE: u64 = 1 << 20;
    let limit = 32 * MEGABYTE;
    let (invoked, _) = run("memory", "all", |call| call.limits.memory = limit).await;
    assert!(invoked.usage.memory_peak <= limit && invoked.usage.memory_peak > limit / 2, "{:?}", invoked.usage);
    let failed = failure(invoked);
    assert!(matches!(failed, GuestFailure::OutOfMemory { limit: named, wanted } if named == limit && wanted > limit), "{failed:?}");

    let (invoked, _) = run("memory", "try", |call| call.limits.memory = limit).await;
    let blocks: u64 = text(&invoked).parse().unwrap();
    assert!(blocks > 10 && blocks < 32, "{blocks}");
}

#[tokio::test]
async fn a_guest_that_does_not_even_start_in_its_memory_says_so() {
    let (invoked, _) = run("hello", "", |call| call.limits.memory = 64 << 10).await;
    let failed = failure(invoked);
    assert!(matches!(failed, GuestFailure::OutOfMemory { .. }), "{failed:?}");
}

#[tokio::test]
async fn a_log_that_is_too_long_ends_with_a_mark_and_the_guest_goes_on() {
    let (invoked, events) = run("print-forever", "", |call| call.args = vec!["stderr".to_owned(), "20000".to_owned()]).await;
    assert_eq!(text(&invoked), "");
    assert!(invoked.usage.log_truncated);
    assert_eq!(invoked.usage.log, 1 << 20);
    let kept: usize = lines(&events).iter().map(|(_, line)| line.len() + 1).sum();
    assert!(kept <= (1 << 20) + 1, "{kept}");
    assert_eq!(events.iter().filter(|event| matches!(event, GuestEvent::LogTruncated { .. })).count(), 1);
}

#[tokio::test]
async fn printing_without_end_ends_with_the_time() {
    let limit = Duration::from_millis(300);
    let (invoked, _) = run("print-forever", "", |call| call.limits.time = limit).await;
    assert_eq!(failure(invoked), GuestFailure::OutOfTime { limit });
}

#[tokio::test]
async fn output_over_its_limit_names_the_limit() {
    let (invoked, _) = run("print-forever", "", |call| call.args = vec!["stdout".to_owned()]).await;
    let failed = failure(invoked);
    assert!(matches!(failed, GuestFailure::OutputTooLarge { limit: 1_048_576, size } if size > 1_048_576), "{failed:?}");
    assert!(failed.to_string().contains("`output`") && failed.to_string().contains("1048576"), "{failed}");

    let input = "x".repeat(2000);
    let (invoked, _) = run("hello", &input, |call| call.limits.output = 1000).await;
    assert_eq!(failure(invoked), GuestFailure::OutputTooLarge { limit: 1000, size: 2006 });
}

#[tokio::test]
async fn the_network_is_linked_and_denied() {
    let (invoked, _) = run("sockets", "", |_| ()).await;
    let said = text(&invoked);
    assert_eq!(said.lines().count(), 10, "{said}");
    assert!(!said.contains("allowed"), "{said}");
}

#[tokio::test]
async fn handles_are_bounded_and_the_host_goes_on() {
    let (invoked, _) = run("many-handles", "100", |_| ()).await;
    assert_eq!(text(&invoked), "100");
    let (invoked, _) = run("many-handles", "for ever", |_| ()).await;
    let failed = failure(invoked);
    assert!(matches!(failed, GuestFailure::Other(_) | GuestFailure::Trap { kind: TrapKind::HostCall, .. }), "{failed:?}");
}

#[tokio::test]
async fn every_quota_is_an_error_of_the_call_that_meets_it() {
    let limits = Limits { entries: 300, bytes: 10 << 20, depth: 40, ..Limits::default() };
    for (way, expected) in [("bytes", "160 StorageFull"), ("entries", "300 StorageFull"), ("name", "256 InvalidFilename")] {
        let (invoked, _) = run("quota", way, |call| call.workspace = components::workspace(limits)).await;
        assert_eq!(text(&invoked), expected);
    }
    let (invoked, _) = run("quota", "depth", |call| call.workspace = components::workspace(limits)).await;
    let said = text(&invoked);
    assert!(said.starts_with("40 ") || said.starts_with("39 "), "{said}");
}

#[tokio::test]
async fn every_capability_answers_with_a_value() {
    let (invoked, events) = run("capabilities", "input", |call| {
        call.config.insert("model".to_owned(), "large".to_owned());
        call.config.insert("colour".to_owned(), "blue".to_owned());
    })
    .await;
    let said: Vec<&str> = text(&invoked).lines().collect();
    let starts = [
        r#"config: ok [("colour", "blue"), ("model", "large")]"#,
        "progress: ok",
        "progress kind: invalid: the kind of an event must have 1 to 64",
        "progress size: over the limit \"events\" of 1048576",
        "pin: ok None",
        "status: denied: the session has no repository; to allow it: [agents.tester] repository",
        "diff: denied",
        "read: denied",
        "list: ok 0",
        "save: unavailable: no session",
        "save name: invalid: the name of a checkpoint must not have blanks at its ends",
        "stat: not found: /workspace",
        "stat id: invalid: \"short\" is not a checkpoint id",
        "changes: ok 0",
        "restore: not found",
    ];
    for (line, start) in said.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\ninstead of {start}");
    }
    assert_eq!(said.len(), starts.len());
    assert!(events.contains(&GuestEvent::Progress { kind: "probe.started".to_owned(), payload: "input".to_owned() }));
}

#[tokio::test]
async fn what_is_not_granted_is_refused_before_it_runs() {
    let engine = components::engine(1);
    let (mut call, events) = components::call("");
    call.grants.capabilities.remove(&Capability::Progress);
    let error = invoke(&engine, &*load(&engine, "capabilities").await, call, &Cancel::never()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Denied, "not_granted"));
    assert!(error.message().contains("landfall:agent/progress@0.1.0 is not granted to agent tester"), "{error}");
    assert!(events.take().is_empty());
}

/// Checkpoints of a host that fails or never answers.
#[derive(Debug)]
struct Broken {
    stuck: bool,
}

#[async_trait::async_trait]
impl CheckpointService for Broken {
    async fn list(&self) -> Result<Vec<SessionCheckpoint>, Refusal> {
        if self.stuck { std::future::pending().await } else { Err(Refusal::Host(Error::internal("the session is lost").code("fenced"))) }
    }

    async fn save(&self, name: &str, workspace: &Workspace) -> Result<SessionCheckpoint, Refusal> {
        NoCheckpoints.save(name, workspace).await
    }

    async fn stat(&self, at: &Reference, path: &str) -> Result<FileInfo, Refusal> {
        NoCheckpoints.stat(at, path).await
    }

    async fn read(&self, at: &Reference, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        NoCheckpoints.read(at, path, offset, length).await
    }

    async fn diff(&self, before: &Reference, after: Option<&Reference>, workspace: &Workspace) -> Result<Vec<Change>, Refusal> {
        NoCheckpoints.diff(before, after, workspace).await
    }

    async fn restore(&self, to: &Reference, state: bool, workspace: &Workspace) -> Result<(), Refusal> {
        NoCheckpoints.restore(to, state, workspace).await
    }
}

#[tokio::test]
async fn the_hosts_own_failure_comes_back_as_itself() {
    let engine = components::engine(1);
    let (mut call, _) = components::call("");
    call.checkpoints = Arc::new(Broken { stuck: false });
    let error = invoke(&engine, &*load(&engine, "capabilities").await, call, &Cancel::never()).await.unwrap_err();
    assert_eq!(error.stable_code(), "fenced");
}

#[tokio::test]
async fn a_stuck_call_of_the_host_is_stopped_too() {
    let limit = Duration::from_millis(50);
    let (invoked, _) = run("capabilities", "", |call| {
        call.checkpoints = Arc::new(Broken { stuck: true });
        call.limits.time = limit;
    })
    .await;
    assert_eq!(failure(invoked), GuestFailure::OutOfTime { limit });
}

#[tokio::test]
async fn guests_wait_for_a_place_and_a_waiting_one_can_be_cancelled() {
    let engine = components::engine(1);
    let spin = load(&engine, "spin").await;
    let (first, first_cancel) = Canceller::new();
    let (call, _) = components::call("loop");
    let running = {
        let (engine, spin) = (engine.clone(), Arc::clone(&spin));
        tokio::spawn(async move { invoke(&engine, &spin, call, &first_cancel).await.unwrap() })
    };
    tokio::task::yield_now().await;
    let waiting = cancelled(&engine, "hello", "").await;
    assert_eq!(failure(waiting), GuestFailure::Cancelled(CancelReason::Requested));
    first.cancel(CancelReason::Shutdown);
    assert_eq!(failure(running.await.unwrap()), GuestFailure::Cancelled(CancelReason::Shutdown));
    let (call, _) = components::call("again");
    let invoked = invoke(&engine, &*load(&engine, "hello").await, call, &Cancel::never()).await.unwrap();
    assert_eq!(text(&invoked), "hello again");
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_its_place_back() {
    let engine = components::engine(1);
    let spin = load(&engine, "spin").await;
    for way in ["loop", "sleep"] {
        let (call, _) = components::call(way);
        let stopped = tokio::time::timeout(Duration::from_millis(50), invoke(&engine, &spin, call, &Cancel::never())).await;
        assert!(stopped.is_err());
    }
    let (call, _) = components::call("again");
    let invoked = invoke(&engine, &*load(&engine, "hello").await, call, &Cancel::never()).await.unwrap();
    assert_eq!(text(&invoked), "hello again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_guests_at_once_keep_apart() {
    let engine = components::engine(8);
    let hello = load(&engine, "hello").await;
    let calls = (0..64).map(|number| {
        let (engine, hello) = (engine.clone(), Arc::clone(&hello));
        let (call, events) = components::call(&number.to_string());
        tokio::spawn(async move {
            let invoked = invoke(&engine, &hello, call, &Cancel::never()).await.unwrap();
            (number, text(&invoked).to_owned(), events)
        })
    });
    for running in calls.collect::<Vec<_>>() {
        let (number, said, events): (i32, String, Arc<CollectedEvents>) = running.await.unwrap();
        assert_eq!(said, format!("hello {number}"));
        assert_eq!(events.take().len(), 1);
    }
}
