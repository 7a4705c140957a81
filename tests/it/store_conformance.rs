//! What every kind of store has to do, on each of them: memory, a folder, and S3 (SeaweedFS). One function for each clause.

use std::sync::Arc;

use bytes::Bytes;
use landfall::ErrorKind;
use landfall::clock::{SharedClock, SystemClock};
use landfall::id::{PackId, RunId, SessionRef};
use landfall::random::{SharedRandom, SystemRandom};
use landfall::store::cas::{Created, Loaded, Replaced};
use landfall::store::document::Document;
use landfall::store::{Abilities, Key, Prefix, SessionHash, Store};
use landfall_tests::seaweed::Seaweed;
use landfall_tests::small_disk::SmallDisk;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};
use serde::{Deserialize, Serialize};

/// A document of the tests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
}

impl Document for Note {
    const KIND: &'static str = "note";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "note_damaged";
}

fn note(text: impl Into<String>) -> Note {
    Note { text: text.into() }
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

fn random() -> SharedRandom {
    Arc::new(SystemRandom)
}

fn session(agent: &str, name: &str) -> SessionRef {
    SessionRef { agent: agent.parse().unwrap(), session: name.parse().unwrap() }
}

fn head(name: &str) -> Key {
    Key::Head(session("agent", name))
}

fn pack(name: &str, bytes: &[u8]) -> Key {
    Key::SessionPack(session("agent", name), PackId::of(bytes))
}

/// A store under test, and a way to its objects that goes round it.
struct Stand {
    store: Store,
    raw: Arc<dyn ObjectStore>,
    prefix: String,
    url: Option<String>,
    options: landfall::store::Options,
    _folder: Option<tempfile::TempDir>,
}

impl Stand {
    async fn memory() -> Self {
        let raw: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let store = Store::with_backend(Arc::clone(&raw), "some/prefix", Abilities::ALL, clock(), random());
        Self { store, raw, prefix: "some/prefix".into(), url: None, options: landfall::store::Options::new(), _folder: None }
    }

    async fn file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/store", folder.path().display());
        let store = Store::open(&url, &landfall::store::Options::new(), clock(), random()).await.unwrap();
        let raw = Arc::new(LocalFileSystem::new_with_prefix(folder.path().join("store")).unwrap());
        Self { store, raw, prefix: String::new(), url: Some(url), options: landfall::store::Options::new(), _folder: Some(folder) }
    }

    async fn s3() -> Self {
        let server = Seaweed::shared().await;
        let (url, options) = (server.fresh_url(), server.options());
        let raw = Arc::new(client(&server));
        let store = Store::open(&url, &options, clock(), random()).await.unwrap();
        let prefix = url.rsplit_once('/').unwrap().1.to_owned();
        Self { store, raw, prefix, url: Some(url), options, _folder: None }
    }

    fn path(&self, key: &Key) -> object_store::path::Path {
        self.raw_path(&key.to_string())
    }

    #[expect(clippy::disallowed_methods, reason = "the tests reach round the store on purpose")]
    fn raw_path(&self, below: &str) -> object_store::path::Path {
        object_store::path::Path::parse(format!("{}/{below}", self.prefix)).unwrap()
    }

    /// Changes stored bytes behind the store's back.
    async fn damage(&self, key: &Key, change: impl Fn(&mut Vec<u8>)) {
        let mut bytes = self.raw.get(&self.path(key)).await.unwrap().bytes().await.unwrap().to_vec();
        change(&mut bytes);
        self.raw.put(&self.path(key), bytes.into()).await.unwrap();
    }
}

pub(crate) fn client(server: &Seaweed) -> object_store::aws::AmazonS3 {
    let options = server.options();
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(&options["aws_access_key_id"])
        .with_secret_access_key(&options["aws_secret_access_key"])
        .with_bucket_name(landfall_tests::seaweed::BUCKET)
        .with_checksum_algorithm(Checksum::SHA256)
        .build()
        .unwrap()
}

