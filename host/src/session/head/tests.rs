use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::checkpoint::root::RootRecord;
use crate::id::{CommitId, PageId};
use crate::pin::{OnBranch, Pin};
use crate::store::document::{self, DOCUMENT_MAX, Document as _};
use crate::workspace::page::{Home, Link, Location, PageLink, Place, Root};

fn session() -> SessionRef {
    SessionRef { agent: "a".repeat(64).parse().unwrap(), session: "\"ö".repeat(40).parse().unwrap() }
}

fn head() -> Head {
    Head::new(session(), Nonce::from_bytes([1; 16]), 0)
}

fn owner(n: u8) -> Owner {
    Owner { replica: "host".parse().unwrap(), boot: Nonce::from_bytes([n; 16]) }
}

fn run(n: u8) -> RunId {
    RunId::new_v7(u64::from(n), [n; 10])
}

fn link(n: u8) -> PageLink {
    let at =
        Location { home: Arc::new(Home::Session(session())), pack: PackId::from_bytes([n; 32]), frame: 8, stored: 100, start: 0, len: 300 };
    Link { id: PageId::from_bytes([n; 32]), place: Place::At(at) }
}

fn checkpoint(n: u8, url: usize) -> Checkpoint {
    let root = |n| Root { page: link(n), links: Some(link(n)), entries: u64::MAX, bytes: u64::MAX };
    let pin = Pin { url: "u".repeat(url), branch: Some("main".into()), commit: CommitId::from_bytes([n; 20]), on_branch: OnBranch::Yes };
    Checkpoint::new(RootRecord { workspace: root(n), state: root(n), git: Some(root(n)), pin: Some(pin) })
}

fn claim(process: u8, n: u8) -> Claim {
    Claim { owner: owner(process), run: run(n), over: None }
}

fn proof(head: &Head) -> Proof {
    let lease = head.lease.as_ref().unwrap();
    Proof { incarnation: head.incarnation, epoch: lease.epoch, run: lease.run }
}

fn end(status: Status, n: u8) -> End {
    End { status, record: crate::id::sha256(&[n]), checkpoint: Some(checkpoint(n, 20)), packs: Vec::new(), restored: Vec::new() }
}

#[test]
fn a_completed_turn_moves_the_checkpoint_and_gives_the_lease_back() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    assert_eq!((leased.epoch, leased.lease.as_ref().unwrap().attempt), (1, 1));
    let ended = leased.end(&proof(&leased), &end(Status::Completed, 1)).unwrap();
    assert_eq!((ended.seq, ended.turn, ended.epoch), (1, 1, 1));
    assert_eq!(ended.lease, None);
    assert_eq!(ended.checkpoint, Some(checkpoint(1, 20)));
    assert_eq!(ended.ended(run(1)).map(|recent| recent.status), Some(Status::Completed));
    ended.check().unwrap();
}

#[test]
fn a_failed_turn_counts_as_a_run_and_leaves_the_checkpoint() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let first = leased.end(&proof(&leased), &end(Status::Completed, 1)).unwrap();
    let leased = first.acquire(&claim(1, 2)).unwrap();
    for status in [Status::Failed, Status::Cancelled, Status::TimedOut] {
        let ended = leased.end(&proof(&leased), &end(status, 2)).unwrap();
        assert_eq!((ended.seq, ended.turn), (2, 1));
        assert_eq!(ended.checkpoint, first.checkpoint);
    }
}

#[test]
fn a_first_turn_that_fails_still_fixes_the_pin() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let ended = leased.end(&proof(&leased), &end(Status::Failed, 1)).unwrap();
    assert_eq!((ended.turn, ended.checkpoint), (0, Some(checkpoint(1, 20))));
}

#[test]
fn a_lease_is_exclusive_until_its_owner_is_known_to_be_gone_and_its_run_goes_first() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let lease = leased.lease.clone().unwrap();
    assert_eq!(leased.acquire(&claim(2, 2)), Err(Refusal::Busy(lease.clone())));
    assert_eq!(leased.acquire(&claim(1, 1)), Err(Refusal::Busy(lease.clone())), "not even its owner gets it twice");
    let over = |n, epoch| Claim { over: Some(epoch), ..claim(2, n) };
    assert_eq!(leased.acquire(&over(2, 1)), Err(Refusal::Busy(lease.clone())), "another run has to wait for the lost one");
    assert_eq!(leased.acquire(&over(1, 7)), Err(Refusal::Busy(lease)), "a newer lease isn't the one that was lost");
    let taken = leased.acquire(&over(1, 1)).unwrap();
    assert_eq!((taken.epoch, taken.lease.as_ref().unwrap().attempt), (2, 2));
    // The first owner comes back.
    let stale = proof(&leased);
    for refused in [
        taken.end(&stale, &end(Status::Completed, 1)),
        taken.release(&stale, true),
        taken.save(&stale, "x", &checkpoint(1, 1), 0),
        taken.forget(&stale),
    ] {
        assert_eq!(refused, Err(Refusal::Fenced(2)));
    }
}

