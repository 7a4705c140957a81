//! Collection and compaction: what is needed stays, whoever sleeps, whatever clocks say, whatever fails in the middle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use landfall::checkpoint::import::{From, ImportOptions};
use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::config::Agent;
use landfall::gc::{self, Options, Retention};
use landfall::host::Host;
use landfall::id::SessionRef;
use landfall::session::selector::Selector;
use landfall::session::{Acquired, Origin, Status, Trigger};
use landfall::store::{Key, Nonce};
use landfall::workspace::page::Home;
use landfall::workspace::source::Sink as _;
use landfall_tests::fault_store::Fault;
use landfall_tests::git_server::{GitServer, TestRepository};
use landfall_tests::replicas::{World, run, session};
use landfall_tests::turns::{Turns, agent, agent_on};
use object_store::{ObjectStore, ObjectStoreExt as _};

fn selector(text: &str) -> Selector {
    text.parse().unwrap()
}

fn name(text: &str) -> SessionRef {
    landfall::session::selector::parse_session(text).unwrap()
}

/// Drops all that it may, at once.
fn eager(keep_last: u64) -> Options {
    Options { retention: Retention { keep_last, keep_days: 0 }, grace: Duration::ZERO, dry_run: false }
}

/// A host whose agent adds a line to a file in each turn.
fn host(turns: &Turns, cache: &str) -> Host {
    let args =
        ["append", "/workspace/log", "one more line, long enough not to lie in the entry of its file: 0123456789\n"].map(str::to_owned);
    turns.host(cache, &[("bot", Agent { args: args.to_vec(), ..agent("fs-std") })]).unwrap()
}

