#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use std::collections::BTreeSet;

use object_store::memory::InMemory;

use super::*;
use crate::checkpoint::frame::FRAME_PLAIN_MAX;
use crate::checkpoint::pack::{self, FrameKind, MAGIC, PackBuilder};
use crate::checkpoint::testing::{
    Tree, files, get_file, get_tree, home, noise, overwrite, put_tree, raw, remove, renamed, store, stored, text,
};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::clock::SystemClock;
use crate::workspace::page::{Content, Node, Part, Root};

fn small_tree() -> Tree {
    files([
        ("a.txt".into(), text(1, 3000)),
        ("bin".into(), noise(2, 500)),
        ("src/b.txt".into(), text(3, 900)),
        ("src/deep/c".into(), text(4, 70)),
    ])
}

/// A tree like a repository's: 600 files in 40 directories, 24 MB that don't compress.
fn large_tree() -> Tree {
    files((0..600).map(|n| (format!("dir{:02}/sub{}/file{n:04}", n / 15, n % 2), noise(n, 40_000))))
}

async fn chunk_of(reader: &Reader, root: &Root, path: &[&str]) -> ChunkLink {
    let mut page = root.page.clone();
    for name in path {
        match crate::workspace::tree::lookup(reader, &page, name.as_bytes()).await.unwrap().unwrap().node {
            Node::Directory(link) => page = link,
            Node::File { content: Content::Parts(parts), .. } => {
                let Part::Chunk(link, _) = &parts[0] else { panic!("a hole") };
                return link.clone();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("a directory")
}

fn record(workspace: &Root, state: &Root) -> RootRecord {
    RootRecord { workspace: workspace.clone(), state: state.clone(), git: None, pin: None }
}

#[tokio::test]
async fn a_small_turn_is_read_whole_by_one_request() {
    let (store, _) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let workspace = put_tree(&mut writer, &small_tree()).await.unwrap();
    let state = put_tree(&mut writer, &files([("memory.json".into(), text(9, 400))])).await.unwrap();
    writer.finish().await.unwrap();
    let (workspace, state) = (writer.resolve_root(&workspace).unwrap(), writer.resolve_root(&state).unwrap());

    let reader = Reader::new(store.metered(), None, 8 << 20);
    reader.open_roots(&record(&workspace, &state)).await.unwrap();
    assert_eq!(get_tree(&reader, &workspace).await.unwrap(), small_tree());
    assert_eq!(get_tree(&reader, &state).await.unwrap().len(), 1);
    assert_eq!(reader.store().counts().requests(), 1);
}

#[tokio::test]
async fn one_file_of_a_large_tree_costs_its_path_and_itself() {
    let (store, _) = store();
    let (root, written) = stored(&store, &large_tree()).await;
    assert!(written.packs.len() > 1);
    let mut worst = (0, 0);
    for n in [0, 1, 250, 333, 599] {
        let reader = Reader::new(store.metered(), None, 8 << 20);
        let path = format!("dir{:02}/sub{}/file{n:04}", n / 15, n % 2);
        assert_eq!(get_file(&reader, &root, &path).await.unwrap(), noise(n, 40_000));
        let counts = reader.store().counts();
        // The top page, at most two below it, and the frame.
        assert!(counts.requests() <= 4, "{counts:?}");
        assert!(counts.get_bytes < 700 << 10, "{counts:?}");
        worst = worst.max((counts.requests(), counts.get_bytes));
    }
    println!("one of 600 files: at most {} requests, {} bytes", worst.0, worst.1);
}

#[tokio::test]
async fn a_walk_of_all_pages_coalesces() {
    let (store, _) = store();
    let (root, written) = stored(&store, &large_tree()).await;
    let reader = Reader::new(store.metered(), None, 8 << 20);
    let mut level = vec![root.page.clone()];
    let mut pages = 0;
    while !level.is_empty() {
        pages += level.len();
        let mut next = Vec::new();
        for page in reader.pages(&level).await.unwrap() {
            crate::workspace::page_codec::references(&page, &mut |reference| {
                if let crate::workspace::page_codec::Reference::Page(link) = reference {
                    next.push(link.clone());
                }
            });
        }
        level = next;
    }
    let counts = reader.store().counts();
    println!("a walk of {pages} pages in {} packs: {} requests, {} bytes", written.packs.len(), counts.requests(), counts.get_bytes);
    assert_eq!(pages, 1 + 40 + 80);
    assert!(counts.requests() <= 2 * written.packs.len() as u64 + 1, "{counts:?}");
}

#[tokio::test]
async fn any_flipped_byte_is_damage_with_a_name_and_never_other_data() {
    let (store, objects) = store();
    let (root, written) = stored(&store, &small_tree()).await;
    let (pack, _) = written.packs[0];
    let good = raw(&objects, pack).await;
    let frames = pack::read_footer(&good).unwrap();
    // Some bits of zstd data have no effect on what it decodes to.
    let plain = |pack: &Bytes, at: usize| {
        let frame = frames.iter().find(|f| (f.offset as usize..(f.offset + f.stored) as usize).contains(&at))?;
        frame::decode(&pack.slice(frame.offset as usize..(frame.offset + frame.stored) as usize)).ok()
    };
    let same_plain = |bad: &Bytes, at: usize| plain(bad, at) == plain(&good, at);
    let mut codes = BTreeSet::new();
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1 << (at % 8);
        let bad = Bytes::from(bad);
        overwrite(&objects, pack, bad.clone()).await;
        let reader = Reader::new(store.clone(), None, 8 << 20);
        match get_tree(&reader, &root).await {
            // Readers need neither magic nor footer; a check of the whole pack finds those (pack.rs).
            Ok(tree) => {
                assert_eq!(tree, small_tree(), "byte {at}");
                assert!(same_plain(&bad, at), "byte {at} went unseen");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "byte {at}: {error:?}");
                assert!(error.message().contains(&pack.to_string()), "byte {at}: {error:?}");
                codes.insert(error.stable_code());
            }
        }
    }
    assert!(codes.contains("page_damaged") && codes.contains("chunk_damaged"), "{codes:?}");
}

#[tokio::test]
async fn a_cut_off_or_missing_pack_is_named() {
    let (store, objects) = store();
    let (root, written) = stored(&store, &small_tree()).await;
    let (pack, _) = written.packs[0];
    let good = raw(&objects, pack).await;
    let Place::At(at) = &root.page.place else { panic!("no place") };
    for len in (0..(at.frame + at.stored) as usize).step_by(7) {
        overwrite(&objects, pack, good.slice(..len)).await;
        let error = get_tree(&Reader::new(store.clone(), None, 8 << 20), &root).await.unwrap_err();
        assert_eq!(error.stable_code(), "pack_damaged", "{len}: {error:?}");
        assert!(error.message().contains(&pack.to_string()));
    }
    remove(&objects, pack).await;
    let error = get_tree(&Reader::new(store.clone(), None, 8 << 20), &root).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "pack_missing"));
    assert!(error.message().contains(&pack.to_string()) && error.message().contains("reviewer/fix 42"), "{error:?}");
}

