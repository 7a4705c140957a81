//! Imports in the store: `repos/<sha256 of url>/<commit>` and the packs beside it. A commit is imported once, for all sessions and
//! replicas; each session still shows its own credential to the remote first.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::branch::BranchName;
use super::checkout::{GitMode, Oid, Tree, TreeLimits};
use super::fetch::{self, Fetched};
use super::import::{self, BLOB_LEN, WARNINGS_MAX, Warnings, read_blob_content};
use super::objects::ObjectKind;
use super::on_branch;
use super::remote::{Access, Git, ProgressSink, Scratch};
use super::url::RepositoryUrl;
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::error::{Context as _, Error, Result};
use crate::id::{CommitId, Digest};
use crate::pin::{OnBranch, Pin};
use crate::store::Store;
use crate::store::cas::{Created, Loaded, Replaced};
use crate::store::document::Document;
use crate::store::keys::Key;
use crate::workspace::list;
use crate::workspace::page::{Content, Entry, Home, Node, Root};
use crate::workspace::source::{Sink, Source};
use crate::workspace::tree;

/// An imported commit as the store holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imported {
    /// The repository's URL in its normal form.
    pub url: String,
    /// The commit.
    pub commit: CommitId,
    /// The id of the commit's tree, 40 hex digits.
    pub tree: String,
    /// The committer's time, seconds since 1970: every file's modification time.
    pub time: i64,
    /// The files as `git checkout` would lay them out on Linux: what a session's `/workspace` starts as.
    pub workspace: Root,
    /// The git mode and blob id of each file, at the file's own path ([`blob_of`]).
    pub blobs: Root,
    /// The pack as fetched, laid out as git has it: `objects/pack/pack-<id>.pack`, `.idx`, and `shallow`. Beside it the commit and its trees by
    /// themselves, `commits/<id>` and `trees/<id>`: with these a commit of the session costs no look into the pack.
    pub git: Root,
    /// Whether the commit has a `.gitattributes` file, so that a file's blob may differ from its content.
    pub attributes: bool,
    /// What a session gets in another form than an author may expect.
    pub warnings: Warnings,
    /// Whether a collection has dropped it: its packs are gone or go, and whoever wants the commit imports it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

impl Document for Imported {
    const KIND: &'static str = "import";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "import_damaged";

    fn check(&self) -> Result<()> {
        if self.warnings.first.len() > WARNINGS_MAX {
            return Err(Error::damaged("it has too many warnings"));
        }
        RepositoryUrl::parse(&self.url).map_err(|_| Error::damaged("its URL isn't one"))?;
        self.tree_id().map(|_| ())
    }
}

impl Imported {
    /// Returns the tree's id as bytes.
    ///
    /// # Errors
    /// `Damaged` when it isn't 40 hex digits.
    pub fn tree_id(&self) -> Result<Oid> {
        let mut id = [0; 20];
        hex::decode_to_slice(&self.tree, &mut id).map_err(|_| Error::damaged("an import's tree id isn't one"))?;
        Ok(id)
    }

    /// Returns the git mode and blob id of a file at the pin, reading only the pages on the way; none when there is no such file.
    ///
    /// # Errors
    /// As [`Source::page`]; `Damaged` when the table holds something else.
    pub async fn blob_of(&self, source: &dyn Source, path: &[u8]) -> Result<Option<(GitMode, Oid)>> {
        blob_of(source, &self.blobs, path).await
    }
}

/// Looks a path up in a table of blobs; see [`Imported::blob_of`].
///
/// # Errors
/// As [`Source::page`]; `Damaged` when the table holds something else.
pub async fn blob_of(source: &dyn Source, blobs: &Root, path: &[u8]) -> Result<Option<(GitMode, Oid)>> {
    match find(source, blobs, path).await?.map(|entry| entry.node) {
        None | Some(Node::Directory(_)) => Ok(None),
        Some(Node::File { size, content: Content::Inline(bytes) }) if size == BLOB_LEN as u64 => match read_blob_content(&bytes) {
            Some(found) => Ok(Some(found)),
            None => Err(Error::damaged("an import's table of blobs holds something else").code("import_damaged")),
        },
        Some(_) => Err(Error::damaged("an import's table of blobs holds something else").code("import_damaged")),
    }
}

