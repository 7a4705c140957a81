//! What a turn stands on: the session's checkpoint, or what its first turn pins.

use std::sync::Arc;

use super::Turn;
use super::event::{RunEvent, Step};
use crate::cancel::CancelReason;
use crate::checkpoint::root::Checkpoint;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::pin::Pin;
use crate::repository::branch::BranchName;
use crate::repository::remote::{Progress, ProgressSink, Revision};
use crate::session::queue::Choice;
use crate::workspace::page::Root;

/// What a turn stands on.
pub(super) struct Base {
    /// The session's checkpoint; none for its first turn.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The files of `/workspace`; none begins empty.
    pub(super) workspace: Option<Root>,
    pub(super) pin: Option<Pin>,
    pub(super) warnings: Vec<String>,
}

impl Base {
    pub(super) fn git(&self) -> Option<Root> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.git.clone())
    }
}

impl Turn<'_> {
    /// Opens what the turn stands on. Only a session's first turn asks the remote.
    pub(super) async fn open(&self, checkpoint: Option<Checkpoint>, choice: Option<&Choice>) -> Result<Base> {
        let access = self.context.repository(&self.session.agent)?;
        if let Some(checkpoint) = checkpoint {
            let pin = checkpoint.root.pin.clone();
            let pinned = pin.as_ref().map(|pin| pin.url.as_str());
            let wanted = access.as_ref().map(|access| access.url.as_str());
            if pinned != wanted {
                return Err(Error::conflict(format!(
                    "session {} stands on {}, but the config says {}",
                    self.session,
                    pinned.unwrap_or("no repository"),
                    wanted.unwrap_or("none")
                ))
                .code("pin_mismatch")
                .hint("a pin never moves: go on with the old URL, or begin another session"));
            }
            let mut warnings = Vec::new();
            if choice.is_some() {
                warnings.push(format!("session {} was pinned by its first turn; --commit and --branch were ignored", self.session));
            }
            for warning in &warnings {
                self.watch.event(RunEvent::Warning(warning.clone()));
            }
            let workspace = Some(checkpoint.root.workspace.clone());
            return Ok(Base { checkpoint: Some(checkpoint), workspace, pin, warnings });
        }
        let (Some(access), Some(repository)) = (access, &self.agent.repository) else {
            if choice.is_some() {
                return Err(Error::usage(format!(
                    "agent {} has no repository, so there is no commit or branch to choose",
                    self.session.agent
                ))
                .hint(format!("add repository = {{ url = \"https://...\" }} to [agents.{}]", self.session.agent)));
            }
            return Ok(Base { checkpoint: None, workspace: None, pin: None, warnings: Vec::new() });
        };
        let branch = repository.branch.as_deref().map(BranchName::parse).transpose()?;
        let revision = match choice {
            Some(Choice::Commit(commit)) => Revision::Commit(CommitId::clone(commit), branch.clone()),
            Some(Choice::Branch(branch)) => Revision::Branch(BranchName::parse(branch)?),
            None => branch.clone().map_or(Revision::Default, Revision::Branch),
        };
        let url = access.url.clone();
        self.step(Step::Resolving);
        let stop = |reason: CancelReason| Error::cancelled(format!("the fetch of {url} was stopped ({reason:?})"));
        let found = tokio::select! {
            found = access.repositories.git().resolve(&url, access.credential.as_ref(), &revision) => found?,
            reason = self.cancel.cancelled() => return Err(stop(reason)),
        };
        let found = match repository.require_commit_on_branch {
            false => found,
            true => tokio::select! {
                found = access.repositories.require_on_branch(found, branch.as_ref()) => found?,
                reason = self.cancel.cancelled() => return Err(stop(reason)),
            },
        };
        self.step(Step::Fetching);
        let watch = Arc::clone(&self.watch);
        let progress: ProgressSink = Arc::new(move |progress| {
            watch.event(match progress {
                Progress::Received(bytes) => RunEvent::Moved { step: Step::Fetching, done: bytes, of: None },
                Progress::Imported { files, .. } => RunEvent::Moved { step: Step::Importing, done: files, of: None },
            });
        });
        let imported = tokio::select! {
            imported = access.repositories.ensure_imported(&found, Some(&progress)) => imported?,
            reason = self.cancel.cancelled() => return Err(stop(reason)),
        };
        let warnings = imported.warnings.texts();
        for warning in &warnings {
            self.watch.event(RunEvent::Warning(warning.clone()));
        }
        Ok(Base { checkpoint: None, workspace: Some(imported.workspace), pin: Some(found.pin().clone()), warnings })
    }
}
