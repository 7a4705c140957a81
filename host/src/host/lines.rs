//! What people do to whole sessions: fork, roll back, delete, and begin with files.

use std::sync::Arc;

use super::Host;
use crate::checkpoint::import::{self, ImportOptions, Imported};
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::error::{Error, Result};
use crate::gc;
use crate::id::{PackId, SessionRef};
use crate::session::fork::exists;
use crate::session::record::RunRecord;
use crate::session::selector::Selector;
use crate::session::{Head, Held, Kept};
use crate::workspace::page::{Home, Page, Root};
use crate::workspace::source::Sink as _;

impl Host {
    /// Makes a session that begins with a checkpoint of another. Nothing is copied, and neither sees what the other does from then on.
    ///
    /// # Errors
    /// As [`Host::find`] for the checkpoint; `Conflict` with the code `session_exists`; `Usage` for an agent that the config doesn't have;
    /// `Limit` (`head_full`) for a parent with too many forks; `Store`.
    pub async fn fork(&self, from: &Selector, child: &SessionRef) -> Result<Head> {
        let kept = self.find(from).await?;
        if kept.session.agent != child.agent {
            self.inner.agent(&child.agent)?;
        }
        Ok(self.inner.sessions.fork(&kept, child).await?.head)
    }

    /// Takes a session back to one of its checkpoints. That is a run of its own, so nothing is lost, and it can be taken back too.
    ///
    /// # Errors
    /// As [`Host::find`]; `Conflict` with the code `session_busy` while a run goes on; `Usage` for another session's checkpoint; `Store`.
    pub async fn rollback(&self, session: &SessionRef, to: &Selector) -> Result<RunRecord> {
        let kept: Kept = self.find(to).await?;
        self.inner.presence.announce().await?;
        let words = format!("rolled back to checkpoint {}", kept.checkpoint.id);
        let held = self.inner.sessions.begin_rollback(session, &kept, self.inner.new_run_id()).await?;
        self.end(held, kept.checkpoint, &[], &words).await
    }

    /// Commits what no guest made. When that fails its lease stays, and whoever comes next on the session settles the run first.
    async fn end(&self, mut held: Held, checkpoint: Checkpoint, packs: &[PackId], words: &str) -> Result<RunRecord> {
        let done = self.inner.sessions.commit_without_guest(&mut held, checkpoint, packs, words).await?;
        self.inner.warm.keep(held.session().clone(), done.snapshot);
        Ok(done.record)
    }

    /// Deletes a session. What forks of it stand on stays; the rest is gone with the next collections ([`Host::collect`]).
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy` while a run goes on; `NotFound`; `Store`.
    pub async fn delete(&self, session: &SessionRef) -> Result<Head> {
        self.inner.presence.announce().await?;
        drop(self.inner.warm.take(session));
        Ok(self.inner.sessions.delete(session).await?.head)
    }

    /// Makes a session whose `/workspace` begins with files that are brought. That is its first run.
    ///
    /// # Errors
    /// As [`import::import`]; `Conflict` with the code `session_exists`; `Usage` for an agent that the config doesn't have, or that has a repository
    /// of its own.
    pub async fn import(&self, session: &SessionRef, from: import::From, options: &ImportOptions) -> Result<(RunRecord, Imported)> {
        if self.inner.agent(&session.agent)?.repository.is_some() {
            return Err(Error::usage(format!("agent {} has a repository, so its sessions begin with that", session.agent))
                .hint("import for an agent without one, or make the changes in a turn"));
        }
        if self.inner.sessions.load(session).await?.is_some_and(|found| found.head.is_open() && found.head.checkpoint.is_some()) {
            return Err(exists(session));
        }
        self.inner.presence.announce().await?;
        let held = self.inner.sessions.lease_now(session, self.inner.new_run_id()).await?;
        if held.checkpoint().is_some() {
            self.inner.sessions.forget(held).await?;
            return Err(exists(session));
        }
        let made = async {
            let home = Arc::new(Home::Session(session.clone()));
            let mut writer = PackWriter::new(self.inner.store.clone(), home, WriterOptions::default());
            let (root, done) = import::import(&self.inner.reader, &mut writer, from, options).await?;
            let empty = writer.page(Page::Directory(Vec::new())).await?;
            let written = writer.finish().await?;
            let state = Root { page: writer.resolve(&empty)?, links: None, entries: 0, bytes: 0 };
            let root = RootRecord { workspace: writer.resolve_root(&root)?, state, git: None, pin: None };
            Ok::<_, Error>((Checkpoint::new(root), done, written.packs.into_iter().map(|(pack, _)| pack).collect::<Vec<_>>()))
        };
        let (checkpoint, done, packs) = match made.await {
            Ok(made) => made,
            Err(error) => {
                if let Err(left) = self.inner.sessions.forget(held).await {
                    tracing::warn!(%session, error = %left.chain(), "a lease could not be given back; the next run on the session settles it");
                }
                return Err(error);
            }
        };
        let words = format!("imported {} entries, {} bytes", done.entries, done.bytes);
        Ok((self.end(held, checkpoint, &packs, &words).await?, done))
    }

    /// Collects what no checkpoint needs any more, in all sessions of the store.
    ///
    /// # Errors
    /// `Store` when the store can't be listed; what is wrong with one session is in the report.
    pub async fn collect(&self, options: &gc::Options) -> Result<gc::Report> {
        gc::collect(&self.inner.sessions, options).await
    }

    /// Writes sessions that lie in many small packs again into few. Returns those that were.
    ///
    /// # Errors
    /// `Store`. A session that can't be compacted is a warning in the log: it goes on as it is.
    pub async fn compact(&self) -> Result<Vec<(SessionRef, gc::Compacted)>> {
        let mut all = Vec::new();
        for session in self.inner.sessions.all().await? {
            match gc::compact(&self.inner.sessions, &session).await {
                Ok(Some(compacted)) => all.push((session, compacted)),
                Ok(None) => {}
                Err(error) => tracing::warn!(%session, error = %error.chain(), "a session could not be compacted"),
            }
        }
        Ok(all)
    }

    /// Reads a sample of the store's packs and compares them with their names.
    ///
    /// # Errors
    /// `Store`. Damage is in the report.
    pub async fn scrub(&self, percent: u8) -> Result<gc::Scrubbed> {
        gc::scrub(&self.inner.sessions, percent).await
    }

    /// Returns how much of its sessions' history the config keeps.
    #[must_use]
    pub fn retention(&self) -> gc::Retention {
        self.inner.config.retention
    }
}