/// Finds the entry at a path of a root, never following links; none when a part of it is missing or no directory.
///
/// # Errors
/// As [`Source::page`].
pub async fn find(source: &dyn Source, root: &Root, path: &[u8]) -> Result<Option<Entry>> {
    let mut directory = root.page.clone();
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let Some(entry) = tree::lookup(source, &directory, part).await? else { return Ok(None) };
        if parts.peek().is_none() {
            return Ok(Some(entry));
        }
        let Node::Directory(page) = entry.node else { return Ok(None) };
        directory = page;
    }
    Ok(None)
}

/// Reads part of a file as it is at the pin; a link gives its target. None when there is no such path or it is a directory.
///
/// # Errors
/// As [`Source::chunk`].
pub async fn read_at_pin(source: &dyn Source, imported: &Imported, path: &[u8], offset: u64, length: u64) -> Result<Option<Bytes>> {
    let cut = |bytes: &Bytes| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
        bytes.slice(from..to)
    };
    match find(source, &imported.workspace, path).await?.map(|entry| entry.node) {
        Some(Node::File { size, content }) => {
            let range = offset.min(size)..offset.saturating_add(length).min(size);
            Ok(Some(list::read(source, &content, size, range).await?))
        }
        Some(Node::Symlink(target)) => Ok(Some(cut(&target))),
        Some(Node::Directory(_) | Node::Linked(_)) | None => Ok(None),
    }
}

/// How long an import may take: well below the grace of a collection, which may take what isn't in a record for garbage.
const IMPORT_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

type Jobs = Arc<Mutex<HashMap<(Digest, CommitId), Weak<tokio::sync::Mutex<()>>>>>;

/// The repositories of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Repositories {
    git: Git,
    store: Store,
    scratch: Scratch,
    limits: TreeLimits,
    jobs: Jobs,
}

impl Repositories {
    /// Makes the room. `cache` is a folder of this process: fetched packs lie there while they are imported.
    #[must_use]
    pub fn new(git: Git, store: Store, cache: PathBuf, limits: TreeLimits) -> Self {
        Self { git, store, scratch: Scratch::new(cache), limits, jobs: Jobs::default() }
    }

    /// Returns the git client, which resolves revisions.
    #[must_use]
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// Returns the import of a session's commit, importing it if nobody has. The access proves that this session's credential was
    /// accepted. An import that exists is written again, so that its date says it is in use.
    ///
    /// # Errors
    /// As [`Git::resolve`] for the fetch; `Limit` for a tree over its limits, `Remote` (`hostile_tree`, `bad_objects`, `bad_pack`) for one that
    /// can't be checked out, `Store`.
    pub async fn ensure_imported(&self, access: &Access, progress: Option<&ProgressSink>) -> Result<Imported> {
        let commit = access.pin().commit;
        let repository = access.url.digest();
        let key = Key::Import(repository, commit);
        let job = self.job(repository, commit);
        for _ in 0..3 {
            // One import of a commit at a time in this process; other replicas may do the same work, and the first record stands.
            let _one = job.lock().await;
            let mut over = None;
            if let Some(found) = self.store.load::<Imported>(&key).await? {
                if found.value.dropped {
                    over = Some(found.version);
                } else {
                    match self.touch(&key, found, access).await? {
                        Some(imported) => return Ok(imported),
                        None => continue,
                    }
                }
            }
            let began = self.store.clock().boot();
            let imported = self.import(access, progress).await.context_with(|| format!("importing commit {commit} of {}", access.url))?;
            if self.store.clock().boot().saturating_sub(began) > IMPORT_MAX {
                return Err(Error::conflict(format!("importing commit {commit} of {} took too long", access.url))
                    .code("import_too_slow")
                    .hint("what it has stored may be collected already: repeat the run"));
            }
            let there = match over {
                None => match self.store.create(&key, &imported).await? {
                    Created::Done(_) => return Ok(imported),
                    Created::Exists(found) => found,
                },
                Some(version) => match self.store.replace(&key, &version, &imported).await? {
                    Replaced::Done(_) => return Ok(imported),
                    Replaced::Refused(found) => found,
                    Replaced::Gone => continue,
                },
            };
            if !there.value.dropped
                && let Some(imported) = self.touch(&key, *there, access).await?
            {
                return Ok(imported);
            }
        }
        Err(Error::conflict(format!("the import of commit {commit} was deleted while it was being used")).hint("repeat the run"))
    }

