//! A real S3 server behind a proxy that breaks requests: what a turn, a reader and a store make of it over HTTP, retries included.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::ErrorKind;
use landfall::checkpoint::import::{From, ImportOptions};
use landfall::clock::SystemClock;
use landfall::host::Host;
use landfall::id::SessionRef;
use landfall::random::SystemRandom;
use landfall::store::{Prefix, Store};
use landfall_tests::appender::{self, lines, turn};
use landfall_tests::fault_proxy::{Fault, FaultProxy};
use landfall_tests::seaweed::Seaweed;
use landfall_tests::turns::Turns;

struct Ground {
    turns: Turns,
    proxy: FaultProxy,
}

impl Ground {
    async fn new() -> Self {
        let server = Seaweed::shared().await;
        let proxy = FaultProxy::before(&server).await;
        let store = Store::open(&server.fresh_url(), &proxy.options(&server), Arc::new(SystemClock), Arc::new(SystemRandom)).await.unwrap();
        Self { turns: Turns { store, ..Turns::new().unwrap() }, proxy }
    }

    fn host(&self, cache: &str) -> Host {
        appender::host(&self.turns, cache).unwrap()
    }
}

fn name(text: &str) -> SessionRef {
    appender::name(text).unwrap()
}

async fn bring(host: &Host, folder: &Path) -> landfall::Result<()> {
    host.import(&name("bot/s"), From::Folder(folder.to_owned()), &ImportOptions::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_is_answered_500_for_ever_ends_the_turn_and_leaves_the_session() {
    let ground = Ground::new().await;
    let host = ground.host("one");
    appender::bring(&host).await.unwrap();
    let before = host.session(&name("bot/s")).await.unwrap();
    for fault in [Fault::Answer(500, "InternalError"), Fault::Answer(503, "SlowDown"), Fault::Reset] {
        drop(ground.proxy.requests());
        ground.proxy.rule(move |request| request.is("PUT", "/packs/").then_some(fault));
        let began = Instant::now();
        let error = turn(&host).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(60), "{fault:?} held the turn up for {:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Store, "{fault:?}: {error:?}");
        assert!(error.chain().contains("pack"), "{fault:?} names what couldn't be stored: {}", error.chain());
        let tries = ground.proxy.requests().iter().filter(|(request, _)| request.is("PUT", "/packs/")).count();
        assert!((2..=20).contains(&tries), "{fault:?}: {tries} tries");
        let after = host.session(&name("bot/s")).await.unwrap();
        assert_eq!(
            (after.seq, after.turn, &after.checkpoint, &after.lease),
            (before.seq, before.turn, &before.checkpoint, &None),
            "{fault:?}"
        );
        ground.proxy.heal();
    }
    // The session is as usable as before, here and elsewhere.
    turn(&host).await.unwrap();
    let fresh = ground.host("two");
    turn(&fresh).await.unwrap();
    assert_eq!(lines(&fresh).await.unwrap(), 3);
    assert!(fresh.verify(&fresh.open(&"bot/s".parse().unwrap()).await.unwrap(), true).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_breaks_is_repeated_or_an_error_with_a_name_and_never_other_data() {
    let ground = Ground::new().await;
    let host = ground.host("one");
    appender::bring(&host).await.unwrap();
    turn(&host).await.unwrap();
    for fault in [Fault::ResetInBody, Fault::Truncate, Fault::Flip, Fault::Reset, Fault::Answer(500, "InternalError")] {
        let is_pack = |request: &landfall_tests::fault_proxy::Request| request.is("GET", "/packs/");
        let fresh = ground.host(&format!("once {fault:?}"));
        let mut left = 1;
        ground.proxy.rule(move |request| {
            let meets = is_pack(request) && left > 0;
            left -= u32::from(meets);
            meets.then_some(fault)
        });
        match lines(&fresh).await {
            Ok(lines) => assert_eq!(lines, 2, "{fault:?}"),
            // A body that says it is whole, and isn't: there is no reason to believe that it would be longer next time.
            Err(error) => assert!(fault == Fault::Truncate && error.chain().contains("pack"), "{fault:?}: {}", error.chain()),
        }
        assert!(ground.proxy.requests().iter().any(|(_, met)| *met == Some(fault)), "{fault:?} was met");
        assert_eq!(lines(&fresh).await.unwrap(), 2, "{fault:?}: no damage stays in a cache");

        let fresh = ground.host(&format!("always {fault:?}"));
        ground.proxy.rule(move |request| is_pack(request).then_some(fault));
        let error = lines(&fresh).await.unwrap_err();
        let broken = matches!(fault, Fault::Truncate | Fault::Flip);
        assert_eq!(error.kind() == ErrorKind::Damaged, broken, "{fault:?}: {error:?}");
        assert!(error.chain().contains("pack"), "{fault:?}: {}", error.chain());
        ground.proxy.heal();
        assert_eq!(lines(&fresh).await.unwrap(), 2, "{fault:?}");
    }
}

/// Bytes that don't compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_folder_whose_third_pack_is_reset_comes_whole_at_the_second_try_and_never_in_parts() {
    let ground = Ground::new().await;
    let host = ground.host("one");
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5_u64 {
        std::fs::write(dir.path().join(format!("part{n}")), noise(n + 1, 16 << 20)).unwrap();
    }
    let mut packs: Vec<String> = Vec::new();
    ground.proxy.rule(move |request| {
        if !request.is("PUT", "/packs/") {
            return None;
        }
        if !packs.contains(&request.path) {
            packs.push(request.path.clone());
        }
        (packs.get(2) == Some(&request.path)).then_some(Fault::Reset)
    });
    let error = bring(&host, dir.path()).await.unwrap_err();
    assert!(error.chain().contains("pack"), "{}", error.chain());
    assert!(host.session(&name("bot/s")).await.unwrap().checkpoint.is_none(), "nothing of it is visible");
    ground.proxy.heal();
    bring(&host, dir.path()).await.unwrap();
    let fresh = ground.host("two");
    let open = fresh.open(&"bot/s".parse().unwrap()).await.unwrap();
    let report = fresh.verify(&open, true).await.unwrap();
    assert!(report.is_ok() && report.packs >= 5, "{report:?}");
    for n in 0..5_u64 {
        let found = open.read(&format!("/workspace/part{n}"), 0, 16 << 20).await.unwrap();
        assert!(found == noise(n + 1, 16 << 20), "part{n}");
    }
    // Uploads in parts that nobody finishes are paid for and seen by no listing, so there are none.
    let requests = ground.proxy.requests();
    let begins = |path: &str| path.split_once('?').is_some_and(|(_, query)| query.contains("upload"));
    assert!(requests.iter().all(|(request, _)| !begins(&request.path)), "an upload in parts");
    let sent: BTreeSet<_> = requests
        .iter()
        .filter(|(request, fault)| request.is("PUT", "/packs/") && fault.is_none())
        .map(|(request, _)| &request.path)
        .collect();
    let there = host.store().list(&Prefix::SessionPacks(name("bot/s"))).await.unwrap().objects.len();
    assert_eq!(there, sent.len(), "every pack whose upload was answered is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_slow_down_to_a_third_of_all_requests_is_asked_less_often_and_every_turn_ends() {
    let ground = Ground::new().await;
    let host = ground.host("one");
    appender::bring(&host).await.unwrap();
    turn(&host).await.unwrap();
    // Without faults: requests of a turn, and how many there are in a second.
    drop(ground.proxy.requests());
    let began = Instant::now();
    let mut quiet = 0_usize;
    while quiet < 5 || began.elapsed() < Duration::from_secs(3) {
        turn(&host).await.unwrap();
        quiet += 1;
    }
    let (usual, usual_time) = (ground.proxy.requests().len(), began.elapsed());

    // 30 of 100 answers are 503, drawn from a fixed number.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    ground.proxy.rule(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 33) % 100 < 30).then_some(Fault::Answer(503, "SlowDown"))
    });
    let began = Instant::now();
    let (mut done, mut longest) = (0_usize, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(20) {
        let start = Instant::now();
        turn(&host).await.unwrap_or_else(|error| panic!("turn {done}: {}", error.chain()));
        longest = longest.max(start.elapsed());
        done += 1;
    }
    let (requests, time) = (ground.proxy.requests(), began.elapsed());
    let refused = requests.iter().filter(|(_, fault)| fault.is_some()).count();
    assert!(refused * 5 > requests.len(), "{refused} of {} were refused", requests.len());
    let per_second = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
    let (before, during) = (per_second(usual, usual_time), per_second(requests.len(), time));
    assert!(during < before, "{during:.1} requests a second, {before:.1} without faults");
    // Each turn takes at most three times the requests: retries, and no storm of them.
    assert!(requests.len() * quiet <= 3 * usual * done, "{} requests for {done} turns, {usual} for {quiet} without faults", requests.len());
    assert!(longest < Duration::from_secs(30), "a turn took {longest:?}");
    ground.proxy.heal();
    assert_eq!(lines(&ground.host("two")).await.unwrap(), 2 + quiet + done, "each turn counts once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_409_on_a_create_is_no_proof_that_something_is_there() {
    // The creates of a first turn, one after the other: queue entry, head, record.
    for nth in 0..3 {
        let ground = Ground::new().await;
        let host = ground.host("one");
        let mut creates = 0;
        ground.proxy.rule(move |request| {
            let meets = request.method == "PUT" && request.is_create;
            creates += u32::from(meets);
            (meets && creates == nth + 1).then_some(Fault::Answer(409, "ConditionalRequestConflict"))
        });
        appender::bring(&host).await.unwrap_or_else(|error| panic!("create {nth}: {}", error.chain()));
        assert!(ground.proxy.requests().iter().any(|(_, fault)| fault.is_some()), "create {nth} was met");
        turn(&host).await.unwrap();
        let head = host.session(&name("bot/s")).await.unwrap();
        assert_eq!((head.turn, head.seq, head.lease.is_none()), (2, 2, true), "create {nth}");
        assert_eq!(lines(&ground.host("two")).await.unwrap(), 2, "create {nth}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_result_of_the_self_test_is_thrown_away() {
    let server = Seaweed::shared().await;
    let (url, options) = (server.fresh_url(), server.options());
    let open = || Store::open(&url, &options, Arc::new(SystemClock), Arc::new(SystemRandom));
    let store = open().await.unwrap();
    let probes = store.list(&Prefix::Probes).await.unwrap().objects;
    assert_eq!(probes.len(), 1, "the remembered result: {probes:?}");
    let prefix = url.rsplit_once('/').unwrap().1;
    let path = object_store::path::Path::from(format!("{prefix}/{}", probes[0].key));
    let client = crate::store_conformance::client(&server);
    for rubbish in ["", "x", "{\"landfall\":\"probed\",\"version\":1,"] {
        object_store::ObjectStoreExt::put(&client, &path, rubbish.as_bytes().to_vec().into()).await.unwrap();
        let again = open().await.unwrap_or_else(|error| panic!("{rubbish:?}: {}", error.chain()));
        assert_eq!(again.abilities(), store.abilities(), "{rubbish:?}: it was tested again");
    }
}