#[test]
fn an_ended_run_never_gets_a_lease_again() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let ended = leased.end(&proof(&leased), &end(Status::Failed, 1)).unwrap();
    let recent = ended.recent[0];
    assert_eq!(ended.acquire(&claim(1, 1)), Err(Refusal::Ended(recent)));
    assert_eq!(ended.cancel(run(1)), Err(Refusal::Ended(recent)));
    assert_eq!(ended.end(&proof(&leased), &end(Status::Failed, 1)), Err(Refusal::Ended(recent)), "by which a lost answer is recognised");
}

#[test]
fn a_drained_run_goes_on_without_losing_an_attempt_and_an_interrupted_one_does() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    for (counts, attempt) in [(false, 1), (true, 2)] {
        let free = leased.release(&proof(&leased), counts).unwrap();
        assert_eq!(free.lease, None);
        let again = free.acquire(&claim(2, 1)).unwrap();
        assert_eq!(again.lease.as_ref().unwrap().attempt, attempt);
        assert_eq!(again.pending, None);
        assert_eq!(again.epoch, 2);
        let other = free.acquire(&claim(2, 2)).unwrap();
        assert_eq!(other.lease.as_ref().unwrap().attempt, 1);
        let ended = other.end(&proof(&other), &end(Status::Completed, 2)).unwrap();
        assert_eq!(ended.pending, free.pending, "another run doesn't reset it");
    }
}

#[test]
fn a_cancel_before_the_commit_wins_and_after_it_is_too_late() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let cancelled = leased.cancel(run(1)).unwrap();
    assert_eq!(cancelled.cancel(run(1)), Ok(cancelled.clone()));
    assert_eq!(cancelled.end(&proof(&leased), &end(Status::Completed, 1)), Err(Refusal::Cancelled));
    assert_eq!(cancelled.save(&proof(&leased), "x", &checkpoint(1, 1), 0), Err(Refusal::Cancelled));
    let ended = cancelled.end(&proof(&leased), &end(Status::Cancelled, 1)).unwrap();
    assert!(ended.cancels.is_empty());
    // A waiting run is cancelled before it starts: its taker sees it.
    assert!(head().cancel(run(5)).unwrap().acquire(&claim(1, 5)).unwrap().is_cancelled(run(5)));
}

#[test]
fn a_save_outlives_a_failed_run_and_belongs_to_its_run() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let saved = leased.save(&proof(&leased), "half", &checkpoint(7, 1), 5).unwrap();
    let failed = saved.end(&proof(&leased), &end(Status::Failed, 1)).unwrap();
    assert_eq!(failed.saves[0].name, "half");
    let next = failed.acquire(&claim(1, 2)).unwrap();
    assert_eq!(next.save(&proof(&next), "half", &checkpoint(8, 1), 6), Err(Refusal::SaveTaken(run(1))));
    let again = saved.save(&proof(&leased), "half", &checkpoint(9, 1), 6).unwrap();
    assert_eq!((again.saves.len(), again.saves[0].checkpoint.clone()), (1, checkpoint(9, 1)));
    assert_eq!(failed.unsave("half").unwrap().saves, []);
    assert_eq!(failed.unsave("none"), Err(Refusal::NotThere));
}

#[test]
fn a_deleted_session_keeps_what_forks_stand_on_and_its_name_can_be_used_again() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    assert!(matches!(leased.delete(7), Err(Refusal::Busy(_))));
    let ended = leased.end(&proof(&leased), &end(Status::Completed, 1)).unwrap();
    let kept = ended.current().unwrap();
    let ended = ended.pin(&kept, &session(), Nonce::from_bytes([9; 16]), 0).unwrap();
    let deleted = ended.delete(7).unwrap();
    assert_eq!((deleted.state, &deleted.checkpoint, deleted.pins.len()), (State::Deleted(7), &None, 1));
    deleted.check().unwrap();
    for refused in [
        deleted.acquire(&claim(1, 2)),
        deleted.cancel(run(2)),
        deleted.delete(8),
        deleted.unsave("x"),
        deleted.pin(&kept, &session(), Nonce::from_bytes([8; 16]), 0),
    ] {
        assert_eq!(refused, Err(Refusal::Deleted));
    }
    let renewed = deleted.renewed(Nonce::from_bytes([2; 16]), 9).unwrap();
    assert_eq!((renewed.seq, renewed.turn, renewed.pins.len()), (0, 0, 1));
    let again = renewed.acquire(&claim(1, 1)).unwrap();
    assert!(again.epoch > leased.epoch);
    assert_eq!(
        again.end(&proof(&leased), &end(Status::Completed, 1)),
        Err(Refusal::Fenced(again.epoch)),
        "a writer of the deleted session is fenced"
    );
    assert_eq!(deleted.unpin(Nonce::from_bytes([9; 16])).unwrap().pins, []);
    assert_eq!(head().renewed(Nonce::from_bytes([2; 16]), 9), Err(Refusal::Fenced(0)));
}

