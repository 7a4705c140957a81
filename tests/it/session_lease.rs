//! Turns of a session without accidents: leases, commits, records, cancels, saves, deletion.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::ErrorKind;
use landfall::session::record::{Failure, Text};
use landfall::session::replica::{LEASE, Process};
use landfall::session::{Acquired, Committed, Head, Held, Origin, Replica, RunRecord, Status, Trigger};
use landfall::store::{Key, Prefix};
use landfall_tests::replicas::{Member, World, checkpoint, entry, run, session};
use object_store::ObjectStoreExt as _;

async fn held(member: &Member, name: &str, n: u64) -> Held {
    match member.sessions.acquire(&session(name), run(n), None).await.unwrap() {
        Acquired::Held(held) => *held,
        other => panic!("{other:?}"),
    }
}

fn completed(member: &Member, held: &Held, left: u8) -> RunRecord {
    let mut record = member.sessions.new_record(held, Trigger::Manual, Origin::Server);
    record.status = Status::Completed;
    record.output = Some(Text::Inline(format!("output {left}")));
    record.after = Some(checkpoint(left));
    record
}

async fn finish(member: &Member, mut held: Held, status: Status, left: u8) -> Committed {
    let mut record = completed(member, &held, left);
    record.status = status;
    if status != Status::Completed {
        record.after = record.before.clone();
        record.failure = Some(Failure::new("trap", "it trapped"));
        record.workspace_rolled_back = true;
    }
    member.sessions.commit(&mut held, record, &[]).await.unwrap()
}

async fn turn(member: &Member, name: &str, n: u64) -> Committed {
    member.sessions.enqueue(&entry(member, name, n)).await.unwrap();
    let held = held(member, name, n).await;
    finish(member, held, Status::Completed, u8::try_from(n % 256).unwrap()).await
}

async fn head(member: &Member, name: &str) -> Head {
    member.sessions.get(&session(name)).await.unwrap().head
}

#[tokio::test]
async fn turns_chain_checkpoints_and_records() {
    let world = World::default();
    let member = world.member("one").await;
    let error = member.sessions.get(&session("s")).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "session_missing"));
    let first = turn(&member, "s", 1).await;
    assert_eq!((first.record.seq, first.record.turn, first.record.before.clone()), (1, 1, None));
    let second = turn(&member, "s", 2).await;
    assert_eq!(second.record.before, Some(checkpoint(1)));
    let failed = finish(&member, held(&member, "s", 3).await, Status::Failed, 9).await;
    assert_eq!((failed.record.seq, failed.record.turn, failed.record.after.clone()), (3, 3, Some(checkpoint(2))));
    assert!(failed.record.workspace_rolled_back);
    let third = turn(&member, "s", 4).await;
    assert_eq!((third.record.seq, third.record.turn, third.record.before.clone()), (4, 3, Some(checkpoint(2))));

    let now = head(&member, "s").await;
    assert_eq!((now.seq, now.turn, now.checkpoint.clone(), now.lease.clone()), (4, 3, Some(checkpoint(4)), None));
    let records = member.sessions.records(&now, 10).await.unwrap();
    assert_eq!(records.iter().map(|record| record.run).collect::<Vec<_>>(), [run(4), run(3), run(2), run(1)]);
    assert_eq!(member.sessions.record(&session("s"), run(3)).await.unwrap(), failed.record);
    assert_eq!(member.sessions.queue(&session("s")).await.unwrap().len(), 0, "ended runs leave the queue");
    let error = member.sessions.record(&session("s"), run(77)).await.unwrap_err();
    assert_eq!(error.stable_code(), "run_missing");
}

#[tokio::test]
async fn a_small_warm_turn_makes_few_requests() {
    let world = World::default();
    let member = world.member("one").await;
    let first = turn(&member, "s", 1).await;
    let before = member.sessions.store().counts();
    member.sessions.enqueue(&entry(&member, "s", 2)).await.unwrap();
    let Acquired::Held(held) = member.sessions.acquire(&session("s"), run(2), Some(first.snapshot)).await.unwrap() else { panic!() };
    finish(&member, *held, Status::Completed, 2).await;
    let after = member.sessions.store().counts();
    // Entry, lease, record, head; and the entry's deletion. One pack more makes five writes.
    assert_eq!((after.puts - before.puts, after.deletes - before.deletes), (4, 1));
    assert_eq!(after.requests() - before.requests(), 5, "a known head isn't read again");
}

