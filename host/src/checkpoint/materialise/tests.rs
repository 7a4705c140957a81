#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::checkpoint::testing::{Item, MTIME, Tree, files, home, noise, overwrite, raw, remove, store, stored, text};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::clock::SystemClock;
use crate::store::Store;
use crate::store::cache::DiskCache;
use crate::workspace::page::Page;
use crate::workspace::page::{Content, Entry, LinkedFile, Node, PageLink, Part};
use crate::workspace::source::Sink as _;

fn reader(store: &Store) -> Reader {
    Reader::new(store.metered(), None, 16 << 20)
}

async fn made(reader: &Reader, root: &Root, target: &Path) -> Result<Materialised> {
    materialise(reader, root, target, &MaterialiseOptions::default()).await
}

fn mixed_tree() -> Tree {
    let mut tree = files((0..400).map(|n| (format!("d{}/e{}/f{n:03}.txt", n % 9, n % 4), text(n, 100 + 37 * n as usize))));
    tree.extend(files([
        ("empty".into(), Bytes::new()),
        ("inline".into(), Bytes::from_static(b"hello")),
        ("one chunk".into(), noise(7, 1 << 20)),
        ("parts".into(), noise(8, (3 << 20) + 1)),
        ("list".into(), noise(9, (9 << 20) + 5)),
        ("deep/er/and/deeper/file".into(), text(10, 5000)),
        ("same 1".into(), text(11, 9000)),
        ("same 2".into(), text(11, 9000)),
        ("odd \n'\"\\ name.".into(), text(12, 80)),
    ]));
    tree.insert("link".into(), Item::Symlink("deep/er".into()));
    tree.insert("d1/up".into(), Item::Symlink("../inline".into()));
    tree.insert("d1/e1/round".into(), Item::Symlink("../e1/../../inline".into()));
    tree.insert("dangling".into(), Item::Symlink("nowhere".into()));
    tree.insert("hollow".into(), Item::Directory);
    tree
}

fn read_back(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(dir) = waiting.pop() {
        let before = waiting.len() + tree.len();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            assert_eq!(meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), MTIME, "{name}");
            if meta.is_dir() {
                waiting.push(path);
            } else if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                tree.insert(name, Item::Symlink(Bytes::copy_from_slice(target.to_str().unwrap().as_bytes())));
            } else {
                assert_eq!(meta.mode() & 0o7777, 0o644, "{name}");
                tree.insert(name, Item::File(std::fs::read(&path).unwrap().into()));
            }
        }
        if waiting.len() + tree.len() == before && dir != top {
            tree.insert(dir.strip_prefix(top).unwrap().to_str().unwrap().to_owned(), Item::Directory);
        }
    }
    tree
}

fn nothing_left(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_the_tree_byte_for_byte() {
    let (store, _) = store();
    let (root, written) = stored(&store, &mixed_tree()).await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let reader = reader(&store);
    let report = made(&reader, &root, &target).await.unwrap();
    assert_eq!(read_back(&target), mixed_tree());
    assert_eq!(report.files + report.symlinks + report.directories, root.entries);
    assert_eq!((report.symlinks, report.bytes), (4, root.bytes));
    assert_eq!(target.metadata().unwrap().mode() & 0o7777, 0o700);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let counts = reader.store().counts();
    println!(
        "{} entries, {} bytes in {} packs: {} requests, {} bytes",
        root.entries,
        root.bytes,
        written.packs.len(),
        counts.requests(),
        counts.get_bytes
    );
    assert!(counts.requests() <= 12, "{counts:?}");
}

#[tokio::test]
async fn an_empty_tree_is_an_empty_folder_and_an_empty_folder_is_replaced() {
    let (store, _) = store();
    let (root, _) = stored(&store, &Tree::new()).await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    for _ in 0..2 {
        assert_eq!(made(&reader(&store), &root, &target).await.unwrap(), Materialised::default());
        assert!(std::fs::read_dir(&target).unwrap().next().is_none());
    }
}

#[tokio::test]
async fn what_is_there_is_never_touched() {
    let (store, _) = store();
    let (root, _) = stored(&store, &mixed_tree()).await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("mine"), b"mine").unwrap();
    std::fs::write(dir.path().join("file"), b"mine").unwrap();
    std::os::unix::fs::symlink("elsewhere", dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    std::os::unix::fs::symlink("empty", dir.path().join("link to empty")).unwrap();
    let reader = reader(&store);
    for name in ["out", "file", "link", "link to empty"] {
        let error = made(&reader, &root, &dir.path().join(name)).await.unwrap_err();
        assert_eq!(error.stable_code(), "target_exists", "{name}");
    }
    assert_eq!(reader.store().counts().requests(), 0, "it is refused before anything is fetched");
    assert_eq!(std::fs::read(target.join("mine")).unwrap(), b"mine");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
    assert!(made(&reader, &root, Path::new("/")).await.is_err());
    assert!(made(&reader, &root, &dir.path().join("no/parent")).await.is_err());
}

#[tokio::test]
async fn damage_leaves_nothing_and_is_named() {
    let (store, objects) = store();
    let (root, written) = stored(&store, &mixed_tree()).await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    for &(pack, len) in &written.packs {
        let good = raw(&objects, pack).await;
        let mut bad = good.to_vec();
        bad[len as usize / 3] ^= 1;
        overwrite(&objects, pack, bad.into()).await;
        let error = made(&reader(&store), &root, &target).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "chunk_damaged"));
        assert!(error.message().contains(&pack.to_string()));
        nothing_left(dir.path());
        remove(&objects, pack).await;
        let error = made(&reader(&store), &root, &target).await.unwrap_err();
        assert_eq!(error.stable_code(), "pack_missing");
        nothing_left(dir.path());
        // Put it back for the next round.
        store.put_pack(&crate::checkpoint::pack::key(&home(), pack), good).await.unwrap();
    }
    made(&reader(&store), &root, &target).await.unwrap();
}