#[test]
fn ended_runs_leave_the_head_only_when_their_queue_entries_are_gone() {
    let mut head = head();
    let mut ends = 0_u8;
    let refused = loop {
        match head.acquire(&claim(1, ends)) {
            Ok(leased) => head = leased.end(&proof(&leased), &end(Status::Completed, ends)).unwrap(),
            Err(refused) => break refused,
        }
        ends += 1;
    };
    assert_eq!(usize::from(ends), RECENT_MAX);
    let Refusal::Unsettled(runs) = refused else { panic!("{refused:?}") };
    assert_eq!(runs.len(), RECENT_MAX);
    let settled = head.settle(&runs);
    assert_eq!(settled.recent.len(), RECENT_KEPT);
    assert_eq!(settled.recent[0].seq, settled.seq, "the newest is never forgotten");
    settled.check().unwrap();
    assert!(settled.acquire(&claim(1, 200)).is_ok());
    // Only some are gone: the others stay, wherever they stand.
    let some = head.settle(&[run(63), run(10), run(0)]);
    assert_eq!(some.recent.len(), RECENT_MAX - 2);
    assert!(some.ended(run(63)).is_some() && some.ended(run(10)).is_none() && some.ended(run(1)).is_some());
}

#[test]
fn a_commit_takes_its_packs_off_the_trash() {
    let trashed = |n| Trashed { pack: PackId::from_bytes([n; 32]), since: 1 };
    let (head, taken) = head().discard(&[trashed(1), trashed(2), trashed(1)]);
    assert_eq!((taken, head.trash.len()), (3, 2));
    let leased = head.acquire(&claim(1, 1)).unwrap();
    let ended = leased.end(&proof(&leased), &End { packs: vec![PackId::from_bytes([1; 32])], ..end(Status::Completed, 1) }).unwrap();
    assert_eq!(ended.trash, [trashed(2)]);
    assert_eq!(ended.undiscard(&[PackId::from_bytes([2; 32])]).trash, []);
}

#[test]
fn what_people_add_is_bounded_and_never_stops_a_commit() {
    let mut full = head();
    full = full.discard(&(0..=255).map(|n| Trashed { pack: PackId::from_bytes([n; 32]), since: i64::MAX }).collect::<Vec<_>>()).0;
    assert!(full.trash.len() == TRASH_MAX, "{}", full.trash.len());
    let leased = full.acquire(&claim(1, 1)).unwrap();
    let mut saved = leased.clone();
    let refused = loop {
        match saved.save(&proof(&leased), &format!("{}{}", "\"".repeat(100), saved.saves.len()), &checkpoint(3, 2_000), i64::MIN) {
            Ok(next) => saved = next,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Refusal::Full(_, EXTRAS_MAX)), "{refused:?}");
    assert!(!saved.saves.is_empty());
    let mut head = saved.end(&proof(&leased), &End { checkpoint: Some(checkpoint(1, 4_000)), ..end(Status::Completed, 1) }).unwrap();
    for n in 2..RECENT_MAX {
        let leased = head.acquire(&claim(1, u8::try_from(n).unwrap())).unwrap();
        head = leased.end(&proof(&leased), &end(Status::TimedOut, 1)).unwrap();
    }
    let head = (0..CANCELS_MAX).fold(head, |head, n| head.cancel(run(200 + u8::try_from(n).unwrap())).unwrap());
    let nonces = [Nonce::from_bytes([255; 16]); 16];
    let len = document::encode(&head, &nonces).unwrap().bytes.len();
    assert!(len <= DOCUMENT_MAX - 4096, "{len}");
    assert_eq!(document::decode::<Head>("h", &document::encode(&head, &nonces).unwrap().bytes).unwrap().value, head);
}