macro_rules! on_every_store {
    ($($clause:ident),* $(,)?) => {
        mod memory { $(#[tokio::test] async fn $clause() { super::$clause(super::Stand::memory().await).await; })* }
        mod file { $(#[tokio::test] async fn $clause() { super::$clause(super::Stand::file().await).await; })* }
        mod s3 { $(#[tokio::test] async fn $clause() { super::$clause(super::Stand::s3().await).await; })* }
    };
}

on_every_store!(
    objects_come_back_as_they_were_put,
    reads_are_bounded_and_say_what_is_missing,
    a_pack_is_named_by_its_bytes,
    listings_give_keys_and_set_strangers_apart,
    a_create_is_exclusive,
    an_update_needs_the_current_version,
    equal_content_is_not_an_equal_version,
    of_racing_writers_none_loses_an_update,
    of_racing_creators_one_wins,
    a_changed_byte_in_a_document_is_noticed,
    handles_share_objects_and_count_for_themselves,
    the_self_test_finds_everything_enforced,
    a_store_is_found_again_and_nothing_else_is_taken_for_one,
);

fn done<T: std::fmt::Debug>(created: Created<T>) -> landfall::store::cas::Version {
    match created {
        Created::Done(version) => version,
        other => panic!("{other:?}"),
    }
}

fn replaced<T: std::fmt::Debug>(replaced: Replaced<T>) -> landfall::store::cas::Version {
    match replaced {
        Replaced::Done(version) => version,
        other => panic!("{other:?}"),
    }
}

async fn load(store: &Store, key: &Key) -> Loaded<Note> {
    store.load::<Note>(key).await.unwrap().unwrap()
}

async fn objects_come_back_as_they_were_put(stand: Stand) {
    let store = &stand.store;
    let bytes: Bytes = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
    let key = pack("s", &bytes);
    assert_eq!(store.size(&key).await.unwrap(), None);
    store.put_pack(&key, bytes.clone()).await.unwrap();
    store.put_pack(&key, bytes.clone()).await.unwrap();
    assert_eq!(store.size(&key).await.unwrap(), Some(3_000_000));
    assert_eq!(store.get(&key, 3_000_000).await.unwrap().bytes, bytes);
    for range in [0..1, 1_000_000..2_000_001, 2_999_999..3_000_000, 0..3_000_000] {
        let part = store.get_range(&key, range.clone()).await.unwrap();
        assert_eq!(part, bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()));
    }
    store.delete(&key).await.unwrap();
    store.delete(&key).await.unwrap();
    assert_eq!(store.get_if_present(&key, 1).await.unwrap().map(|object| object.bytes), None);
}

async fn reads_are_bounded_and_say_what_is_missing(stand: Stand) {
    let store = &stand.store;
    let key = pack("s", b"0123456789");
    for error in [store.get(&key, 10).await.map(|_| ()).unwrap_err(), store.get_range(&key, 0..1).await.map(|_| ()).unwrap_err()] {
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "object_missing"), "{error:?}");
        assert!(error.message().contains(&key.to_string()), "{error:?}");
    }
    store.put_pack(&key, Bytes::from_static(b"0123456789")).await.unwrap();
    assert_eq!(store.get(&key, 9).await.unwrap_err().stable_code(), "object_too_large");
    for range in [5..11, 10..11, 50..60] {
        let error = store.get_range(&key, range.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "object_truncated"), "{range:?}: {error:?}");
    }
    let input = Key::Input(session("agent", "s"), landfall::id::sha256(b"in"));
    store.put_pack(&input, Bytes::from_static(b"in")).await.unwrap();
    stand.damage(&input, |bytes| bytes[0] ^= 1).await;
    assert_eq!(store.get(&input, 10).await.unwrap_err().stable_code(), "input_damaged");
}

async fn a_pack_is_named_by_its_bytes(stand: Stand) {
    let store = &stand.store;
    let key = pack("s", b"right");
    assert_eq!(store.put_pack(&key, Bytes::from_static(b"wrong")).await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(store.put_pack(&head("s"), Bytes::from_static(b"x")).await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(store.size(&key).await.unwrap(), None);
    let large = Bytes::from(vec![7; landfall::store::PACK_MAX + 1]);
    assert_eq!(store.put_pack(&pack("s", &large), large.clone()).await.unwrap_err().kind(), ErrorKind::Limit);
}

async fn listings_give_keys_and_set_strangers_apart(stand: Stand) {
    let store = &stand.store;
    let names = ["a", "ab", "a b", "fix 42/größer?", "%2F", "..", "~", "\"<>&+#*|\\", &"é".repeat(64), "日本"];
    let mut heads: Vec<Key> = names.iter().map(|name| head(name)).collect();
    for (key, name) in heads.iter().zip(names) {
        done(store.create(key, &note(name)).await.unwrap());
        assert_eq!(load(store, key).await.value, note(name));
    }
    let (one, two) = (pack("a", b"1"), pack("ab", b"2"));
    store.put_pack(&one, Bytes::from_static(b"1")).await.unwrap();
    store.put_pack(&two, Bytes::from_static(b"2")).await.unwrap();
    let run = Key::Run(session("agent", "a"), RunId::new_v7(1, [1; 10]));
    done(store.create(&run, &note("run")).await.unwrap());
    stand.raw.put(&stand.raw_path("sessions/agent/a/packs/stranger"), "x".into()).await.unwrap();

    let listing = store.list(&Prefix::Session(session("agent", "a"))).await.unwrap();
    let keys: Vec<_> = listing.objects.iter().map(|listed| listed.key.clone()).collect();
    assert_eq!(keys, [head("a"), one.clone(), run], "and nothing of the session whose name only begins the same");
    assert_eq!(listing.foreign, ["sessions/agent/a/packs/stranger"]);
    assert_eq!(listing.objects[1].size, 1);
    assert!(listing.objects.iter().all(|listed| listed.modified > 1_700_000_000_000_000_000));
    assert_eq!(store.list(&Prefix::SessionPacks(session("agent", "a"))).await.unwrap().objects.len(), 1);
    assert_eq!(store.list(&Prefix::SessionQueue(SessionHash::of(&session("agent", "a")))).await.unwrap().objects, []);

    assert_eq!(store.list_folders(&Prefix::Sessions).await.unwrap(), ["agent"]);
    let folders = store.list_folders(&Prefix::Agent("agent".parse().unwrap())).await.unwrap();
    let mut found: Vec<Key> = folders.iter().map(|segment| head(landfall::store::keys::session_of(segment).unwrap().as_str())).collect();
    found.sort();
    heads.sort();
    assert_eq!(found, heads);
}

async fn a_create_is_exclusive(stand: Stand) {
    let store = &stand.store;
    let version = done(store.create(&head("s"), &note("first")).await.unwrap());
    match store.create(&head("s"), &note("second")).await.unwrap() {
        Created::Exists(found) => assert_eq!((found.value, found.version.digest()), (note("first"), version.digest())),
        other => panic!("{other:?}"),
    }
    assert_eq!(load(store, &head("s")).await.value, note("first"));
}

async fn an_update_needs_the_current_version(stand: Stand) {
    let store = &stand.store;
    let first = done(store.create(&head("s"), &note("1")).await.unwrap());
    let second = replaced(store.replace(&head("s"), &first, &note("2")).await.unwrap());
    match store.replace(&head("s"), &first, &note("3")).await.unwrap() {
        Replaced::Refused(found) => {
            assert_eq!((found.value, found.version.digest()), (note("2"), second.digest()));
            // What was found is what the next update goes on from.
            replaced(store.replace(&head("s"), &found.version, &note("4")).await.unwrap());
        }
        other => panic!("{other:?}"),
    }
    let fourth = load(store, &head("s")).await;
    assert_eq!(fourth.value, note("4"));
    store.delete(&head("s")).await.unwrap();
    assert!(matches!(store.replace(&head("s"), &fourth.version, &note("5")).await.unwrap(), Replaced::Gone));
    assert!(store.load::<Note>(&head("s")).await.unwrap().is_none());
}

async fn equal_content_is_not_an_equal_version(stand: Stand) {
    let store = &stand.store;
    let a = done(store.create(&head("s"), &note("a")).await.unwrap());
    let b = replaced(store.replace(&head("s"), &a, &note("b")).await.unwrap());
    let a_again = replaced(store.replace(&head("s"), &b, &note("a")).await.unwrap());
    assert_ne!(a.digest(), a_again.digest());
    assert!(matches!(store.replace(&head("s"), &a, &note("x")).await.unwrap(), Replaced::Refused(_)));
    assert_eq!(load(store, &head("s")).await.value, note("a"));
}

async fn of_racing_writers_none_loses_an_update(stand: Stand) {
    const WRITERS: usize = 3;
    const EACH: usize = 3;
    done(stand.store.create(&head("s"), &note("")).await.unwrap());
    let writers = (0..WRITERS).map(|writer| {
        let store = stand.store.as_replica(clock(), random());
        tokio::spawn(async move {
            for _ in 0..EACH {
                let mut now = load(&store, &head("s")).await;
                loop {
                    let next = note(format!("{}{writer}", now.value.text));
                    match store.replace(&head("s"), &now.version, &next).await.unwrap() {
                        Replaced::Done(_) => break,
                        Replaced::Refused(found) => now = *found,
                        Replaced::Gone => panic!("gone"),
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let text = load(&stand.store, &head("s")).await.value.text;
    assert_eq!(text.len(), WRITERS * EACH, "{text}");
    for writer in 0..WRITERS {
        assert_eq!(text.matches(&writer.to_string()).count(), EACH, "{text}");
    }
}

async fn of_racing_creators_one_wins(stand: Stand) {
    let creators = (0..4).map(|creator| {
        let store = stand.store.as_replica(clock(), random());
        tokio::spawn(async move { (creator, store.create(&head("s"), &note(creator.to_string())).await.unwrap()) })
    });
    let mut winners = Vec::new();
    let mut seen = Vec::new();
    for creator in creators.collect::<Vec<_>>() {
        match creator.await.unwrap() {
            (creator, Created::Done(_)) => winners.push(note(creator.to_string())),
            (_, Created::Exists(found)) => seen.push(found.value),
        }
    }
    assert_eq!((winners.len(), seen.len()), (1, 3));
    assert!(seen.iter().all(|value| *value == winners[0]));
}

async fn a_changed_byte_in_a_document_is_noticed(stand: Stand) {
    let store = &stand.store;
    for (name, at) in [("kind", 14), ("sum", 60), ("nonce", 130), ("body", usize::MAX)] {
        let version = done(store.create(&head(name), &note("some text")).await.unwrap());
        stand
            .damage(&head(name), |bytes| {
                let at = at.min(bytes.len() - 5);
                bytes[at] ^= 1;
            })
            .await;
        let error = store.load::<Note>(&head(name)).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "note_damaged"), "{name}: {error:?}");
        assert!(error.message().contains(&head(name).to_string()) && error.next_step().is_some(), "{error:?}");
        // Nor is it written over.
        assert_eq!(store.replace(&head(name), &version, &note("x")).await.unwrap_err().stable_code(), "note_damaged");
        assert_eq!(store.create(&head(name), &note("x")).await.unwrap_err().stable_code(), "note_damaged");
    }
    stand.raw.put(&stand.path(&head("huge")), vec![b'x'; 65 << 10].into()).await.unwrap();
    assert_eq!(store.load::<Note>(&head("huge")).await.unwrap_err().stable_code(), "object_too_large");
}

async fn handles_share_objects_and_count_for_themselves(stand: Stand) {
    let other = stand.store.as_replica(clock(), random());
    let turn = other.metered();
    done(turn.create(&head("s"), &note("x")).await.unwrap());
    assert_eq!(load(&stand.store.metered(), &head("s")).await.value, note("x"));
    let counts = turn.counts();
    assert_eq!((counts.puts, counts.gets, counts.requests()), (1, 0, 1));
    assert!(counts.put_bytes > 100);
    assert_eq!(other.counts(), counts);
    turn.list(&Prefix::Queue).await.unwrap();
    turn.delete(&head("s")).await.unwrap();
    assert_eq!(turn.size(&head("s")).await.unwrap(), None);
    assert_eq!(turn.counts().requests(), 4);
}

async fn the_self_test_finds_everything_enforced(stand: Stand) {
    let report = stand.store.probe().await.unwrap();
    assert_eq!(report.abilities, Abilities::ALL, "{report:?}");
    assert_eq!(stand.store.abilities(), Abilities::ALL);
    assert!(report.checks.iter().all(|check| check.holds != Some(false)), "{report:?}");
    let scratch = stand.store.list(&Prefix::Probes).await.unwrap().objects;
    assert!(scratch.len() <= 1, "only a remembered result stays: {scratch:?}");
}

async fn a_store_is_found_again_and_nothing_else_is_taken_for_one(stand: Stand) {
    let Some(url) = &stand.url else { return };
    done(stand.store.create(&head("s"), &note("x")).await.unwrap());
    for again in [
        Store::open(url, &stand.options, clock(), random()).await.unwrap(),
        Store::open_existing(url, &stand.options, clock(), random()).await.unwrap(),
    ] {
        assert_eq!(load(&again, &head("s")).await.value, note("x"));
        assert_eq!(again.abilities(), Abilities::ALL, "the result of the self-test is remembered");
    }
    let error = Store::open_existing(&format!("{url}-none"), &stand.options, clock(), random()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "store_missing"), "{error:?}");

    let below = format!("{url}/sessions");
    let error = Store::open(&below, &stand.options, clock(), random()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, "not_a_store"), "{error:?}");
    assert!(error.next_step().is_some());

    // A marker that a newer version wrote, with a right digest.
    let rest = r#""nonce":"00000000000000000000000000000000","nonces":[],"body":{"created":0,"more":1}}"#.to_owned() + "\n";
    let sum = landfall::id::sha256(format!("landfall:document:store:2\n{rest}").as_bytes());
    let newer = format!(r#"{{"landfall":"store","version":2,"sha256":"{sum}",{rest}"#);
    stand.raw.put(&stand.path(&Key::Marker), newer.into()).await.unwrap();
    let error = Store::open(url, &stand.options, clock(), random()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooNew, "{error:?}");
    stand.damage(&Key::Marker, |bytes| bytes.truncate(40)).await;
    let error = Store::open(url, &stand.options, clock(), random()).await.unwrap_err();
    assert_eq!(error.stable_code(), "marker_damaged", "{error:?}");
}

#[tokio::test]
async fn a_server_with_wrong_settings_is_told_apart() {
    let server = Seaweed::shared().await;
    let open = async |url: &str, change: &[(&str, &str)]| {
        let mut options = server.options();
        options.extend(change.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Store::open(url, &options, clock(), random()).await.unwrap_err()
    };
    let url = server.fresh_url();
    let denied = open(&url, &[("aws_secret_access_key", "not-the-right-one")]).await;
    assert_eq!(denied.stable_code(), "store_denied", "{denied:?}");
    let missing = open("s3://landfall-no-such-bucket/x", &[]).await;
    assert_eq!(missing.stable_code(), "bucket_missing", "{missing:?}");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let unreachable = open(&url, &[("aws_endpoint", &format!("http://127.0.0.1:{port}"))]).await;
    assert_eq!(unreachable.stable_code(), "store_unreachable", "{unreachable:?}");
    for error in [denied, missing, unreachable] {
        assert!(
            error.kind() == ErrorKind::Store && error.next_step().is_some() && !error.chain().contains("not-the-right-one"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn folders_that_are_no_store_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("file://{}/{name}", folder.path().display());
    let open = async |url: String| Store::open(&url, &landfall::store::Options::new(), clock(), random()).await.unwrap_err();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::create_dir(folder.path().join("mine/empty")).unwrap();
    for name in ["file", "file/below", "mine"] {
        let error = open(at(name)).await;
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, "not_a_store"), "{name}: {error:?}");
    }
    // Looking for a store makes none.
    let options = landfall::store::Options::new();
    assert!(Store::open_existing(&at("none"), &options, clock(), random()).await.is_err());
    assert!(!folder.path().join("none").exists());
    // An empty folder becomes one, readable by its owner alone when we make it.
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    Store::open(&at("empty"), &options, clock(), random()).await.unwrap();
    Store::open(&at("deep/er"), &options, clock(), random()).await.unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(folder.path().join("deep/er")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn a_full_disk_and_a_read_only_one_lose_nothing() {
    let Some(disk) = SmallDisk::mount("size=256k") else { return };
    let url = format!("file://{}/store", disk.path().display());
    let store = Store::open(&url, &landfall::store::Options::new(), clock(), random()).await.unwrap();
    let version = done(store.create(&head("s"), &note("x")).await.unwrap());
    let large = Bytes::from(vec![3; 1 << 20]);
    let error = store.put_pack(&pack("s", &large), large.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, "store_full"), "{error:?}");
    assert_eq!(store.size(&pack("s", &large)).await.unwrap(), None);
    let left = std::fs::read_dir(disk.path().join("store/.tmp")).unwrap().count();
    assert_eq!(left, 0, "the unfinished file is gone");
    // There is room again, so the next write goes through.
    let version = replaced(store.replace(&head("s"), &version, &note("y")).await.unwrap());

    disk.remount("ro");
    for error in
        [store.replace(&head("s"), &version, &note("z")).await.unwrap_err(), store.create(&head("t"), &note("z")).await.unwrap_err()]
    {
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Store, "store_read_only"), "{error:?}");
        assert!(error.next_step().is_some());
    }
    assert_eq!(load(&store, &head("s")).await.value, note("y"));
    disk.remount("rw");
    replaced(store.replace(&head("s"), &version, &note("z")).await.unwrap());
}

#[tokio::test]
async fn unfinished_files_of_a_crash_are_no_objects() {
    let stand = Stand::file().await;
    done(stand.store.create(&head("s"), &note("x")).await.unwrap());
    let root = stand._folder.as_ref().unwrap().path().join("store");
    std::fs::write(root.join(".tmp/0123456789abcdef"), "half").unwrap();
    let listing = stand.store.list(&Prefix::All).await.unwrap();
    assert_eq!(listing.objects.iter().map(|listed| listed.key.clone()).collect::<Vec<_>>(), [Key::Marker, head("s")]);
    assert_eq!(listing.foreign, Vec::<String>::new());
    assert!(!root.join(".locks").exists(), "an exclusive create needs no lock");
}