#[tokio::test]
async fn a_stale_warm_head_is_only_a_lost_read() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    let old = turn(&one, "s", 1).await.snapshot;
    turn(&two, "s", 2).await;
    let Acquired::Held(held) = one.sessions.acquire(&session("s"), run(3), Some(old)).await.unwrap() else { panic!() };
    assert_eq!(held.checkpoint(), Some(&checkpoint(2)), "it goes on from what is there");
}

#[tokio::test]
async fn a_busy_session_is_waited_for_in_order() {
    let world = World::default();
    let (one, two, three) = (world.member("one").await, world.member("two").await, world.member("three").await);
    for (member, n) in [(&one, 1), (&two, 2), (&three, 3)] {
        member.sessions.enqueue(&entry(member, "s", n)).await.unwrap();
    }
    let first = held(&one, "s", 1).await;
    let Acquired::Busy(lease) = two.sessions.acquire(&session("s"), run(2), None).await.unwrap() else { panic!() };
    assert_eq!((&lease.owner, lease.run), (one.sessions.owner(), run(1)));
    assert_eq!(held_error(&two, &first).await, "session_busy");

    // Nobody waits for ever.
    let deadline = two.clock_boot() + Duration::from_secs(5);
    let told = AtomicU32::new(0);
    let name = session("s");
    let waited = two.sessions.acquire_in_order(&name, run(2), None, Some(deadline), |lease| {
        assert_eq!(lease.run, run(1));
        told.fetch_add(1, Ordering::SeqCst);
    });
    assert!(matches!(waited.await.unwrap(), Acquired::Busy(_)));
    assert_eq!(told.load(Ordering::SeqCst), 1);

    // The third came later, so it lets the second one go first, although it looks just as often.
    let order = std::sync::Mutex::new(Vec::new());
    let go = async |member: &Member, n: u64| {
        member.replica.renew().await.unwrap();
        let Acquired::Held(held) = member.sessions.acquire_in_order(&session("s"), run(n), None, None, |_| {}).await.unwrap() else {
            panic!()
        };
        order.lock().unwrap().push(n);
        finish(member, *held, Status::Completed, 1).await;
    };
    let release = async {
        for _ in 0..5 {
            one.replica.renew().await.unwrap();
            tokio::task::yield_now().await;
        }
        finish(&one, first, Status::Completed, 1).await;
    };
    let alive = async {
        // Waiting moves the waiters' clocks on, so the owner has to show signs of life.
        for _ in 0..20_000 {
            one.replica.renew().await.unwrap();
            tokio::task::yield_now().await;
            if order.lock().unwrap().len() == 2 {
                break;
            }
        }
    };
    tokio::join!(go(&three, 3), go(&two, 2), release, alive);
    assert_eq!(*order.lock().unwrap(), [2, 3]);
}

trait Boot {
    fn clock_boot(&self) -> Duration;
}

impl Boot for Member {
    fn clock_boot(&self) -> Duration {
        landfall::clock::Clock::boot(&*self.clock)
    }
}

/// What deleting a session under a lease answers.
async fn held_error(member: &Member, held: &Held) -> &'static str {
    member.sessions.delete(held.session()).await.unwrap_err().stable_code()
}

#[tokio::test]
async fn an_ended_run_is_answered_with_its_record() {
    let world = World::default();
    let member = world.member("one").await;
    let done = turn(&member, "s", 1).await.record;
    let Acquired::Ended(record) = member.sessions.acquire(&session("s"), run(1), None).await.unwrap() else { panic!() };
    assert_eq!(*record, done);
    // The same id with another input isn't the same request.
    let waiting = entry(&member, "s", 2);
    member.sessions.enqueue(&waiting).await.unwrap();
    member.sessions.enqueue(&waiting).await.unwrap();
    let mut other = waiting.clone();
    other.input = landfall::session::record::Input::of("something else");
    assert_eq!(member.sessions.enqueue(&other).await.unwrap_err().stable_code(), "key_reused");
    let error = member.sessions.record(&session("s"), run(2)).await.unwrap_err();
    assert_eq!(error.stable_code(), "run_not_done");
    assert!(error.message().contains(&checkpoint(1).id.to_string()), "{error:?}");
}

