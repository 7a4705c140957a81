//! The generated trait over the service.

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{checkpoints as wit, types};
use super::super::refusal::Refusal;
use super::super::types::{READ_MAX, instant};
use super::{CheckpointService, Reference, SessionCheckpoint, check_name};
use crate::workspace::Workspace;

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) service: &'a dyn CheckpointService,
    pub(crate) workspace: &'a Workspace,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasCheckpoints;

impl HasData for HasCheckpoints {
    type Data<'a> = View<'a>;
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        refusal.into_wit()
    }
}

impl wit::Host for View<'_> {
    async fn save(&mut self, name: String) -> Result<wit::Checkpoint, Refusal> {
        check_name(&name)?;
        Ok(self.service.save(&name, self.workspace).await?.into())
    }

    async fn list(&mut self) -> Result<Vec<wit::Checkpoint>, Refusal> {
        Ok(self.service.list().await?.into_iter().map(Into::into).collect())
    }

    async fn stat(&mut self, at: wit::Reference, path: String) -> Result<types::FileInfo, Refusal> {
        Ok(self.service.stat(&reference(at)?, &path).await?.into())
    }

    async fn read(&mut self, at: wit::Reference, path: String, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        self.service.read(&reference(at)?, &path, offset, length.min(READ_MAX)).await
    }

    async fn diff(&mut self, before: wit::Reference, after: Option<wit::Reference>) -> Result<Vec<types::Change>, Refusal> {
        let (before, after) = (reference(before)?, after.map(reference).transpose()?);
        Ok(self.service.diff(&before, after.as_ref(), self.workspace).await?.into_iter().map(Into::into).collect())
    }

    async fn restore(&mut self, to: wit::Reference, options: wit::RestoreOptions) -> Result<(), Refusal> {
        self.service.restore(&reference(to)?, options.contains(wit::RestoreOptions::STATE), self.workspace).await
    }
}

fn reference(from: wit::Reference) -> Result<Reference, Refusal> {
    Ok(match from {
        wit::Reference::Id(id) => match id.parse() {
            Ok(id) => Reference::Id(id),
            Err(_) => return Err(Refusal::Invalid(format!("{id:?} is not a checkpoint id: expected 64 lower-case hexadecimal digits"))),
        },
        wit::Reference::Saved(name) => {
            check_name(&name)?;
            Reference::Saved(name)
        }
        wit::Reference::Start => Reference::Start,
    })
}

impl From<SessionCheckpoint> for wit::Checkpoint {
    fn from(checkpoint: SessionCheckpoint) -> Self {
        Self {
            id: checkpoint.id.to_string(),
            name: checkpoint.name,
            run: checkpoint.run.to_string(),
            turn: checkpoint.turn,
            created: instant(checkpoint.created),
        }
    }
}
