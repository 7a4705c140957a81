use futures::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};

use super::*;
use crate::checkpoint::pack::{FrameKind, read_footer};
use crate::checkpoint::root::RootRecord;
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::clock::SystemClock;
use crate::random::SystemRandom;
use crate::store::Abilities;
use crate::workspace::memory::MemoryObjects;
use crate::workspace::page::{Entry, LinkedFile, Node, PageLink, Root};
use crate::workspace::source::Sink;
use crate::workspace::{link_table, list, tree};

/// A store, and the objects in it.
struct Fixture {
    store: Store,
    objects: Arc<InMemory>,
    checkpoint: Checkpoint,
    entries: u64,
    bytes: u64,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| step()).collect()
}

fn entry(name: &str, node: Node) -> (Bytes, Option<Entry>) {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let (mode, mtime) = if matches!(node, Node::Linked(_)) { (0, 0) } else { (0o644, 1) };
    (name.clone(), Some(Entry { name, mode, mtime, node }))
}

async fn file(sink: &mut dyn Sink, bytes: &[u8]) -> Node {
    Node::File { size: bytes.len() as u64, content: list::build(sink, None, bytes).await.unwrap() }
}

async fn directory(sink: &mut dyn Sink, entries: Vec<(Bytes, Option<Entry>)>) -> PageLink {
    tree::update(&MemoryObjects::new(), sink, None, entries.into_iter().collect()).await.unwrap()
}

/// Stores a tree with something of each kind; a large one has a split directory and a file with a list of chunks, too.
async fn fixture(large: bool) -> Fixture {
    let objects = Arc::new(InMemory::new());
    let store = Store::with_backend(objects.clone(), "", Abilities::ALL, Arc::new(SystemClock), Arc::new(SystemRandom));
    let session = crate::id::SessionRef { agent: "reviewer".parse().unwrap(), session: "fix 42".parse().unwrap() };
    let mut writer = PackWriter::new(store.clone(), Arc::new(Home::Session(session)), WriterOptions::default());
    let (mut entries, mut bytes) = (0, 0);

    let mut inner = Vec::new();
    let files = if large { 600 } else { 12 };
    for n in 0..files {
        let content = noise(n, 300 + usize::try_from(n).unwrap());
        bytes += content.len() as u64;
        let node = file(&mut writer, &content).await;
        inner.push(entry(&format!("file-{n}"), node));
    }
    inner.push(entry("same-as-0", file(&mut writer, &noise(0, 300)).await));
    bytes += 300;
    entries += inner.len() as u64;
    let inner = directory(&mut writer, inner).await;

    let linked = noise(77, 500);
    let file_of = |content| LinkedFile { number: 5, names: 2, mode: 0o600, mtime: 9, size: 500, content };
    let content = list::build(&mut writer, None, &linked).await.unwrap();
    bytes += 500;
    let table = std::iter::once((5, Some(file_of(content)))).collect();
    let links = link_table::update(&MemoryObjects::new(), &mut writer, None, table).await.unwrap();

    let mut top = vec![
        entry("src", Node::Directory(inner)),
        entry("link", Node::Symlink("src/file-1".into())),
        entry("one", Node::Linked(5)),
        entry("two", Node::Linked(5)),
        entry("inline", file(&mut writer, b"hello").await),
    ];
    bytes += 5;
    if large {
        let content = noise(1000, 12 << 20);
        bytes += content.len() as u64;
        top.push(entry("large", file(&mut writer, &content).await));
    }
    entries += top.len() as u64;
    let top = directory(&mut writer, top).await;
    let empty = directory(&mut writer, Vec::new()).await;
    writer.finish().await.unwrap();
    let workspace = writer.resolve_root(&Root { page: top, links, entries, bytes }).unwrap();
    let state = writer.resolve_root(&Root { page: empty, links: None, entries: 0, bytes: 0 }).unwrap();
    let checkpoint = Checkpoint::new(RootRecord { workspace, state, git: None, pin: None });
    Fixture { store, objects, checkpoint, entries, bytes }
}

impl Fixture {
    async fn packs(&self) -> Vec<(Path, Bytes)> {
        let listed: Vec<_> = self.objects.list(None).try_collect().await.unwrap();
        let mut packs = Vec::new();
        for meta in listed {
            let bytes = self.objects.get(&meta.location).await.unwrap().bytes().await.unwrap();
            packs.push((meta.location, bytes));
        }
        packs
    }

    async fn put(&self, path: &Path, bytes: impl Into<Bytes>) {
        self.objects.put(path, bytes.into().into()).await.unwrap();
    }

    async fn verify(&self, depth: Depth) -> Report {
        verify(&self.store, &self.checkpoint, depth).await.unwrap()
    }
}

#[tokio::test]
async fn a_whole_checkpoint_adds_up() {
    for large in [false, true] {
        let fixture = fixture(large).await;
        let stored: u64 = fixture.packs().await.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        for depth in [Depth::Shallow, Depth::Deep] {
            let report = fixture.verify(depth).await;
            assert!(report.is_ok(), "{:?}", report.damage);
            assert_eq!((report.entries, report.bytes, report.pack_bytes), (fixture.entries, fixture.bytes, stored));
            assert_eq!(report.packs, fixture.packs().await.len() as u64);
            assert_eq!(report.chunks > 12, depth == Depth::Deep);
        }
    }
}

