//! A commit's tree as `git checkout` would lay it out on Linux, as a stream: attributes applied by this program alone, nothing spawned,
//! nothing written. The tree is checked whole before the first byte of it is given out.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use gix::bstr::{BString, ByteSlice as _};
use gix::filter::plumbing::Pipeline;
use gix::objs::tree::EntryMode;
use gix::objs::{Find as _, FindExt as _, FindHeader as _, TreeRefIter};

use super::attributes::{ATTRIBUTES_MAX, Rules, pipeline, to_worktree};
use crate::error::{Error, Result};
use crate::id::CommitId;

/// Longest name of an entry in bytes, as in the workspace and on every Linux file system.
const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes.
const TARGET_MAX: u64 = 4_095;
/// Bytes of a batch of events.
const BATCH_BYTES: usize = 512 << 10;
/// Decoded bytes on their way to the importer; a larger blob travels alone.
const FLOW_BYTES: u64 = 16 << 20;

/// Largest file that attributes are applied to, in bytes: a filtered copy can be many times larger than what it comes from.
pub(super) const FILTERED_MAX: usize = 128 << 20;

/// How large a tree may be. The defaults are those of a workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeLimits {
    /// Most entries of every kind.
    pub entries: u64,
    /// Most bytes of all files as git stores them.
    pub bytes: u64,
    /// Largest file in bytes.
    pub file: u64,
    /// Longest path in bytes.
    pub path: usize,
    /// Most directories inside each other.
    pub depth: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 16 << 30, file: 4 << 30, path: 4_096, depth: 256 }
    }
}

/// What an entry is in git.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum GitMode {
    /// 100644: a file.
    File,
    /// 100755: a file that may be executed.
    Executable,
    /// 120000: a symbolic link.
    Symlink,
    /// 160000: a commit of another repository.
    Submodule,
}

impl GitMode {
    /// Returns the octal text that git shows.
    #[must_use]
    pub fn as_octal(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Executable => "100755",
            Self::Symlink => "120000",
            Self::Submodule => "160000",
        }
    }
}

/// An object id of git (SHA-1).
pub type Oid = [u8; 20];

/// A step of the walk. Entries come in git's order, the content of a directory between its [`Step::Enter`] and its [`Step::Leave`].
#[derive(Debug)]
pub(super) enum Step {
    /// The tree of the folder that the walk is in now, as git stores it.
    Tree {
        id: Oid,
        body: Vec<u8>,
    },
    Enter(Bytes),
    Leave,
    File {
        name: Bytes,
        executable: bool,
        id: Oid,
        data: Data,
    },
    Symlink {
        name: Bytes,
        id: Oid,
        target: Bytes,
    },
    Submodule {
        name: Bytes,
        id: Oid,
    },
}

/// A file's bytes and what they weigh on the flow.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) bytes: Vec<u8>,
    _weight: Weight,
}

/// A tree that passed its checks.
pub(super) struct Tree {
    repository: gix::Repository,
    root: gix::ObjectId,
    /// The commit as git stores it.
    pub(super) commit: Vec<u8>,
    /// Committer's time, seconds since 1970.
    pub(super) time: i64,
    has_attributes: bool,
    file_max: u64,
    interrupt: Arc<AtomicBool>,
}

impl Tree {
    /// Opens the commit in a git directory of ours and checks its whole tree.
    pub(super) fn open(git_dir: &Path, commit: CommitId, limits: &TreeLimits, interrupt: Arc<AtomicBool>) -> Result<Self> {
        let repository = gix::open_opts(git_dir, gix::open::Options::isolated())
            .map_err(|_| Error::local("the temporary git directory can't be opened"))?;
        let bad = || Error::remote(format!("commit {commit} is damaged or isn't a commit")).code("bad_objects");
        let id = gix::ObjectId::from_bytes_or_panic(commit.as_bytes());
        let (root, time, body) = {
            let found = repository.find_commit(id).map_err(|_| bad())?;
            let time = found.time().map_err(|_| bad())?.seconds;
            (found.tree_id().map_err(|_| bad())?.detach(), time, found.data.clone())
        };
        let mut check =
            Check { repository: &repository, limits, commit, entries: 0, bytes: 0, has_attributes: false, interrupt: &interrupt };
        check.directory(root, &mut BString::default(), 0)?;
        let has_attributes = check.has_attributes;
        Ok(Self { repository, root, commit: body, time, has_attributes, file_max: limits.file, interrupt })
    }