#[tokio::test]
async fn a_damaged_cache_is_no_damage() {
    let (store, _) = store();
    let (root, written) = stored(&store, &mixed_tree()).await;
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(&dir.path().join("cache"), 1 << 30, Arc::new(SystemClock)).unwrap();
    for (pack, len) in written.packs {
        let key = crate::checkpoint::pack::key(&home(), pack);
        let mut bad = store.get(&key, len).await.unwrap().bytes.to_vec();
        for at in (1000..bad.len()).step_by(500_000) {
            bad[at] ^= 4;
        }
        cache.put(pack, 0, &bad);
    }
    let target = dir.path().join("out");
    made(&Reader::new(store, Some(cache), 16 << 20), &root, &target).await.unwrap();
    assert_eq!(read_back(&target), mixed_tree());
}

/// Stores a root of one directory page, given its entries in order.
async fn root_of(store: &Store, entries: impl AsyncFnOnce(&mut PackWriter) -> Vec<Entry>, counts: (u64, u64)) -> Root {
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let mut entries = entries(&mut writer).await;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let page = writer.page(Page::Directory(entries)).await.unwrap();
    writer.finish().await.unwrap();
    Root { page: writer.resolve(&page).unwrap(), links: None, entries: counts.0, bytes: counts.1 }
}

fn entry(name: &str, mode: u16, node: Node) -> Entry {
    Entry { name: Bytes::copy_from_slice(name.as_bytes()), mode, mtime: MTIME, node }
}

#[tokio::test]
async fn links_that_leave_the_folder_are_refused_unless_asked_for() {
    let (store, _) = store();
    let dir = tempfile::tempdir().unwrap();
    for (name, target) in [
        ("a", "/etc/passwd"),
        ("a", ".."),
        ("d/a", "../../x"),
        ("d/a", "b/../../../x"),
        // Through another link: `here/..` is the folder's parent when `here` is the top.
        ("a", "here/../x"),
        ("a", "d/here/../../x"),
    ] {
        let mut tree = files([("d/file".into(), text(1, 100))]);
        tree.insert("here".into(), Item::Symlink(".".into()));
        tree.insert("d/here".into(), Item::Symlink("..".into()));
        tree.insert(name.into(), Item::Symlink(Bytes::copy_from_slice(target.as_bytes())));
        let (root, _) = stored(&store, &tree).await;
        let error = made(&reader(&store), &root, &dir.path().join("out")).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Denied, "unsafe_link"), "{target}");
        assert!(error.message().contains(name));
        nothing_left(dir.path());
        let options = MaterialiseOptions { unsafe_links: true, ..MaterialiseOptions::default() };
        let target = dir.path().join("unsafe");
        materialise(&reader(&store), &root, &target, &options).await.unwrap();
        assert_eq!(read_back(&target), tree);
        std::fs::remove_dir_all(&target).unwrap();
    }
}

#[tokio::test]
async fn a_link_and_a_directory_of_one_name_can_not_be() {
    // The classic escape: a link to a place outside, then files below its name. Two entries of one name don't decode, and links are made last.
    let (store, _) = store();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let below =
        writer.page(Page::Directory(vec![entry("x", 0o644, Node::File { size: 1, content: Content::Inline("x".into()) })])).await.unwrap();
    let twice = vec![entry("evil", 0o777, Node::Symlink("/tmp".into())), entry("evil", 0o755, Node::Directory(below))];
    writer.page(Page::Directory(twice)).await.unwrap();
    assert!(writer.finish().await.is_err());
}

