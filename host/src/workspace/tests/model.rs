//! Random operations on a filesystem and on a model that keeps everything in plain maps: the same answers and the same tree.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{Follow, Kind};
use super::*;

/// An object of the model.
#[derive(Clone, Debug, PartialEq)]
enum Thing {
    File(Vec<u8>),
    Directory(BTreeMap<String, usize>),
    Link(String),
}

/// Everything by number; 0 is the top directory.
#[derive(Clone, Debug)]
struct Model {
    things: BTreeMap<usize, Thing>,
    next: usize,
}

type Answer = Result<(), &'static str>;

impl Model {
    fn new() -> Self {
        Self { things: BTreeMap::from([(0, Thing::Directory(BTreeMap::new()))]), next: 1 }
    }

    /// Finds a path without links and dots: its directory, and the number of what it names.
    fn find(&self, path: &str) -> Result<(usize, String, Option<usize>), &'static str> {
        let (way, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut directory = 0;
        for part in way.split('/').filter(|part| !part.is_empty()) {
            match &self.things[&directory] {
                Thing::Directory(names) => directory = *names.get(part).ok_or("NoEntry")?,
                _ => return Err("NotDirectory"),
            }
        }
        match &self.things[&directory] {
            Thing::Directory(names) => Ok((directory, name.into(), names.get(name).copied())),
            _ => Err("NotDirectory"),
        }
    }

    fn names(&mut self, directory: usize) -> &mut BTreeMap<String, usize> {
        match self.things.get_mut(&directory) {
            Some(Thing::Directory(names)) => names,
            _ => panic!("not a directory"),
        }
    }

    fn make(&mut self, path: &str, thing: Thing) -> Answer {
        let (directory, name, there) = self.find(path)?;
        if there.is_some() {
            return Err("Exist");
        }
        let number = self.next;
        self.next += 1;
        self.things.insert(number, thing);
        self.names(directory).insert(name, number);
        Ok(())
    }

    fn file(&mut self, path: &str) -> Result<&mut Vec<u8>, &'static str> {
        if matches!(self.find(path), Ok((_, _, None))) {
            self.make(path, Thing::File(Vec::new()))?;
        }
        let (_, _, there) = self.find(path)?;
        match there.and_then(|number| self.things.get_mut(&number)) {
            Some(Thing::File(bytes)) => Ok(bytes),
            Some(Thing::Directory(_)) => Err("IsDirectory"),
            _ => Err("Loop"),
        }
    }

    fn write(&mut self, path: &str, at: usize, data: &[u8]) -> Answer {
        self.file(path)?;
        let (_, _, there) = self.find(path)?;
        self.put(there.ok_or("NoEntry")?, at, data);
        Ok(())
    }

    fn put(&mut self, number: usize, at: usize, data: &[u8]) {
        if let (Some(Thing::File(bytes)), false) = (self.things.get_mut(&number), data.is_empty()) {
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }
    }

    fn unlink(&mut self, path: &str) -> Answer {
        let (directory, name, there) = self.find(path)?;
        match &self.things[&there.ok_or("NoEntry")?] {
            Thing::Directory(_) => Err("IsDirectory"),
            _ => {
                self.names(directory).remove(&name);
                Ok(())
            }
        }
    }

    fn rmdir(&mut self, path: &str) -> Answer {
        let (directory, name, there) = self.find(path)?;
        match &self.things[&there.ok_or("NoEntry")?] {
            Thing::Directory(names) if names.is_empty() => {
                self.names(directory).remove(&name);
                Ok(())
            }
            Thing::Directory(_) => Err("NotEmpty"),
            _ => Err("NotDirectory"),
        }
    }

    fn link(&mut self, path: &str, new: &str) -> Answer {
        let (_, _, there) = self.find(path)?;
        let there = there.ok_or("NoEntry")?;
        if !matches!(self.things[&there], Thing::File(_)) {
            return Err("NotPermitted");
        }
        let (directory, name, taken) = self.find(new)?;
        if taken.is_some() {
            return Err("Exist");
        }
        self.names(directory).insert(name, there);
        Ok(())
    }

    fn rename(&mut self, path: &str, new: &str) -> Answer {
        let (from, name, there) = self.find(path)?;
        let there = there.ok_or("NoEntry")?;
        let (to, new_name, taken) = self.find(new)?;
        if (from, &name) == (to, &new_name) {
            return Ok(());
        }
        let is_directory = matches!(self.things[&there], Thing::Directory(_));
        if is_directory && (new == path || new.starts_with(&format!("{path}/"))) {
            return Err("Invalid");
        }
        if let Some(taken) = taken {
            if taken == there {
                return Ok(());
            }
            match (&self.things[&taken], is_directory) {
                (Thing::Directory(names), true) if !names.is_empty() => return Err("NotEmpty"),
                (Thing::Directory(_), false) => return Err("IsDirectory"),
                (Thing::File(_) | Thing::Link(_), true) => return Err("NotDirectory"),
                _ => {}
            }
        }
        self.names(from).remove(&name);
        self.names(to).insert(new_name, there);
        Ok(())
    }

    /// All paths below the top, with what is there: a file by its number and its bytes.
    fn tree(&self) -> BTreeMap<String, (usize, Thing)> {
        let mut tree = BTreeMap::new();
        let mut waiting = vec![(String::new(), 0)];
        while let Some((path, number)) = waiting.pop() {
            let Thing::Directory(names) = &self.things[&number] else { continue };
            for (name, number) in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                let thing = match &self.things[number] {
                    Thing::Directory(_) => Thing::Directory(BTreeMap::new()),
                    other => other.clone(),
                };
                tree.insert(path.clone(), (*number, thing));
                waiting.push((path, *number));
            }
        }
        tree
    }
}