    /// Returns the id of the commit's tree.
    pub(super) fn id(&self) -> Oid {
        oid(&self.root)
    }

    /// Returns whether there is a `.gitattributes` file anywhere in it.
    pub(super) fn has_attributes(&self) -> bool {
        self.has_attributes
    }

    /// Walks the tree and gives out batches of steps, until `send` answers that nobody takes them any more.
    pub(super) fn walk(&self, send: &mut dyn FnMut(Vec<Step>) -> bool) -> Result<()> {
        let mut filters = if self.has_attributes { Some(Filters::new(&self.repository, self.root)?) } else { None };
        let mut walk = Walk {
            tree: self,
            filters: filters.as_mut(),
            flow: Arc::new(Flow::default()),
            batch: Vec::new(),
            weight: 0,
            send,
            blob: Vec::new(),
        };
        walk.directory(self.root, &mut BString::default())?;
        walk.flush()
    }
}

fn oid(id: &gix::oid) -> Oid {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(&id.as_bytes()[..20]);
    bytes
}

fn damaged(what: &str) -> Error {
    Error::remote(format!("an object of the commit is damaged or missing: {what}")).code("bad_objects")
}

fn read_tree(repository: &gix::Repository, id: &gix::oid) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let data = repository.objects.try_find(id, &mut buffer).ok().flatten().ok_or_else(|| damaged("a tree"))?;
    if data.kind != gix::objs::Kind::Tree {
        return Err(damaged("a tree that is something else"));
    }
    Ok(buffer)
}

/// The first pass: names, kinds, counts and sizes, before anything is given out.
struct Check<'a> {
    repository: &'a gix::Repository,
    limits: &'a TreeLimits,
    commit: CommitId,
    entries: u64,
    bytes: u64,
    has_attributes: bool,
    interrupt: &'a AtomicBool,
}

impl Check<'_> {
    fn directory(&mut self, id: gix::ObjectId, path: &mut BString, depth: usize) -> Result<()> {
        if depth > self.limits.depth {
            return Err(self.over("depth", depth as u64, self.limits.depth as u64));
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::cancelled("the import was cancelled"));
        }
        let bytes = read_tree(self.repository, &id)?;
        let mut names: HashSet<&[u8]> = HashSet::new();
        for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
            let name: &[u8] = entry.filename;
            self.name(name, entry.mode, path)?;
            if !names.insert(name) {
                return Err(self.hostile(path, name, "stands there twice"));
            }
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(self.over("number of entries", self.entries, self.limits.entries));
            }
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if path.len() > self.limits.path {
                return Err(self.over("length of a path", path.len() as u64, self.limits.path as u64));
            }
            if entry.mode.is_tree() {
                self.directory(entry.oid.to_owned(), path, depth + 1)?;
            } else if !entry.mode.is_commit() {
                self.blob(entry.oid, entry.mode, path)?;
                self.has_attributes |= name == b".gitattributes" && entry.mode.is_blob();
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn name(&self, name: &[u8], mode: EntryMode, path: &BString) -> Result<()> {
        if !can_check_out(name, mode.is_link()) {
            return Err(self.hostile(path, name, "is a name that git refuses to check out"));
        }
        if name.len() > NAME_MAX {
            return Err(self.over("length of a name", name.len() as u64, NAME_MAX as u64));
        }
        Ok(())
    }

    fn blob(&mut self, id: &gix::oid, mode: EntryMode, path: &BString) -> Result<()> {
        let header = self.repository.objects.try_header(id).ok().flatten().ok_or_else(|| damaged("a file's content"))?;
        if header.kind != gix::objs::Kind::Blob {
            return Err(damaged("a file whose content is something else"));
        }
        if mode.is_link() {
            if header.size == 0 || header.size > TARGET_MAX {
                return Err(Error::limit(format!(
                    "the symbolic link {:?} of commit {} has a target of {} bytes, outside 1 to {TARGET_MAX}",
                    show(path),
                    self.commit,
                    header.size
                )));
            }
            return Ok(());
        }
        if header.size > self.limits.file {
            return Err(self.over("size of a file", header.size, self.limits.file));
        }
        self.bytes = self.bytes.saturating_add(header.size);
        if self.bytes > self.limits.bytes {
            return Err(self.over("size of all files", self.bytes, self.limits.bytes));
        }
        Ok(())
    }

    fn over(&self, what: &str, value: u64, limit: u64) -> Error {
        Error::limit(format!("the tree of commit {} is too large: {what} is {value}, the limit is {limit}", self.commit))
            .code("tree_too_large")
    }

    fn hostile(&self, path: &BString, name: &[u8], why: &str) -> Error {
        let whole = if path.is_empty() { show(name) } else { format!("{}/{}", show(path), show(name)) };
        Error::remote(format!("commit {} can't be checked out: {whole:?} {why}", self.commit)).code("hostile_tree")
    }
}