#[tokio::test]
async fn every_flipped_byte_is_found_and_said_where() {
    let fixture = fixture(false).await;
    for (path, bytes) in fixture.packs().await {
        let frames = read_footer(&bytes).unwrap();
        let mut ignored = 0;
        for at in 0..bytes.len() {
            // All of the small parts, and a sample of the long ones.
            if at > 64 && at + 200 < bytes.len() && at % 13 != 0 {
                continue;
            }
            let mut bad = bytes.to_vec();
            bad[at] ^= 0x10;
            fixture.put(&path, bad).await;
            let report = fixture.verify(Depth::Deep).await;
            assert!(!report.is_ok(), "byte {at} of {path}");
            for damage in &report.damage {
                assert_eq!(damage.key.as_deref(), Some(path.as_ref()), "byte {at}");
            }
            let frame = frames.iter().find(|frame| (frame.offset as usize..(frame.offset + frame.stored) as usize).contains(&at));
            let touched: Vec<_> = report.damage.iter().flat_map(|damage| &damage.files).collect();
            let objects: Vec<_> = report.damage.iter().map(|damage| &damage.object).collect();
            assert!(objects.iter().any(|object| matches!(object, Object::Pack(..))), "byte {at}: {objects:?}");
            // A few bits of a zstd frame mean nothing (RFC 8878): what it decodes to is whole then, and only the pack's name tells.
            if objects.iter().all(|object| matches!(object, Object::Pack(..))) {
                ignored += 1;
                continue;
            }
            match frame.map(|frame| frame.kind) {
                Some(FrameKind::Content) => {
                    assert!(objects.iter().any(|object| matches!(object, Object::Chunk(_))), "byte {at}: {objects:?}");
                    assert!(touched.iter().any(|file| file.starts_with("/workspace/")), "byte {at}: {touched:?}");
                }
                // A changed hint leads to other bytes: then it is the chunk that can't be read.
                Some(FrameKind::Page) => {
                    assert!(objects.iter().any(|object| matches!(object, Object::Page(_) | Object::Chunk(_))), "byte {at}: {objects:?}");
                    assert!(!touched.is_empty(), "byte {at}");
                }
                // The ends of a pack and its footer, which no file needs.
                None => assert!(touched.is_empty(), "byte {at}: {touched:?}"),
            }
        }
        let outside: usize = bytes.len() - frames.iter().map(|frame| frame.stored as usize).sum::<usize>();
        assert!(ignored <= outside + 2 * frames.len(), "{ignored} changed bytes of {path} touch no object");
        fixture.put(&path, bytes).await;
    }
    assert!(fixture.verify(Depth::Deep).await.is_ok());
}

#[tokio::test]
async fn a_damaged_chunk_names_every_file_that_has_it() {
    let fixture = fixture(false).await;
    let (path, bytes) = fixture.packs().await.remove(0);
    // Content that doesn't compress is stored as it is, so that it can be found.
    for (content, files) in [
        (noise(0, 300), vec!["/workspace/src/file-0", "/workspace/src/same-as-0"]),
        (noise(77, 500), vec!["/workspace/one", "/workspace/two"]),
    ] {
        let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
        let mut bad = bytes.to_vec();
        bad[at + 100] ^= 1;
        fixture.put(&path, bad).await;
        let report = fixture.verify(Depth::Deep).await;
        let chunk = report.damage.iter().find(|damage| damage.object == Object::Chunk(ChunkId::of(&content))).unwrap();
        assert_eq!(chunk.files, files);
        assert_eq!(chunk.error.stable_code(), "chunk_damaged");
        let location = chunk.location.as_ref().unwrap();
        assert!((location.frame as usize..(location.frame + location.stored) as usize).contains(&at));
        // Pages alone don't tell.
        assert!(fixture.verify(Depth::Shallow).await.is_ok());
    }
}

#[tokio::test]
async fn missing_and_short_packs_are_found_without_reading_content() {
    let fixture = fixture(true).await;
    let packs = fixture.packs().await;
    assert!(!packs.is_empty());
    for (path, bytes) in packs {
        fixture.objects.delete(&path).await.unwrap();
        for depth in [Depth::Shallow, Depth::Deep] {
            let report = fixture.verify(depth).await;
            let missing: Vec<_> = report.damage.iter().filter(|damage| damage.error.stable_code() == "pack_missing").collect();
            assert_eq!(missing.len(), 1, "{:?}", report.damage);
            assert!(matches!(missing[0].object, Object::Pack(..)));
            assert!(missing[0].files_total > 0 && missing[0].files.len() <= FILES_MAX);
        }
        fixture.put(&path, bytes.slice(..bytes.len() / 2)).await;
        for depth in [Depth::Shallow, Depth::Deep] {
            assert!(!fixture.verify(depth).await.is_ok());
        }
        fixture.put(&path, bytes).await;
    }
}

#[tokio::test]
async fn records_that_lie_are_found() {
    let lies: [fn(&mut RootRecord); 5] = [
        |record| record.workspace.entries += 1,
        |record| record.workspace.entries -= 1,
        |record| record.workspace.bytes += 1,
        |record| record.workspace.links = None,
        |record| record.state.links = record.workspace.links.clone(),
    ];
    let fixture = fixture(false).await;
    for (n, lie) in lies.into_iter().enumerate() {
        let mut record = fixture.checkpoint.root.clone();
        lie(&mut record);
        // With its own id, and with another's.
        let report = verify(&fixture.store, &Checkpoint::new(record.clone()), Depth::Shallow).await.unwrap();
        assert!(!report.is_ok(), "lie {n}");
        let report = verify(&fixture.store, &Checkpoint { id: fixture.checkpoint.id, root: record }, Depth::Shallow).await.unwrap();
        assert!(report.damage.iter().any(|damage| damage.object == Object::Record), "lie {n}");
    }
}
