//! What a checkpoint costs: a commit after a change of one file, in trees of 1,000, 20,000 and 100,000 files. The times should be the same,
//! and each commit one pack of at most 32 KiB; the counts are printed beside.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark for people at a terminal")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use landfall::checkpoint::reader::Reader;
use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::clock::{SharedClock, SystemClock};
use landfall::id::SessionRef;
use landfall::random::SystemRandom;
use landfall::store::Store;
use landfall::workspace::capture::capture;
use landfall::workspace::page::{Entry, Home, Node, Root};
use landfall::workspace::source::Source;
use landfall::workspace::{Follow, Limits, OpenHow, Spool, Workspace, list, tree};

/// Files of one directory.
const PER_DIRECTORY: usize = 50;

struct Ground {
    reader: Reader,
    store: Store,
    home: Arc<Home>,
    root: Root,
}

/// Makes a tree of so many files of about 4 KiB each, 50 to a directory, and puts it into a store in memory.
async fn ground(files: usize) -> Ground {
    let store = Store::memory(Arc::new(SystemClock), Arc::new(SystemRandom));
    let reader = Reader::new(store.clone(), None, 256 << 20);
    let home = Arc::new(Home::Session(SessionRef { agent: "bench".parse().unwrap(), session: "s".parse().unwrap() }));
    let mut writer =
        PackWriter::new(store.clone(), Arc::clone(&home), WriterOptions { reader: Some(reader.clone()), ..WriterOptions::default() });
    let mut top = BTreeMap::new();
    let mut bytes = 0;
    for directory in 0..files / PER_DIRECTORY {
        let mut entries = BTreeMap::new();
        for file in 0..PER_DIRECTORY {
            let text = format!("// file {file} of directory {directory}\n").repeat(120);
            let content = list::build(&mut writer, None, text.as_bytes()).await.unwrap();
            bytes += text.len() as u64;
            let name = Bytes::from(format!("file-{file:03}.rs"));
            let node = Node::File { size: text.len() as u64, content };
            entries.insert(name.clone(), Some(Entry { name, mode: 0o644, mtime: 0, node }));
        }
        let page = tree::update(&reader, &mut writer, None, entries).await.unwrap();
        let name = Bytes::from(format!("directory-{directory:04}"));
        top.insert(name.clone(), Some(Entry { name, mode: 0o755, mtime: 0, node: Node::Directory(page) }));
    }
    let entries = (files + files / PER_DIRECTORY) as u64;
    let page = tree::update(&reader, &mut writer, None, top).await.unwrap();
    writer.finish().await.unwrap();
    let root = writer.resolve_root(&Root { page, links: None, entries, bytes }).unwrap();
    Ground { reader, store, home, root }
}

impl Ground {
    fn open(&self, folder: &std::path::Path) -> Workspace {
        let source: Arc<dyn Source> = Arc::new(self.reader.clone());
        let clock: SharedClock = Arc::new(SystemClock);
        let spool = Arc::new(Spool::new(folder.to_owned(), 32 << 20, 1 << 30));
        Workspace::open(&source, &clock, &spool, Limits::default(), Limits::temporary(), Some(self.root.clone()), None)
    }

    /// Changes one file and makes the checkpoint durable: all that a turn does after its guest, but for the head.
    async fn commit(&self, workspace: &Workspace) -> u64 {
        let how = OpenHow { write: true, ..OpenHow::default() };
        let file = workspace.workspace.root().open_at(b"directory-0007/file-007.rs", Follow::Yes, how).await.unwrap();
        file.write_at(100, b"one line is another now").unwrap();
        let options = WriterOptions { reader: Some(self.reader.clone()), ..WriterOptions::default() };
        let mut writer = PackWriter::new(self.store.clone(), Arc::clone(&self.home), options);
        let captured = capture(&workspace.workspace, &mut writer).await.unwrap();
        assert!(captured.changed);
        writer.finish().await.unwrap().bytes
    }
}

fn one_change(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut group = criterion.benchmark_group("commit after a change of one file");
    group.sample_size(30);
    for files in [1_000, 20_000, 100_000] {
        let ground = runtime.block_on(ground(files));
        let before = ground.store.counts();
        let bytes = runtime.block_on(ground.commit(&ground.open(folder.path())));
        let after = ground.store.counts();
        println!(
            "{files} files: {} PUT of {bytes} bytes, {} GET, {} LIST",
            after.puts - before.puts,
            after.gets - before.gets,
            after.lists - before.lists
        );
        group.bench_function(format!("{files} files"), |bencher| {
            bencher.iter_batched(
                || ground.open(folder.path()),
                |workspace| runtime.block_on(ground.commit(&workspace)),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, one_change);
criterion_main!(benches);
