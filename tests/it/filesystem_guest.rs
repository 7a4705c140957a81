//! The filesystems as guests see them: by std, by direct calls, and by an attacker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use landfall::clock::{SharedClock, SystemClock};
use landfall::error::{Error, ErrorKind, Result};
use landfall::id::{ChunkId, PageId};
use landfall::workspace::memory::MemoryObjects;
use landfall::workspace::page::{ChunkLink, Content, Entry, Node, Page, PageLink, Part, Root};
use landfall::workspace::source::{Sink, Source};
use landfall::workspace::wasi::OPEN_MAX;
use landfall::workspace::{Filesystem, Limits, Spool, Workspace};
use landfall_tests::wasi_commands::Command;
use tempfile::TempDir;

/// A workspace, and the folder of its spool.
struct Fixture {
    workspace: Workspace,
    _spool: TempDir,
}

impl Fixture {
    fn empty(limits: Limits) -> Self {
        Self::on(Arc::new(MemoryObjects::new()), limits, None)
    }

    #[expect(clippy::needless_pass_by_value, reason = "each caller makes it for this")]
    fn on(source: Arc<dyn Source>, limits: Limits, root: Option<Root>) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let clock: SharedClock = Arc::new(SystemClock);
        let data = Arc::new(Spool::new(spool.path().to_owned(), 32 << 20, 1 << 30));
        Self { workspace: Workspace::open(&source, &clock, &data, limits, Limits::temporary(), root, None), _spool: spool }
    }
}

/// A stored root with one file `f` of two chunks.
async fn two_chunks(objects: &MemoryObjects) -> (Root, [ChunkId; 2], PageId) {
    let mut objects = objects.clone();
    let sink: &mut dyn Sink = &mut objects;
    let (first, second) = (vec![b'1'; 600_000], vec![b'2'; 500_000]);
    let links = [sink.chunk(Bytes::from(first)).await.unwrap(), sink.chunk(Bytes::from(second)).await.unwrap()];
    let ids = [links[0].id, links[1].id];
    let [one, two] = links;
    let content = Content::Parts(vec![Part::Chunk(one, 600_000), Part::Chunk(two, 500_000)]);
    let file = |name: &'static str, node| Entry { name: Bytes::from_static(name.as_bytes()), mode: 0o644, mtime: 1, node };
    let below = Page::Directory(vec![file("inner", Node::File { size: 2, content: Content::Inline(Bytes::from_static(b"in")) })]);
    let below = sink.page(below).await.unwrap();
    let id = below.id;
    let page =
        sink.page(Page::Directory(vec![file("d", Node::Directory(below)), file("f", Node::File { size: 1_100_000, content })])).await;
    (Root { page: page.unwrap(), links: None, entries: 3, bytes: 1_100_002 }, ids, id)
}

#[tokio::test]
async fn std_sees_what_posix_says() {
    let fixture = Fixture::empty(Limits::default());
    let transcript = Command::guest("fs-std").run(&fixture.workspace, &[]).await.text();
    let wanted = include_str!("../../guests/probes/fs-std/transcript.txt");
    for (line, (got, wanted)) in transcript.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(got, wanted, "line {} of the transcript", line + 1);
    }
    assert_eq!(transcript.lines().count(), wanted.lines().count());
}

#[tokio::test]
async fn every_call_answers_as_the_interface_says() {
    let fixture = Fixture::empty(Limits::default());
    let outcome = Command::guest("fs-raw").run(&fixture.workspace, &[]).await;
    let (_, last) = outcome.stdout.trim_end().rsplit_once('\n').unwrap_or(("", outcome.stdout.trim_end()));
    let checks: u32 = last.split(' ').next().unwrap().parse().unwrap_or(0);
    assert!(matches!(outcome.end, Ok(Ok(()))) && checks > 600, "{outcome:#?}");
}

#[tokio::test]
async fn nothing_outside_can_be_reached() {
    let fixture = Fixture::empty(Limits::default());
    let text = Command::guest("fs-attack").run(&fixture.workspace, &[]).await.text();
    let tries: u32 = text.split(' ').next().unwrap().parse().unwrap_or(0);
    assert!(tries > 5_000, "{text}");
}

