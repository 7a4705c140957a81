//! A commit's tree as `git checkout` would lay it out on Linux, as a stream: attributes applied by this program alone, nothing spawned,
//! nothing written. The tree is checked whole before the first byte of it is given out.

mod check;
mod filters;
mod flow;
mod walk;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use gix::bstr::{BString, ByteSlice as _};
use gix::objs::Find as _;

use self::check::Check;
use self::filters::Filters;
use self::flow::{Flow, Weight};
use self::walk::Walk;
use crate::error::{Error, Result};
use crate::id::CommitId;

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
