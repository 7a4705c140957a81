//! What the repository tests share: a server with a store beside it, trees on disk, and edits of a root.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use landfall::checkpoint::reader::Reader;
use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::clock::SystemClock;
use landfall::random::SystemRandom;
use landfall::repository::checkout::TreeLimits;
use landfall::repository::imported::{Imported, Repositories};
use landfall::repository::remote::{Access, Credential, Git, RemoteOptions, Revision};
use landfall::repository::url::RepositoryUrl;
use landfall::store::Store;
use landfall::workspace::page::{Entry, Home, Node, PageLink, Root};
use landfall::workspace::source::{Sink, Source};
use landfall::workspace::{list, tree};
use landfall_tests::git_server::{GitServer, TestRepository};

/// The token of all private tests.
pub(super) const TOKEN: &str = "ghp_0123456789abcdefTESTTOKEN";

/// A server, a folder and a store.
pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) server: GitServer,
    pub(super) store: Store,
}

impl World {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = folder.path().join("served");
        std::fs::create_dir(&served).unwrap();
        let server = GitServer::start(&served).await.unwrap();
        Self { server, store: memory_store(), folder }
    }

    pub(super) fn repository(&self, name: &str) -> TestRepository {
        TestRepository::create(self.server.root(), name).unwrap()
    }

    pub(super) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            ca_pem: self.server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
            gap_timeout: Duration::from_secs(20),
            ..RemoteOptions::default()
        }
    }

    pub(super) fn git(&self) -> Git {
        Git::new(self.options(), Arc::new(SystemClock))
    }

    pub(super) fn scratch(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }

    pub(super) fn repositories(&self) -> Repositories {
        Repositories::new(self.git(), self.store.clone(), self.scratch(), TreeLimits::default())
    }

    pub(super) fn url(&self, name: &str) -> RepositoryUrl {
        RepositoryUrl::parse(&self.server.url(name)).unwrap()
    }

    pub(super) async fn import(&self, name: &str) -> landfall::Result<(Access, Imported)> {
        let repositories = self.repositories();
        let access = repositories.git().resolve(&self.url(name), None, &Revision::Default).await?;
        let imported = repositories.ensure_imported(&access, None).await?;
        Ok((access, imported))
    }

    pub(super) fn reader(&self) -> Reader {
        Reader::new(self.store.clone(), None, 64 << 20)
    }
}

pub(super) fn memory_store() -> Store {
    Store::memory(Arc::new(SystemClock), Arc::new(SystemRandom))
}

pub(super) fn token() -> Credential {
    Credential::token(TOKEN)
}

/// A file, link or directory as a test sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Directory,
    File { executable: bool, bytes: Vec<u8> },
    Link(Vec<u8>),
}

pub(super) type Tree = BTreeMap<Vec<u8>, Seen>;

/// Reads a folder of the disk, `.git` at its top left out.
pub(super) fn on_disk(folder: &Path) -> Tree {
    fn walk(folder: &Path, prefix: &[u8], out: &mut Tree) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if prefix.is_empty() && name == ".git" {
                continue;
            }
            let path = [prefix, name.as_bytes()].concat();
            let meta = entry.path().symlink_metadata().unwrap();
            if meta.is_symlink() {
                out.insert(path, Seen::Link(std::fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec()));
            } else if meta.is_dir() {
                out.insert(path.clone(), Seen::Directory);
                walk(&entry.path(), &[&path[..], b"/"].concat(), out);
            } else {
                out.insert(path, Seen::File { executable: meta.mode() & 0o100 != 0, bytes: std::fs::read(entry.path()).unwrap() });
            }
        }
    }
    let mut out = Tree::new();
    walk(folder, b"", &mut out);
    out
}

/// Reads a root, and checks on the way what every entry of an import has.
pub(super) async fn in_root(source: &dyn Source, root: &Root) -> Tree {
    let mut out = Tree::new();
    let mut waiting: Vec<(Vec<u8>, PageLink)> = vec![(Vec::new(), root.page.clone())];
    let (mut entries, mut total) = (0, 0);
    while let Some((prefix, page)) = waiting.pop() {
        for entry in tree::list(source, &page).await.unwrap() {
            entries += 1;
            let path = [&prefix[..], &entry.name[..]].concat();
            let seen = match &entry.node {
                Node::Directory(page) => {
                    waiting.push(([&path[..], b"/"].concat(), page.clone()));
                    Seen::Directory
                }
                Node::File { size, content } => {
                    total += size;
                    let bytes = list::read(source, content, *size, 0..*size).await.unwrap().to_vec();
                    Seen::File { executable: entry.mode & 0o100 != 0, bytes }
                }
                Node::Symlink(target) => Seen::Link(target.to_vec()),
                Node::Linked(_) => panic!("an import has no hard links"),
            };
            out.insert(path, seen);
        }
    }
    assert_eq!((root.entries, root.bytes), (entries, total));
    out
}

