use super::super::memory::MemoryCounts;
use super::super::page::Content;
use super::super::{Follow, list, tree};
use super::*;

const NOTHING: MemoryCounts = MemoryCounts { page_reads: 0, chunk_reads: 0, page_writes: 0, chunk_writes: 0, page_bytes: 0 };

/// Bytes that don't compress and don't repeat (xorshift, Marsaglia 2003).
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
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

#[tokio::test]
async fn what_did_not_change_is_not_written() {
    let ground = Ground::new();
    let fs = ground.empty();
    mkdir(&fs, "d").await;
    write(&fs, "d/f", &noise(5_000, 1)).await;
    let root = ground.capture(&fs).await;
    fs.rebase(&root).await.unwrap();
    assert!(!fs.is_edited());
    let _ = ground.objects.take_counts();
    let again = super::super::capture::capture(&fs, &mut ground.objects.clone()).await.unwrap();
    assert_eq!((again.changed, &again.root), (false, &root));
    // Reading is no change, and neither is an edit that was taken back or writes what was there.
    let fs = ground.open(Limits::default(), Some(root.clone()));
    read(&fs, "d/f").await;
    assert!(!fs.is_edited());
    assert_eq!(ground.objects.take_counts().page_writes, 0);
    write(&fs, "d/f", &noise(5_000, 1)).await;
    write(&fs, "d/g", b"gone soon").await;
    fs.root().unlink_file_at(b"d/g").await.unwrap();
    fs.root().rename_at(b"d", &fs.root(), b"e").await.unwrap();
    fs.root().rename_at(b"e", &fs.root(), b"d").await.unwrap();
    assert!(fs.is_edited());
    let again = super::super::capture::capture(&fs, &mut ground.objects.clone()).await.unwrap();
    assert_eq!((again.changed, again.root), (false, root));
    let counts = ground.objects.take_counts();
    assert_eq!((counts.page_writes, counts.chunk_writes), (0, 0));
}

#[tokio::test]
async fn a_capture_leaves_the_edits_usable_and_can_be_repeated() {
    let ground = Ground::new();
    let fs = ground.empty();
    let file = open(&fs, "f", CREATE).await.unwrap();
    file.append(b"one").unwrap();
    let first = ground.capture(&fs).await;
    assert_eq!(ground.capture(&fs).await, first);
    file.append(b" two").unwrap();
    let second = ground.capture(&fs).await;
    assert_eq!(read(&ground.open(Limits::default(), Some(first.clone())), "f").await, b"one");
    assert_eq!(read(&ground.open(Limits::default(), Some(second.clone())), "f").await, b"one two");
    // Only what was captured of this very state can be gone on from.
    assert!(fs.rebase(&first).await.is_err());
    file.append(b" three").unwrap();
    assert!(fs.rebase(&second).await.is_err());
    let third = ground.capture(&fs).await;
    fs.rebase(&third).await.unwrap();
    let _ = ground.objects.take_counts();
    assert_eq!(ground.capture(&fs).await, third);
    assert_eq!(ground.objects.take_counts(), NOTHING);
    file.append(b" four").unwrap();
    let fourth = ground.capture(&fs).await;
    assert_eq!(read(&ground.open(Limits::default(), Some(fourth)), "f").await, b"one two three four");
}

#[tokio::test]
async fn one_change_among_many_files_costs_the_pages_on_its_way() {
    let ground = Ground::new();
    let fs = ground.empty();
    for directory in 0..200 {
        mkdir(&fs, &format!("d{directory}")).await;
        for file in 0..100 {
            write(&fs, &format!("d{directory}/f{file}"), format!("{directory} {file}").as_bytes()).await;
        }
    }
    let root = ground.capture(&fs).await;
    assert_eq!((root.entries, fs.usage().entries), (20_200, 20_200));
    let _ = ground.objects.take_counts();
    let fs = ground.open(Limits::default(), Some(root));
    assert_eq!(ground.objects.take_counts(), NOTHING, "opening reads nothing");
    write(&fs, "d7/f50", &noise(200, 3)).await;
    let counts = ground.objects.take_counts();
    assert!(counts.page_reads <= 3 && counts.chunk_reads == 0, "{counts:?}");
    ground.capture(&fs).await;
    let counts = ground.objects.take_counts();
    assert!(counts.page_writes <= 3 && counts.page_reads <= 4, "{counts:?}");
    assert_eq!((counts.chunk_writes, counts.chunk_reads), (1, 0));
    assert!(counts.page_bytes <= 32 << 10, "{counts:?}");
}