/// Git's own rules for names in a checkout, those against disguises of `.git` on other file systems included.
pub(super) fn can_check_out(name: &[u8], link: bool) -> bool {
    let rules = gix::validate::path::component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let kind = link.then_some(gix::validate::path::component::Mode::Symlink);
    gix::validate::path::component(name.as_bstr(), kind, rules).is_ok() && !name.contains(&0)
}

/// Shows a path; bytes that aren't UTF-8 are escaped.
pub(super) fn show(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The attribute files of a tree, and the rules of the folder that the walk is in.
struct Filters {
    /// By their folder's path.
    files: HashMap<Vec<u8>, Vec<u8>>,
    /// The folders whose files make the rules, the top one first, and the rules.
    last: Option<(Vec<Vec<u8>>, Rules)>,
    pipeline: Pipeline,
}

impl Filters {
    fn new(repository: &gix::Repository, root: gix::ObjectId) -> Result<Self> {
        let mut files = HashMap::new();
        collect_attributes(repository, root, &mut BString::default(), &mut files)?;
        Ok(Self { files, last: None, pipeline: pipeline() })
    }

    /// Returns what the worktree gets instead of `blob`, or none when it stays as it is.
    fn apply(&mut self, path: &BString, id: &Oid, blob: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut chain: Vec<Vec<u8>> = Vec::new();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            if let Some((folder, _)) = self.files.get_key_value(&path[..end]) {
                chain.push(folder.clone());
            }
        }
        if chain.is_empty() {
            return Ok(None);
        }
        let (chain, rules) = match self.last.take() {
            Some(last) if last.0 == chain => last,
            _ => {
                let files = chain.iter().filter_map(|folder| Some((folder.as_slice(), self.files.get(folder)?.as_slice())));
                let rules = Rules::new(files)?;
                (chain, rules)
            }
        };
        let converted = to_worktree(&mut self.pipeline, &rules, path, id, blob);
        self.last = Some((chain, rules));
        converted
    }
}

/// Reads the attribute files of a tree, wherever they are.
fn collect_attributes(
    repository: &gix::Repository,
    id: gix::ObjectId,
    path: &mut BString,
    files: &mut HashMap<Vec<u8>, Vec<u8>>,
) -> Result<()> {
    let bytes = read_tree(repository, &id)?;
    for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
        let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
        if entry.filename == ".gitattributes" && entry.mode.is_blob() {
            let size = repository.objects.try_header(entry.oid).ok().flatten().map_or(0, |header| header.size);
            if (1..=ATTRIBUTES_MAX).contains(&size) {
                let mut buffer = Vec::new();
                repository.objects.find_blob(entry.oid, &mut buffer).map_err(|_| damaged("an attribute file"))?;
                files.insert(path.to_vec(), buffer);
            }
        } else if entry.mode.is_tree() {
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.filename);
            collect_attributes(repository, entry.oid.to_owned(), path, files)?;
            path.truncate(length);
        }
    }
    Ok(())
}