/// Lays a root out on the disk, with its modes and times.
pub(super) async fn lay_out(source: &dyn Source, root: &Root, folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let mut waiting = vec![(folder.to_path_buf(), root.page.clone())];
    while let Some((folder, page)) = waiting.pop() {
        for entry in tree::list(source, &page).await.unwrap() {
            let path = folder.join(std::ffi::OsStr::from_bytes(&entry.name));
            match &entry.node {
                Node::Directory(page) => {
                    std::fs::create_dir(&path).unwrap();
                    waiting.push((path, page.clone()));
                }
                Node::File { size, content } => {
                    std::fs::write(&path, list::read(source, content, *size, 0..*size).await.unwrap()).unwrap();
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(u32::from(entry.mode))).unwrap();
                    let time = std::time::UNIX_EPOCH + Duration::from_nanos(u64::try_from(entry.mtime).unwrap());
                    std::fs::File::open(&path).unwrap().set_modified(time).unwrap();
                }
                Node::Symlink(target) => std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap(),
                Node::Linked(_) => panic!("not in these tests"),
            }
        }
    }
}

/// The time of every edit, nanoseconds since 1970: in the past, so that git believes an index that was written after it.
const EDITED: i64 = 1_750_000_000_000_000_000;

/// An edit of a path: what stands there afterwards, or none to remove it.
pub(super) type Edits = BTreeMap<Vec<u8>, Option<Seen>>;

/// Makes an edit from readable parts.
pub(super) fn file(bytes: impl AsRef<[u8]>) -> Option<Seen> {
    Some(Seen::File { executable: false, bytes: bytes.as_ref().to_vec() })
}

/// Edits a root and stores the result as a turn would: in packs of a session.
pub(super) async fn edit(store: &Store, source: &dyn Source, root: &Root, edits: &Edits) -> Root {
    let home = Arc::new(Home::Session(landfall::id::SessionRef { agent: "tester".parse().unwrap(), session: "s".parse().unwrap() }));
    let mut writer = PackWriter::new(store.clone(), home, WriterOptions::default());
    let page = edit_page(source, &mut writer, Some(&root.page), edits).await;
    writer.finish().await.unwrap();
    let page = writer.resolve(&page).unwrap();
    let (mut entries, mut bytes) = (0, 0);
    let reader = Reader::new(store.clone(), None, 16 << 20);
    let mut waiting = vec![page.clone()];
    while let Some(page) = waiting.pop() {
        for entry in tree::list(&reader, &page).await.unwrap() {
            entries += 1;
            match entry.node {
                Node::Directory(page) => waiting.push(page),
                Node::File { size, .. } => bytes += size,
                _ => {}
            }
        }
    }
    Root { page, links: None, entries, bytes }
}

async fn edit_page(source: &dyn Source, sink: &mut dyn Sink, base: Option<&PageLink>, edits: &Edits) -> PageLink {
    let mut below: BTreeMap<Vec<u8>, Edits> = BTreeMap::new();
    let mut changes: BTreeMap<Bytes, Option<Entry>> = BTreeMap::new();
    for (path, edit) in edits {
        match path.iter().position(|byte| *byte == b'/') {
            Some(at) => {
                below.entry(path[..at].to_vec()).or_default().insert(path[at + 1..].to_vec(), edit.clone());
            }
            None => {
                let name = Bytes::copy_from_slice(path);
                let entry = |mode, node| Some(Entry { name: name.clone(), mode, mtime: EDITED, node });
                let new = match edit {
                    None => None,
                    Some(Seen::Directory) => {
                        entry(0o755, Node::Directory(tree::update(source, sink, None, BTreeMap::new()).await.unwrap()))
                    }
                    Some(Seen::Link(target)) => entry(0o777, Node::Symlink(Bytes::copy_from_slice(target))),
                    Some(Seen::File { executable, bytes }) => {
                        let content = list::build(sink, None, bytes).await.unwrap();
                        entry(if *executable { 0o755 } else { 0o644 }, Node::File { size: bytes.len() as u64, content })
                    }
                };
                changes.insert(name, new);
            }
        }
    }
    for (name, edits) in below {
        let old = match base {
            Some(base) => tree::lookup(source, base, &name).await.unwrap(),
            None => None,
        };
        let old = old.and_then(|entry| if let Node::Directory(page) = entry.node { Some(page) } else { None });
        let page = Box::pin(edit_page(source, sink, old.as_ref(), &edits)).await;
        let name = Bytes::from(name);
        changes.insert(name.clone(), Some(Entry { name, mode: 0o755, mtime: EDITED, node: Node::Directory(page) }));
    }
    tree::update(source, sink, base, changes).await.unwrap()
}

/// Every form in which the token could be somewhere.
pub(super) fn token_forms() -> Vec<Vec<u8>> {
    use std::fmt::Write as _;
    let mut hex = String::new();
    for byte in TOKEN.bytes() {
        write!(hex, "{byte:02x}").unwrap();
    }
    // base64("x-access-token:" + TOKEN), at any alignment the middle of it shows.
    vec![TOKEN.as_bytes().to_vec(), hex.into_bytes(), b"eC1hY2Nlc3MtdG9rZW46".to_vec()]
}

/// Fails when a folder holds the token in any file or name.
pub(super) fn assert_no_token(folder: &Path) {
    let forms = token_forms();
    for (path, seen) in on_disk(folder) {
        let haystack = [
            path.clone(),
            match seen {
                Seen::File { bytes, .. } | Seen::Link(bytes) => bytes,
                Seen::Directory => Vec::new(),
            },
        ]
        .concat();
        for form in &forms {
            assert!(!haystack.windows(form.len()).any(|window| window == &form[..]), "the token is in {}", String::from_utf8_lossy(&path));
        }
    }
}

/// Bytes that don't compress, the same in every run (xorshift64*).
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
