//! Checkpoints on a store that fails: a clear error, nothing lost, and the same thing works when the fault is over.

use std::sync::Arc;
use std::time::Duration;

use landfall::clock::SystemClock;
use landfall::gc::{Options, Retention};
use landfall::host::Host;
use landfall::id::SessionRef;
use landfall::random::SystemRandom;
use landfall::store::{Abilities, Prefix, Store};
use landfall_tests::appender::{self, bring, lines, turn};
use landfall_tests::fault_store::{Fault, FaultStore};
use landfall_tests::turns::Turns;
use object_store::memory::InMemory;

fn name(text: &str) -> SessionRef {
    appender::name(text).unwrap()
}

struct Ground {
    turns: Turns,
    faults: FaultStore,
}

impl Ground {
    fn new() -> Self {
        let faults = FaultStore::new(Arc::new(InMemory::new()));
        let store = Store::with_backend(Arc::new(faults.clone()), "", Abilities::ALL, Arc::new(SystemClock), Arc::new(SystemRandom));
        Self { turns: Turns { store, ..Turns::new().unwrap() }, faults }
    }

    fn host(&self, cache: &str) -> Host {
        appender::host(&self.turns, cache).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_can_not_be_stored_ends_the_turn_and_leaves_the_session() {
    for fault in [Fault::Fail500, Fault::Full, Fault::Denied, Fault::TimeOut, Fault::ApplyThenReset, Fault::ApplyThen500, Fault::FlipPut] {
        let ground = Ground::new();
        let host = ground.host("one");
        bring(&host).await.unwrap();
        turn(&host).await.unwrap();
        let before = host.session(&name("bot/s")).await.unwrap();
        ground.faults.after("/packs/", 0, 1000, fault);
        let result = turn(&host).await;
        ground.faults.heal();
        // A store that says it checks what arrives is believed; the changed pack is found when it is read, never taken for another.
        if fault == Fault::FlipPut {
            let fresh = ground.host("fresh");
            assert_eq!(lines(&fresh).await.unwrap_err().kind(), landfall::ErrorKind::Damaged);
            continue;
        }
        let error = result.unwrap_err();
        assert!(ground.faults.hits() > 0, "{fault:?}");
        assert!(error.chain().contains("pack"), "{fault:?} names what could not be stored: {error:?}");
        let after = host.session(&name("bot/s")).await.unwrap();
        assert_eq!(
            (after.seq, after.turn, &after.checkpoint, &after.lease),
            (before.seq, before.turn, &before.checkpoint, &None),
            "{fault:?}"
        );
        // The same turn again, here and on a host with nothing in memory; what was left over is collected.
        turn(&host).await.unwrap();
        let other = ground.host("two");
        turn(&other).await.unwrap();
        assert_eq!(lines(&other).await.unwrap(), 4, "{fault:?}");
        let all = Options { retention: Retention { keep_last: 1, keep_days: 0 }, grace: Duration::ZERO, dry_run: false };
        other.collect(&all).await.unwrap();
        other.collect(&all).await.unwrap();
        let open = other.open(&"bot/s".parse().unwrap()).await.unwrap();
        assert!(other.verify(&open, true).await.unwrap().is_ok(), "{fault:?}");
        let report = other.verify(&open, true).await.unwrap();
        let there = other.store().list(&Prefix::SessionPacks(name("bot/s"))).await.unwrap().objects.len();
        assert_eq!(there as u64, report.packs, "{fault:?}: nothing is left over");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_fails_in_the_middle_makes_no_session_and_works_when_repeated() {
    for part in ["/packs/", "/runs/"] {
        let ground = Ground::new();
        let host = ground.host("one");
        ground.faults.after(part, 0, 1000, Fault::Fail500);
        bring(&host).await.unwrap_err();
        ground.faults.heal();
        assert!(host.session(&name("bot/s")).await.unwrap().checkpoint.is_none(), "{part}");
        bring(&host).await.unwrap();
        let head = host.session(&name("bot/s")).await.unwrap();
        assert!(head.lease.is_none() && head.turn == 1, "{part}: {head:?}");
        assert_eq!(lines(&ground.host("two")).await.unwrap(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_goes_wrong_once_is_repeated_and_one_that_always_does_is_an_error_with_a_name() {
    let ground = Ground::new();
    let host = ground.host("one");
    bring(&host).await.unwrap();
    turn(&host).await.unwrap();
    for fault in [Fault::FlipGet, Fault::TruncateGet] {
        let fresh = ground.host(&format!("once {fault:?}"));
        ground.faults.after("/packs/", 0, 1, fault);
        match lines(&fresh).await {
            Ok(lines) => assert_eq!(lines, 2),
            // A body that ends early is said at once: the client has no reason to believe that it would be longer next time.
            Err(error) => assert!(fault == Fault::TruncateGet && error.kind() == landfall::ErrorKind::Damaged, "{error:?}"),
        }
        assert_eq!(lines(&fresh).await.unwrap(), 2, "no damage stays in a cache");

        let fresh = ground.host(&format!("always {fault:?}"));
        ground.faults.after("/packs/", 0, 1000, fault);
        let error = lines(&fresh).await.unwrap_err();
        assert_eq!(error.kind(), landfall::ErrorKind::Damaged, "{error:?}");
        assert!(error.chain().contains("pack"), "{error:?}");
        ground.faults.heal();
        assert_eq!(lines(&fresh).await.unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_whose_answer_is_lost_is_one_fork() {
    for fault in [Fault::ApplyThen500, Fault::ApplyThenReset, Fault::ApplyThen412, Fault::ApplyThen409] {
        let ground = Ground::new();
        let host = ground.host("one");
        bring(&host).await.unwrap();
        ground.faults.after("/head", 0, 1, fault);
        ground.faults.after("fork/head", 0, 1, fault);
        let head = host.fork(&"bot/s".parse().unwrap(), &name("bot/fork")).await.unwrap();
        let parent = host.session(&name("bot/s")).await.unwrap();
        assert_eq!(
            parent.pins.iter().map(|pin| (pin.incarnation, pin.settled)).collect::<Vec<_>>(),
            [(head.incarnation, true)],
            "{fault:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_deleted_by_hand_is_named_and_the_session_goes_on_from_the_checkpoint_before() {
    let ground = Ground::new();
    let host = ground.host("one");
    bring(&host).await.unwrap();
    turn(&host).await.unwrap();
    let packs = |host: &Host| {
        let store = host.store().clone();
        async move {
            store.list(&Prefix::SessionPacks(name("bot/s"))).await.unwrap().objects.into_iter().map(|listed| listed.key).collect::<Vec<_>>()
        }
    };
    let before = packs(&host).await;
    turn(&host).await.unwrap();
    let lost: Vec<_> = packs(&host).await.into_iter().filter(|key| !before.contains(key)).collect();
    assert_eq!(lost.len(), 1, "a small turn is one pack");
    host.store().delete(&lost[0]).await.unwrap();
    let id = lost[0].to_string().rsplit('/').next().unwrap().to_owned();

    let fresh = ground.host("fresh");
    let error = lines(&fresh).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (landfall::ErrorKind::Damaged, "pack_missing"), "{error:?}");
    assert!(error.chain().contains(&id) && error.next_step().is_some(), "{error:?}");
    let target = ground.turns.folder.path().join("out");
    let open = fresh.open(&"bot/s".parse().unwrap()).await.unwrap();
    fresh.materialise(&open, &target, &Default::default()).await.unwrap_err();
    assert!(!target.exists(), "no folder with fewer files");
    let report = fresh.verify(&open, true).await.unwrap();
    assert!(report.damage.iter().any(|damage| damage.key.as_deref() == Some(&lost[0].to_string())), "{:?}", report.damage);
    // A turn on it fails, and changes nothing; a collection stops before it deletes anything.
    let head = fresh.session(&name("bot/s")).await.unwrap();
    let failed = landfall_tests::turns::run(&fresh, "bot", "s", "").await;
    assert!(failed.as_ref().map_or(true, |record| !record.is_completed()), "{failed:?}");
    assert_eq!(fresh.session(&name("bot/s")).await.unwrap().checkpoint, head.checkpoint);
    let all = Options { retention: Retention { keep_last: 1, keep_days: 0 }, grace: Duration::ZERO, dry_run: false };
    let _ = fresh.collect(&all).await;
    assert_eq!(packs(&fresh).await, before);
    // The turn before is whole.
    fresh.rollback(&name("bot/s"), &"bot/s@2".parse().unwrap()).await.unwrap();
    turn(&fresh).await.unwrap();
    let other = ground.host("other");
    assert_eq!(lines(&other).await.unwrap(), 3);
    assert!(other.verify(&other.open(&"bot/s".parse().unwrap()).await.unwrap(), true).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_that_leave_keys_out_change_nothing_for_turns_and_readers_and_cost_no_pack() {
    let ground = Ground::new();
    let host = ground.host("one");
    bring(&host).await.unwrap();
    for nth in [100, 2, 1] {
        ground.faults.hide_one_of(nth);
        for _ in 0..3 {
            turn(&host).await.unwrap();
        }
        let all = Options { retention: Retention { keep_last: 2, keep_days: 0 }, grace: Duration::ZERO, dry_run: false };
        host.collect(&all).await.unwrap();
        host.collect(&all).await.unwrap();
        let fresh = ground.host(&format!("fresh {nth}"));
        let open = fresh.open(&"bot/s".parse().unwrap()).await.unwrap();
        assert!(fresh.verify(&open, true).await.unwrap().is_ok(), "one of {nth} keys is left out");
    }
    assert!(ground.faults.hits() > 0);
    ground.faults.hide_one_of(0);
    assert_eq!(lines(&ground.host("two")).await.unwrap(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_share_a_cache_folder_and_damage_in_it_get_their_own_bytes() {
    let ground = Ground::new();
    let one = ground.host("shared");
    bring(&one).await.unwrap();
    let two = ground.host("shared");
    let cache = ground.turns.folder.path().join("shared");
    let files = |folder: &std::path::Path| {
        let (mut all, mut folders) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() { folders.push(entry.path()) } else { all.push(entry.path()) }
            }
        }
        all
    };
    let mut damaged = 0;
    for n in 0..8 {
        // A turn on one, and readers on both, while files of the cache are cut, changed and removed.
        let (done, a, b) = tokio::join!(turn(&one), lines(&two), lines(&one));
        done.unwrap();
        assert!((n + 1..=n + 2).contains(&a.unwrap()) && (n + 1..=n + 2).contains(&b.unwrap()), "round {n}");
        assert_eq!(lines(&ground.host("shared")).await.unwrap(), n + 2, "round {n}");
        for (at, path) in files(&cache).into_iter().filter(|path| path.to_string_lossy().matches('-').count() >= 2).enumerate() {
            let Ok(mut bytes) = std::fs::read(&path) else { continue };
            damaged += 1;
            match (at + n) % 3 {
                0 => std::fs::remove_file(&path).unwrap(),
                1 => std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                _ => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    std::fs::write(&path, bytes).unwrap();
                }
            }
        }
    }
    assert!(damaged > 0, "nothing was cached");
    assert_eq!(lines(&ground.host("alone")).await.unwrap(), 9);
}