/// A head after three completed turns, and what each left.
fn three_turns() -> (Head, Vec<Kept>) {
    let mut now = head();
    let mut left = Vec::new();
    for n in 1..=3 {
        let leased = now.acquire(&claim(1, n)).unwrap();
        now = leased.end(&proof(&leased), &end(Status::Completed, n)).unwrap();
        left.push(Kept { seq: Some(now.seq), ..now.current().unwrap() });
    }
    (now, left)
}

#[test]
fn a_dropped_checkpoint_is_no_ground_for_a_fork_or_a_commit() {
    let (head, left) = three_turns();
    let dropped = head.retain_from(3);
    assert_eq!(dropped.retain_from(1).kept_from, 3, "what was dropped stays dropped");
    assert_eq!(head.retain_from(99).kept_from, 3, "runs to come are kept");
    assert_eq!(left.iter().map(|one| dropped.keeps(one)).collect::<Vec<_>>(), [false, false, true]);
    let nonce = Nonce::from_bytes([7; 16]);
    assert_eq!(dropped.pin(&left[0], &session(), nonce, 0), Err(Refusal::Dropped(left[0].checkpoint.id)));
    assert_eq!(dropped.pin(&left[2], &session(), nonce, 0).unwrap().pins.len(), 1);
    // A run that had gone back to it before it was dropped: the collector came first, so the commit is refused.
    let leased = head.acquire(&claim(1, 9)).unwrap();
    let back = End { checkpoint: Some(left[0].checkpoint.clone()), restored: vec![left[0].clone()], ..end(Status::Completed, 9) };
    assert!(leased.end(&proof(&leased), &back).is_ok());
    assert_eq!(leased.retain_from(3).end(&proof(&leased), &back), Err(Refusal::Dropped(left[0].checkpoint.id)));
    // It can still end as failed, which leaves the checkpoint as it was.
    let failed = End { status: Status::Failed, ..back };
    assert_eq!(leased.retain_from(3).end(&proof(&leased), &failed).unwrap().checkpoint, head.checkpoint);
    // Of another incarnation, or at other places, it is another thing.
    assert!(!head.keeps(&Kept { incarnation: nonce, ..left[0].clone() }));
    assert!(!head.keeps(&Kept { seq: None, ..left[0].clone() }));
    assert!(!head.keeps(&Kept { seq: Some(4), ..left[0].clone() }));
}

#[test]
fn a_checkpoint_moves_to_other_places_only_while_nobody_works() {
    let (head, _) = three_turns();
    let from = head.checkpoint.clone().unwrap();
    let mut to = from.clone();
    to.root.workspace.page = PageLink { place: link(99).place, ..to.root.workspace.page };
    assert_eq!(head.relocate(&from, &to).unwrap().checkpoint, Some(to.clone()));
    assert!(matches!(head.acquire(&claim(1, 9)).unwrap().relocate(&from, &to), Err(Refusal::Busy(_))));
    assert_eq!(head.relocate(&to, &from), Err(Refusal::Dropped(to.id)), "it isn't there any more");
    assert_eq!(head.relocate(&from, &checkpoint(50, 1)), Err(Refusal::Dropped(from.id)), "another content");
    assert_eq!(head.delete(1).unwrap().relocate(&from, &to), Err(Refusal::Deleted));
}

#[test]
fn a_head_for_a_newer_reader_is_left_alone() {
    let nonces = [Nonce::from_bytes([1; 16])];
    let newer = document::encode(&Head { min_reader: READER + 1, ..head() }, &nonces).unwrap();
    assert_eq!(document::decode::<Head>("h", &newer.bytes).unwrap_err().kind(), crate::ErrorKind::TooNew);
}

#[test]
fn heads_that_contradict_themselves_are_damaged() {
    let leased = head().acquire(&claim(1, 1)).unwrap();
    let ended = leased.end(&proof(&leased), &end(Status::Completed, 1)).unwrap();
    let recent = ended.recent[0];
    for bad in [
        Head { seq: 5, ..ended.clone() },
        Head { turn: 5, ..ended.clone() },
        Head { recent: vec![recent, recent], ..ended.clone() },
        Head { recent: vec![recent; RECENT_MAX + 1], ..ended.clone() },
        Head { epoch: 0, ..leased.clone() },
    ] {
        assert_eq!(bad.check().unwrap_err().kind(), crate::ErrorKind::Damaged);
    }
}

/// One process's wish, as the property test draws it.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Acquire(u8, u8),
    TakeOver(u8),
    End(u8, Status),
    Release(u8, bool),
    Save(u8, u8),
    Cancel(u8),
    Settle(u8),
    Delete,
    Renew,
    Discard(u8),
    Pin(u8),
}