/// Reads the tree of a filesystem in the model's form; files by their inodes.
async fn tree(fs: &Filesystem) -> BTreeMap<String, (u64, Thing)> {
    let mut tree = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(path) = waiting.pop() {
        let above = if path.is_empty() { "." } else { &path };
        for name in names(fs, above).await {
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let stat = fs.root().stat_at(path.as_bytes(), Follow::No).await.unwrap();
            let thing = match stat.kind {
                Kind::File => Thing::File(read(fs, &path).await),
                Kind::Directory => Thing::Directory(BTreeMap::new()),
                Kind::Symlink => Thing::Link(String::from_utf8(fs.root().readlink_at(path.as_bytes()).await.unwrap().to_vec()).unwrap()),
            };
            if let Thing::File(bytes) = &thing {
                assert_eq!(stat.size, bytes.len() as u64);
            }
            if stat.kind == Kind::Directory {
                waiting.push(path.clone());
            }
            tree.insert(path, (stat.inode, thing));
        }
    }
    tree
}

/// Compares both trees, also in which names are one file, and the totals.
async fn compare(fs: &Filesystem, model: &Model) {
    let (real, expected) = (tree(fs).await, model.tree());
    let things = |tree: BTreeMap<String, (usize, Thing)>| tree.into_iter().map(|(path, (_, thing))| (path, thing)).collect::<Vec<_>>();
    assert_eq!(real.iter().map(|(path, (_, thing))| (path.clone(), thing.clone())).collect::<Vec<_>>(), things(expected.clone()));
    let mut inodes: BTreeMap<usize, u64> = BTreeMap::new();
    let mut bytes = 0;
    for (path, (number, thing)) in &expected {
        let inode = real[path].0;
        if *inodes.entry(*number).or_insert_with(|| {
            if let Thing::File(content) = thing {
                bytes += content.len() as u64;
            }
            inode
        }) != inode
        {
            panic!("{path} isn't the same file as another name of it");
        }
        let links = expected.values().filter(|(other, _)| other == number).count() as u64;
        assert_eq!(fs.root().stat_at(path.as_bytes(), Follow::No).await.unwrap().links, links, "{path}");
    }
    let mut distinct: Vec<_> = inodes.values().collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), inodes.len(), "two objects have one inode");
    assert_eq!((fs.usage().entries, fs.usage().bytes), (expected.len() as u64, bytes));
}

#[derive(Clone, Debug)]
enum Operation {
    Write(String, usize, Vec<u8>),
    SetSize(String, usize),
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    /// Keeps a file open.
    Open(String),
    /// Writes to an open file, which may have no name any more.
    WriteOpen(usize, usize, Vec<u8>),
    Close(usize),
    Capture,
    Rebase,
    Reopen,
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|parts| parts.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    let data = || (0_u8..=255, prop_oneof![0_usize..70, 60_usize..3_000]).prop_map(|(byte, len)| vec![byte; len]);
    let offset = || prop_oneof![0_usize..100, 0_usize..5_000];
    prop_oneof![
        6 => (path(), offset(), data()).prop_map(|(path, at, data)| Operation::Write(path, at, data)),
        2 => (path(), offset()).prop_map(|(path, size)| Operation::SetSize(path, size)),
        4 => path().prop_map(Operation::Mkdir),
        1 => path().prop_map(Operation::Rmdir),
        2 => path().prop_map(Operation::Unlink),
        4 => (path(), path()).prop_map(|(from, to)| Operation::Rename(from, to)),
        3 => (path(), path()).prop_map(|(from, to)| Operation::Link(from, to)),
        1 => (path(), path()).prop_map(|(target, path)| Operation::Symlink(target, path)),
        2 => path().prop_map(Operation::Open),
        3 => (0_usize..5, offset(), data()).prop_map(|(index, at, data)| Operation::WriteOpen(index, at, data)),
        1 => (0_usize..5).prop_map(Operation::Close),
        1 => Just(Operation::Capture),
        1 => Just(Operation::Rebase),
        1 => Just(Operation::Reopen),
    ]
}

