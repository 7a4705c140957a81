//! Behind `landfall:agent/checkpoints`: the session's own checkpoints, for its guest.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::compare;
use super::repository::GitRoot;
use super::roots::capture_roots;
use super::scratch::Scratch;
use crate::capability::checkpoints::{CheckpointService, Reference, SessionCheckpoint};
use crate::capability::refusal::{LimitReached, Refusal};
use crate::capability::types::{Change, FileInfo, FileKind};
use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::drill::{self, Point};
use crate::error::Result;
use crate::pin::Pin;
use crate::session::{Head, Held, Kept, Sessions};
use crate::store::Store;
use crate::workspace::page::{Home, Root};
use crate::workspace::stat::Kind;
use crate::workspace::{Filesystem, FsError, Workspace};

/// Most ended turns that are listed and looked through.
const HISTORY: usize = 1_000;

/// The checkpoints of the session that a turn runs on.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pub(super) held: Arc<Mutex<Held>>,
    pub(super) sessions: Sessions,
    pub(super) store: Store,
    pub(super) reader: Reader,
    /// Reads older checkpoints apart from the turn's own view: what they name may be collected.
    pub(super) view: Reader,
    pub(super) start: Option<Checkpoint>,
    pub(super) pin: Option<Pin>,
    pub(super) git: GitRoot,
}

impl Checkpoints {
    async fn all(&self) -> Result<Vec<(SessionCheckpoint, Kept)>> {
        let head = self.held.lock().await.head.clone();
        let kept = |checkpoint: Checkpoint, seq| Kept { session: head.session.clone(), incarnation: head.incarnation, checkpoint, seq };
        let mut all = Vec::new();
        for save in &head.saves {
            let made = SessionCheckpoint {
                id: save.checkpoint.id,
                name: Some(save.name.clone()),
                run: save.run,
                turn: head.turn,
                created: save.at,
            };
            all.push((made, kept(save.checkpoint.clone(), None)));
        }
        for record in self.sessions.records(&head, HISTORY).await? {
            let there = record.is_completed() && record.seq >= head.kept_from;
            if let (true, Some(after), Some(ended)) = (there, record.after, record.ended) {
                let made = SessionCheckpoint { id: after.id, name: None, run: record.run, turn: record.turn, created: ended };
                all.push((made, kept(after, Some(record.seq))));
            }
        }
        all.sort_by_key(|(made, _)| std::cmp::Reverse(made.created));
        Ok(all)
    }

    async fn find(&self, reference: &Reference) -> Result<Kept, Refusal> {
        let now = |checkpoint: Checkpoint, head: &Head| Kept {
            session: head.session.clone(),
            incarnation: head.incarnation,
            checkpoint,
            seq: None,
        };
        let held = self.held.lock().await;
        let start = self.start.clone().map(|start| now(start, &held.head));
        let saved = match reference {
            Reference::Saved(name) => held.head.saves.iter().find(|save| save.name == *name),
            Reference::Start | Reference::Id(_) => None,
        };
        let saved = saved.map(|save| now(save.checkpoint.clone(), &held.head));
        drop(held);
        let found = match reference {
            Reference::Start => start,
            Reference::Saved(_) => saved,
            Reference::Id(id) => match start.filter(|start| start.checkpoint.id == *id) {
                Some(start) => Some(start),
                None => self.all().await?.into_iter().map(|(_, kept)| kept).find(|kept| kept.checkpoint.id == *id),
            },
        };
        found.ok_or_else(|| {
            Refusal::NotFound(match reference {
                Reference::Start => "the session has no checkpoint before its first turn".to_owned(),
                Reference::Saved(name) => format!("no checkpoint is named {name:?}"),
                Reference::Id(id) => format!("the session has no checkpoint {id}"),
            })
        })
    }

    async fn open(&self, reference: &Reference) -> Result<OpenCheckpoint, Refusal> {
        Ok(OpenCheckpoint::new(self.find(reference).await?.checkpoint, Arc::new(self.view.clone())))
    }
}

