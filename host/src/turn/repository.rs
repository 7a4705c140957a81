//! Behind `landfall:agent/repository`: the pinned commit, the session's own commits on top of it, and how the workspace differs from them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::scratch::Scratch;
use crate::capability::refusal::{LimitReached, Refusal};
use crate::capability::repository::{CompareBase, CompareOptions, DIFF_MAX, RepositoryService, StatusEntry};
use crate::capability::types::{CHANGES_MAX, FileInfo, FileKind, unshown};
use crate::checkpoint::reader::Reader;
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::id::{CommitId, SessionRef};
use crate::pin::Pin;
use crate::repository::base::Base;
use crate::repository::commit::{self, CommitRequest, Identity};
use crate::repository::diff::{self, DiffOptions};
use crate::repository::discard;
use crate::repository::history::{self, CommitInfo};
use crate::repository::ignore::Ignores;
use crate::repository::import::GitMode;
use crate::repository::imported::{self, Imported};
use crate::repository::objects::Objects;
use crate::repository::session_git::SessionGit;
use crate::repository::status::{self, FileView, StatusOptions};
use crate::store::Store;
use crate::workspace::Workspace;
use crate::workspace::capture::capture;
use crate::workspace::fault::{Exceeded, FsError};
use crate::workspace::page::{Home, Root};
use crate::workspace::source::Source;

/// The `git` root of a turn: the checkpoint's, until the guest commits.
#[derive(Clone, Debug, Default)]
pub(super) struct GitRoot(Arc<Mutex<Option<Root>>>);

impl GitRoot {
    pub(super) fn new(root: Option<Root>) -> Self {
        Self(Arc::new(Mutex::new(root)))
    }

    pub(super) fn get(&self) -> Option<Root> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, root: Root) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(root);
    }
}

/// The repository that a turn's session is pinned to. Nothing of it is read before it is asked for.
#[derive(Debug)]
pub(super) struct Repository {
    pub(super) pin: Pin,
    pub(super) session: SessionRef,
    pub(super) identity: Identity,
    pub(super) git: GitRoot,
    pub(super) store: Store,
    pub(super) reader: Reader,
    pub(super) source: Arc<dyn Source>,
    pub(super) imported: OnceCell<Imported>,
}

impl Repository {
    async fn imported(&self) -> Result<&Imported> {
        self.imported.get_or_try_init(|| imported::open(&self.store, &self.pin)).await
    }

    /// Takes `/workspace` as it is now, in memory.
    async fn now(&self, workspace: &Workspace) -> Result<(Scratch, Root)> {
        let mut scratch = Scratch::new(Arc::clone(&self.source));
        let captured = capture(&workspace.workspace, &mut scratch).await?;
        Ok((scratch, captured.root))
    }

    /// Stores `/workspace` as it is now, so that what is made of it needn't be in memory. The turn goes on from what is stored.
    async fn stored(&self, workspace: &Workspace) -> Result<Root> {
        let mut writer = self.writer();
        let captured = capture(&workspace.workspace, &mut writer).await.context_with(|| "capturing /workspace")?;
        writer.finish().await?;
        let root = writer.resolve_root(&captured.root)?;
        workspace.workspace.rebase(&root).await?;
        Ok(root)
    }

    fn writer(&self) -> PackWriter {
        let home = Arc::new(Home::Session(self.session.clone()));
        let options = WriterOptions { known: None, reader: Some(self.reader.clone()), ..WriterOptions::default() };
        PackWriter::new(self.store.clone(), home, options)
    }

    async fn session_git(&self) -> Result<Option<SessionGit>> {
        match self.git.get() {
            Some(root) => Ok(Some(SessionGit::open(&*self.source, &root).await?)),
            None => Ok(None),
        }
    }

    /// Returns what a comparison stands on: the session's commits only where they are asked for.
    async fn standing(&self, base: CompareBase) -> Result<Standing<'_>> {
        let git = match base {
            CompareBase::Pin => None,
            CompareBase::Head => self.session_git().await?,
        };
        Ok(Standing { imported: self.imported().await?, git })
    }
}

/// The commit that a workspace is compared with.
struct Standing<'a> {
    imported: &'a Imported,
    git: Option<SessionGit>,
}

impl<'a> Standing<'a> {
    fn objects(&'a self, source: &'a dyn Source) -> Objects<'a> {
        Objects::new(source, self.git.as_ref().map(|git| &git.root).into_iter().chain([&self.imported.git]))
    }

    async fn base(&'a self, objects: &'a Objects<'a>) -> Result<Base<'a>> {
        match &self.git {
            Some(git) => Base::session(git, objects).await,
            None => Ok(Base::pin(self.imported)),
        }
    }
}

/// The rooms below give their limits as errors with the limit's name as code.
fn refusal(error: Error) -> Refusal {
    if error.kind() == ErrorKind::Limit
        && let Some((name, allowed)) =
            [("diff", DIFF_MAX), ("changes", CHANGES_MAX as u64)].iter().find(|(name, _)| *name == error.stable_code())
    {
        return Refusal::Limit(LimitReached { name: (*name).to_owned(), allowed: *allowed, value: None });
    }
    error.into()
}

/// Reads a path of the interface: as git prints it, or in the form in which a guest sees names that aren't UTF-8.
fn checked(path: &str, empty: bool) -> Result<Vec<u8>, Refusal> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let wrong = path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if wrong && !(path.is_empty() && empty) {
        return Err(Refusal::Invalid(format!("{path:?} is no path of the repository: expected names joined by /, without . and ..")));
    }
    Ok(unshown(path))
}