#[tokio::test]
async fn dot_git_in_any_disguise_is_refused() {
    let (store, _) = store();
    let dir = tempfile::tempdir().unwrap();
    for name in [".git", ".GIT", "git~1", ".g\u{200c}it", "sub/.Git"] {
        let (root, _) = stored(&store, &files([(format!("{name}/config"), text(1, 100))])).await;
        let error = made(&reader(&store), &root, &dir.path().join("out")).await.unwrap_err();
        assert_eq!(error.stable_code(), "dot_git", "{name}");
        nothing_left(dir.path());
    }
}

#[tokio::test]
async fn modes_are_set_whatever_the_mask_and_setuid_can_not_be() {
    let (store, _) = store();
    let inline = |mode| entry(&format!("f{mode:o}"), mode, Node::File { size: 2, content: Content::Inline("hi".into()) });
    let root = root_of(
        &store,
        async |writer| {
            let inside = writer.page(Page::Directory(vec![inline(0o600)])).await.unwrap();
            let closed = writer.page(Page::Directory(vec![entry("inner", 0o500, Node::Directory(inside))])).await.unwrap();
            let mut entries: Vec<_> = [0, 0o400, 0o644, 0o755, 0o777].map(inline).into();
            entries.push(entry("closed", 0o555, Node::Directory(closed)));
            entries
        },
        (8, 12),
    )
    .await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    made(&reader(&store), &root, &target).await.unwrap();
    for mode in [0, 0o400, 0o644, 0o755, 0o777_u32] {
        assert_eq!(target.join(format!("f{mode:o}")).metadata().unwrap().mode() & 0o7777, mode);
    }
    assert_eq!(target.join("closed").metadata().unwrap().mode() & 0o7777, 0o555);
    assert_eq!(target.join("closed/inner").metadata().unwrap().mode() & 0o7777, 0o500);
    for closed in ["closed", "closed/inner"] {
        std::fs::set_permissions(target.join(closed), std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[tokio::test]
async fn holes_stay_holes() {
    let (store, _) = store();
    let size = (1_u64 << 30) + 5;
    let root = root_of(
        &store,
        async |writer| {
            let chunk = writer.chunk(noise(1, 5)).await.unwrap();
            let tail = vec![Part::Hole(1 << 30), Part::Chunk(chunk.clone(), 5)];
            let list = writer.page(Page::List(vec![Part::Hole(64 << 20)])).await.unwrap();
            vec![
                entry("tail", 0o644, Node::File { size, content: Content::Parts(tail) }),
                entry("nothing", 0o644, Node::File { size: 1 << 30, content: Content::Parts(vec![Part::Hole(1 << 30)]) }),
                entry("list", 0o644, Node::File { size: 64 << 20, content: Content::List(list) }),
            ]
        },
        (3, size + (1 << 30) + (64 << 20)),
    )
    .await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    made(&reader(&store), &root, &target).await.unwrap();
    let meta = target.join("tail").metadata().unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() < 64, "{}", meta.blocks());
    for (name, len) in [("nothing", 1 << 30), ("list", 64 << 20)] {
        let meta = target.join(name).metadata().unwrap();
        assert_eq!((meta.len(), meta.blocks()), (len, 0));
        assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o644, MTIME / 1_000_000_000));
    }
    let mut tail = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(target.join("tail")).unwrap(), &mut tail, size - 6).unwrap();
    assert_eq!(tail[..1], [0]);
    assert_eq!(tail[1..], noise(1, 5)[..]);
}

async fn linked_root(store: &Store, names: u32, numbers: [u64; 3]) -> Root {
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    let chunk = writer.chunk(text(1, 500)).await.unwrap();
    let content = Content::Parts(vec![Part::Chunk(chunk, 500)]);
    let table =
        writer.page(Page::LinkTable(vec![LinkedFile { number: 3, names, mode: 0o640, mtime: MTIME, size: 500, content }])).await.unwrap();
    let linked = |name: &str, number| Entry { mtime: 0, ..entry(name, 0, Node::Linked(number)) };
    let below = writer.page(Page::Directory(vec![linked("c", numbers[2])])).await.unwrap();
    let entries = vec![linked("a", numbers[0]), linked("b", numbers[1]), entry("d", 0o755, Node::Directory(below))];
    let page = writer.page(Page::Directory(entries)).await.unwrap();
    writer.finish().await.unwrap();
    let resolve = |link: &PageLink| writer.resolve(link).unwrap();
    Root { page: resolve(&page), links: Some(resolve(&table)), entries: 4, bytes: 500 }
}