#[tokio::test]
async fn changes_by_others_are_no_lost_lease() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    turn(&one, "s", 1).await;
    let mut mine = held(&one, "s", 2).await;
    for n in [55, 56] {
        one.sessions.enqueue(&entry(&one, "s", n)).await.unwrap();
    }
    // Others change the head while the turn runs.
    two.sessions.cancel(&session("s"), run(55)).await.unwrap();
    one.sessions.save(&mut mine, "half", &checkpoint(7)).await.unwrap();
    two.sessions.cancel(&session("s"), run(56)).await.unwrap();
    one.sessions.check(&mine).await.unwrap();
    let done = finish(&one, mine, Status::Completed, 2).await;
    assert_eq!(done.record.status, Status::Completed);
    let now = head(&two, "s").await;
    assert_eq!((now.cancels.as_slice(), now.saves.len(), now.turn), ([run(55), run(56)].as_slice(), 1, 2));
}

#[tokio::test]
async fn a_cancel_before_the_commit_wins_and_one_after_it_is_late() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    turn(&one, "s", 1).await;
    let mine = held(&one, "s", 2).await;
    two.sessions.cancel(&session("s"), run(2)).await.unwrap();
    let error = one.sessions.check(&mine).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Cancelled, "cancelled"));
    let done = finish(&one, mine, Status::Completed, 2).await;
    assert_eq!(
        (done.record.status, done.record.after.clone(), done.record.workspace_rolled_back),
        (Status::Cancelled, Some(checkpoint(1)), true)
    );
    assert_eq!(two.sessions.record(&session("s"), run(2)).await.unwrap(), done.record, "the stored record says so too");
    assert_eq!(head(&one, "s").await.checkpoint, Some(checkpoint(1)));
    assert_eq!(two.sessions.cancel(&session("s"), run(2)).await.unwrap_err().stable_code(), "already_done");
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_its_name_begins_anew() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    turn(&one, "s", 1).await;
    turn(&one, "other", 2).await;
    let before = head(&one, "s").await;
    one.sessions.delete(&session("s")).await.unwrap();
    assert_eq!(one.sessions.get(&session("s")).await.unwrap_err().stable_code(), "session_deleted");
    let listed = two.sessions.list(None).await.unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), [session("other")]);
    let again = turn(&two, "s", 3).await;
    assert_ne!(again.record.incarnation, before.incarnation);
    assert_eq!((again.record.seq, again.record.before.clone()), (1, None));
    assert!(again.record.epoch > before.epoch);
    let error = two.sessions.record(&session("s"), run(1)).await.unwrap_err();
    assert_eq!(error.stable_code(), "run_missing", "a record of the deleted session isn't one of the new one");
}

#[tokio::test]
async fn a_long_session_keeps_a_small_head_and_its_whole_log() {
    const TURNS: u64 = 150;
    let world = World::default();
    let member = world.member("one").await;
    for n in 1..=TURNS {
        turn(&member, "s", n).await;
    }
    let now = head(&member, "s").await;
    assert!(now.recent.len() <= 34, "{}", now.recent.len());
    let size = member.good.size(&Key::Head(session("s"))).await.unwrap().unwrap();
    assert!(size < 12 << 10, "{size}");
    let records = member.sessions.records(&now, usize::MAX).await.unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), (1..=TURNS).rev().collect::<Vec<_>>());
    // A run that the head has forgotten is still known not to be run again.
    assert_eq!(member.sessions.ended(&session("s"), run(1)).await.unwrap().map(|record| record.seq), Some(1));
    assert!(member.sessions.ended(&session("s"), run(TURNS + 1)).await.unwrap().is_none());
    assert_eq!(member.sessions.record(&session("s"), run(1)).await.unwrap().seq, 1);
    let mut twice = held(&member, "s", 1).await;
    let record = completed(&member, &twice, 9);
    assert_eq!(member.sessions.commit(&mut twice, record, &[]).await.unwrap_err().stable_code(), "already_done");
}

#[tokio::test]
async fn queue_entries_that_were_left_over_are_swept_and_never_run() {
    let world = World::default();
    let member = world.member("one").await;
    for n in 1..=70 {
        turn(&member, "s", n).await;
        // As if the process had died before it deleted the entry.
        member.sessions.enqueue(&entry(&member, "s", n)).await.unwrap();
    }
    member.sessions.enqueue(&entry(&member, "s", 100)).await.unwrap();
    assert_eq!(member.sessions.sweep(&session("s")).await.unwrap(), 70);
    let left: Vec<_> = member.sessions.queue(&session("s")).await.unwrap().iter().map(|queued| queued.entry.run).collect();
    assert_eq!(left, [run(100)]);
}