#[tokio::test]
async fn a_full_quota_is_insufficient_space() {
    let fixture = Fixture::empty(Limits { bytes: 1_000_000, entries: 100, ..Limits::default() });
    let raw = Command::guest("fs-raw");
    // 244 writes of 4,096 bytes fit; the one that doesn't changes nothing.
    let text = raw.run(&fixture.workspace, &["bare", "fill", "/workspace"]).await.text();
    let wanted =
        "999424 bytes, then Some(\"insufficient-space\"); write in it Ok(8192), behind it Err(\"insufficient-space\")\nsize 999424\n";
    assert_eq!(text, wanted);
    let text = raw.run(&fixture.workspace, &["bare", "crowd", "/workspace"]).await.text();
    assert_eq!(text, "99 entries, then insufficient-space\n");
    assert_eq!((fixture.workspace.workspace.usage().bytes, fixture.workspace.workspace.usage().entries), (999_424, 100));
    let text = Command::guest("fs-std").run(&fixture.workspace, &["fill", "/state"]).await.text();
    assert!(text.contains("error StorageFull"), "{text}");
}

#[tokio::test]
async fn a_file_over_the_limit_is_file_too_large() {
    let fixture = Fixture::empty(Limits { file: 8_192, ..Limits::default() });
    let text = Command::guest("fs-raw").run(&fixture.workspace, &["bare", "fill", "/workspace"]).await.text();
    assert_eq!(text, "8192 bytes, then Some(\"file-too-large\"); write in it Ok(8192), behind it Err(\"file-too-large\")\nsize 8192\n");
}

#[tokio::test]
async fn a_million_handles_are_refused_in_words() {
    let fixture = Fixture::empty(Limits::default());
    let text = Command::guest("fs-raw").run(&fixture.workspace, &["bare", "hold", "/workspace", "1000000"]).await.text();
    assert_eq!(text, format!("{OPEN_MAX} held, then insufficient-memory\n"));
    // What WASI 0.1 programs stand on inside of the component has a smaller table of its own.
    let text = Command::guest("fs-std").run(&fixture.workspace, &["hold", "1000000"]).await.text();
    assert!(text.contains("error OutOfMemory"), "{text}");
}

/// A source that has to wait at each chunk and counts the waits.
#[derive(Debug)]
struct Slow {
    objects: MemoryObjects,
    waits: AtomicU64,
}

#[async_trait::async_trait]
impl Source for Slow {
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>> {
        tokio::task::yield_now().await;
        self.objects.page(link).await
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.objects.chunk(link).await
    }
}

#[tokio::test]
async fn content_that_is_far_away_is_waited_for() {
    let objects = MemoryObjects::new();
    let (root, _, _) = two_chunks(&objects).await;
    let slow = Arc::new(Slow { objects, waits: AtomicU64::new(0) });
    let raw = Command::guest("fs-raw");
    for job in ["poll", "read"] {
        let fixture = Fixture::on(Arc::<Slow>::clone(&slow), Limits::default(), Some(root.clone()));
        let text = raw.run(&fixture.workspace, &["bare", job, "/workspace", "f"]).await.text();
        let wanted = if job == "poll" { "1100000 bytes, waited true\n" } else { "1100000 bytes, then the end\n" };
        assert_eq!(text, wanted);
        assert!(slow.waits.swap(0, Ordering::Relaxed) >= 2);
    }
}

#[tokio::test]
async fn opening_and_asking_fetch_no_content() {
    let objects = MemoryObjects::new();
    let (root, _, _) = two_chunks(&objects).await;
    let fixture = Fixture::on(Arc::new(objects.clone()), Limits::default(), Some(root));
    let list = Command::guest("list-arguments");
    let _ = objects.take_counts();
    let text = list.run(&fixture.workspace, &["/workspace"]).await.text();
    assert_eq!(text, "d /workspace\nd /workspace/d\nf 2 /workspace/d/inner\nf 1100000 /workspace/f\n");
    assert_eq!(objects.take_counts().chunk_reads, 0);
}