/// Open files, and their numbers in the model.
type Opened = Vec<(Handle, usize)>;

async fn apply(ground: &Ground, fs: &mut Filesystem, model: &mut Model, opened: &mut Opened, operation: Operation) {
    let root = fs.root();
    let no_follow = async |path: &str| root.open_at(path.as_bytes(), Follow::No, CREATE).await;
    let shown = format!("{operation:?}");
    let (real, expected) = match operation {
        Operation::Write(path, at, data) => {
            let real = no_follow(&path).await.and_then(|file| file.write_at(at as u64, &data));
            (real, model.write(&path, at, &data))
        }
        Operation::SetSize(path, size) => {
            let real = no_follow(&path).await.and_then(|file| file.set_size(size as u64));
            (real, model.file(&path).map(|bytes| bytes.resize(size, 0)))
        }
        Operation::Mkdir(path) => (root.create_directory_at(path.as_bytes()).await, model.make(&path, Thing::Directory(BTreeMap::new()))),
        Operation::Rmdir(path) => (root.remove_directory_at(path.as_bytes()).await, model.rmdir(&path)),
        Operation::Unlink(path) => (root.unlink_file_at(path.as_bytes()).await, model.unlink(&path)),
        Operation::Rename(from, to) => (root.rename_at(from.as_bytes(), &root, to.as_bytes()).await, model.rename(&from, &to)),
        Operation::Link(from, to) => (root.link_at(from.as_bytes(), Follow::No, &root, to.as_bytes()).await, model.link(&from, &to)),
        Operation::Symlink(target, path) => (
            root.symlink_at(format!("/{target}").trim_start_matches('/').as_bytes(), path.as_bytes()).await,
            model.make(&path, Thing::Link(target)),
        ),
        Operation::Open(path) => {
            let Ok((_, _, Some(number))) = model.find(&path) else { return };
            if let Thing::File(_) = model.things[&number] {
                opened.push((root.open_at(path.as_bytes(), Follow::No, READ).await.unwrap(), number));
            }
            return;
        }
        Operation::WriteOpen(index, at, data) => {
            let Some((file, number)) = opened.get(index) else { return };
            model.put(*number, at, &data);
            (file.write_at(at as u64, &data), Ok(()))
        }
        Operation::Close(index) => {
            if index < opened.len() {
                opened.remove(index);
            }
            return;
        }
        Operation::Capture => {
            ground.capture(fs).await;
            (Ok(()), Ok(()))
        }
        Operation::Rebase => {
            let root = ground.capture(fs).await;
            fs.rebase(&root).await.unwrap();
            (Ok(()), Ok(()))
        }
        Operation::Reopen => {
            drop(root);
            opened.clear();
            *fs = ground.reopen(fs).await;
            return;
        }
    };
    assert_eq!(code(real), expected.err().unwrap_or("ok"), "{shown}");
}

/// Symbolic links on the way are followed by the filesystem and unknown to the model: their targets don't exist from where they are, or
/// the paths are left out.
fn crosses_a_link(model: &Model, operation: &Operation) -> bool {
    let tree = model.tree();
    let crosses = |path: &str| path.match_indices('/').any(|(at, _)| matches!(tree.get(&path[..at]), Some((_, Thing::Link(_)))));
    match operation {
        Operation::Write(path, ..)
        | Operation::SetSize(path, _)
        | Operation::Mkdir(path)
        | Operation::Rmdir(path)
        | Operation::Unlink(path)
        | Operation::Symlink(_, path) => crosses(path),
        Operation::Rename(from, to) | Operation::Link(from, to) => crosses(from) || crosses(to),
        Operation::Open(path) => crosses(path),
        Operation::WriteOpen(..) | Operation::Close(_) | Operation::Capture | Operation::Rebase | Operation::Reopen => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_answer_as_the_model(operations in prop::collection::vec(operation(), 1..60), memory in prop::sample::select(vec![0_u64, 4_000, 1 << 20])) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let ground = Ground::with_memory(memory);
            let mut fs = ground.empty();
            let mut model = Model::new();
            let mut opened = Opened::new();
            for operation in operations {
                if !crosses_a_link(&model, &operation) {
                    apply(&ground, &mut fs, &mut model, &mut opened, operation).await;
                }
            }
            compare(&fs, &model).await;
            let mut unlinked = BTreeMap::new();
            for (file, number) in &opened {
                assert_eq!(Thing::File(read_all(file).await), model.things[number]);
                let stat = file.stat().unwrap();
                if stat.links == 0 {
                    unlinked.insert(*number, stat.size);
                }
            }
            assert_eq!(fs.usage().unlinked, unlinked.values().sum::<u64>());
            opened.clear();
            assert_eq!(fs.usage().unlinked, 0);
            let again = ground.reopen(&fs).await;
            compare(&again, &model).await;
            // Nothing is left behind in the spool.
            drop((fs, again));
            assert_eq!(ground.spool.used(), (0, 0));
        });
    }
}
