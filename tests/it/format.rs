//! The formats as an outsider sees them: a script in another language, written from host/docs/FORMAT.md, verifies a store and notices
//! every kind of damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use landfall::checkpoint::reader::Reader;
use landfall::checkpoint::root::{Checkpoint, RootRecord};
use landfall::checkpoint::verify::{Depth, verify};
use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::clock::SystemClock;
use landfall::id::{RunId, SessionRef};
use landfall::random::SystemRandom;
use landfall::session::record::{Origin, Status, StoredText, Text, Trigger};
use landfall::session::replica::Replica;
use landfall::session::{Acquired, Sessions};
use landfall::store::{Options, Store};
use landfall::workspace::memory::MemoryObjects;
use landfall::workspace::page::{Entry, Home, LinkedFile, Node, PageLink, Place, Root};
use landfall::workspace::source::{Sink, Source};
use landfall::workspace::{link_table, list, tree};
use serde_json::Value;

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

fn entry(name: &str, node: Node) -> (Bytes, Option<Entry>) {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let (mode, mtime) = if matches!(node, Node::Linked(_)) { (0, 0) } else { (0o644, 1_767_225_600_000_000_000) };
    (name.clone(), Some(Entry { name, mode, mtime, node }))
}

async fn file(sink: &mut dyn Sink, bytes: &[u8]) -> Node {
    Node::File { size: bytes.len() as u64, content: list::build(sink, None, bytes).await.unwrap() }
}

/// What a session's turns leave, one after the other.
struct Turns {
    store: Store,
    sessions: Sessions,
    session: SessionRef,
    reader: Reader,
    head: Option<(RootRecord, u64)>,
}

impl Turns {
    async fn new(folder: &Path) -> Self {
        let url = format!("file://{}", folder.display());
        let store = Store::open(&url, &Options::default(), Arc::new(SystemClock), Arc::new(SystemRandom)).await.unwrap();
        let replica = Replica::start(store.clone(), "here".parse().unwrap(), None, None).await.unwrap();
        let session = SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42 / größer".parse().unwrap() };
        let reader = Reader::new(store.clone(), None, 8 << 20);
        Self { sessions: Sessions::new(store.clone(), Arc::new(replica)), store, session, reader, head: None }
    }

    /// Commits a turn that leaves these entries in `/workspace`, in place of those of the same names.
    async fn turn(&mut self, files: Vec<(&str, Vec<u8>)>, linked: bool) -> Checkpoint {
        let run = RunId::new_v7(1_767_225_600_000 + self.head.as_ref().map_or(0, |(_, turns)| *turns), [7; 10]);
        let Acquired::Held(mut held) = self.sessions.acquire(&self.session, run, None).await.unwrap() else { panic!("no lease") };
        let mut writer = PackWriter::new(self.store.clone(), Arc::new(Home::Session(self.session.clone())), WriterOptions::default());
        let nothing = MemoryObjects::new();
        let source: &dyn Source = if self.head.is_some() { &self.reader } else { &nothing };
        let (base, bytes) =
            self.head.as_ref().map_or((None, 0), |(record, _)| (Some(record.workspace.page.clone()), record.workspace.bytes));

        let mut changes = BTreeMap::new();
        let mut size = bytes;
        for (name, content) in files {
            size += content.len() as u64;
            changes.extend([entry(name, file(&mut writer, &content).await)]);
        }
        let mut links: Option<PageLink> = self.head.as_ref().and_then(|(record, _)| record.workspace.links.clone());
        if linked {
            let content = list::build(&mut writer, None, &noise(5, 2000)).await.unwrap();
            let of = LinkedFile { number: 1, names: 2, mode: 0o600, mtime: -5, size: 2000, content };
            links = link_table::update(&nothing, &mut writer, None, BTreeMap::from([(1, Some(of))])).await.unwrap();
            size += 2000;
            changes.extend([entry("one", Node::Linked(1)), entry("two", Node::Linked(1)), entry("way", Node::Symlink("../x".into()))]);
            let inner = BTreeMap::from([entry("inner", file(&mut writer, b"in a directory").await)]);
            size += 14;
            let inner = tree::update(&nothing, &mut writer, None, inner).await.unwrap();
            changes.extend([entry("directory", Node::Directory(inner))]);
        }
        let page = tree::update(source, &mut writer, base.as_ref(), changes).await.unwrap();
        let empty = tree::update(&nothing, &mut writer, None, BTreeMap::new()).await.unwrap();
        let log = writer.chunk(Bytes::from(vec![b'x'; 9000])).await.unwrap();
        let written = writer.finish().await.unwrap();

        let page = writer.resolve(&page).unwrap_or(page);
        let entries = self.count(&page).await;
        let links = links.map(|link| writer.resolve(&link).unwrap_or(link));
        let state = Root { page: writer.resolve(&empty).unwrap(), links: None, entries: 0, bytes: 0 };
        let record = RootRecord { workspace: Root { page, links, entries, bytes: size }, state, git: None, pin: None };
        let checkpoint = Checkpoint::new(record.clone());
        let mut run = self.sessions.new_record(&held, Trigger::Manual, Origin::Command);
        run.status = Status::Completed;
        run.after = Some(checkpoint.clone());
        let Place::At(at) = writer.resolve_chunk(&log).unwrap().place else { panic!("not placed") };
        run.log = Some(Text::Stored(StoredText { id: log.id, at }));
        run.output = Some(Text::Inline("done".into()));
        let packs: Vec<_> = written.packs.iter().map(|(pack, _)| *pack).collect();
        self.sessions.commit(&mut held, run, &packs).await.unwrap();
        let turns = self.head.as_ref().map_or(0, |(_, turns)| *turns) + 1;
        self.head = Some((record, turns));
        checkpoint
    }

