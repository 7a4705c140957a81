//! Whole sessions as people change them: forks, rollbacks, deletion, and sessions that begin with files.

use std::sync::Arc;

use landfall::checkpoint::import::{From, ImportOptions};
use landfall::config::Agent;
use landfall::host::Host;
use landfall::id::SessionRef;
use landfall::session::selector::Selector;
use landfall_tests::command::Commands;
use landfall_tests::replicas::{World, run, session};
use landfall_tests::turns::{Turns, agent};

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

fn name(text: &str) -> SessionRef {
    landfall::session::selector::parse_session(text).unwrap()
}

/// A host with an agent that is never run.
fn host(turns: &Turns, cache: &str) -> Host {
    let agents: [(&str, Agent); 1] = [("bot", agent("hello"))];
    turns.host(cache, &agents).unwrap()
}

/// Brings files as a session.
async fn bring(host: &Host, session: &str, files: &[(&str, &str)]) -> landfall::Result<landfall::session::record::RunRecord> {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let at = dir.path().join(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }
    let from = From::Folder(dir.path().to_owned());
    host.import(&name(session), from, &ImportOptions::default()).await.map(|(record, _)| record)
}

async fn read(host: &Host, checkpoint: &str, path: &str) -> landfall::Result<String> {
    let bytes = host.open(&selector(checkpoint)).await?.read(path, 0, 1 << 20).await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_become_a_session_and_a_fork_sees_none_of_what_comes_later() {
    let turns = Turns::new().unwrap();
    let host = host(&turns, "one");
    let long = "a line of text that doesn't fit an entry\n".repeat(50);
    let record = bring(&host, "bot/a", &[("src/x.txt", &long), ("y", "why")]).await.unwrap();
    assert_eq!((record.turn, record.is_completed()), (1, true));
    assert_eq!(bring(&host, "bot/a", &[]).await.unwrap_err().stable_code(), "session_exists");
    assert_eq!(bring(&host, "nobody/a", &[]).await.unwrap_err().stable_code(), "unknown_agent");

    let fork = host.fork(&selector("bot/a"), &name("bot/b")).await.unwrap();
    assert_eq!(fork.checkpoint.as_ref().map(|c| c.id), record.checkpoint_id());
    assert_eq!(host.fork(&selector("bot/a"), &name("bot/b")).await.unwrap_err().stable_code(), "session_exists");
    assert_eq!(host.fork(&selector("bot/a"), &name("bot/a")).await.unwrap_err().stable_code(), "usage");
    let parent = host.session(&name("bot/a")).await.unwrap();
    assert_eq!(parent.pins.iter().map(|pin| pin.child.to_string()).collect::<Vec<_>>(), ["bot/b"]);
    // It is listed, though it has had no turn of its own.
    let listed = host.sessions(None).await.unwrap();
    assert_eq!(listed.iter().map(|head| head.session.to_string()).collect::<Vec<_>>(), ["bot/a", "bot/b"]);

    // The parent goes; the fork reads on, also on a host that has nothing in memory.
    host.delete(&name("bot/a")).await.unwrap();
    assert_eq!(host.session(&name("bot/a")).await.unwrap_err().stable_code(), "session_deleted");
    let other = self::host(&turns, "two");
    assert_eq!(read(&other, "bot/b", "/workspace/src/x.txt").await.unwrap(), long);
    let report = other.verify(&other.open(&selector("bot/b")).await.unwrap(), true).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    // The name can be used again, and is another session.
    bring(&other, "bot/a", &[("z", "new")]).await.unwrap();
    assert_eq!(other.session(&name("bot/a")).await.unwrap().pins.len(), 1, "what the fork stands on is kept");
    assert_eq!(read(&other, "bot/b", "/workspace/y").await.unwrap(), "why");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_a_turn_and_can_be_rolled_back() {
    let turns = Turns::new().unwrap();
    let append = ["append", "/workspace/a", " and more"].map(str::to_owned).to_vec();
    let agents = [("notes", Agent { args: append, ..agent("fs-std") })];
    let host = turns.host("one", &agents).unwrap();
    let first = bring_to(&host, "notes/s").await;
    let base = first.checkpoint_id();
    let second = landfall_tests::turns::run(&host, "notes", "s", "").await.unwrap();
    assert!(second.is_completed() && second.checkpoint_id() != base, "{second:?}");
    let back = host.rollback(&name("notes/s"), &selector("notes/s@1")).await.unwrap();
    assert!(back.is_completed());
    assert_eq!(back.checkpoint_id(), base);
    let head = host.session(&name("notes/s")).await.unwrap();
    assert_eq!((head.checkpoint.map(|c| c.id), head.lease.is_none(), head.seq), (base, true, 3));
    // And forward again.
    let forward = host.rollback(&name("notes/s"), &Selector::Run(second.run)).await.unwrap();
    assert_eq!(forward.checkpoint_id(), second.checkpoint_id());
    let log = host.runs(&name("notes/s"), 10).await.unwrap();
    assert_eq!(log.len(), 4, "nothing is lost from the log");
    // Another session's checkpoint is no place to go back to.
    host.fork(&selector("notes/s@1"), &name("notes/t")).await.unwrap();
    assert_eq!(host.rollback(&name("notes/t"), &selector("notes/s@1")).await.unwrap_err().stable_code(), "usage");
    assert_eq!(host.rollback(&name("notes/none"), &selector("notes/s@1")).await.unwrap_err().stable_code(), "usage");
}

async fn bring_to(host: &Host, session: &str) -> landfall::session::record::RunRecord {
    bring(host, session, &[("a", "1")]).await.unwrap()
}

#[tokio::test]
async fn a_busy_session_is_neither_deleted_nor_rolled_back_and_a_dead_run_is_settled_first() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    let landfall::session::Acquired::Held(held) = one.sessions.acquire(&session("s"), run(1), None).await.unwrap() else { panic!("busy") };
    assert_eq!(two.sessions.delete(&session("s")).await.unwrap_err().stable_code(), "session_busy");
    // Its process vanishes.
    one.good.delete(&landfall::store::Key::Replica(one.sessions.owner().replica.clone(), one.sessions.owner().boot)).await.unwrap();
    let deleted = two.sessions.delete(&session("s")).await.unwrap();
    assert!(!deleted.head.is_open());
    // The writer that was taken for dead comes back, and is refused.
    let mut held = *held;
    let mut record = one.sessions.new_record(&held, landfall::session::Trigger::Manual, landfall::session::Origin::Server);
    record.status = landfall::session::Status::Completed;
    record.after = Some(landfall_tests::replicas::checkpoint(1));
    assert!(one.sessions.commit(&mut held, record, &[]).await.is_err());
    assert!(!two.sessions.load(&session("s")).await.unwrap().unwrap().head.is_open());
}

#[tokio::test]
async fn a_fork_whose_child_was_made_by_another_leaves_no_pin() {
    let world = World::default();
    let one = Arc::new(world.member("one").await);
    let landfall::session::Acquired::Held(held) = one.sessions.acquire(&session("p"), run(1), None).await.unwrap() else { panic!("busy") };
    let mut held = *held;
    let mut record = one.sessions.new_record(&held, landfall::session::Trigger::Manual, landfall::session::Origin::Server);
    record.status = landfall::session::Status::Completed;
    record.after = Some(landfall_tests::replicas::checkpoint(1));
    let parent = one.sessions.commit(&mut held, record, &[]).await.unwrap().snapshot.head;
    let kept = parent.current().unwrap();
    let (a, b) = (session("child"), session("child"));
    let (first, second) = tokio::join!(one.sessions.fork(&kept, &a), one.sessions.fork(&kept, &b));
    assert_eq!(usize::from(first.is_ok()) + usize::from(second.is_ok()), 1);
    let pins = one.sessions.get(&session("p")).await.unwrap().head.pins;
    let child = one.sessions.get(&session("child")).await.unwrap().head;
    assert_eq!(pins.iter().map(|pin| pin.incarnation).collect::<Vec<_>>(), [child.incarnation]);
    assert_eq!(child.forked_from.unwrap().session, session("p"));
}

#[test]
fn the_verbs_of_the_command() {
    let commands = Commands::new("version = 1\n[agents.hello]\ncomponent = \"{guests}/hello.wasm\"\n");
    let files = commands.folder().join("files");
    std::fs::create_dir_all(files.join("d")).unwrap();
    std::fs::write(files.join("d/f"), "text").unwrap();
    let (code, imported) = commands.json(&["checkpoint", "import", "files", "hello/a"]);
    assert_eq!((code, imported["status"].as_str()), (0, Some("completed")), "{imported}");
    let (code, turn) = commands.json(&["run", "hello", "--session", "a", "--input", "x"]);
    assert_eq!((code, turn["turn"].as_u64()), (0, Some(2)), "{turn}");
    let (code, fork) = commands.json(&["session", "fork", "hello/a@1", "b"]);
    assert_eq!((code, fork["session"].as_str()), (0, Some("hello/b")), "{fork}");
    let (code, back) = commands.json(&["session", "rollback", "hello/a", "1"]);
    assert_eq!((code, back["checkpoint"].as_str()), (0, imported["checkpoint"].as_str()), "{back}");
    // The same archive from either, by whatever way.
    let ran = commands.run(&["checkpoint", "export", "hello/a", "--output", "a.tar"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(commands.run(&["checkpoint", "export", "hello/b", "--output", "b.tar"]).code, 0);
    let bytes = |name: &str| std::fs::read(commands.folder().join(name)).unwrap();
    assert_eq!(bytes("a.tar"), bytes("b.tar"));
    let (code, again) = commands.json(&["checkpoint", "import", "a.tar", "hello/c"]);
    assert_eq!((code, again["checkpoint"].as_str()), (0, imported["checkpoint"].as_str()));
    let (code, _) = commands.json(&["session", "delete", "hello/a"]);
    assert_eq!(code, 0);
    assert_eq!(commands.run(&["session", "show", "hello/a"]).code, 2, "it is gone");
    let (code, verified) = commands.json(&["checkpoint", "verify", "hello/b"]);
    assert_eq!((code, verified["ok"].as_bool()), (0, Some(true)), "{verified}");
    let replicas = commands.store().join("replicas");
    assert!(!replicas.exists() || std::fs::read_dir(replicas).unwrap().next().is_none());
}
