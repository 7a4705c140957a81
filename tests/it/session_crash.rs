//! What a crash leaves at each step of a turn, and who goes on.

use std::sync::Arc;
use std::time::Duration;

use landfall::ErrorKind;
use landfall::session::replica::LEASE;
use landfall::session::{Acquired, Held, Origin, QueueEntry, RunRecord, Status};
use landfall::store::Key;
use landfall_tests::fault_store::Fault;
use landfall_tests::replicas::{Member, World, checkpoint, commit, completed, entry, held, run, session};

async fn acquire(member: &Member, n: u64) -> Acquired {
    member.sessions.acquire(&session("s"), run(n), None).await.unwrap()
}

/// Lets a whole lease pass on the watcher's clock.
async fn outwait(watcher: &Member, silent: &Member) {
    watcher.replica.is_gone(silent.sessions.owner()).await.unwrap();
    watcher.clock.advance(LEASE);
}

/// Takes the lease that the silent replica has, and returns what is to be settled.
async fn take_over(watcher: &Member, silent: &Member, wanted: u64) -> (Held, Option<QueueEntry>) {
    outwait(watcher, silent).await;
    match acquire(watcher, wanted).await {
        Acquired::Settle(held, entry) => (*held, entry.map(|entry| *entry)),
        Acquired::Held(held) => (*held, None),
        other => panic!("{other:?}"),
    }
}

/// Two replicas, and a session with one turn behind it.
async fn two() -> (Member, Member) {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    one.sessions.enqueue(&entry(&one, "s", 1)).await.unwrap();
    let mut mine = held(&one, 1).await;
    commit(&one, &mut mine, 1).await.unwrap();
    one.sessions.enqueue(&entry(&one, "s", 2)).await.unwrap();
    (one, two)
}

#[tokio::test]
async fn after_a_crash_with_the_lease_the_same_run_goes_first_and_the_dead_writer_is_fenced() {
    let (one, two) = two().await;
    let mut mine = held(&one, 2).await;
    assert!(matches!(acquire(&two, 3).await, Acquired::Busy(_)));
    let (mut theirs, entry) = take_over(&two, &one, 3).await;
    assert_eq!((theirs.run(), theirs.attempt, entry.map(|entry| entry.run)), (run(2), 2, Some(run(2))));
    assert_eq!(theirs.checkpoint(), Some(&checkpoint(1)));
    assert!(theirs.epoch() > mine.epoch());

    // The first one wakes up: whatever it does is refused, before and after the taker's commit.
    let record = completed(&one, &mine, 66);
    for _ in 0..2 {
        assert_eq!(one.sessions.check(&mine).await.unwrap_err().stable_code(), "fenced");
        assert_eq!(one.sessions.save(&mut mine, "x", &checkpoint(66)).await.unwrap_err().stable_code(), "fenced");
        let error = one.sessions.commit(&mut mine, record.clone(), &[]).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Conflict, "fenced"), "{error:?}");
        if theirs.head.seq == 1 {
            commit(&two, &mut theirs, 2).await.unwrap();
            break;
        }
    }
    let error = one.sessions.commit(&mut mine, record, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    let record = two.sessions.record(&session("s"), run(2)).await.unwrap();
    assert_eq!((record.attempt, record.after, &record.owner), (2, Some(checkpoint(2)), two.sessions.owner()));
    let head = two.sessions.get(&session("s")).await.unwrap().head;
    assert_eq!((head.seq, head.turn, head.checkpoint), (2, 2, Some(checkpoint(2))));
    // And now the other run's turn.
    assert!(matches!(acquire(&two, 3).await, Acquired::Held(_)));
}