#[async_trait::async_trait]
impl CheckpointService for Checkpoints {
    async fn save(&self, name: &str, workspace: &Workspace) -> Result<SessionCheckpoint, Refusal> {
        // Packs first, then the head: it is durable when this returns.
        drill::pass(Point::SaveBefore);
        let home = Arc::new(Home::Session(self.held.lock().await.session().clone()));
        let options = WriterOptions { known: None, reader: Some(self.reader.clone()), ..WriterOptions::default() };
        let mut writer = PackWriter::new(self.store.clone(), home, options);
        let roots = capture_roots(workspace, &mut writer).await?;
        writer.finish().await?;
        let checkpoint = Checkpoint::new(roots.record(&writer, self.git.get(), self.pin.clone())?);
        let mut held = self.held.lock().await;
        drill::pass(Point::SavePacksStored);
        self.sessions.save(&mut held, name, &checkpoint).await?;
        drill::pass(Point::SaveAfter);
        // The turn goes on from what is stored, so that it isn't stored again.
        workspace.workspace.rebase(&checkpoint.root.workspace).await?;
        workspace.state.rebase(&checkpoint.root.state).await?;
        let created = self.store.clock().now();
        Ok(SessionCheckpoint { id: checkpoint.id, name: Some(name.to_owned()), run: held.run(), turn: held.turn(), created })
    }

    async fn list(&self) -> Result<Vec<SessionCheckpoint>, Refusal> {
        Ok(self.all().await?.into_iter().map(|(made, _)| made).collect())
    }

    async fn stat(&self, at: &Reference, path: &str) -> Result<FileInfo, Refusal> {
        let found = self.open(at).await?.stat(path).await?;
        let kind = match found.kind {
            Kind::File => FileKind::File,
            Kind::Directory => FileKind::Directory,
            Kind::Symlink => FileKind::Symlink,
        };
        Ok(FileInfo { kind, mode: found.mode, size: found.size, modified: found.modified })
    }

    async fn read(&self, at: &Reference, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, Refusal> {
        Ok(self.open(at).await?.read(path, offset, length).await?.to_vec())
    }

    async fn diff(&self, before: &Reference, after: Option<&Reference>, workspace: &Workspace) -> Result<Vec<Change>, Refusal> {
        let before = self.find(before).await?.checkpoint;
        if let Some(after) = after {
            let after = self.find(after).await?.checkpoint;
            return Ok(compare::changes(&self.view, &before.root, &self.view, &after.root).await?);
        }
        let mut scratch = Scratch::new(Arc::new(self.view.clone()));
        let roots = capture_roots(workspace, &mut scratch).await?;
        let now = RootRecord { workspace: roots.workspace, state: roots.state, git: self.git.get(), pin: self.pin.clone() };
        Ok(compare::changes(&self.view, &before.root, &scratch, &now).await?)
    }

    async fn restore(&self, to: &Reference, state: bool, workspace: &Workspace) -> Result<(), Refusal> {
        let kept = self.find(to).await?;
        let checkpoint = &kept.checkpoint;
        let mut wanted = vec![(&workspace.workspace, &checkpoint.root.workspace)];
        if state {
            wanted.push((&workspace.state, &checkpoint.root.state));
        }
        // All or nothing: limits first.
        for (filesystem, root) in &wanted {
            fits(filesystem, root)?;
        }
        // Before the files are there: whatever is made from them now stands on that checkpoint.
        self.held.lock().await.restores(kept.clone());
        for (filesystem, root) in wanted {
            filesystem.reset(Some(root.clone())).map_err(|error| match error {
                FsError::Host(error) => Refusal::from(error),
                other => Refusal::Other(format!("the files can't be replaced now: {other}")),
            })?;
        }
        Ok(())
    }
}

fn fits(filesystem: &Filesystem, root: &Root) -> Result<(), Refusal> {
    let limits = filesystem.limits();
    for (name, allowed, value) in [("entries", limits.entries, root.entries), ("workspace", limits.bytes, root.bytes)] {
        if value > allowed {
            return Err(Refusal::Limit(LimitReached::new(name, allowed, value)));
        }
    }
    Ok(())
}
