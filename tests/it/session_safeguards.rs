//! Each safeguard keeps something from going wrong, and the tests notice when it is taken away: every scenario holds as the program is, and
//! fails without its safeguard. A process has one set of orders, so each test needs a process of its own, as `cargo nextest` gives it.

use landfall::drill::{Safeguard, arm};
use landfall::session::replica::LEASE;
use landfall::session::{Acquired, Held};
use landfall_tests::fault_store::Fault;
use landfall_tests::replicas::{Member, World, checkpoint, commit, entry, held, run, session};

/// Two replicas on a session with one turn; the first holds the lease of run 2.
async fn two() -> (Member, Member, Held) {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    for n in [1, 2] {
        one.sessions.enqueue(&entry(&one, "s", n)).await.unwrap();
    }
    let mut first = held(&one, 1).await;
    commit(&one, &mut first, 1).await.unwrap();
    let second = held(&one, 2).await;
    (one, two, second)
}

async fn taken_over(watcher: &Member, silent: &Member) -> Held {
    watcher.replica.is_gone(silent.sessions.owner()).await.unwrap();
    watcher.clock.advance(LEASE);
    held(watcher, 2).await
}

/// Whether what the safeguard is for holds.
async fn holds(safeguard: Safeguard) -> bool {
    let (one, two, mut mine) = two().await;
    match safeguard {
        Safeguard::CompareAndSwap | Safeguard::Nonces => {
            // A process goes on from a head that is an old one by now.
            commit(&one, &mut mine, 2).await.unwrap();
            let old = two.sessions.get(&session("s")).await.unwrap();
            let mut third = held(&one, 3).await;
            commit(&one, &mut third, 3).await.unwrap();
            let Ok(Acquired::Held(fourth)) = two.sessions.acquire(&session("s"), run(4), Some(old)).await else { return false };
            let head = one.sessions.get(&session("s")).await.unwrap().head;
            fourth.checkpoint() == Some(&checkpoint(3)) && head.turn == 3 && head.lease.map(|lease| lease.run) == Some(run(4))
        }
        Safeguard::Epochs => {
            // A replica that was silent for a lease wakes up while the taker runs.
            let _theirs = taken_over(&two, &one).await;
            one.sessions.save(&mut mine, "stale", &checkpoint(66)).await.is_err()
        }
        Safeguard::OfficialRecords => {
            // The record is written, and the head never gets there.
            one.faults.after("/head", 0, 1000, Fault::Fail500);
            commit(&one, &mut mine, 2).await.unwrap_err();
            two.sessions.ended(&session("s"), run(2)).await.unwrap().is_none()
        }
        Safeguard::RecordFence => {
            // The taker commits, and then the sleeper's record comes late.
            let mut theirs = taken_over(&two, &one).await;
            commit(&two, &mut theirs, 2).await.unwrap();
            commit(&one, &mut mine, 66).await.unwrap_err();
            two.sessions.record(&session("s"), run(2)).await.is_ok_and(|record| record.after == Some(checkpoint(2)))
        }
        Safeguard::UnknownOutcomes => {
            one.faults.next("/head", Fault::ApplyThen500);
            commit(&one, &mut mine, 2).await.is_ok()
        }
        Safeguard::Claims | Safeguard::StoreTime => panic!("{} is one of schedules: the simulation has its scenario", safeguard.name()),
    }
}

#[tokio::test]
async fn with_all_safeguards_every_scenario_holds() {
    let schedules = [Safeguard::Claims, Safeguard::StoreTime];
    for safeguard in Safeguard::ALL.iter().filter(|safeguard| !schedules.contains(safeguard)) {
        assert!(holds(*safeguard).await, "{}", safeguard.name());
    }
}

async fn fails_without(safeguard: Safeguard) {
    arm(&format!("without={}", safeguard.name())).unwrap();
    assert!(!holds(safeguard).await, "nothing notices that {} is missing", safeguard.name());
}

#[tokio::test]
async fn without_compare_and_swap_a_turn_is_lost() {
    fails_without(Safeguard::CompareAndSwap).await;
}

#[tokio::test]
async fn without_nonces_a_refused_write_is_taken_for_ones_own() {
    fails_without(Safeguard::Nonces).await;
}

#[tokio::test]
async fn without_epochs_a_sleeper_writes_into_another_s_turn() {
    fails_without(Safeguard::Epochs).await;
}

#[tokio::test]
async fn without_the_official_rule_an_interrupted_run_counts_as_ended() {
    fails_without(Safeguard::OfficialRecords).await;
}

#[tokio::test]
async fn without_the_fence_a_late_record_damages_the_taker_s() {
    fails_without(Safeguard::RecordFence).await;
}

#[tokio::test]
async fn without_the_rule_for_unknown_outcomes_a_commit_is_reported_as_failed() {
    fails_without(Safeguard::UnknownOutcomes).await;
}