#[tokio::test]
async fn failures_of_the_host_stop_the_guest_with_the_hosts_error() {
    let objects = MemoryObjects::new();
    let (root, chunks, page) = two_chunks(&objects).await;
    assert!(objects.remove_chunk(chunks[1]));
    let fixture = Fixture::on(Arc::new(objects.clone()), Limits::default(), Some(root.clone()));
    let raw = Command::guest("fs-raw");
    for job in ["read", "poll"] {
        let trap = raw.run(&fixture.workspace, &["bare", job, "/workspace", "f"]).await.trap();
        let error = trap.downcast_ref::<Error>().expect("the host's error");
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Damaged, "chunk_missing"), "{job}: {trap:?}");
    }
    assert!(objects.remove_page(page));
    let fixture = Fixture::on(Arc::new(objects), Limits::default(), Some(root));
    let trap = Command::guest("list-arguments").run(&fixture.workspace, &["/workspace"]).await.trap();
    let error = trap.downcast_ref::<Error>().expect("the host's error");
    assert_eq!(error.stable_code(), "page_missing", "{trap:?}");
}

#[tokio::test]
async fn what_one_guest_writes_the_next_one_reads() {
    let fixture = Fixture::empty(Limits::default());
    let std = Command::guest("fs-std");
    for word in ["one ", "two ", "three"] {
        let _ = std.run(&fixture.workspace, &["append", "/state/log", word]).await.text();
    }
    assert_eq!(std.run(&fixture.workspace, &["read", "/state/log"]).await.text(), "one two three");
    let text = std.run(&fixture.workspace, &["many", "/tmp/n", "1000", "100"]).await.text();
    assert_eq!(text, "1000 made\n");
    assert_eq!(std.run(&fixture.workspace, &["walk", "/tmp/n"]).await.text(), "1000 files, 100000 bytes\n");
}

/// A source that replaces the whole tree while the second chunk is read, as a restore in the middle of a turn does.
#[derive(Debug)]
struct Replacing {
    objects: MemoryObjects,
    second: ChunkId,
    tree: OnceLock<(Filesystem, Root)>,
}

#[async_trait::async_trait]
impl Source for Replacing {
    async fn page(&self, link: &PageLink) -> Result<Arc<Page>> {
        self.objects.page(link).await
    }

    async fn chunk(&self, link: &ChunkLink) -> Result<Bytes> {
        if let Some((filesystem, root)) = self.tree.get()
            && link.id == self.second
        {
            filesystem.reset(Some(root.clone())).unwrap();
        }
        self.objects.chunk(link).await
    }
}

#[tokio::test]
async fn what_was_open_in_a_replaced_tree_is_a_bad_descriptor() {
    let objects = MemoryObjects::new();
    let (root, chunks, _) = two_chunks(&objects).await;
    let source = Arc::new(Replacing { objects, second: chunks[1], tree: OnceLock::new() });
    let fixture = Fixture::on(Arc::<Replacing>::clone(&source), Limits::default(), Some(root.clone()));
    source.tree.set((fixture.workspace.workspace.clone(), root)).unwrap();
    let text = Command::guest("fs-raw").run(&fixture.workspace, &["bare", "read", "/workspace", "f"]).await.text();
    assert!(text.ends_with("then Some(\"bad-descriptor\")\n"), "{text}");
}

#[tokio::test]
async fn a_replaced_tree_leaves_no_way_back_in() {
    let objects = MemoryObjects::new();
    let (root, _, _) = two_chunks(&objects).await;
    let fixture = Fixture::on(Arc::new(objects), Limits::default(), None);
    let std = Command::guest("fs-std");
    let _ = std.run(&fixture.workspace, &["append", "/workspace/old", "old"]).await.text();
    fixture.workspace.workspace.reset(Some(root)).unwrap();
    let text = Command::guest("list-arguments").run(&fixture.workspace, &["/workspace"]).await.text();
    assert!(!text.contains("old") && text.contains("f 1100000 /workspace/f"), "{text}");
}