fn checked_all(paths: &[String], empty: bool) -> Result<Vec<Vec<u8>>, Refusal> {
    paths.iter().map(|path| checked(path, empty)).collect()
}

fn status_options(options: &CompareOptions) -> Result<StatusOptions, Refusal> {
    let (renames, ignored) = (options.renames, options.ignored);
    Ok(StatusOptions { paths: checked_all(&options.paths, true)?, renames, ignored, max_changes: CHANGES_MAX })
}

fn info(view: &FileView) -> FileInfo {
    let kind = match view.mode {
        GitMode::Symlink => FileKind::Symlink,
        GitMode::Submodule => FileKind::Directory,
        GitMode::File | GitMode::Executable => FileKind::File,
    };
    FileInfo { kind, mode: view.permissions, size: view.size, modified: view.modified }
}

#[async_trait::async_trait]
impl RepositoryService for Repository {
    fn pin(&self) -> Pin {
        self.pin.clone()
    }

    async fn status(&self, options: &CompareOptions, workspace: &Workspace) -> Result<Vec<StatusEntry>, Refusal> {
        let wanted = status_options(options)?;
        let (scratch, root) = self.now(workspace).await?;
        let standing = self.standing(options.base).await?;
        let objects = standing.objects(&scratch);
        let base = standing.base(&objects).await?;
        let changes = status::status(&scratch, &base, &root, &wanted).await.map_err(refusal)?;
        Ok(changes
            .into_iter()
            .map(|change| StatusEntry {
                kind: change.kind,
                old_path: change.from,
                before: change.before.as_ref().map(info),
                after: change.after.as_ref().map(info),
                ignored: change.ignored,
                path: change.path,
            })
            .collect())
    }

    async fn diff(&self, options: &CompareOptions, context: u32, workspace: &Workspace) -> Result<Bytes, Refusal> {
        let status = status_options(options)?;
        let (scratch, root) = self.now(workspace).await?;
        let standing = self.standing(options.base).await?;
        let objects = standing.objects(&scratch);
        let base = standing.base(&objects).await?;
        let options = DiffOptions { status, context, max_bytes: usize::try_from(DIFF_MAX).unwrap_or(usize::MAX), ..DiffOptions::default() };
        Ok(diff::diff(&scratch, &base, &root, &options).await.map_err(refusal)?.into())
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        let raw = checked(path, false)?;
        let read = imported::read_at_pin(&*self.source, self.imported().await?, &raw, offset, length).await?;
        read.map(|bytes| bytes.to_vec()).ok_or_else(|| Refusal::NotFound(format!("the pinned commit has no file {path}")))
    }

    async fn log(&self, limit: usize) -> Result<Vec<CommitInfo>, Refusal> {
        let git = self.session_git().await?;
        Ok(history::history(&*self.source, self.imported().await?, git.as_ref(), limit).await?)
    }

    async fn commit(&self, message: &str, paths: &[String], workspace: &Workspace) -> Result<CommitId, Refusal> {
        let request = CommitRequest {
            message: message.to_owned(),
            paths: checked_all(paths, true)?,
            identity: self.identity.clone(),
            time: self.store.clock().now().div_euclid(1_000_000_000),
        };
        commit::check(&request)?;
        let current = self.stored(workspace).await?;
        let git = self.session_git().await?;
        let mut writer = self.writer();
        let made = commit::commit(&*self.source, &mut writer, self.imported().await?, git.as_ref(), &current, &request).await;
        let (id, root) = made.map_err(refusal)?;
        writer.finish().await?;
        self.git.set(writer.resolve_root(&root)?);
        Ok(id)
    }

    async fn discard(&self, paths: &[String], workspace: &Workspace) -> Result<u32, Refusal> {
        if paths.is_empty() {
            return Err(Refusal::Invalid(String::from("no paths to discard: an empty path means all")));
        }
        let options = StatusOptions { paths: checked_all(paths, true)?, renames: false, ignored: false, max_changes: CHANGES_MAX };
        let (scratch, root) = self.now(workspace).await?;
        let standing = self.standing(CompareBase::Head).await?;
        let objects = standing.objects(&scratch);
        let base = standing.base(&objects).await?;
        let changes = status::status(&scratch, &base, &root, &options).await.map_err(refusal)?;
        discard::discard(&scratch, &workspace.workspace.root(), &changes).await.map_err(|error| match error {
            FsError::Host(error) => refusal(error),
            FsError::InsufficientSpace(Exceeded::Entries { limit }) => {
                Refusal::Limit(LimitReached { name: String::from("entries"), allowed: limit, value: None })
            }
            FsError::InsufficientSpace(Exceeded::Bytes { limit }) => {
                Refusal::Limit(LimitReached { name: String::from("workspace"), allowed: limit, value: None })
            }
            FsError::NotDirectory => Refusal::Invalid(String::from("a folder of a path has become a file or a link: discard that as well")),
            other => Refusal::Other(format!("a file can't be put back: {other}")),
        })?;
        Ok(u32::try_from(changes.len()).unwrap_or(u32::MAX))
    }

    async fn is_ignored(&self, path: &str, workspace: &Workspace) -> Result<bool, Refusal> {
        let raw = checked(path, false)?;
        let (scratch, root) = self.now(workspace).await?;
        Ok(Ignores::new(&scratch, &root).is_ignored(&raw, path.ends_with('/')).await?)
    }
}
