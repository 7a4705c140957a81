//! What the store makes of lost answers, damaged bytes and refusals. The faults are put between the library and a real backend.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use landfall::ErrorKind;
use landfall::clock::{Clock, SharedClock, UnixNanos};
use landfall::id::{PackId, SessionRef};
use landfall::random::SystemRandom;
use landfall::store::cas::{Created, Replaced, Version};
use landfall::store::document::Document;
use landfall::store::{Abilities, Key, Store};
use landfall_tests::clocks::ManualClock;
use landfall_tests::fault_store::{Fault, FaultStore};
use landfall_tests::seaweed::Seaweed;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Count(u32);

impl Document for Count {
    const KIND: &'static str = "count";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "count_damaged";
}

fn session() -> SessionRef {
    SessionRef { agent: "agent".parse().unwrap(), session: "s".parse().unwrap() }
}

fn key() -> Key {
    Key::Head(session())
}

fn pack(bytes: &[u8]) -> Key {
    Key::SessionPack(session(), PackId::of(bytes))
}

/// A store behind faults, and the same one without them.
fn stand(backend: Arc<dyn ObjectStore>, prefix: &str, abilities: Abilities, clock: SharedClock) -> (Store, FaultStore, Store) {
    let faults = FaultStore::new(Arc::clone(&backend));
    let store = Store::with_backend(Arc::new(faults.clone()), prefix, abilities, clock, Arc::new(SystemRandom));
    let good = Store::with_backend(backend, prefix, abilities, Arc::new(ManualClock::new(0)), Arc::new(SystemRandom));
    (store, faults, good)
}

fn on_memory() -> (Store, FaultStore, Store) {
    stand(Arc::new(InMemory::new()), "", Abilities::ALL, Arc::new(ManualClock::new(0)))
}

async fn create(store: &Store, n: u32) -> Version {
    match store.create(&key(), &Count(n)).await.unwrap() {
        Created::Done(version) => version,
        Created::Exists(found) => panic!("{found:?}"),
    }
}

async fn replace(store: &Store, version: &Version, n: u32) -> Version {
    match store.replace(&key(), version, &Count(n)).await.unwrap() {
        Replaced::Done(version) => version,
        other => panic!("{other:?}"),
    }
}

async fn now(store: &Store) -> Count {
    store.load::<Count>(&key()).await.unwrap().unwrap().value
}

const LOST: [Fault; 4] = [Fault::ApplyThen500, Fault::ApplyThen412, Fault::ApplyThen409, Fault::ApplyThenReset];
const NOT_DONE: [Fault; 3] = [Fault::Fail500, Fault::Fail409, Fault::TimeOut];

async fn answers_that_lie((store, faults, good): (Store, FaultStore, Store)) {
    for fault in LOST.into_iter().chain(NOT_DONE) {
        good.delete(&key()).await.unwrap();
        let before = faults.hits();
        faults.next("head", fault);
        let first = create(&store, 1).await;
        assert_eq!(now(&good).await, Count(1), "{fault:?}");
        faults.next("head", fault);
        let second = replace(&store, &first, 2).await;
        assert_eq!(now(&good).await, Count(2), "{fault:?}");
        assert_eq!(faults.hits(), before + 2, "{fault:?}: the fault was met");
        // The version is a good one to go on from, and the old one isn't.
        replace(&store, &second, 3).await;
        assert!(matches!(store.replace(&key(), &first, &Count(4)).await.unwrap(), Replaced::Refused(_)), "{fault:?}");
        assert_eq!(now(&good).await, Count(3), "{fault:?}");
        // A real refusal behind a fault is still one.
        faults.next("head", fault);
        assert!(
            matches!(store.create(&key(), &Count(5)).await.unwrap_or_else(|error| panic!("{fault:?}: {error:?}")), Created::Exists(_))
                || fault == Fault::TimeOut
        );
        faults.heal();
    }
}

#[tokio::test]
async fn a_write_whose_answer_lies_is_settled_by_reading() {
    answers_that_lie(on_memory()).await;
}

#[tokio::test]
async fn a_write_whose_answer_lies_is_settled_by_reading_on_s3() {
    let server = Seaweed::shared().await;
    let url = server.fresh_url();
    let prefix = url.rsplit_once('/').unwrap().1;
    answers_that_lie(stand(Arc::new(crate::store_conformance::client(&server)), prefix, Abilities::ALL, Arc::new(ManualClock::new(0))))
        .await;
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_said_to_be_and_nothing_is_undone() {
    for fault in [Fault::ApplyThen500, Fault::ApplyThenReset, Fault::Fail500, Fault::TimeOut] {
        let (store, faults, good) = on_memory();
        let first = create(&store, 1).await;
        // The write meets the fault, and so does every look at the object.
        faults.next("head", fault);
        faults.after("head", 0, 100, Fault::TimeOut);
        let error = store.replace(&key(), &first, &Count(2)).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, "outcome_unknown"), "{fault:?}: {error:?}");
        let landed = matches!(fault, Fault::ApplyThen500 | Fault::ApplyThenReset);
        assert_eq!(now(&good).await, Count(if landed { 2 } else { 1 }), "{fault:?}");
        faults.heal();
        // The one who asks again later gets an honest answer.
        let again = store.replace(&key(), &first, &Count(3)).await.unwrap();
        assert_eq!(matches!(again, Replaced::Refused(_)), landed, "{fault:?}");
    }
}