#[tokio::test]
async fn damaged_records_and_heads_are_noticed_and_named() {
    let world = World::default();
    let member = world.member("one").await;
    for n in 1..=3 {
        turn(&member, "s", n).await;
    }
    turn(&member, "t", 9).await;
    let raw = |key: Key| raw_path(&key);
    let now = head(&member, "s").await;
    // A record replaced by a good one, that of another run; one that is gone; and a changed byte.
    let other = world.objects.get(&raw(Key::Run(session("s"), run(1)))).await.unwrap().bytes().await.unwrap();
    world.objects.put(&raw(Key::Run(session("s"), run(3))), other.into()).await.unwrap();
    let error = member.sessions.records(&now, 1).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "record_damaged"), "{error:?}");
    world.objects.delete(&raw(Key::Run(session("s"), run(3)))).await.unwrap();
    assert_eq!(member.sessions.record(&session("s"), run(3)).await.unwrap_err().stable_code(), "record_missing");
    let key = raw(Key::Run(session("s"), run(2)));
    let mut bytes = world.objects.get(&key).await.unwrap().bytes().await.unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    world.objects.put(&key, bytes.into()).await.unwrap();
    let error = member.sessions.record(&session("s"), run(2)).await.unwrap_err();
    assert_eq!(error.stable_code(), "record_damaged");
    assert!(error.message().contains(&run(2).to_string()) && error.next_step().is_some(), "{error:?}");
    // A head that is another session's hides no other session.
    let head = world.objects.get(&raw(Key::Head(session("t")))).await.unwrap().bytes().await.unwrap();
    world.objects.put(&raw(Key::Head(session("s"))), head.into()).await.unwrap();
    let listed = member.sessions.list(None).await.unwrap();
    assert_eq!(listed[0].1.as_ref().unwrap_err().stable_code(), "head_damaged");
    assert!(listed[1].1.is_ok());
    assert_eq!(member.sessions.acquire(&session("s"), run(10), None).await.unwrap_err().stable_code(), "head_damaged");
}

#[expect(clippy::disallowed_methods, reason = "the test reaches round the store on purpose")]
fn raw_path(key: &Key) -> object_store::path::Path {
    object_store::path::Path::parse(key.to_string()).unwrap()
}

#[tokio::test]
async fn a_process_that_is_gone_from_this_machine_is_known_to_be_at_once() {
    let world = World::default();
    let one = world.member("one").await;
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let current = Process::current().expect("/proc is there");
    assert!(!current.is_dead());
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let process = Process { host: current.host.clone(), pid: child.id(), started };
    assert!(!process.is_dead());
    let other = Replica::start(one.good.clone(), "other".parse().unwrap(), None, Some(process.clone())).await.unwrap();
    assert!(!one.replica.is_gone(other.owner()).await.unwrap());
    child.kill().unwrap();
    while !std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert!(process.is_dead(), "a zombie has ended");
    child.wait().unwrap();
    assert!(process.is_dead());
    assert!(one.replica.is_gone(other.owner()).await.unwrap());
    // The same number on another machine says nothing; a later process with the same number is another one.
    assert!(!Process { host: "elsewhere".into(), ..process.clone() }.is_dead());
    assert!(Process { started: current.started + 1, ..current }.is_dead());
    other.stop().await.unwrap();
    assert_eq!(one.good.list(&Prefix::Replicas).await.unwrap().objects.len(), 1);
}

#[tokio::test]
async fn a_silent_replica_is_gone_after_a_whole_lease_on_the_watchers_clock() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    let gone = async || one.replica.is_gone(two.sessions.owner()).await.unwrap();
    one.clock.advance(LEASE * 10);
    assert!(!gone().await, "the first look only starts the time");
    one.clock.advance(LEASE - Duration::from_millis(1));
    assert!(!gone().await);
    two.replica.renew().await.unwrap();
    one.clock.advance(Duration::from_millis(1));
    assert!(!gone().await, "it showed a sign of life");
    one.clock.advance(LEASE);
    assert!(gone().await);
    assert!(!one.replica.is_gone(one.sessions.owner()).await.unwrap(), "nobody takes himself for dead");
    // One that stopped has no object any more, and one whose object was taken away learns of it.
    one.good.delete(&Key::Replica(two.sessions.owner().replica.clone(), two.sessions.owner().boot)).await.unwrap();
    assert!(gone().await);
    assert_eq!(two.replica.renew().await.unwrap_err().stable_code(), "replica_gone");
    assert_eq!(two.replica.keep_alive().await.stable_code(), "replica_gone");
}