#[tokio::test]
async fn names_of_one_file_stay_names_of_one_file() {
    let (store, _) = store();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    let report = made(&reader(&store), &linked_root(&store, 3, [3, 3, 3]).await, &target).await.unwrap();
    assert_eq!((report.files, report.hard_links), (1, 2));
    let inodes = ["a", "b", "d/c"].map(|name| target.join(name).metadata().unwrap().ino());
    assert!(inodes.iter().all(|inode| *inode == inodes[0]));
    assert_eq!(target.join("d/c").metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(std::fs::read(target.join("b")).unwrap(), text(1, 500));

    for (names, numbers) in [(2, [3, 3, 3]), (4, [3, 3, 3]), (3, [3, 3, 4])] {
        let root = linked_root(&store, names, numbers).await;
        let error = made(&reader(&store), &root, &dir.path().join("bad")).await.unwrap_err();
        assert_eq!(error.stable_code(), "tree_damaged", "{names} {numbers:?}");
    }
    assert!(!dir.path().join("bad").exists());
}

#[tokio::test]
async fn a_tree_that_unfolds_without_end_is_stopped_at_what_it_declares() {
    // Thirty directories, each with sixteen entries that are all the next one: 16^30 entries from 30 pages.
    let (store, _) = store();
    let root = root_of(
        &store,
        async |writer| {
            let mut page = writer.page(Page::Directory(Vec::new())).await.unwrap();
            for _ in 0..30 {
                let entries = (0..16).map(|n| entry(&format!("d{n:02}"), 0o755, Node::Directory(page.clone()))).collect();
                page = writer.page(Page::Directory(entries)).await.unwrap();
            }
            vec![entry("top", 0o755, Node::Directory(page))]
        },
        (5000, 0),
    )
    .await;
    let dir = tempfile::tempdir().unwrap();
    let error = made(&reader(&store), &root, &dir.path().join("out")).await.unwrap_err();
    assert_eq!(error.stable_code(), "tree_damaged");
    nothing_left(dir.path());
    let shallow = MaterialiseOptions { depth_max: 3, ..MaterialiseOptions::default() };
    let error = materialise(&reader(&store), &root, &dir.path().join("out"), &shallow).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit | ErrorKind::Damaged));
}

#[tokio::test]
async fn totals_have_to_be_true_and_within_the_limits() {
    let (store, _) = store();
    let (root, _) = stored(&store, &files([("a".into(), text(1, 100)), ("b/c".into(), text(2, 200))])).await;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("out");
    type Change = fn(&mut Root);
    let changes: [(&str, Change); 6] = [
        ("tree_damaged", |root| root.entries += 1),
        ("tree_damaged", |root| root.entries -= 1),
        ("tree_damaged", |root| root.bytes += 1),
        ("tree_damaged", |root| root.bytes -= 1),
        ("limit", |root| root.entries = 1_000_001),
        ("limit", |root| root.bytes = u64::MAX),
    ];
    for (number, (code, change)) in changes.into_iter().enumerate() {
        let mut bad = root.clone();
        change(&mut bad);
        let error = made(&reader(&store), &bad, &target).await.unwrap_err();
        assert_eq!(error.stable_code(), code, "change {number}");
        nothing_left(dir.path());
    }
}