fn wishes() -> impl Strategy<Value = Wish> {
    let status = prop_oneof![Just(Status::Completed), Just(Status::Failed), Just(Status::Cancelled), Just(Status::TimedOut)];
    prop_oneof![
        8 => (0..3_u8, any::<u8>()).prop_map(|(p, n)| Wish::Acquire(p, n)),
        2 => (0..3_u8).prop_map(Wish::TakeOver),
        8 => (0..3_u8, status).prop_map(|(p, s)| Wish::End(p, s)),
        1 => (0..3_u8, any::<bool>()).prop_map(|(p, c)| Wish::Release(p, c)),
        2 => (0..3_u8, any::<u8>()).prop_map(|(p, n)| Wish::Save(p, n)),
        1 => any::<u8>().prop_map(Wish::Cancel),
        2 => any::<u8>().prop_map(Wish::Settle),
        1 => Just(Wish::Delete),
        2 => Just(Wish::Renew),
        1 => any::<u8>().prop_map(Wish::Discard),
        1 => any::<u8>().prop_map(Wish::Pin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Three processes do what they like with one head, each believing in the last lease that it got.
    #[test]
    fn no_order_of_changes_breaks_a_rule(wishes in proptest::collection::vec(wishes(), 1..300)) {
        let mut now = head();
        let mut believed: [Option<Proof>; 3] = [None; 3];
        for (step, wish) in (0_u128..).zip(wishes) {
            let before = now.clone();
            let holder = now.lease.as_ref().map(proof_of(&now));
            let next = match wish {
                Wish::Acquire(p, n) => now.acquire(&claim(p, n)).inspect(|next| believed[usize::from(p)] = Some(proof(next))),
                Wish::TakeOver(p) => match now.lease.clone() {
                    Some(lease) => now
                        .acquire(&Claim { owner: owner(p), run: lease.run, over: Some(lease.epoch) })
                        .inspect(|next| believed[usize::from(p)] = Some(proof(next))),
                    None => continue,
                },
                Wish::End(p, status) => match believed[usize::from(p)] {
                    Some(proof) => {
                        let result = now.end(&proof, &end(status, p));
                        prop_assert!(result.is_err() || holder == Some(proof), "only the holder ends a run");
                        result
                    }
                    None => continue,
                },
                Wish::Release(p, counts) => match believed[usize::from(p)] {
                    Some(proof) => now.release(&proof, counts),
                    None => continue,
                },
                Wish::Save(p, n) => match believed[usize::from(p)] {
                    Some(proof) => {
                        let result = now.save(&proof, &format!("save {n}"), &checkpoint(n, 40), 0);
                        prop_assert!(result.is_err() || holder == Some(proof), "only the holder saves");
                        result
                    }
                    None => continue,
                },
                Wish::Cancel(n) => now.cancel(run(n)),
                Wish::Settle(n) => Ok(now.settle(&[run(n)])),
                Wish::Delete => now.delete(1),
                // An incarnation is drawn from 128 random bits: none comes twice, nor is any the first one's.
                Wish::Renew => now.renewed(Nonce::from_bytes(step.to_be_bytes()), 2),
                Wish::Discard(n) => Ok(now.discard(&[Trashed { pack: PackId::from_bytes([n; 32]), since: 3 }]).0),
                Wish::Pin(n) => match now.current() {
                    Some(kept) => now.pin(&kept, &session(), Nonce::from_bytes([n; 16]), 0),
                    None => continue,
                },
            };
            let Ok(next) = next else { continue };
            next.check().map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
            prop_assert!(next.epoch >= before.epoch);
            if next.incarnation == before.incarnation {
                prop_assert!(next.seq - before.seq <= 1 && next.turn - before.turn <= next.seq - before.seq);
                prop_assert!(next.checkpoint == before.checkpoint || next.seq > before.seq || !next.is_open());
            }
            if let Some(lease) = &next.lease {
                prop_assert!(next.is_open());
                prop_assert!(before.lease.as_ref() == Some(lease) || lease.epoch > before.epoch, "every lease has an epoch of its own");
            }
            let len = document::encode(&next, &[Nonce::from_bytes([0; 16]); 16]).map(|encoded| encoded.bytes.len());
            prop_assert!(len.is_ok_and(|len| len < DOCUMENT_MAX));
            now = next;
        }
    }
}

fn proof_of(head: &Head) -> impl Fn(&Lease) -> Proof {
    let incarnation = head.incarnation;
    move |lease| Proof { incarnation, epoch: lease.epoch, run: lease.run }
}