/// Stores a pack made of given stored frames, and returns places of their first `len` bytes.
async fn handmade(store: &Store, frames: &[(Bytes, u32)]) -> Vec<Location> {
    let mut builder = PackBuilder::new();
    let mut places = Vec::new();
    for (stored, len) in frames {
        let plain = frame::plain_len(stored).unwrap() as u32;
        let frame = builder.push(FrameKind::Content, stored, vec![plain]).unwrap();
        places.push((frame, stored.len() as u32, *len));
    }
    let (pack, bytes, _) = builder.finish(&[0; 16]);
    store.put_pack(&pack::key(&home(), pack), bytes).await.unwrap();
    places.into_iter().map(|(frame, stored, len)| Location { home: home(), pack, frame, stored, start: 0, len }).collect()
}

#[tokio::test]
async fn a_bomb_in_a_well_named_pack_is_refused() {
    let (store, _) = store();
    // 1 GiB of zeros in a frame that declares 1 MiB.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    let block = vec![0_u8; 1 << 20];
    for _ in 0..1024 {
        std::io::Write::write_all(&mut encoder, &block).unwrap();
    }
    let mut stored = vec![1];
    stored.extend_from_slice(&(FRAME_PLAIN_MAX as u32).to_le_bytes());
    stored.extend_from_slice(&encoder.finish().unwrap());
    let places = handmade(&store, &[(stored.into(), FRAME_PLAIN_MAX as u32)]).await;
    let link = ChunkLink { id: ChunkId::of(&block), place: Place::At(places[0].clone()) };
    let error = Reader::new(store.clone(), None, 8 << 20).chunk(&link).await.unwrap_err();
    assert_eq!(error.stable_code(), "chunk_damaged");
    assert!(error.message().contains(&link.id.to_string()) && error.message().contains(&places[0].pack.to_string()), "{error:?}");
}

