//! The generated trait over the service.

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{repository as wit, types};
use super::super::refusal::Refusal;
use super::super::types::READ_MAX;
use super::RepositoryService;
use crate::checkpoint::root::OnBranch;
use crate::policy::grants::Grants;
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

    async fn status(&mut self) -> Result<Vec<types::Change>, Refusal> {
        Ok(self.service()?.status(self.workspace).await?.into_iter().map(Into::into).collect())
    }

    async fn diff(&mut self, paths: Vec<String>) -> Result<Vec<u8>, Refusal> {
        Ok(self.service()?.diff(&paths, self.workspace).await?.into())
    }

    async fn read(&mut self, path: String, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        self.service()?.read(&path, offset, length.min(READ_MAX)).await
    }
}