    /// Makes sure that a chosen commit lies on a branch, or on the remote's own when none is named. One that a branch was resolved to does.
    ///
    /// # Errors
    /// `Denied` (`commit_not_on_branch`) when it isn't found there; as [`Git::resolve`].
    pub async fn require_on_branch(&self, access: Access, branch: Option<&BranchName>) -> Result<Access> {
        if access.pin().on_branch == OnBranch::Yes {
            return Ok(access);
        }
        let (scratch, for_thread, branch) = (self.scratch.clone(), access.clone(), branch.cloned());
        let found = self
            .git
            .blocking(move |git, interrupt| {
                let directory = scratch.directory()?;
                on_branch::check(git, &for_thread, branch.as_ref(), directory.path(), &interrupt)
            })
            .await?;
        Ok(access.on_branch(found))
    }

    /// Returns the import that a pin names, without asking the remote: what later turns use.
    ///
    /// # Errors
    /// As [`open`].
    pub async fn open(&self, pin: &Pin) -> Result<Imported> {
        open(&self.store, pin).await
    }

    fn job(&self, repository: Digest, commit: CommitId) -> Arc<tokio::sync::Mutex<()>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|_, job| job.strong_count() > 0);
        let slot = jobs.entry((repository, commit)).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let job = Arc::new(tokio::sync::Mutex::new(()));
            *slot = Arc::downgrade(&job);
            job
        })
    }

    /// Writes an import again. None when it was deleted meanwhile.
    async fn touch(&self, key: &Key, found: Loaded<Imported>, access: &Access) -> Result<Option<Imported>> {
        let imported = check(found.value, access.url.as_str(), access.pin().commit)?;
        match self.store.replace(key, &found.version, &imported).await? {
            Replaced::Done(_) => Ok(Some(imported)),
            // Somebody else has touched it, or a collection has dropped it.
            Replaced::Refused(found) => Ok((!found.value.dropped).then_some(imported)),
            Replaced::Gone => Ok(None),
        }
    }

    async fn import(&self, access: &Access, progress: Option<&ProgressSink>) -> Result<Imported> {
        let (scratch, for_thread, sink) = (self.scratch.clone(), access.clone(), progress.cloned());
        let limits = self.limits;
        let (fetched, tree) = self
            .git
            .blocking(move |git, interrupt| {
                let fetched = fetch::fetch(git, &for_thread, scratch.directory()?, sink.as_ref(), &interrupt)?;
                let tree = Tree::open(fetched.git_dir(), for_thread.pin().commit, &limits, interrupt)?;
                Ok((fetched, tree))
            })
            .await?;
        let home = Arc::new(Home::Repository(access.url.digest()));
        let mut writer = PackWriter::new(self.store.clone(), home, WriterOptions::default());
        let mut imported = into_sink(access, &fetched, tree, &mut writer, progress).await?;
        writer.finish().await?;
        for root in [&mut imported.workspace, &mut imported.blobs, &mut imported.git] {
            *root = writer.resolve_root(root)?;
        }
        Ok(imported)
    }
}