#[tokio::test]
async fn renaming_a_directory_moves_no_content() {
    let ground = Ground::new();
    let fs = ground.empty();
    mkdir(&fs, "a").await;
    mkdir(&fs, "deep").await;
    for file in 0..2_000 {
        write(&fs, &format!("a/{file}"), &noise(100, file)).await;
    }
    let fs = ground.reopen(&fs).await;
    let _ = ground.objects.take_counts();
    fs.root().rename_at(b"a", &fs.root(), b"b").await.unwrap();
    let root = ground.capture(&fs).await;
    let counts = ground.objects.take_counts();
    assert_eq!((counts.chunk_reads, counts.chunk_writes, counts.page_writes), (0, 0, 1));
    assert!(counts.page_reads <= 3, "{counts:?}");
    // One level down, the directories below are looked through for the limit on depth, but no content is.
    let fs = ground.open(Limits::default(), Some(root));
    fs.root().rename_at(b"b", &fs.root(), b"deep/b").await.unwrap();
    let fs = ground.reopen(&fs).await;
    assert_eq!(ground.objects.take_counts().chunk_reads, 0);
    assert_eq!(read(&fs, "deep/b/1234").await, noise(100, 1234));
}

#[tokio::test]
async fn the_pages_depend_on_the_content_alone() {
    let ground = Ground::new();
    let big = noise(3 << 20, 9);
    let straight = ground.empty();
    mkdir(&straight, "d").await;
    write(&straight, "d/a", b"a").await;
    write(&straight, "d/big", &big).await;
    straight.root().symlink_at(b"a", b"d/l").await.unwrap();
    let crooked = ground.empty();
    mkdir(&crooked, "x").await;
    for name in ["l", "big", "a", "other"] {
        write(&crooked, &format!("x/{name}"), b"something else").await;
    }
    let crooked = ground.reopen(&crooked).await;
    let root = crooked.root();
    root.rename_at(b"x", &root, b"d").await.unwrap();
    root.unlink_file_at(b"d/l").await.unwrap();
    root.symlink_at(b"a", b"d/l").await.unwrap();
    let file = open(&crooked, "d/big", READ).await.unwrap();
    for (number, piece) in big.chunks(70_001).enumerate().collect::<Vec<_>>().into_iter().rev() {
        file.write_at(number as u64 * 70_001, piece).unwrap();
    }
    let crooked_root = ground.capture(&crooked).await;
    crooked.rebase(&crooked_root).await.unwrap();
    root.rename_at(b"d/other", &root, b"d/a").await.unwrap();
    write(&crooked, "d/a", b"a").await;
    let (a, b) = (ground.capture(&straight).await, ground.capture(&crooked).await);
    assert_eq!(a, b);
}

#[tokio::test]
async fn an_edit_in_a_large_file_touches_little_of_it() {
    let ground = Ground::new();
    let fs = ground.empty();
    let mut bytes = noise(24 << 20, 5);
    let file = open(&fs, "big", CREATE).await.unwrap();
    for piece in bytes.chunks(1 << 20) {
        file.append(piece).unwrap();
    }
    drop(file);
    let mut fs = ground.reopen(&fs).await;
    for (at, data) in [(12_345_678_usize, &b"x"[..]), (0, b"start"), ((24 << 20) - 1, b"over the end")] {
        let _ = ground.objects.take_counts();
        let file = open(&fs, "big", READ).await.unwrap();
        file.write_at(at as u64, data).unwrap();
        assert_eq!(ground.objects.take_counts().chunk_reads, 0, "writing reads nothing");
        let end = at + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
        let root = ground.capture(&fs).await;
        let counts = ground.objects.take_counts();
        assert!(counts.chunk_writes <= 4 && counts.chunk_reads <= 8, "{at}: {counts:?}");
        // The same as if the whole file had been stored anew.
        let entry = tree::lookup(&ground.objects, &root.page, b"big").await.unwrap().unwrap();
        let super::super::page::Node::File { content, .. } = entry.node else { panic!("not a file") };
        let whole: Content = list::build(&mut ground.objects.clone(), None, &bytes).await.unwrap();
        assert_eq!(content, whole);
        fs = ground.open(Limits::default(), Some(root));
        assert!(read(&fs, "big").await == bytes, "{at}");
    }
    // A reader asks for what it reads, not for the file.
    let _ = ground.objects.take_counts();
    let file = open(&fs, "big", READ).await.unwrap();
    for step in 0..100 {
        file.read_at((9 << 20) + step * 10, 10).await.unwrap();
    }
    let counts = ground.objects.take_counts();
    assert!(counts.chunk_reads <= 2, "{counts:?}");
}