#[tokio::test]
async fn links_that_lie_are_refused() {
    let (store, _) = store();
    let (root, _) = stored(&store, &small_tree()).await;
    let reader = Reader::new(store.clone(), None, 8 << 20);
    let (a, b) = (chunk_of(&reader, &root, &["a.txt"]).await, chunk_of(&reader, &root, &["bin"]).await);
    // Another object's id at a good place, also when the frame is in memory.
    for _ in 0..2 {
        assert_eq!(reader.chunk(&renamed(&a, b.id)).await.unwrap_err().stable_code(), "chunk_damaged");
        assert_eq!(reader.chunk(&a).await.unwrap(), text(1, 3000));
    }
    assert_eq!(reader.page(&renamed(&root.page, PageId::from_bytes([1; 32]))).await.unwrap_err().stable_code(), "page_damaged");
    // A chunk's place as a page, and a page's as a chunk.
    let as_page = PageLink { id: PageId::from_bytes([2; 32]), place: a.place.clone() };
    assert_eq!(reader.page(&as_page).await.unwrap_err().stable_code(), "page_damaged");
    let as_chunk = ChunkLink { id: a.id, place: root.page.place.clone() };
    assert_eq!(reader.chunk(&as_chunk).await.unwrap_err().stable_code(), "chunk_damaged");

    let Place::At(at) = &a.place else { panic!("no place") };
    type Change = fn(&mut Location);
    let changes: [(&str, Change); 8] = [
        ("chunk_damaged", |at| at.start += 1),
        ("chunk_damaged", |at| at.len -= 1),
        ("chunk_damaged", |at| at.len = 1 << 20),
        ("chunk_damaged", |at| at.frame += 1),
        ("pack_damaged", |at| at.frame = 31 << 20),
        ("hint_damaged", |at| at.frame = u32::MAX),
        ("hint_damaged", |at| at.stored = u32::MAX),
        ("hint_damaged", |at| at.len = 0),
    ];
    for (number, (code, change)) in changes.into_iter().enumerate() {
        let mut place = at.clone();
        change(&mut place);
        let link = ChunkLink { id: a.id, place: Place::At(place) };
        let fresh = Reader::new(store.clone(), None, 8 << 20);
        assert_eq!(fresh.chunk(&link).await.unwrap_err().stable_code(), code, "change {number}");
    }
    let fresh = ChunkLink { id: a.id, place: Place::Fresh };
    assert_eq!(reader.chunk(&fresh).await.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn without_memory_everything_can_still_be_read() {
    let (store, _) = store();
    let (root, _) = stored(&store, &small_tree()).await;
    assert_eq!(get_tree(&Reader::new(store, None, 0), &root).await.unwrap(), small_tree());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_ask_for_is_fetched_once() {
    let (store, _) = store();
    let (root, _) = stored(&store, &large_tree()).await;
    let setup = Reader::new(store.clone(), None, 8 << 20);
    let link = chunk_of(&setup, &root, &["dir10", "sub0", "file0150"]).await;
    let reader = Reader::new(store.metered(), None, 8 << 20);
    let asks: Vec<_> = (0..64)
        .map(|n| {
            let (reader, link, page) = (reader.clone(), link.clone(), root.page.clone());
            tokio::spawn(async move {
                if n % 2 == 0 {
                    assert_eq!(reader.chunk(&link).await.unwrap(), noise(150, 40_000));
                } else {
                    reader.page(&page).await.unwrap();
                }
            })
        })
        .collect();
    for ask in asks {
        ask.await.unwrap();
    }
    assert_eq!(reader.store().counts().requests(), 2);
}

#[tokio::test]
async fn reading_ahead_is_a_few_long_requests_that_readers_wait_for() {
    let (store, _) = store();
    let (root, _) = stored(&store, &large_tree()).await;
    let setup = Reader::new(store.clone(), None, 64 << 20);
    let mut links = Vec::new();
    for n in (0..60).filter(|n| n % 2 == 0) {
        links.push(chunk_of(&setup, &root, &[&format!("dir{:02}", n / 15), "sub0", &format!("file{n:04}")]).await);
    }
    let reader = Reader::new(store.metered(), None, 64 << 20);
    reader.prefetch(&links);
    for (n, link) in links.iter().enumerate() {
        assert_eq!(reader.chunk(link).await.unwrap(), noise(2 * n as u64, 40_000));
    }
    let counts = reader.store().counts();
    println!("30 files read ahead: {} requests, {} bytes", counts.requests(), counts.get_bytes);
    assert!(counts.requests() <= 2, "{counts:?}");
}

async fn cached_tree(objects: &Arc<InMemory>, store: &Store) -> (tempfile::TempDir, Root, PackId) {
    let dir = tempfile::tempdir().unwrap();
    let (root, written) = stored(store, &small_tree()).await;
    let cache = DiskCache::open(dir.path(), 1 << 30, Arc::new(SystemClock)).unwrap();
    let reader = Reader::new(store.clone(), Some(Arc::clone(&cache)), 8 << 20);
    assert_eq!(get_tree(&reader, &root).await.unwrap(), small_tree());
    reader.settle().await;
    assert!(!raw(objects, written.packs[0].0).await.is_empty());
    (dir, root, written.packs[0].0)
}

fn cache_files(dir: &std::path::Path, pack: PackId) -> Vec<std::path::PathBuf> {
    let shard = dir.join(&pack.to_string()[..2]);
    std::fs::read_dir(shard).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn the_disk_cache_saves_requests_also_for_the_next_process() {
    let (store, objects) = store();
    let (dir, root, _) = cached_tree(&objects, &store).await;
    let next = DiskCache::open(dir.path(), 1 << 30, Arc::new(SystemClock)).unwrap();
    let reader = Reader::new(store.metered(), Some(next), 8 << 20);
    assert_eq!(get_tree(&reader, &root).await.unwrap(), small_tree());
    assert_eq!(reader.store().counts().requests(), 0);
}

#[tokio::test]
async fn a_cache_file_damaged_on_disk_is_fetched_again() {
    let (store, objects) = store();
    let (dir, root, pack) = cached_tree(&objects, &store).await;
    let file = cache_files(dir.path(), pack).remove(0);
    let good = std::fs::read(&file).unwrap();
    let mut again = 0;
    for at in (MAGIC.len()..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        for file in cache_files(dir.path(), pack) {
            std::fs::remove_file(file).unwrap();
        }
        std::fs::write(&file, bad).unwrap();
        let cache = DiskCache::open(dir.path(), 1 << 30, Arc::new(SystemClock)).unwrap();
        let reader = Reader::new(store.metered(), Some(cache), 8 << 20);
        assert_eq!(get_tree(&reader, &root).await.unwrap(), small_tree(), "byte {at}");
        reader.settle().await;
        let requests = reader.store().counts().requests();
        assert!(requests <= 4, "byte {at}: {requests}");
        again += u64::from(requests > 0);
    }
    assert!(again > 100, "{again}");
    // Cut off, and replaced by a link to a file elsewhere.
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, &good).unwrap();
    for replace in [&|| std::fs::write(&file, &good[..20]).unwrap() as (), &|| std::os::unix::fs::symlink(&elsewhere, &file).unwrap()]
        as [&dyn Fn(); 2]
    {
        for file in cache_files(dir.path(), pack) {
            std::fs::remove_file(file).unwrap();
        }
        replace();
        let cache = DiskCache::open(dir.path(), 1 << 30, Arc::new(SystemClock)).unwrap();
        let reader = Reader::new(store.metered(), Some(cache), 8 << 20);
        assert_eq!(get_tree(&reader, &root).await.unwrap(), small_tree());
        reader.settle().await;
        assert_eq!(reader.store().counts().requests(), 1);
    }
}