#[tokio::test]
async fn a_record_without_its_head_is_not_official_and_is_written_over() {
    let (one, two) = two().await;
    let mut mine = held(&one, 2).await;
    // The record is written, and then the head can't be.
    one.faults.after("/head", 0, 1000, Fault::Fail500);
    let error = commit(&one, &mut mine, 66).await.unwrap_err();
    assert_eq!(error.stable_code(), "outcome_unknown", "{error:?}");
    let left = two.good.load::<RunRecord>(&Key::Run(session("s"), run(2))).await.unwrap().unwrap().value;
    let head = two.sessions.get(&session("s")).await.unwrap().head;
    assert_eq!((left.status, left.is_official(&head)), (Status::Completed, false));
    assert_eq!(two.sessions.record(&session("s"), run(2)).await.unwrap_err().stable_code(), "run_not_done");

    let (mut theirs, _) = take_over(&two, &one, 2).await;
    let claimed = two.good.load::<RunRecord>(&Key::Run(session("s"), run(2))).await.unwrap().unwrap().value;
    assert_eq!((claimed.status, claimed.epoch), (Status::Running, theirs.epoch()));
    // The dead one's late write of its record can't come through any more.
    one.faults.heal();
    assert_eq!(commit(&one, &mut mine, 66).await.unwrap_err().stable_code(), "fenced");
    commit(&two, &mut theirs, 2).await.unwrap();
    assert_eq!(two.sessions.record(&session("s"), run(2)).await.unwrap().after, Some(checkpoint(2)));
}