#[tokio::test]
async fn leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not() {
    let (store, _) = store();
    let (root, _) = stored(&store, &files([("a".into(), text(1, 100))])).await;
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join(format!("{TEMP_PREFIX}dead"));
    std::fs::create_dir_all(dead.join("x/y")).unwrap();
    std::fs::write(dead.join("x/y/z"), b"half").unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), b"p").unwrap();
    std::os::unix::fs::symlink(outside.path(), dead.join("x/out")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join(format!("{TEMP_PREFIX}link"))).unwrap();
    std::fs::set_permissions(dead.join("x/y"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let alive = dir.path().join("alive");
    let staging = Staging::create(&alive, "living").unwrap();
    made(&reader(&store), &root, &dir.path().join("out")).await.unwrap();
    assert!(!dead.exists());
    assert!(outside.path().join("precious").exists());
    assert!(dir.path().join(format!("{TEMP_PREFIX}living")).exists());
    staging.publish().unwrap();
    assert!(alive.exists());
}

/// Not a test by itself: the process whose memory [`an_import_of_20_000_files_holds_little`] looks at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test"]
async fn importer() {
    let dir = std::env::current_dir().unwrap();
    let clock: crate::clock::SharedClock = Arc::new(SystemClock);
    let url = format!("file://{}", dir.join("store").display());
    let store = Store::open(&url, &crate::store::Options::default(), clock, Arc::new(crate::random::SystemRandom)).await.unwrap();
    let mut writer = PackWriter::new(store.clone(), home(), WriterOptions::default());
    // 20,000 files in 200 directories, 82 MB, half of which compresses.
    let mut tops = Vec::new();
    let started = std::time::Instant::now();
    for d in 0..200 {
        let mut entries = Vec::new();
        for n in 0..100 {
            let number = d * 100 + n;
            let len = 4_100;
            let bytes = if n % 2 == 0 { text(number, len) } else { noise(number, len) };
            let chunk = writer.chunk(bytes).await.unwrap();
            let content = Content::Parts(vec![Part::Chunk(chunk, len as u32)]);
            entries.push(entry(&format!("f{n:03}"), 0o644, Node::File { size: len as u64, content }));
        }
        let page = directory(&mut writer, entries).await;
        tops.push(entry(&format!("d{d:03}"), 0o755, Node::Directory(page)));
    }
    let page = directory(&mut writer, tops).await;
    let written = writer.finish().await.unwrap();
    let root = Root { page: writer.resolve(&page).unwrap(), links: None, entries: 20_200, bytes: 20_000 * 4_100 };
    let wrote = started.elapsed();
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let written_peak = peak();
    let reader = reader(&store);
    let started = std::time::Instant::now();
    made(&reader, &root, &dir.join("out")).await.unwrap();
    let counts = reader.store().counts();
    let report = format!(
        "import {wrote:?}, {} packs, {} bytes, peak {written_peak} KiB; materialise {:?}, {} requests, {} bytes, peak {} KiB",
        written.packs.len(),
        written.bytes,
        started.elapsed(),
        counts.requests(),
        counts.get_bytes,
        peak()
    );
    std::fs::write("report", format!("{}\n{report}", peak())).unwrap();
}

async fn directory(writer: &mut PackWriter, entries: Vec<Entry>) -> PageLink {
    let changes = entries.into_iter().map(|entry| (entry.name.clone(), Some(entry))).collect();
    crate::workspace::tree::update(&crate::workspace::memory::MemoryObjects::new(), writer, None, changes).await.unwrap()
}

#[tokio::test]
async fn an_import_of_20_000_files_holds_little() {
    // In memory where that is possible: 20,000 files on a busy disk take long, and this is about another thing.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoint::materialise::tests::importer", "--ignored"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let report = std::fs::read_to_string(dir.path().join("report")).unwrap();
    println!("{report}");
    let peak: u64 = report.lines().next().unwrap().parse().unwrap();
    assert!(peak <= 300 << 10, "{peak} KiB");
}

/// Not a test by itself: the process that [`a_kill_leaves_nothing_half_visible`] kills. It writes to `out` in its working directory.
#[tokio::test]
#[ignore = "started and killed by another test"]
async fn victim() {
    let (store, _) = store();
    let (root, _) = stored(&store, &mixed_tree()).await;
    let reader = reader(&store);
    for n in 0.. {
        let target = std::env::current_dir().unwrap().join(format!("out{n}"));
        made(&reader, &root, &target).await.unwrap();
        std::fs::write("ready", b"").unwrap();
    }
}

#[tokio::test]
async fn a_kill_leaves_nothing_half_visible() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoint::materialise::tests::victim", "--ignored"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let temps = || -> Vec<String> {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(TEMP_PREFIX)).collect()
    };
    // Killed while a folder is half made.
    loop {
        assert!(child.try_wait().unwrap().is_none(), "the victim ended by itself");
        let half = temps().into_iter().any(|name| dir.path().join(name).join("d1/e1").exists());
        if half && dir.path().join("ready").exists() {
            break;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let tree = mixed_tree();
    let mut whole = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("out") {
            assert_eq!(read_back(&path), tree, "{}", path.display());
            whole += 1;
        }
    }
    assert!(whole > 0);
    // Again, to the very place that the killed one was making.
    let target = dir.path().join(format!("out{whole}"));
    assert!(!target.exists() && !temps().is_empty());
    let (store, _) = store();
    let (root, _) = stored(&store, &tree).await;
    made(&reader(&store), &root, &target).await.unwrap();
    assert_eq!(read_back(&target), tree, "the second one ends as if there had been no first");
    assert_eq!(temps(), Vec::<String>::new());
}
