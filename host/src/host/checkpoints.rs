//! Checkpoints as people look at them: which there are, what is in one, and how two differ.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::find::left_by;
use super::{HISTORY, Host};
use crate::capability::types::Change;
use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::materialise::{MaterialiseOptions, Materialised};
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::verify::{self, Depth, Report};
use crate::clock::UnixNanos;
use crate::error::Result;
use crate::id::{AgentName, CheckpointId, RunId, SessionRef};
use crate::repository::base::Base;
use crate::repository::diff::{self, DiffOptions};
use crate::repository::history::CommitInfo;
use crate::repository::status::StatusOptions;
use crate::session::record::RunRecord;
use crate::session::selector::Selector;
use crate::turn::commits::{self, Patch, PatchOptions};
use crate::turn::{compare, opening};

/// A checkpoint in a session's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// The name that it was saved under; none for the end of a turn.
    pub name: Option<String>,
    /// The run that made it.
    pub run: RunId,
    /// That run's turn; none for a named checkpoint.
    pub turn: Option<u64>,
    /// When it was made, nanoseconds since 1970.
    pub created: UnixNanos,
}

impl Host {
    /// Returns a session's checkpoints, newest first: the ends of turns, and the named ones.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub async fn checkpoints(&self, session: &SessionRef) -> Result<Vec<SessionCheckpoint>> {
        let head = self.session(session).await?;
        let mut all: Vec<SessionCheckpoint> = head
            .saves
            .iter()
            .map(|save| SessionCheckpoint {
                id: save.checkpoint.id,
                name: Some(save.name.clone()),
                run: save.run,
                turn: None,
                created: save.at,
            })
            .collect();
        for record in self.inner.sessions.records(&head, HISTORY).await? {
            let there = record.is_completed() && record.seq >= head.kept_from;
            if let (true, Some(after), Some(ended)) = (there, &record.after, record.ended) {
                all.push(SessionCheckpoint { id: after.id, name: None, run: record.run, turn: Some(record.turn), created: ended });
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.created));
        Ok(all)
    }

    /// Opens what a finished run of an agent left behind, wherever it ran.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing` for an unknown run or another agent's, `run_not_done` for one that goes on (the message
    /// names the checkpoint before it); `pack_missing` and `pack_damaged` come when the content is read.
    pub async fn open_run_checkpoint(&self, agent: &AgentName, run: RunId) -> Result<OpenCheckpoint> {
        let record = self.find_run(Some(agent), run).await?;
        let head = self.session(&record.session).await?;
        Ok(self.open_checkpoint(left_by(&head, record)?.checkpoint))
    }

    /// Opens the checkpoint that a person names.
    ///
    /// # Errors
    /// As [`Host::open_run_checkpoint`]; `NotFound` for a session, a turn or a name that doesn't exist.
    pub async fn open(&self, selector: &Selector) -> Result<OpenCheckpoint> {
        Ok(self.open_checkpoint(self.find(selector).await?.checkpoint))
    }

    /// Opens a checkpoint that was read before.
    #[must_use]
    pub fn open_checkpoint(&self, checkpoint: Checkpoint) -> OpenCheckpoint {
        OpenCheckpoint::new(checkpoint, Arc::new(self.inner.reader.clone()))
    }

    /// Returns the checkpoint of the pinned commit itself: the files before any turn, and the same `/state` as `of`.
    ///
    /// # Errors
    /// `Usage` when it has no repository; `NotFound` (`import_missing`), `Damaged`, `Store`.
    pub async fn pinned(&self, of: &OpenCheckpoint) -> Result<OpenCheckpoint> {
        let root = &of.checkpoint().root;
        let imported = self.inner.imported(root).await?;
        let root = RootRecord { workspace: imported.workspace, ..root.clone() };
        Ok(self.open_checkpoint(Checkpoint::new(root)))
    }

    /// Returns the paths at which two checkpoints differ, sorted by bytes, with `/workspace` or `/state` before each.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub async fn changes(&self, before: &OpenCheckpoint, after: &OpenCheckpoint) -> Result<Vec<Change>> {
        compare::changes(before.source().as_ref(), &before.checkpoint().root, after.source().as_ref(), &after.checkpoint().root).await
    }

    /// Returns the difference of two checkpoints' `/workspace` as a diff that `git apply` accepts, for some paths or for all.
    ///
    /// # Errors
    /// `Limit` for one that is too large, `Damaged`, `Store`.
    pub async fn diff(&self, before: &OpenCheckpoint, after: &OpenCheckpoint, paths: &[String]) -> Result<Bytes> {
        compare::unified(before.source().as_ref(), &before.checkpoint().root, after.source().as_ref(), &after.checkpoint().root, paths)
            .await
    }

    /// Returns what a checkpoint's `/workspace` changed since its pin, as a diff that `git apply` accepts in a checkout of the pin: the
    /// repository's attributes are applied backwards, as git does it.
    ///
    /// # Errors
    /// As [`Host::pinned`] and [`Host::diff`].
    pub async fn diff_from_pin(&self, of: &OpenCheckpoint, paths: &[String]) -> Result<Bytes> {
        let root = &of.checkpoint().root;
        let imported = self.inner.imported(root).await?;
        let paths = paths.iter().map(|path| path.trim_matches('/').as_bytes().to_vec()).collect();
        let options = DiffOptions { status: StatusOptions { paths, ..StatusOptions::default() }, ..DiffOptions::default() };
        let patch = diff::diff(of.source().as_ref(), &Base::pin(&imported), &root.workspace, &options).await?;
        Ok(patch.into())
    }

    /// Returns what a session hands back: its commits as mails for `git am`, or else what differs from its pin as one patch.
    ///
    /// # Errors
    /// As [`Host::pinned`] and [`Host::diff`].
    pub async fn patch(&self, of: &OpenCheckpoint, options: &PatchOptions) -> Result<Patch> {
        commits::patch(&self.inner, of, options).await
    }

    /// Returns the commits that a session has made up to a checkpoint, the newest first, and its pin as the last; none without a
    /// repository.
    ///
    /// # Errors
    /// `NotFound` (`import_missing`), `Damaged`, `Store`.
    pub async fn commits(&self, of: &OpenCheckpoint, limit: usize) -> Result<Vec<CommitInfo>> {
        commits::commits(&self.inner, of, limit).await
    }

    /// Returns the commits that one run made, the newest first.
    ///
    /// # Errors
    /// As [`Host::commits`].
    pub async fn commits_of(&self, record: &RunRecord) -> Result<Vec<CommitInfo>> {
        commits::commits_of(&self.inner, record).await
    }

    /// Writes a checkpoint's `/workspace` as a folder, every byte checked; with a repository it gets a `.git` at the session's last commit, or
    /// at the pin.
    ///
    /// # Errors
    /// `Local` when the folder exists and isn't empty or can't be written, `Damaged`, `Store`.
    pub async fn materialise(&self, checkpoint: &OpenCheckpoint, to: &Path, options: &MaterialiseOptions) -> Result<Materialised> {
        opening::open(&self.inner, checkpoint, to, options).await
    }

    /// Checks a checkpoint against the store: its pages and packs, and with `deep` every byte of every pack that it uses.
    ///
    /// # Errors
    /// `Store` when the store can't be read. Damage is in the report.
    pub async fn verify(&self, checkpoint: &OpenCheckpoint, deep: bool) -> Result<Report> {
        let depth = if deep { Depth::Deep } else { Depth::Shallow };
        verify::verify(&self.inner.store, checkpoint.checkpoint(), depth).await
    }
}