async fn begin(host: &Host, session: &str) {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..20 {
        std::fs::create_dir_all(dir.path().join(format!("d{}", n % 4))).unwrap();
        std::fs::write(dir.path().join(format!("d{}/f{n}", n % 4)), format!("file {n} ").repeat(100)).unwrap();
    }
    std::fs::write(dir.path().join("log"), "begin\n").unwrap();
    host.import(&name(session), From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap();
}

async fn turn(host: &Host, session: &str) {
    let record = landfall_tests::turns::run(host, "bot", session, "").await.unwrap();
    assert!(record.is_completed(), "{record:?}");
}

async fn sound(host: &Host, checkpoint: &str) {
    let open = host.open(&selector(checkpoint)).await.unwrap();
    let report = host.verify(&open, true).await.unwrap();
    assert!(report.is_ok(), "{checkpoint}: {:?}", report.damage);
}

async fn objects(store: &dyn ObjectStore) -> BTreeSet<String> {
    store.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap()
}

async fn packs(host: &Host, session: &str) -> usize {
    host.store().list(&landfall::store::Prefix::SessionPacks(name(session))).await.unwrap().objects.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_whole_and_the_rest_is_deleted_after_its_grace() {
    let turns = Turns::new().unwrap();
    let host = host(&turns, "one");
    begin(&host, "bot/s").await;
    for _ in 0..6 {
        turn(&host, "s").await;
    }
    host.fork(&selector("bot/s@2"), &name("bot/fork")).await.unwrap();
    let before = packs(&host, "bot/s").await;
    assert_eq!(before, 7);

    // A dry run says what would be done, and does nothing.
    let dry = host.collect(&Options { dry_run: true, ..eager(2) }).await.unwrap();
    let said = &dry.sessions[&name("bot/s")];
    assert_eq!((said.dropped, said.deleted_packs), (5, 0), "{said:?}");
    assert!(!said.discarded.is_empty());
    assert_eq!(packs(&host, "bot/s").await, before);
    assert_eq!(host.session(&name("bot/s")).await.unwrap().trash, []);

    // The first run puts them on the list, and a later one deletes them.
    let long = Options { grace: Duration::from_secs(3600), ..eager(2) };
    let first = host.collect(&long).await.unwrap();
    assert_eq!(first.sessions[&name("bot/s")].discarded.len(), said.discarded.len());
    assert_eq!(host.collect(&long).await.unwrap().sessions[&name("bot/s")].waiting, said.discarded.len() as u64);
    assert_eq!(packs(&host, "bot/s").await, before, "their grace isn't over");
    let second = host.collect(&eager(2)).await.unwrap();
    assert_eq!(second.sessions[&name("bot/s")].deleted_packs, said.discarded.len() as u64);
    assert_eq!(packs(&host, "bot/s").await, before - said.discarded.len());
    assert_eq!(host.session(&name("bot/s")).await.unwrap().trash, []);

    // On a host that has nothing in memory: all that is kept is whole, and what isn't says so.
    let other = self::host(&turns, "two");
    for kept in ["bot/s", "bot/s@6", "bot/s@7", "bot/fork"] {
        sound(&other, kept).await;
    }
    // Turn 2 is kept by its fork, whatever retention says.
    sound(&other, "bot/s@2").await;
    for dropped in ["bot/s@1", "bot/s@3", "bot/s@5"] {
        assert_eq!(other.open(&selector(dropped)).await.unwrap_err().stable_code(), "checkpoint_dropped", "{dropped}");
        assert_eq!(other.fork(&selector(dropped), &name("bot/x")).await.unwrap_err().stable_code(), "checkpoint_dropped");
        assert_eq!(other.rollback(&name("bot/s"), &selector(dropped)).await.unwrap_err().stable_code(), "checkpoint_dropped");
    }
    assert_eq!(other.checkpoints(&name("bot/s")).await.unwrap().len(), 2);
    assert_eq!(other.runs(&name("bot/s"), 100).await.unwrap().len(), 7, "the log stays");
    // The session goes on, on both.
    turn(&other, "s").await;
    turn(&host, "s").await;
    sound(&other, "bot/s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_s_packs_wait_for_its_forks() {
    let turns = Turns::new().unwrap();
    let host = host(&turns, "one");
    begin(&host, "bot/parent").await;
    turn(&host, "parent").await;
    turn(&host, "parent").await;
    host.fork(&selector("bot/parent@2"), &name("bot/child")).await.unwrap();
    turn(&host, "child").await;
    host.fork(&selector("bot/child"), &name("bot/grandchild")).await.unwrap();
    host.delete(&name("bot/parent")).await.unwrap();
    host.delete(&name("bot/child")).await.unwrap();
    for _ in 0..3 {
        host.collect(&eager(1)).await.unwrap();
    }
    // The grandchild stands on the packs of both.
    let other = self::host(&turns, "two");
    sound(&other, "bot/grandchild").await;
    assert!(packs(&host, "bot/parent").await > 0 && packs(&host, "bot/child").await > 0);
    turn(&other, "grandchild").await;
    sound(&other, "bot/grandchild").await;
    // When it goes all goes, but the tombstones.
    other.delete(&name("bot/grandchild")).await.unwrap();
    for _ in 0..6 {
        let report = other.collect(&eager(1)).await.unwrap();
        assert!(report.left_alone.is_empty(), "{:?}", report.left_alone);
    }
    let left = other.store().list(&landfall::store::Prefix::Sessions).await.unwrap().objects;
    assert!(left.iter().all(|object| matches!(object.key, Key::Head(_))), "{left:?}");
    assert_eq!(left.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_packs_are_written_again_into_few_and_nobody_notices() {
    let turns = Turns::new().unwrap();
    let host = host(&turns, "one");
    begin(&host, "bot/s").await;
    for _ in 0..5 {
        turn(&host, "s").await;
    }
    assert!(host.compact().await.unwrap().is_empty(), "a few packs are no reason");
    // Each turn adds a file of its own, so that each leaves a pack that stays in use.
    for n in 0..gc::SMALL_MAX + 8 {
        let args = ["append".to_owned(), format!("/workspace/d{}/new{n}", n % 4), format!("text {n} ").repeat(30)];
        let host = turns.host("many", &[("bot", Agent { args: args.to_vec(), ..agent("fs-std") })]).unwrap();
        turn(&host, "s").await;
        host.close().await.unwrap();
    }
    let id = host.session(&name("bot/s")).await.unwrap().checkpoint.unwrap().id;
    let compacted = host.compact().await.unwrap();
    assert_eq!(compacted.len(), 1, "{compacted:?}");
    assert!(compacted[0].1.packs_before > gc::SMALL_MAX as u64 && compacted[0].1.packs_after <= 2, "{compacted:?}");
    assert_eq!(host.session(&name("bot/s")).await.unwrap().checkpoint.unwrap().id, id, "the same checkpoint");
    assert!(host.compact().await.unwrap().is_empty(), "once is enough");
    let other = self::host(&turns, "two");
    sound(&other, "bot/s").await;
    sound(&other, "bot/s@7").await;
    // Older packs go with the checkpoints that needed them. The first host has their pages in memory, and reads on all the same.
    turn(&host, "s").await;
    for _ in 0..2 {
        host.collect(&eager(1)).await.unwrap();
    }
    assert!(packs(&host, "bot/s").await <= 4);
    turn(&host, "s").await;
    turn(&other, "s").await;
    let third = self::host(&turns, "three");
    sound(&third, "bot/s").await;
    assert_eq!(third.open(&selector("bot/s")).await.unwrap().read("/workspace/d1/new1", 0, 7).await.unwrap(), "text 1 ");
    // A whole read of the tree is a few requests.
    let before = third.store().counts().gets;
    let folder = turns.folder.path().join("out");
    third.materialise(&third.open(&selector("bot/s")).await.unwrap(), &folder, &Default::default()).await.unwrap();
    assert!(third.store().counts().gets - before <= 12, "{}", third.store().counts().gets - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_compactions_and_collections_at_the_same_time_lose_nothing() {
    let turns = Turns::new().unwrap();
    let (worker, one, two) = (host(&turns, "w"), host(&turns, "one"), host(&turns, "two"));
    begin(&worker, "bot/s").await;
    let work = async {
        for n in 0..12 {
            turn(&worker, "s").await;
            if n % 4 == 3 {
                worker.rollback(&name("bot/s"), &selector("bot/s")).await.unwrap();
            }
        }
    };
    let collect = |host: Host| async move {
        for _ in 0..12 {
            let report = host.collect(&eager(1)).await.unwrap();
            for error in report.left_alone.values() {
                assert_eq!(error.kind(), landfall::ErrorKind::Conflict, "{error:?}");
            }
            host.compact().await.unwrap();
        }
    };
    tokio::join!(work, collect(one), collect(two));
    let fresh = host(&turns, "fresh");
    sound(&fresh, "bot/s").await;
    turn(&fresh, "s").await;
    sound(&fresh, "bot/s").await;
}

/// Uploads a pack as a turn does it before its commit.
async fn upload(member: &landfall_tests::replicas::Member, of: &SessionRef, text: &str) -> landfall::workspace::page::Root {
    let mut writer = PackWriter::new(member.good.clone(), Arc::new(Home::Session(of.clone())), WriterOptions::default());
    let chunk = writer.chunk(text.repeat(20).into()).await.unwrap();
    let len = u32::try_from(text.len() * 20).unwrap();
    let content = landfall::workspace::page::Content::Parts(vec![landfall::workspace::page::Part::Chunk(chunk, len)]);
    let node = landfall::workspace::page::Node::File { size: u64::from(len), content };
    let entry = landfall::workspace::page::Entry { name: "file".into(), mode: 0o644, mtime: 0, node };
    let page = writer.page(landfall::workspace::page::Page::Directory(vec![entry])).await.unwrap();
    writer.finish().await.unwrap();
    landfall::workspace::page::Root { page: writer.resolve(&page).unwrap(), links: None, entries: 1, bytes: u64::from(len) }
}

fn checkpoint(root: &landfall::workspace::page::Root) -> landfall::checkpoint::root::Checkpoint {
    let record = landfall::checkpoint::root::RootRecord { workspace: root.clone(), state: root.clone(), git: None, pin: None };
    landfall::checkpoint::root::Checkpoint::new(record)
}

async fn lease(member: &landfall_tests::replicas::Member, n: u64) -> landfall::session::Held {
    match member.sessions.acquire(&session("s"), run(n), None).await.unwrap() {
        Acquired::Held(held) => *held,
        other => panic!("{other:?}"),
    }
}

async fn commit(
    member: &landfall_tests::replicas::Member,
    held: &mut landfall::session::Held,
    root: &landfall::workspace::page::Root,
) -> landfall::Result<()> {
    let mut record = member.sessions.new_record(held, Trigger::Manual, Origin::Server);
    record.status = Status::Completed;
    record.after = Some(checkpoint(root));
    member.sessions.commit(held, record, &[]).await.map(drop)
}

async fn whole(member: &landfall_tests::replicas::Member) {
    let head = member.sessions.get(&session("s")).await.unwrap().head;
    let depth = landfall::checkpoint::verify::Depth::Deep;
    let report = landfall::checkpoint::verify::verify(&member.good, &head.checkpoint.unwrap(), depth).await.unwrap();
    assert!(report.is_ok(), "{:?}", report.damage);
}

#[tokio::test]
async fn a_running_turn_s_packs_are_let_alone_and_a_sleeping_writer_is_refused() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    let mut held = lease(&one, 1).await;
    let root = upload(&one, &session("s"), "first turn ").await;
    commit(&one, &mut held, &root).await.unwrap();
    // It has uploaded, and hasn't committed yet.
    let mut sleeper = lease(&one, 2).await;
    let mine = upload(&one, &session("s"), "what the sleeper made ").await;
    for _ in 0..3 {
        let report = gc::collect(&two.sessions, &eager(1)).await.unwrap();
        let one = &report.sessions[&session("s")];
        assert!(one.busy && one.discarded.is_empty() && one.deleted_packs == 0, "{one:?}");
    }
    // It falls asleep; another replica takes it for dead, settles the run and goes on.
    one.good.delete(&Key::Replica(one.sessions.owner().replica.clone(), one.sessions.owner().boot)).await.unwrap();
    let Acquired::Settle(mut lost, _) = two.sessions.acquire(&session("s"), run(3), None).await.unwrap() else { panic!("not lost") };
    two.sessions.abandon(&mut lost, None, "it sleeps").await.unwrap();
    let first = gc::collect(&two.sessions, &eager(1)).await.unwrap();
    assert_eq!(first.sessions[&session("s")].discarded.len(), 1);
    assert_eq!(gc::collect(&two.sessions, &eager(1)).await.unwrap().sessions[&session("s")].deleted_packs, 1);
    // It wakes: its packs are gone, and so is its right to refer to them.
    assert_eq!(commit(&one, &mut sleeper, &mine).await.unwrap_err().stable_code(), "fenced");
    whole(&two).await;
    // Doing it again stores other packs, and those stay.
    let mut held = lease(&two, 4).await;
    let again = upload(&two, &session("s"), "what the sleeper made ").await;
    assert_eq!(again.page.id, mine.page.id, "the same content");
    commit(&two, &mut held, &again).await.unwrap();
    // Even a collector that fell asleep with the old names in hand can't hit them.
    if let landfall::workspace::page::Place::At(at) = &mine.page.place {
        two.good.delete(&Key::SessionPack(session("s"), at.pack)).await.unwrap();
    }
    whole(&two).await;
}

#[tokio::test]
async fn clocks_that_are_years_off_change_nothing() {
    let world = World::default();
    let (past, future) = (world.member("past").await, world.member("future").await);
    future.clock.advance(Duration::from_secs(200 * 365 * 24 * 3600));
    let mut held = lease(&past, 1).await;
    let root = upload(&past, &session("s"), "first ").await;
    commit(&past, &mut held, &root).await.unwrap();
    let _garbage = upload(&past, &session("s"), "garbage ").await;
    let patient = Options { retention: Retention { keep_last: 0, keep_days: 1 }, ..Options::default() };
    for member in [&future, &past, &future, &past] {
        let report = gc::collect(&member.sessions, &patient).await.unwrap();
        let one = &report.sessions[&session("s")];
        assert_eq!((one.deleted_packs, one.dropped), (0, 0), "only the store's dates count: {one:?}");
    }
    let head = past.sessions.get(&session("s")).await.unwrap().head;
    assert_eq!((head.trash.len(), head.kept_from), (1, 1));
    whole(&past).await;
}

#[tokio::test]
async fn an_error_while_marking_leaves_everything_as_it_is() {
    let world = World::default();
    let (one, two) = (world.member("one").await, world.member("two").await);
    for n in 1..=4 {
        let mut held = lease(&one, n).await;
        let root = upload(&one, &session("s"), &format!("turn {n} ")).await;
        commit(&one, &mut held, &root).await.unwrap();
    }
    let before = objects(&*world.objects).await;
    let head = one.sessions.get(&session("s")).await.unwrap().head;
    for fault in [Fault::Fail500, Fault::TruncateGet, Fault::FlipGet, Fault::Denied] {
        // More often than anybody repeats it.
        two.faults.after("/packs/", 0, 100, fault);
        let report = gc::collect(&two.sessions, &eager(1)).await.unwrap();
        assert!(report.left_alone.contains_key(&session("s")) && report.sessions.is_empty(), "{fault:?}: {report:?}");
        two.faults.heal();
    }
    for part in ["/head", "/runs/"] {
        two.faults.after(part, 0, 100, Fault::Fail500);
        let report = gc::collect(&two.sessions, &eager(1)).await.unwrap();
        assert!(report.left_alone.contains_key(&session("s")), "{part}: {report:?}");
        two.faults.heal();
    }
    assert_eq!(objects(&*world.objects).await, before);
    assert_eq!(one.sessions.get(&session("s")).await.unwrap().head, head);
    // A pack that is needed and missing: what else is garbage can't be told any more.
    let root = head.checkpoint.unwrap().root.workspace;
    let landfall::workspace::page::Place::At(at) = root.page.place else { panic!("fresh") };
    one.good.delete(&Key::SessionPack(session("s"), at.pack)).await.unwrap();
    let report = gc::collect(&one.sessions, &eager(1)).await.unwrap();
    assert_eq!(report.left_alone[&session("s")].stable_code(), "pack_missing");
}

#[tokio::test]
async fn the_pin_of_a_fork_that_was_never_made_goes_and_its_maker_gives_up() {
    let world = World::default();
    let one = world.member("one").await;
    let mut held = lease(&one, 1).await;
    let root = upload(&one, &session("s"), "first ").await;
    commit(&one, &mut held, &root).await.unwrap();
    let kept = one.sessions.get(&session("s")).await.unwrap().head.current().unwrap();
    let (fresh, old) = (Nonce::from_bytes([1; 16]), Nonce::from_bytes([2; 16]));
    let now = i64::MAX / 2;
    one.sessions.alter(&session("s"), |head| head.pin(&kept, &session("fresh"), fresh, now)).await.unwrap();
    one.sessions.alter(&session("s"), |head| head.pin(&kept, &session("old"), old, 0)).await.unwrap();
    let report = gc::collect(&one.sessions, &eager(1)).await.unwrap();
    assert_eq!(report.sessions[&session("s")].unpinned, 1);
    let head = one.sessions.get(&session("s")).await.unwrap().head;
    assert_eq!(head.pins.iter().map(|pin| pin.incarnation).collect::<Vec<_>>(), [fresh]);
    // The maker's last step finds it gone.
    assert!(head.settle_pin(old).is_err() && head.settle_pin(fresh).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_finds_a_changed_byte_and_names_the_sessions() {
    let turns = Turns::new().unwrap();
    let objects: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
    let clock: landfall::clock::SharedClock = Arc::new(landfall::clock::SystemClock);
    let store = landfall::store::Store::with_backend(
        Arc::clone(&objects),
        "",
        landfall::store::Abilities::ALL,
        clock,
        Arc::new(landfall::random::SystemRandom),
    );
    let turns = Turns { store, ..turns };
    let host = host(&turns, "one");
    begin(&host, "bot/s").await;
    turn(&host, "s").await;
    host.fork(&selector("bot/s"), &name("bot/fork")).await.unwrap();
    let clean = host.scrub(100).await.unwrap();
    assert_eq!((clean.packs, clean.read, clean.damaged.len()), (2, 2, 0));
    assert_eq!(host.scrub(1).await.unwrap().read, 1, "at least one");
    let path = self::objects(&*objects).await.into_iter().find(|path| path.contains("/packs/")).unwrap();
    let path = object_store::path::Path::from(path);
    let mut bytes = objects.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
    bytes[100] ^= 1;
    objects.put(&path, bytes.into()).await.unwrap();
    let found = host.scrub(100).await.unwrap();
    assert_eq!(found.damaged.len(), 1);
    let harm = found.damaged.values().next().unwrap();
    assert_eq!(harm.sessions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["bot/s", "bot/fork"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_commit_goes_when_nobody_stands_on_it_and_is_imported_again_when_somebody_wants_it() {
    let turns = Turns::new().unwrap();
    let origin = turns.folder.path().join("origin");
    std::fs::create_dir(&origin).unwrap();
    let repository = TestRepository::create(&origin, "app.git").unwrap();
    repository.write("src/main.rs", "fn main() {} // TODO: more\n".repeat(50).as_bytes()).unwrap();
    repository.commit("first").unwrap();
    let server = GitServer::start(&origin).await.unwrap();
    let ca = turns.folder.path().join("ca.pem");
    std::fs::write(&ca, server.ca_pem().unwrap()).unwrap();
    let agents = [("todo", agent_on("todo-report", &server.url("app.git"), Some(&ca)))];
    let host = turns.host("one", &agents).unwrap();
    for session in ["a", "b"] {
        assert!(landfall_tests::turns::run(&host, "todo", session, "").await.unwrap().is_completed());
    }
    let imports = |report: gc::Report| report.imports.unwrap();
    assert_eq!(imports(host.collect(&eager(1)).await.unwrap()), gc::ImportsCollected { kept: 1, ..Default::default() });
    host.fork(&selector("todo/b"), &name("todo/c")).await.unwrap();
    for session in ["todo/a", "todo/b"] {
        host.delete(&name(session)).await.unwrap();
        assert_eq!(imports(host.collect(&eager(1)).await.unwrap()).kept, 1, "the fork stands on it");
    }
    sound(&turns.host("two", &agents).unwrap(), "todo/c").await;
    host.delete(&name("todo/c")).await.unwrap();
    // Not while a run is waiting that was accepted before: it may have taken the import up already.
    let world = World::default().member("other").await;
    let waiting = Key::Queue(landfall::store::SessionHash::of(&name("todo/d")), run(7));
    let entry = landfall::session::QueueEntry { session: name("todo/d"), ..landfall_tests::replicas::entry(&world, "d", 7) };
    host.store().create(&waiting, &entry).await.unwrap();
    landfall_tests::turns::run(&host, "todo", "e", "").await.unwrap();
    host.delete(&name("todo/e")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(imports(host.collect(&eager(1)).await.unwrap()).kept, 1);
    }
    host.store().delete(&waiting).await.unwrap();
    let dry = imports(host.collect(&Options { dry_run: true, ..eager(1) }).await.unwrap());
    assert_eq!((dry.kept, dry.dropped.len()), (0, 1), "{dry:?}");
    let done = imports(host.collect(&eager(1)).await.unwrap());
    assert_eq!(done.dropped, dry.dropped);
    assert!(done.deleted_packs > 0);
    // Once more, on this host and on a fresh one.
    assert!(landfall_tests::turns::run(&host, "todo", "f", "").await.unwrap().is_completed());
    let other = turns.host("three", &agents).unwrap();
    assert!(landfall_tests::turns::run(&other, "todo", "g", "").await.unwrap().is_completed());
    for session in ["todo/f", "todo/g"] {
        sound(&turns.host("four", &agents).unwrap(), session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_2_000_turns_the_head_is_small_and_a_turn_costs_what_the_first_did() {
    let turns = Turns::new().unwrap();
    let host = host(&turns, "one");
    begin(&host, "bot/s").await;
    let store = host.store().clone();
    let replica = Arc::new(landfall::session::Replica::start(store.clone(), "worker".parse().unwrap(), None, None).await.unwrap());
    let sessions = landfall::session::Sessions::new(store.clone(), replica);
    let clock: landfall::clock::SharedClock = Arc::new(landfall::clock::SystemClock);
    let spool = Arc::new(landfall::workspace::Spool::new(turns.folder.path().to_owned(), 1 << 20, 1 << 30));
    let (mut first, mut most) = (0, 0);
    for n in 0..2_000_u64 {
        let before = store.counts();
        let Acquired::Held(held) = sessions.acquire(&name("bot/s"), landfall::id::RunId::new_v7(n, [1; 10]), None).await.unwrap() else {
            panic!("busy")
        };
        let mut held = *held;
        let base = held.checkpoint().cloned().unwrap();
        let source = Arc::clone(host.open_checkpoint(base.clone()).source());
        let limits = landfall::workspace::Limits::default();
        let workspace =
            landfall::workspace::Workspace::open(&source, &clock, &spool, limits, limits, Some(base.root.workspace.clone()), None);
        let how = landfall::workspace::OpenHow { write: true, ..Default::default() };
        let path = format!("d{}/f{}", n % 4, n % 4 + 4 * (n / 4 % 5));
        let file = workspace.workspace.root().open_at(path.as_bytes(), landfall::workspace::Follow::Yes, how).await.unwrap();
        file.write_at(0, format!("turn {n:06}").as_bytes()).unwrap();
        let home = Arc::new(Home::Session(name("bot/s")));
        let mut writer = PackWriter::new(store.clone(), home, WriterOptions::default());
        let captured = landfall::workspace::capture::capture(&workspace.workspace, &mut writer).await.unwrap();
        writer.finish().await.unwrap();
        let root = landfall::checkpoint::root::RootRecord { workspace: writer.resolve_root(&captured.root).unwrap(), ..base.root.clone() };
        let mut record = sessions.new_record(&held, Trigger::Manual, Origin::Server);
        record.status = Status::Completed;
        record.after = Some(landfall::checkpoint::root::Checkpoint::new(root));
        sessions.commit(&mut held, record, &[]).await.unwrap();
        let after = store.counts();
        let cost = after.put_bytes - before.put_bytes;
        if n == 50 {
            first = cost;
        }
        most = most.max(if n > 50 { cost } else { 0 });
        assert!(after.puts - before.puts <= 5, "turn {n}");
        if n % 500 == 499 {
            host.compact().await.unwrap();
            // At most so many packs at a time go on the list, and the next call deletes them.
            for _ in 0..6 {
                host.collect(&eager(10)).await.unwrap();
            }
        }
    }
    assert!(most * 10 <= first * 12, "a turn's bytes: {first} in the beginning, {most} at most later");
    let head = store.stat(&Key::Head(name("bot/s"))).await.unwrap().unwrap();
    assert!(head.size <= 64 << 10, "{}", head.size);
    let other = self::host(&turns, "two");
    sound(&other, "bot/s").await;
    assert!(packs(&host, "bot/s").await < 600);
}