/// Returns the import that a pin names, without asking the remote.
///
/// # Errors
/// `NotFound` (`import_missing`) when it isn't there any more, `Damaged`, `Store`.
pub async fn open(store: &Store, pin: &Pin) -> Result<Imported> {
    let url = RepositoryUrl::parse(&pin.url)?;
    let key = Key::Import(url.digest(), pin.commit);
    match store.load::<Imported>(&key).await? {
        Some(found) if !found.value.dropped => check(found.value, &pin.url, pin.commit),
        _ => Err(Error::not_found(format!("the import of commit {} of {} isn't in the store", pin.commit, pin.url))
            .code("import_missing")
            .hint("restore it from a copy of the store")),
    }
}

fn check(imported: Imported, url: &str, commit: CommitId) -> Result<Imported> {
    if imported.url != url || imported.commit != commit {
        return Err(Error::damaged(format!("the import of commit {commit} of {url} holds another one")).code("import_damaged"));
    }
    Ok(imported)
}

/// Imports a fetched commit into any sink. The roots hold the sink's links.
async fn into_sink(
    access: &Access,
    fetched: &Fetched,
    tree: Tree,
    sink: &mut dyn Sink,
    progress: Option<&ProgressSink>,
) -> Result<Imported> {
    let (time, tree_id, attributes, commit) = (tree.time, hex::encode(tree.id()), tree.has_attributes(), tree.commit.clone());
    let imported = import::import(tree, sink, progress).await?;
    let commit = (access.pin().commit, commit);
    let git = git_root(fetched, time, commit, imported.trees, sink).await?;
    Ok(Imported {
        url: access.url.to_string(),
        commit: access.pin().commit,
        tree: tree_id,
        time,
        workspace: imported.workspace,
        blobs: imported.blobs,
        git,
        attributes,
        warnings: imported.warnings,
        dropped: false,
    })
}

/// Stores the pack with its index as git lays them out, and the objects that a session's commits stand on.
async fn git_root(
    fetched: &Fetched,
    time: i64,
    (commit, body): (CommitId, Vec<u8>),
    trees: BTreeMap<String, Node>,
    sink: &mut dyn Sink,
) -> Result<Root> {
    let name = |path: &std::path::Path| {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        name.ok_or_else(|| Error::internal("a fetched pack has no name"))
    };
    let mtime = time.saturating_mul(1_000_000_000);
    let (mut files, mut bytes, mut entries) = (Vec::new(), 0, 4);
    for path in [&fetched.pack.pack, &fetched.pack.index] {
        let (content, size) = import::store_file(sink, path).await?;
        bytes += size;
        files.push((name(path)?, Node::File { size, content }));
    }
    let packs = import::store_directory(sink, mtime, files).await?;
    let objects = import::store_directory(sink, mtime, vec![(String::from("pack"), Node::Directory(packs))]).await?;
    let node = Node::File { size: body.len() as u64, content: list::build(sink, None, &body).await? };
    let commits = BTreeMap::from([(commit.to_string(), node)]);
    let mut top = vec![(String::from("objects"), Node::Directory(objects))];
    for (kind, nodes) in [(ObjectKind::Commit, commits), (ObjectKind::Tree, trees)] {
        for node in nodes.values() {
            if let Node::File { size, .. } = node {
                bytes += size;
            }
        }
        entries += 1 + nodes.len() as u64;
        top.push((kind.folder().to_owned(), Node::Directory(import::store_directory(sink, mtime, nodes).await?)));
    }
    if !fetched.shallow.is_empty() {
        let size = fetched.shallow.len() as u64;
        let content = list::build(sink, None, fetched.shallow.as_bytes()).await?;
        top.push((String::from("shallow"), Node::File { size, content }));
        bytes += size;
        entries += 1;
    }
    let page = import::store_directory(sink, mtime, top).await?;
    Ok(Root { page, links: None, entries, bytes })
}