    async fn count(&self, page: &PageLink) -> u64 {
        let mut walk = landfall::workspace::walk::Walk::below(&self.reader, page, Bytes::new(), 1 << 20);
        let mut entries = 0;
        while walk.next().await.unwrap().is_some() {
            entries += 1;
        }
        entries
    }
}

/// Runs the script on a folder and returns what it printed.
fn script(folder: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify_store.py");
    let output = Command::new("python3").arg(script).arg(folder).output().unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(i32::from(printed["whole"] != true)));
    printed
}

fn objects(folder: &Path, below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for found in std::fs::read_dir(below).unwrap() {
        let path = found.unwrap().path();
        if path.is_dir() {
            all.extend(objects(folder, &path));
        } else if !path.strip_prefix(folder).unwrap().starts_with(".locks") {
            all.push(path);
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_script_in_another_language_verifies_a_store_and_finds_all_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut turns = Turns::new(folder.path()).await;
    // Inline, one chunk, text that compresses, holes; then a directory that has to be split, and a file with a list of chunks.
    let text: Vec<u8> = (0..3000).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
    let first =
        vec![("small", b"hello".to_vec()), ("noise", noise(1, 5000)), ("text", text), ("hole", vec![0; 3 << 20]), ("empty", Vec::new())];
    turns.turn(first, true).await;
    let names: Vec<_> = (0..600).map(|n| format!("file-{n:04}")).collect();
    turns.turn(names.iter().map(|name| (name.as_str(), noise(name.len() as u64, 100))).collect(), false).await;
    let last = turns.turn(vec![("large", noise(3, 9 << 20))], false).await;

    let report = script(folder.path());
    assert_eq!(report["problems"], Value::Array(Vec::new()));
    assert_eq!((report["whole"].as_bool(), report["packs"].as_u64()), (Some(true), Some(3)));
    assert!(report["pages"].as_u64() > Some(10) && report["chunks"].as_u64() > Some(20), "{report}");
    let ours = verify(&turns.store, &last, Depth::Deep).await.unwrap();
    assert!(ours.is_ok(), "{:?}", ours.damage);

    // A byte changed anywhere in any object, an object that is gone, and one that nobody described.
    let all = objects(folder.path(), folder.path());
    for path in &all {
        let key = path.strip_prefix(folder.path()).unwrap().display().to_string();
        let bytes = std::fs::read(path).unwrap();
        let places = if bytes.len() > 1 << 20 { vec![bytes.len() / 2] } else { vec![0, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] };
        for at in places {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            std::fs::write(path, bad).unwrap();
            let report = script(folder.path());
            assert!(report["problems"].to_string().contains(&key), "byte {at} of {key}: {report}");
        }
        std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(script(folder.path())["whole"], false, "{key} cut off");
        std::fs::remove_file(path).unwrap();
        // A replica's object and a queue entry may be missing: nothing says that they must be there.
        assert_eq!(script(folder.path())["whole"], key.starts_with("replicas/"), "{key} removed");
        std::fs::write(path, &bytes).unwrap();
    }
    std::fs::write(folder.path().join("sessions/stranger"), b"x").unwrap();
    let report = script(folder.path());
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["problems"][0]["where"], "sessions/stranger");
}

#[test]
fn a_script_in_another_language_reads_the_golden_pages() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output =
        Command::new("python3").arg(tests.join("verify_store.py")).arg("--golden").arg(tests.join("golden/pages.txt")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["pages"], 7);
}
