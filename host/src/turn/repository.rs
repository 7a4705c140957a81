//! Behind `landfall:agent/repository`: the pinned commit, and how the workspace differs from it now.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::scratch::Scratch;
use crate::capability::refusal::{LimitReached, Refusal};
use crate::capability::repository::{DIFF_MAX, RepositoryService};
use crate::capability::types::{CHANGES_MAX, Change, ChangeKind, FileInfo, FileKind};
use crate::checkpoint::root::Pin;
use crate::error::{Error, ErrorKind, Result};
use crate::repository::diff::{self, DiffOptions};
use crate::repository::import::GitMode;
use crate::repository::imported::{self, Imported};
use crate::repository::status::{self, FileView, StatusKind, StatusOptions};
use crate::store::Store;
use crate::workspace::Workspace;
use crate::workspace::capture::capture;
use crate::workspace::page::Root;
use crate::workspace::source::Source;

/// The repository that a turn's session is pinned to. Nothing of it is read before it is asked for.
#[derive(Debug)]
pub(super) struct Repository {
    pin: Pin,
    store: Store,
    source: Arc<dyn Source>,
    imported: OnceCell<Imported>,
}

impl Repository {
    pub(super) fn new(pin: Pin, store: Store, source: Arc<dyn Source>) -> Self {
        Self { pin, store, source, imported: OnceCell::new() }
    }

    async fn imported(&self) -> Result<&Imported> {
        self.imported.get_or_try_init(|| imported::open(&self.store, &self.pin)).await
    }

    /// Takes `/workspace` as it is now, in memory.
    async fn now(&self, workspace: &Workspace) -> Result<(Scratch, Root)> {
        let mut scratch = Scratch::new(Arc::clone(&self.source));
        let captured = capture(&workspace.workspace, &mut scratch).await?;
        Ok((scratch, captured.root))
    }
}

/// The rooms below give their limits as errors with the limit's name as code.
fn refusal(error: Error, limits: &[(&str, u64)]) -> Refusal {
    if error.kind() == ErrorKind::Limit
        && let Some((name, allowed)) = limits.iter().find(|(name, _)| *name == error.stable_code())
    {
        return Refusal::Limit(LimitReached { name: (*name).to_owned(), allowed: *allowed, value: None });
    }
    error.into()
}

fn info(view: &FileView) -> FileInfo {
    let kind = match view.mode {
        GitMode::Symlink => FileKind::Symlink,
        GitMode::Submodule => FileKind::Directory,
        GitMode::File | GitMode::Executable => FileKind::File,
    };
    let mode = match view.mode {
        GitMode::Executable | GitMode::Submodule => 0o755,
        GitMode::File => 0o644,
        GitMode::Symlink => 0o777,
    };
    FileInfo { kind, mode, size: view.size, modified: 0 }
}

#[async_trait::async_trait]
impl RepositoryService for Repository {
    fn pin(&self) -> Pin {
        self.pin.clone()
    }

    async fn status(&self, workspace: &Workspace) -> Result<Vec<Change>, Refusal> {
        let (scratch, root) = self.now(workspace).await?;
        let options = StatusOptions { renames: false, max_changes: CHANGES_MAX, ..StatusOptions::default() };
        let changes = status::status(&scratch, self.imported().await?, &root, &options)
            .await
            .map_err(|error| refusal(error, &[("changes", CHANGES_MAX as u64)]))?;
        Ok(changes
            .iter()
            .map(|change| Change {
                path: change.path.clone(),
                kind: match change.kind {
                    StatusKind::Added | StatusKind::Renamed => ChangeKind::Added,
                    StatusKind::Deleted => ChangeKind::Deleted,
                    StatusKind::Modified => ChangeKind::Modified,
                    StatusKind::TypeChanged => ChangeKind::TypeChanged,
                },
                before: change.before.as_ref().map(info),
                after: change.after.as_ref().map(info),
            })
            .collect())
    }

    async fn diff(&self, paths: &[String], workspace: &Workspace) -> Result<Bytes, Refusal> {
        let (scratch, root) = self.now(workspace).await?;
        let status = StatusOptions { paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(), ..StatusOptions::default() };
        let options = DiffOptions { status, max_bytes: usize::try_from(DIFF_MAX).unwrap_or(usize::MAX), ..DiffOptions::default() };
        let patch = diff::diff(&scratch, self.imported().await?, &root, &options)
            .await
            .map_err(|error| refusal(error, &[("diff", DIFF_MAX), ("changes", CHANGES_MAX as u64)]))?;
        Ok(patch.into())
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        let read = imported::read_at_pin(&*self.source, self.imported().await?, path.as_bytes(), offset, length).await?;
        read.map(|bytes| bytes.to_vec()).ok_or_else(|| Refusal::NotFound(format!("the pinned commit has no file {path}")))
    }
}