#[tokio::test]
async fn a_store_that_refuses_what_it_should_not_is_given_up_after_some_tries() {
    let (store, faults, good) = on_memory();
    let first = create(&store, 1).await;
    faults.after("head", 0, 100, Fault::Fail409);
    let error = store.replace(&key(), &first, &Count(2)).await.unwrap_err();
    assert_eq!(error.stable_code(), "store_failed", "{error:?}");
    assert_eq!(now(&good).await, Count(1));
}

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A clock whose first wait is when somebody else acts.
struct Meanwhile(Mutex<Option<Step>>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

#[async_trait::async_trait]
impl Clock for Meanwhile {
    fn now(&self) -> UnixNanos {
        0
    }

    fn boot(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _span: Duration) {
        let step = self.0.lock().unwrap().take();
        if let Some(step) = step {
            step.await;
        }
    }
}

#[tokio::test]
async fn a_write_that_landed_and_was_built_upon_is_not_taken_for_lost() {
    let backend: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rival = Store::with_backend(Arc::clone(&backend), "", Abilities::ALL, Arc::new(ManualClock::new(0)), Arc::new(SystemRandom));
    let version = create(&rival, 1).await;
    let other = rival.clone();
    let step: Step = Box::pin(async move {
        for n in 10..15 {
            let found = other.load::<Count>(&key()).await.unwrap().unwrap();
            replace(&other, &found.version, n).await;
        }
    });
    let (store, faults, _) = stand(backend, "", Abilities::ALL, Arc::new(Meanwhile(Mutex::new(Some(step)))));
    // The write lands, its answer is lost, the first look fails too; while the writer waits, five others build on it.
    faults.next("head", Fault::ApplyThenReset);
    faults.after("head", 0, 1, Fault::TimeOut);
    let version = replace(&store, &version, 2).await;
    assert_eq!(faults.hits(), 2);
    assert_eq!(now(&rival).await, Count(14), "and theirs stay");
    // The version is an old one: the next write is refused, and does no harm.
    assert!(matches!(store.replace(&key(), &version, &Count(3)).await.unwrap(), Replaced::Refused(found) if found.value == Count(14)));
}

/// The same at the first write of an object. What others made of it since must not be overwritten by who made it.
async fn a_creation_that_was_built_upon(backend: Arc<dyn ObjectStore>, prefix: &str) {
    let rival = Store::with_backend(Arc::clone(&backend), prefix, Abilities::ALL, Arc::new(ManualClock::new(0)), Arc::new(SystemRandom));
    let other = rival.clone();
    let step: Step = Box::pin(async move {
        let found = other.load::<Count>(&key()).await.unwrap().unwrap();
        assert_eq!(found.value, Count(1));
        replace(&other, &found.version, 7).await;
    });
    let (store, faults, _) = stand(backend, prefix, Abilities::ALL, Arc::new(Meanwhile(Mutex::new(Some(step)))));
    // The write lands, its answer is lost, the first look fails too; while the writer waits, somebody builds on it.
    faults.next("head", Fault::ApplyThenReset);
    faults.after("head", 0, 1, Fault::TimeOut);
    let version = create(&store, 1).await;
    assert_eq!(faults.hits(), 2);
    assert_eq!(now(&rival).await, Count(7));
    assert!(matches!(store.replace(&key(), &version, &Count(2)).await.unwrap(), Replaced::Refused(found) if found.value == Count(7)));
    assert_eq!(now(&rival).await, Count(7), "theirs stays");
}

#[tokio::test]
async fn a_creation_that_was_built_upon_is_over() {
    a_creation_that_was_built_upon(Arc::new(InMemory::new()), "").await;
}

#[tokio::test]
async fn a_creation_that_was_built_upon_is_over_on_s3() {
    let seaweed = Seaweed::shared().await;
    let url = seaweed.fresh_url();
    let prefix = url.rsplit_once('/').unwrap().1;
    a_creation_that_was_built_upon(Arc::new(crate::store_conformance::client(&seaweed)), prefix).await;
}

#[tokio::test]
async fn a_late_first_try_does_not_double_a_write() {
    // The first try is refused with a conflict that isn't one; meanwhile a rival writes. The second try must not overwrite it.
    let backend: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let rival = Store::with_backend(Arc::clone(&backend), "", Abilities::ALL, Arc::new(ManualClock::new(0)), Arc::new(SystemRandom));
    let version = create(&rival, 1).await;
    let (other, old) = (rival.clone(), version.clone());
    let step: Step = Box::pin(async move { drop(replace(&other, &old, 7).await) });
    let (store, faults, _) = stand(backend, "", Abilities::ALL, Arc::new(Meanwhile(Mutex::new(Some(step)))));
    faults.next("head", Fault::Fail409);
    assert!(matches!(store.replace(&key(), &version, &Count(2)).await.unwrap(), Replaced::Refused(found) if found.value == Count(7)));
    assert_eq!(now(&rival).await, Count(7));
}

#[tokio::test]
async fn bytes_that_change_on_the_way_are_noticed() {
    let bytes: Bytes = vec![9; 100_000].into();
    // A server that isn't known to check: every pack is read back.
    let (store, faults, good) = stand(Arc::new(InMemory::new()), "", Abilities::UNKNOWN, Arc::new(ManualClock::new(0)));
    faults.next("packs", Fault::FlipPut);
    let error = store.put_pack(&pack(&bytes), bytes.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "upload_damaged"), "{error:?}");
    store.put_pack(&pack(&bytes), bytes.clone()).await.unwrap();
    assert_eq!(good.get(&pack(&bytes), 100_000).await.unwrap().bytes, bytes);

    faults.next("packs", Fault::TruncateGet);
    assert_eq!(store.get(&pack(&bytes), 100_000).await.unwrap_err().stable_code(), "object_truncated");
    faults.next("packs", Fault::TruncateGet);
    assert_eq!(store.get_range(&pack(&bytes), 5..500).await.unwrap_err().stable_code(), "object_truncated");

    create(&good, 1).await;
    for fault in [Fault::FlipGet, Fault::TruncateGet] {
        faults.next("head", fault);
        let error = store.load::<Count>(&key()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{fault:?}: {error:?}");
    }
    assert_eq!(faults.hits(), 5);
    assert_eq!(now(&store).await, Count(1));
}

#[tokio::test]
async fn refusals_are_not_repeated_and_say_what_to_do() {
    for (fault, code) in [(Fault::Full, "store_full"), (Fault::Denied, "store_denied")] {
        let (store, faults, good) = on_memory();
        faults.after("", 0, 100, fault);
        for error in
            [store.create(&key(), &Count(1)).await.unwrap_err(), store.put_pack(&pack(b"x"), Bytes::from_static(b"x")).await.unwrap_err()]
        {
            assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, code), "{error:?}");
            assert!(error.next_step().is_some());
        }
        assert_eq!(faults.hits(), 2, "{fault:?} isn't tried again");
        assert!(good.load::<Count>(&key()).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn the_self_test_finds_a_server_that_enforces_nothing() {
    let (store, _, _) = stand(Arc::new(Careless(InMemory::new())), "", Abilities::UNKNOWN, Arc::new(ManualClock::new(0)));
    let report = store.probe().await.unwrap();
    assert_eq!((report.abilities.exclusive_create, report.abilities.conditional_update), (false, false), "{report:?}");
    assert!(!store.abilities().allows_replicas());
    assert!(report.checks.iter().filter(|check| check.holds == Some(false)).all(|check| check.note.is_some()));
}

/// A server that ignores conditions, as some have done.
#[derive(Debug)]
struct Careless(InMemory);

impl fmt::Display for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("careless")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Careless {
    async fn put_opts(
        &self,
        location: &object_store::path::Path,
        payload: object_store::PutPayload,
        _opts: object_store::PutOptions,
    ) -> object_store::Result<object_store::PutResult> {
        self.0.put_opts(location, payload, object_store::PutOptions::default()).await
    }

    async fn put_multipart_opts(
        &self,
        location: &object_store::path::Path,
        opts: object_store::PutMultipartOptions,
    ) -> object_store::Result<Box<dyn object_store::MultipartUpload>> {
        self.0.put_multipart_opts(location, opts).await
    }

    async fn get_opts(
        &self,
        location: &object_store::path::Path,
        options: object_store::GetOptions,
    ) -> object_store::Result<object_store::GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: futures::stream::BoxStream<'static, object_store::Result<object_store::path::Path>>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<object_store::path::Path>> {
        self.0.delete_stream(locations)
    }

    fn list(
        &self,
        prefix: Option<&object_store::path::Path>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<object_store::ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&object_store::path::Path>) -> object_store::Result<object_store::ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &object_store::path::Path,
        to: &object_store::path::Path,
        options: object_store::CopyOptions,
    ) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
