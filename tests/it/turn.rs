//! Turns from the request to the commit, through the library, with real guests.

use std::sync::Arc;
use std::time::Duration;

use landfall::ErrorKind;
use landfall::cancel::{Cancel, CancelReason, Canceller};
use landfall::config::Agent;
use landfall::session::record::{Status, Text};
use landfall::session::selector::Selector;
use landfall::trigger::{Busy, RunEvent, TurnRequest};
use landfall_tests::git_server::{GitServer, TestRepository};
use landfall_tests::turns::{Seen, Turns, agent, agent_on, run};

fn head(agent: &str, session: &str) -> Selector {
    format!("{agent}/{session}").parse().unwrap()
}

fn output(record: &landfall::session::record::RunRecord) -> &str {
    match &record.output {
        Some(Text::Inline(text)) => text,
        other => panic!("no inline output: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_with_an_empty_cache_goes_on_from_the_checkpoint() {
    let turns = Turns::new().unwrap();
    let origin = turns.folder.path().join("origin");
    std::fs::create_dir(&origin).unwrap();
    let repository = TestRepository::create(&origin, "app.git").unwrap();
    repository.write("src/main.rs", b"fn main() {\n    // TODO: say hello\n}\n").unwrap();
    repository.write("tool.sh", b"#!/bin/sh\n# FIXME quoting\n").unwrap();
    let commit = repository.commit("first").unwrap();
    let server = GitServer::start(&origin).await.unwrap();
    let ca = turns.folder.path().join("ca.pem");
    std::fs::write(&ca, server.ca_pem().unwrap()).unwrap();
    let agents = [("todo", agent_on("todo-report", &server.url("app.git"), Some(&ca)))];

    let first = turns.host("one", &agents).unwrap();
    let record = run(&first, "todo", "s", "").await.unwrap();
    assert_eq!((record.status, record.turn, record.seq), (Status::Completed, 1, 1), "{record:?}");
    assert_eq!(record.pin.as_ref().unwrap().commit.to_string(), commit);
    first.close().await.unwrap();
    drop(first);

    // The remote moves on; the session doesn't.
    repository.write("src/main.rs", b"fn main() {}\n").unwrap();
    repository.commit("second").unwrap();
    let asked = server.seen().len();

    let second = turns.host("two", &agents).unwrap();
    let mut request = TurnRequest::new("todo".parse().unwrap(), "s".parse().unwrap(), "");
    request.params = vec![("markers".to_owned(), "TODO,FIXME,fn".to_owned())];
    let record = second.run(request, Arc::new(Seen::default()), Cancel::never()).await.unwrap();
    assert_eq!((record.status, record.turn), (Status::Completed, 2), "{record:?}");
    assert_eq!(server.seen().len(), asked, "a later turn asked the remote");
    let checkpoint = second.open(&head("todo", "s")).await.unwrap();
    let main = checkpoint.read("/workspace/src/main.rs", 0, 1000).await.unwrap();
    assert_eq!(&main[..], b"fn main() {\n    // TODO: say hello\n}\n");
    let report = String::from_utf8(checkpoint.read("/workspace/REPORT.md", 0, 100_000).await.unwrap().to_vec()).unwrap();
    assert!(report.contains("src/main.rs") && report.contains("tool.sh"), "{report}");
    // What it changed since its pin goes onto a checkout of the pin.
    let patch = second.diff_from_pin(&checkpoint, &[]).await.unwrap();
    let file = turns.folder.path().join("session.patch");
    std::fs::write(&file, &patch).unwrap();
    repository.git(&["checkout", "-q", "--detach", &commit]).unwrap();
    repository.git(&["apply", "--check", file.to_str().unwrap()]).unwrap();
    let report = second.verify(&checkpoint, true).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_leaves_the_files_as_they_were() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("bot", agent("trap"))]).unwrap();
    let record = run(&host, "bot", "s", "panic").await.unwrap();
    assert_eq!(record.status, Status::Failed);
    assert!(record.workspace_rolled_back);
    assert_eq!(record.failure.as_ref().unwrap().code, "trap", "{record:?}");
    let state = host
        .session(
            &"bot/s"
                .split_once('/')
                .map(|(a, s)| landfall::id::SessionRef { agent: a.parse().unwrap(), session: s.parse().unwrap() })
                .unwrap(),
        )
        .await
        .unwrap();
    assert_eq!((state.seq, state.turn, state.lease.is_none()), (1, 0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_stdin_and_arguments_and_answers_by_stdout() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("cmd", Agent { args: vec!["0".to_owned()], ..agent("exit-code") })]).unwrap();
    let record = run(&host, "cmd", "s", "hello").await.unwrap();
    assert_eq!((record.status, output(&record)), (Status::Completed, "hello"));
    let mut request = TurnRequest::new("cmd".parse().unwrap(), "s".parse().unwrap(), "more");
    request.args = Some(vec!["7".to_owned()]);
    let record = host.run(request, Arc::new(Seen::default()), Cancel::never()).await.unwrap();
    assert_eq!(record.status, Status::Failed);
    assert_eq!(record.failure.as_ref().unwrap().code, "exit_code", "{record:?}");
    assert_eq!(record.turn, 2, "the number that the next turn will have too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_is_recorded_and_gives_its_lease_back() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("spin", agent("spin")), ("hello", agent("hello"))]).unwrap();
    let (canceller, cancel) = Canceller::new();
    let seen = Arc::new(Seen::default());
    let running = {
        let (host, seen) = (host.clone(), Arc::clone(&seen));
        tokio::spawn(async move { host.run(TurnRequest::new("spin".parse().unwrap(), "s".parse().unwrap(), "loop"), seen, cancel).await })
    };
    let started = || seen.0.lock().unwrap().iter().any(|event| matches!(event, RunEvent::Step(landfall::trigger::Step::Running)));
    while !started() && !running.is_finished() {
        tokio::task::yield_now().await;
    }
    // The session is busy, and says so to who won't wait.
    let mut impatient = TurnRequest::new("spin".parse().unwrap(), "s".parse().unwrap(), "loop");
    impatient.busy = Busy::Refuse;
    let busy = host.run(impatient, Arc::new(Seen::default()), Cancel::never()).await.unwrap_err();
    assert_eq!((busy.kind(), busy.stable_code()), (ErrorKind::Conflict, "session_busy"));
    canceller.cancel(CancelReason::Requested);
    let record = running.await.unwrap().unwrap();
    assert_eq!(record.status, Status::Cancelled);
    let sessions = host.sessions(None).await.unwrap();
    assert!(sessions.iter().all(|head| head.lease.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spinning_turn_ends_at_its_time_limit() {
    let turns = Turns::new().unwrap();
    let mut spin = agent("spin");
    spin.limits.turn = Duration::from_millis(300);
    let host = turns.host("one", &[("spin", spin)]).unwrap();
    let record = run(&host, "spin", "s", "loop").await.unwrap();
    assert_eq!(record.status, Status::TimedOut);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_run() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("hello", agent("hello"))]).unwrap();
    run(&host, "hello", "s", "first").await.unwrap();
    let keyed = |input: &str| {
        let mut request = TurnRequest::new("hello".parse().unwrap(), "s".parse().unwrap(), input);
        request.key = Some("order-66".to_owned());
        request
    };
    let first = host.run(keyed("a"), Arc::new(Seen::default()), Cancel::never()).await.unwrap();
    let again = host.run(keyed("a"), Arc::new(Seen::default()), Cancel::never()).await.unwrap();
    assert_eq!(first, again);
    let other = host.run(keyed("b"), Arc::new(Seen::default()), Cancel::never()).await.unwrap_err();
    assert_eq!(other.stable_code(), "key_reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_warm_turn_makes_few_requests() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("hello", agent("hello"))]).unwrap();
    for _ in 0..3 {
        run(&host, "hello", "s", "x").await.unwrap();
    }
    let before = host.store().counts();
    run(&host, "hello", "s", "y").await.unwrap();
    let after = host.store().counts();
    let puts = after.puts - before.puts;
    let all =
        puts + (after.gets - before.gets) + (after.heads - before.heads) + (after.lists - before.lists) + (after.deletes - before.deletes);
    assert!(puts <= 5 && all <= 8, "{puts} PUTs of {all} requests: {before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_turn_that_can_t_be_pinned_leaves_no_session_behind_it() {
    let turns = Turns::new().unwrap();
    let origin = turns.folder.path().join("origin");
    std::fs::create_dir(&origin).unwrap();
    let repository = TestRepository::create(&origin, "app.git").unwrap();
    repository.write("a", b"a\n").unwrap();
    repository.commit("first").unwrap();
    let server = GitServer::start(&origin).await.unwrap();
    let ca = turns.folder.path().join("ca.pem");
    std::fs::write(&ca, server.ca_pem().unwrap()).unwrap();
    let host = turns.host("one", &[("todo", agent_on("todo-report", &server.url("app.git"), Some(&ca)))]).unwrap();
    let mut request = TurnRequest::new("todo".parse().unwrap(), "s".parse().unwrap(), "");
    request.choice = Some(landfall::trigger::PinChoice::Branch("no-such-branch".to_owned()));
    let error = host.run(request, Arc::new(Seen::default()), Cancel::never()).await.unwrap_err();
    assert!(error.chain().contains("no-such-branch"), "{error:?}");
    assert!(host.sessions(None).await.unwrap().is_empty());
    // The next one isn't bound by it.
    let record = run(&host, "todo", "s", "").await.unwrap();
    assert_eq!((record.status, record.seq), (Status::Completed, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_agents_and_large_inputs_are_refused_before_anything_is_written() {
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("hello", agent("hello"))]).unwrap();
    let error = run(&host, "helo", "s", "").await.unwrap_err();
    assert_eq!((error.stable_code(), error.next_step()), ("unknown_agent", Some("did you mean hello?")));
    let error = run(&host, "hello", "s", &"x".repeat((1 << 20) + 1)).await.unwrap_err();
    assert_eq!(error.stable_code(), "request_too_large");
    assert_eq!(host.store().counts().puts, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_tmp_is_its_own() {
    let turns = Turns::new().unwrap();
    let mut quota = agent("quota");
    quota.limits.tmp = 1 << 20;
    let host = turns.host("one", &[("quota", quota)]).unwrap();
    let record = run(&host, "quota", "s", "bytes /tmp").await.unwrap();
    assert_eq!(output(&record), "16 StorageFull", "1 MiB in pieces of 64 KiB");
}