/// The second pass.
struct Walk<'a> {
    tree: &'a Tree,
    filters: Option<&'a mut Filters>,
    flow: Arc<Flow>,
    batch: Vec<Step>,
    weight: usize,
    send: &'a mut dyn FnMut(Vec<Step>) -> bool,
    blob: Vec<u8>,
}

impl Walk<'_> {
    fn directory(&mut self, id: gix::ObjectId, path: &mut BString) -> Result<()> {
        let repository = &self.tree.repository;
        let bytes = read_tree(repository, &id)?;
        for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
            let name = Bytes::copy_from_slice(entry.filename);
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.filename);
            let id = oid(entry.oid);
            if entry.mode.is_tree() {
                self.give(Step::Enter(name), 0)?;
                self.directory(entry.oid.to_owned(), path)?;
                self.give(Step::Leave, 0)?;
            } else if entry.mode.is_commit() {
                self.give(Step::Submodule { name, id }, 0)?;
            } else if entry.mode.is_link() {
                let target = repository.objects.find_blob(entry.oid, &mut self.blob).map_err(|_| damaged("a symbolic link"))?;
                if target.data.contains(&0) {
                    return Err(
                        Error::remote(format!("the symbolic link {:?} has a target with a NUL byte", show(path))).code("hostile_tree")
                    );
                }
                let target = Bytes::copy_from_slice(target.data);
                let weight = target.len();
                self.give(Step::Symlink { name, id, target }, weight)?;
            } else {
                self.file(name, entry.oid, entry.mode, path)?;
            }
            path.truncate(length);
        }
        // Behind what is in it: the bytes are needed until then.
        let weight = bytes.len();
        self.give(Step::Tree { id: oid(&id), body: bytes }, weight)
    }

    fn file(&mut self, name: Bytes, id: &gix::oid, mode: EntryMode, path: &BString) -> Result<()> {
        let repository = &self.tree.repository;
        let size = repository.objects.try_header(id).ok().flatten().ok_or_else(|| damaged("a file's content"))?.size;
        if size > BATCH_BYTES as u64 {
            // What is waiting in the batch holds a part of the flow that this file is about to wait for.
            self.flush()?;
        }
        let weight = self.flow.take(size);
        let mut bytes = Vec::new();
        let length = repository.objects.find_blob(id, &mut bytes).map_err(|_| damaged("a file's content"))?.data.len();
        bytes.truncate(length);
        if let Some(filters) = self.filters.as_deref_mut()
            && length <= FILTERED_MAX
            && let Some(filtered) = filters.apply(path, &oid(id), &bytes)?
        {
            bytes = filtered;
            if bytes.len() as u64 > self.tree.file_max {
                return Err(Error::limit(format!(
                    "the file {:?} is larger than the limit of {} bytes with its attributes applied",
                    show(path),
                    self.tree.file_max
                ))
                .code("tree_too_large"));
            }
        }
        let (count, executable) = (bytes.len(), mode.is_executable());
        self.give(Step::File { name, executable, id: oid(id), data: Data { bytes, _weight: weight } }, count)
    }

    fn give(&mut self, step: Step, weight: usize) -> Result<()> {
        if self.tree.interrupt.load(Ordering::Relaxed) {
            return Err(Error::cancelled("the import was cancelled"));
        }
        self.batch.push(step);
        self.weight += weight + 64;
        if self.weight >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.weight = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() || (self.send)(batch) { Ok(()) } else { Err(Error::cancelled("the import was cancelled")) }
    }
}

/// Bounds the decoded bytes between the walk and the importer.
#[derive(Debug, Default)]
struct Flow {
    taken: Mutex<u64>,
    freed: Condvar,
}

impl Flow {
    fn take(self: &Arc<Self>, size: u64) -> Weight {
        let amount = size.clamp(1, FLOW_BYTES);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken + amount > FLOW_BYTES {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += amount;
        Weight { flow: Arc::clone(self), amount }
    }
}

/// A part of the flow, given back on drop.
#[derive(Debug)]
struct Weight {
    flow: Arc<Flow>,
    amount: u64,
}

impl Drop for Weight {
    fn drop(&mut self) {
        *self.flow.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.amount;
        self.flow.freed.notify_all();
    }
}