#[tokio::test]
async fn after_the_commit_nothing_runs_again() {
    let (one, two) = two().await;
    let mut mine = held(&one, 2).await;
    // The commit lands, and the process dies before it deletes the entry.
    commit(&one, &mut mine, 2).await.unwrap();
    one.sessions.enqueue(&entry(&one, "s", 2)).await.unwrap();
    let Acquired::Ended(record) = acquire(&two, 2).await else { panic!() };
    assert_eq!(record.status, Status::Completed);
    assert_eq!(two.sessions.sweep(&session("s")).await.unwrap(), 1);
    assert_eq!(two.sessions.queue(&session("s")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_commit_whose_answers_lie_happens_once() {
    for fault in [
        Fault::ApplyThen500,
        Fault::ApplyThen412,
        Fault::ApplyThen409,
        Fault::ApplyThenReset,
        Fault::Fail500,
        Fault::Fail409,
        Fault::TimeOut,
    ] {
        for part in ["/head", "/runs/"] {
            let (one, _) = two().await;
            let mut mine = held(&one, 2).await;
            let before = one.faults.hits();
            one.faults.next(part, fault);
            let done = commit(&one, &mut mine, 2).await.unwrap_or_else(|error| panic!("{fault:?} at {part}: {error:?}"));
            assert_eq!(one.faults.hits(), before + 1, "{fault:?} at {part}");
            let head = one.sessions.get(&session("s")).await.unwrap().head;
            assert_eq!((head.seq, head.turn, head.lease), (2, 2, None), "{fault:?} at {part}");
            assert_eq!(one.sessions.record(&session("s"), run(2)).await.unwrap(), done.record);
        }
    }
}

#[tokio::test]
async fn a_lease_whose_answer_was_lost_is_held_once() {
    for fault in [Fault::ApplyThen500, Fault::ApplyThen412, Fault::ApplyThenReset, Fault::Fail409] {
        let (one, _) = two().await;
        let before = one.faults.hits();
        one.faults.next("/head", fault);
        let mut mine = held(&one, 2).await;
        assert_eq!(one.faults.hits(), before + 1, "{fault:?}");
        assert_eq!((mine.epoch(), mine.attempt), (2, 1), "{fault:?}");
        commit(&one, &mut mine, 2).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_answer_at_the_first_turn_makes_one_session() {
    for fault in [Fault::ApplyThen500, Fault::ApplyThenReset, Fault::ApplyThen412] {
        let world = World::default();
        let one = world.member("one").await;
        one.faults.next("/head", fault);
        let mut mine = held(&one, 1).await;
        assert_eq!(one.faults.hits(), 1);
        let done = commit(&one, &mut mine, 1).await.unwrap();
        assert_eq!((done.record.seq, done.record.epoch), (1, 1));
    }
}

#[tokio::test]
async fn attempts_are_counted_over_crashes_and_a_run_is_abandoned_with_a_record() {
    let (one, two) = two().await;
    let first = held(&one, 2).await;
    let (second, entry) = take_over(&two, &one, 2).await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(entry, None, "it is the run that was asked for, so the entry is known");
    one.replica.renew().await.unwrap();
    let (mut third, entry) = take_over(&one, &two, 9).await;
    let entry = entry.unwrap();
    assert_eq!((third.attempt, entry.attempts_allowed()), (3, 3));
    let done = one.sessions.abandon(&mut third, Some(&entry), "its process died three times").await.unwrap();
    assert_eq!((done.record.status, done.record.failure.map(|failure| failure.code)), (Status::Failed, Some("abandoned".into())));
    assert_eq!(done.record.after, Some(checkpoint(1)));
    assert_eq!(done.record.input, Some(entry.input));
    assert!(matches!(acquire(&two, 2).await, Acquired::Ended(_)));
    assert_eq!(one.sessions.queue(&session("s")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_drained_run_goes_on_elsewhere_and_loses_no_attempt() {
    let (one, two) = two().await;
    let mine = held(&one, 2).await;
    one.sessions.release(mine, false).await.unwrap();
    let mut theirs = held(&two, 2).await;
    assert_eq!(theirs.attempt, 1);
    commit(&two, &mut theirs, 2).await.unwrap();
    assert_eq!(two.sessions.record(&session("s"), run(2)).await.unwrap().attempt, 1);
}

#[tokio::test]
async fn a_command_that_died_before_its_turn_leaves_nothing() {
    let (one, two) = two().await;
    let mut orphan = entry(&one, "s", 5);
    orphan.origin = Origin::Command;
    one.sessions.enqueue(&orphan).await.unwrap();
    assert_eq!(two.sessions.sweep(&session("s")).await.unwrap(), 0, "it may be alive");
    outwait(&two, &one).await;
    assert_eq!(two.sessions.sweep(&session("s")).await.unwrap(), 1);
    let left: Vec<_> = two.sessions.queue(&session("s")).await.unwrap().iter().map(|queued| queued.entry.run).collect();
    assert_eq!(left, [run(2)], "a server's run stays accepted");
    // One that gave up before it began takes its entry with it.
    let mine = held(&two, 7).await;
    two.sessions.forget(mine).await.unwrap();
    assert!(matches!(acquire(&two, 7).await, Acquired::Held(_)));
}

#[tokio::test]
async fn a_stopped_process_hands_its_leases_over_at_once() {
    let (one, two) = two().await;
    let _mine = held(&one, 2).await;
    one.replica.stop().await.unwrap();
    let Acquired::Held(theirs) = acquire(&two, 2).await else { panic!() };
    assert_eq!(theirs.attempt, 2);
}

#[tokio::test]
async fn a_process_takes_over_what_it_has_dropped_itself() {
    let (one, two) = two().await;
    // The store fails when the lease is to be given back, or the run's task is dropped: nobody else would ever take a living process for dead.
    drop(held(&one, 2).await);
    assert!(matches!(acquire(&two, 3).await, Acquired::Busy(_)));
    let Acquired::Settle(lost, Some(entry)) = acquire(&one, 3).await else { panic!() };
    assert_eq!((lost.run(), lost.attempt, entry.run), (run(2), 2, run(2)));
    // What is being worked at isn't lost.
    assert!(matches!(acquire(&one, 3).await, Acquired::Busy(_)));
}

#[tokio::test]
async fn a_replica_that_comes_back_after_its_session_was_deleted_and_made_again_changes_nothing() {
    let (one, two) = two().await;
    let mut mine = held(&one, 2).await;
    let (mut theirs, entry) = take_over(&two, &one, 2).await;
    two.sessions.abandon(&mut theirs, entry.as_ref(), "its process is silent").await.unwrap();
    two.sessions.delete(&session("s")).await.unwrap();
    commit(&one, &mut mine, 66).await.unwrap_err();
    let mut again = held(&two, 7).await;
    commit(&two, &mut again, 7).await.unwrap();
    let before = two.sessions.get(&session("s")).await.unwrap().head;
    for _ in 0..2 {
        assert_eq!(commit(&one, &mut mine, 66).await.unwrap_err().stable_code(), "fenced");
    }
    assert_eq!(two.sessions.get(&session("s")).await.unwrap().head, before);
    assert_eq!((before.seq, before.checkpoint), (1, Some(checkpoint(7))));
}

#[tokio::test]
async fn a_run_that_was_accepted_for_a_deleted_session_never_runs() {
    let (one, two) = two().await;
    let known = one.sessions.ensure(&session("s")).await.unwrap();
    let mut accepted = entry(&one, "s", 5);
    accepted.incarnation = Some(known.head.incarnation);
    one.sessions.enqueue(&accepted).await.unwrap();
    two.sessions.delete(&session("s")).await.unwrap();
    assert_eq!(two.sessions.acquire_for(&accepted, None).await.unwrap_err().stable_code(), "session_deleted");
    assert!(two.sessions.load(&session("s")).await.unwrap().is_some_and(|found| !found.head.is_open()), "it came back");
    two.sessions.ensure(&session("s")).await.unwrap();
    let error = two.sessions.acquire_for(&accepted, Some(known)).await.unwrap_err();
    assert_eq!(error.stable_code(), "session_deleted", "the new session isn't the one that it was accepted for");
    // Nor for a command that waits with a key: its run's id stands for the session that it asked for.
    let error = two.sessions.acquire_in_order(&session("s"), run(5), accepted.incarnation, None, |_| {}).await.unwrap_err();
    assert_eq!(error.stable_code(), "session_deleted");
}

#[tokio::test]
async fn a_definite_error_after_an_unknown_one_is_still_unknown() {
    let (one, _) = two().await;
    let mut mine = held(&one, 2).await;
    // The first try may still be on its way when the second one meets a full disk.
    one.faults.next("/runs/", Fault::Fail409);
    one.faults.after("/runs/", 0, 1, Fault::Full);
    let error = commit(&one, &mut mine, 2).await.unwrap_err();
    assert_eq!(error.stable_code(), "outcome_unknown", "{error:?}");
}

#[tokio::test]
async fn two_replicas_of_one_name_and_clocks_that_are_hours_off_are_no_danger() {
    let world = World::default();
    let members = [world.member("same").await, world.member("same").await, world.member("same").await];
    members[1].clock.advance(Duration::from_secs(2 * 3600));
    members[2].clock.advance(Duration::from_secs(4 * 3600));
    let first = held(&members[1], 1).await;
    assert!(matches!(acquire(&members[0], 2).await, Acquired::Busy(_)));
    assert!(matches!(acquire(&members[2], 2).await, Acquired::Busy(_)));
    let mut first = first;
    commit(&members[1], &mut first, 1).await.unwrap();
    for (n, member) in members.iter().enumerate() {
        let mut turn = held(member, 10 + n as u64).await;
        commit(member, &mut turn, 2).await.unwrap();
    }
    assert_eq!(members[0].sessions.get(&session("s")).await.unwrap().head.turn, 4);
}

#[tokio::test]
async fn what_a_dead_replica_left_of_itself_is_swept_and_a_sleeper_comes_back() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    assert_eq!(two.replica.sweep().await.unwrap(), 0, "it may be alive");
    two.clock.advance(LEASE);
    assert_eq!(two.replica.sweep().await.unwrap(), 1);
    assert!(two.replica.is_gone(one.sessions.owner()).await.unwrap());
    assert_eq!(one.replica.renew().await.unwrap_err().stable_code(), "replica_gone");
    one.replica.revive().await.unwrap();
    assert!(!two.replica.is_gone(one.sessions.owner()).await.unwrap());
    one.replica.stop().await.unwrap();
    one.replica.revive().await.unwrap();
    assert!(two.replica.is_gone(one.sessions.owner()).await.unwrap(), "one that was stopped stays unknown");
}

#[tokio::test]
async fn a_store_without_conditional_writes_takes_one_replica_only() {
    let world = World::default();
    let start = |name: &'static str| {
        let clock = Arc::new(landfall_tests::clocks::ManualClock::new(0));
        let weak = landfall::store::Abilities { conditional_update: false, ..landfall::store::Abilities::ALL };
        let store =
            landfall::store::Store::with_backend(Arc::clone(&world.objects), "", weak, clock, Arc::new(landfall::random::SystemRandom));
        landfall::session::Replica::start(store, name.parse().unwrap(), None, None)
    };
    let first = start("one").await.unwrap();
    let error = start("two").await.unwrap_err();
    assert_eq!(error.stable_code(), "store_unconditional");
    assert!(error.chain().contains("replica one"), "{error:?}");
    first.stop().await.unwrap();
    start("two").await.unwrap();
}
