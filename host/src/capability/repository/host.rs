//! The generated trait over the service.

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{repository as wit, types};
use super::super::refusal::Refusal;
use super::super::types::{READ_MAX, shown};
use super::{CompareBase, CompareOptions, LOG_MAX, RepositoryService, StatusEntry, StatusKind};
use crate::pin::OnBranch;
use crate::policy::grants::Grants;
use crate::repository::history::{CommitInfo, Signature};
use crate::workspace::Workspace;

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) service: Option<&'a dyn RepositoryService>,
    pub(crate) workspace: &'a Workspace,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasRepository;

impl HasData for HasRepository {
    type Data<'a> = View<'a>;
}

impl<'a> View<'a> {
    fn service(&self) -> Result<&'a dyn RepositoryService, Refusal> {
        self.service.ok_or_else(|| Refusal::Denied(Box::new(self.grants.no_repository())))
    }
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        refusal.into_wit()
    }
}

impl wit::Host for View<'_> {
    async fn pin(&mut self) -> wasmtime::Result<Option<wit::PinnedCommit>> {
        let Some(service) = self.service else { return Ok(None) };
        let pin = service.pin();
        let on_branch = match pin.on_branch {
            OnBranch::Yes => wit::OnBranch::Yes,
            OnBranch::Unchecked => wit::OnBranch::Unchecked,
        };
        Ok(Some(wit::PinnedCommit { url: pin.url, branch: pin.branch, commit: pin.commit.to_string(), on_branch }))
    }

    async fn status(&mut self, options: wit::CompareOptions) -> Result<Vec<wit::StatusEntry>, Refusal> {
        Ok(self.service()?.status(&options.into(), self.workspace).await?.into_iter().map(Into::into).collect())
    }

    async fn diff(&mut self, options: wit::CompareOptions, context: u32) -> Result<Vec<u8>, Refusal> {
        Ok(self.service()?.diff(&options.into(), context, self.workspace).await?.into())
    }

    async fn read(&mut self, path: String, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        self.service()?.read(&path, offset, length.min(READ_MAX)).await
    }

    async fn log(&mut self, limit: u32) -> Result<Vec<wit::CommitInfo>, Refusal> {
        let limit = usize::try_from(limit).unwrap_or(LOG_MAX).min(LOG_MAX);
        Ok(self.service()?.log(limit).await?.into_iter().map(Into::into).collect())
    }

    async fn commit(&mut self, message: String, paths: Vec<String>) -> Result<String, Refusal> {
        Ok(self.service()?.commit(&message, &paths, self.workspace).await?.to_string())
    }

    async fn discard(&mut self, paths: Vec<String>) -> Result<u32, Refusal> {
        self.service()?.discard(&paths, self.workspace).await
    }

    async fn is_ignored(&mut self, path: String) -> Result<bool, Refusal> {
        self.service()?.is_ignored(&path, self.workspace).await
    }
}

impl From<wit::CompareOptions> for CompareOptions {
    fn from(options: wit::CompareOptions) -> Self {
        let base = match options.base {
            wit::Base::Pin => CompareBase::Pin,
            wit::Base::Head => CompareBase::Head,
        };
        Self { base, paths: options.paths, renames: options.renames, ignored: options.ignored }
    }
}

impl From<StatusEntry> for wit::StatusEntry {
    fn from(entry: StatusEntry) -> Self {
        let kind = match entry.kind {
            StatusKind::Added => wit::StatusKind::Added,
            StatusKind::Deleted => wit::StatusKind::Deleted,
            StatusKind::Modified => wit::StatusKind::Modified,
            StatusKind::TypeChanged => wit::StatusKind::TypeChanged,
            StatusKind::Renamed => wit::StatusKind::Renamed,
        };
        Self {
            path: shown(&entry.path),
            kind,
            old_path: entry.old_path.as_deref().map(shown),
            before: entry.before.map(Into::into),
            after: entry.after.map(Into::into),
            ignored: entry.ignored,
        }
    }
}

impl From<CommitInfo> for wit::CommitInfo {
    fn from(commit: CommitInfo) -> Self {
        let signature = |found: Signature| wit::Signature {
            name: found.name,
            email: found.email,
            time: types::Instant { seconds: found.time, nanoseconds: 0 },
        };
        Self {
            id: commit.id.to_string(),
            parents: commit.parents.iter().map(ToString::to_string).collect(),
            author: signature(commit.author),
            committer: signature(commit.committer),
            message: commit.message,
            pinned: commit.pinned,
        }
    }
}