#[tokio::test]
async fn nothing_changes_while_a_capture_runs() {
    /// A sink that tries to change the workspace whenever it is given something.
    struct Meddler<'a>(MemoryObjects, &'a Filesystem, Vec<String>);

    #[async_trait::async_trait]
    impl super::super::source::Sink for Meddler<'_> {
        async fn chunk(&mut self, plain: bytes::Bytes) -> crate::error::Result<super::super::page::ChunkLink> {
            self.0.chunk(plain).await
        }

        async fn page(&mut self, page: super::super::page::Page) -> crate::error::Result<super::super::page::PageLink> {
            let root = self.1.root();
            let f = root.open_at(b"f", Follow::No, READ).await.unwrap();
            self.2.extend([
                code(f.write_at(0, b"x")),
                code(f.set_size(0)),
                code(root.create_directory_at(b"new").await),
                code(root.unlink_file_at(b"f").await),
                code(root.rename_at(b"f", &root, b"g").await),
                code(root.link_at(b"f", Follow::No, &root, b"g").await),
                code(self.1.reset(None)),
            ]);
            assert_eq!(read(self.1, "f").await, b"stays");
            self.0.page(page).await
        }
    }

    let ground = Ground::new();
    let fs = ground.empty();
    write(&fs, "f", b"stays").await;
    let mut sink = Meddler(ground.objects.clone(), &fs, Vec::new());
    let root = super::super::capture::capture(&fs, &mut sink).await.unwrap().root;
    assert_eq!(sink.2, ["Busy"; 7]);
    assert_eq!(names(&ground.open(Limits::default(), Some(root)), ".").await, ["f"]);
    write(&fs, "f", b"again").await;
    // A capture that was given up half-way doesn't leave it frozen.
    drop(Box::pin(super::super::capture::capture(&fs, &mut ground.objects.clone())));
    write(&fs, "f", b"and again").await;
}

#[tokio::test]
async fn changed_paths_are_what_was_edited() {
    let ground = Ground::new();
    let fs = ground.empty();
    for directory in ["d", "d/sub", "gone", "moved", "replaced"] {
        mkdir(&fs, directory).await;
    }
    for file in ["d/a", "d/b", "d/sub/deep", "gone/x", "moved/y", "f", "g", "replaced/z"] {
        write(&fs, file, b"content").await;
    }
    let fs = ground.reopen(&fs).await;
    assert_eq!(fs.changed_paths(100).await.unwrap(), []);
    let root = fs.root();
    write(&fs, "d/sub/deep", b"changed").await;
    write(&fs, "d/new", b"").await;
    root.unlink_file_at(b"d/a").await.unwrap();
    root.set_times_at(b"d/b", Follow::No, super::super::NewTime::At(7)).await.unwrap();
    root.rename_at(b"moved", &root, b"to").await.unwrap();
    root.unlink_file_at(b"gone/x").await.unwrap();
    root.remove_directory_at(b"gone").await.unwrap();
    root.unlink_file_at(b"f").await.unwrap();
    root.symlink_at(b"g", b"f").await.unwrap();
    root.unlink_file_at(b"replaced/z").await.unwrap();
    root.remove_directory_at(b"replaced").await.unwrap();
    mkdir(&fs, "replaced").await;
    write(&fs, "soon", b"").await;
    root.unlink_file_at(b"soon").await.unwrap();
    let changed = fs.changed_paths(100).await.unwrap();
    let shown: Vec<_> = changed
        .iter()
        .map(|changed| format!("{:?} {:?} {}", changed.change, changed.kind, String::from_utf8_lossy(&changed.path)))
        .collect();
    assert_eq!(
        shown,
        [
            "Modified Symlink f",
            "Removed Directory gone",
            "Removed Directory moved",
            "Modified Directory replaced",
            "Added Directory to",
            "Removed File d/a",
            "Added File d/new",
            "Modified File d/sub/deep",
        ]
    );
    assert_eq!(fs.changed_paths(2).await.unwrap().len(), 2);
}
