//! What a guest is given: its request, its workspace, and the services behind the interfaces that it may import.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::base::Base;
use super::repository::GitRoot;
use super::watching::Watching;
use super::{Turn, Work, checkpoints, repository, schedules};
use crate::capability::progress::AuditEvents;
use crate::capability::repository::RepositoryService;
use crate::capability::schedules::ScheduleService;
use crate::component::invoke::{self, Call, GuestRequest};
use crate::component::limits::GuestLimits;
use crate::config::Limits;
use crate::error::Result;
use crate::pin::Pin;
use crate::policy::grants::Grants;
use crate::repository::commit::Identity;
use crate::session::{Held, Trigger};
use crate::workspace::source::Source;
use crate::workspace::{self, Spool, Workspace};

/// Bytes of edits that a turn holds in memory before they go to a file.
const SPOOL_MEMORY: u64 = 32 << 20;

/// What a run works on.
pub(super) struct Footing {
    pub(super) base: Base,
    /// Reads what the base is made of.
    pub(super) view: Arc<dyn Source>,
    pub(super) workspace: Workspace,
    pub(super) git: GitRoot,
}

impl Turn<'_> {
    /// Opens what a run works on.
    pub(super) fn footing(&self, base: Base) -> Footing {
        let view: Arc<dyn Source> = Arc::new(self.reader.view());
        let workspace = self.workspace(&view, &base);
        let git = GitRoot::new(base.git());
        Footing { base, view, workspace, git }
    }

    /// Makes the call of a run's guest.
    pub(super) async fn call(
        &self,
        held: &Arc<Mutex<Held>>,
        work: Work,
        footing: &Footing,
        events: &Arc<Watching>,
        grants: Grants,
    ) -> Result<Call> {
        let Work { entry, input, attachments, .. } = work;
        let Footing { base, view, workspace, git } = footing;
        let (turn, attempt, run) = {
            let held = held.lock().await;
            (held.turn(), held.attempt, held.run())
        };
        let guest_request = GuestRequest {
            run,
            session: self.session.session.to_string(),
            turn,
            attempt,
            trigger: match &entry.trigger {
                Trigger::Manual => invoke::Trigger::Manual,
                Trigger::Schedule { schedule, tick } => invoke::Trigger::Schedule { schedule: schedule.clone(), due: *tick },
            },
            input,
            attachments: attachments
                .into_iter()
                .map(|file| invoke::Attachment { name: file.name, media_type: Some(file.media_type), content: file.bytes })
                .collect(),
            params: entry.params.clone(),
        };
        Ok(Call {
            request: guest_request,
            workspace: workspace.clone(),
            checkpoints: Arc::new(checkpoints::Checkpoints {
                held: Arc::clone(held),
                sessions: self.sessions.clone(),
                store: self.store.clone(),
                reader: self.reader.clone(),
                view: self.reader.view(),
                start: base.checkpoint.clone(),
                pin: base.pin.clone(),
                git: git.clone(),
            }),
            repository: base.pin.clone().map(|pin| self.repository(pin, git, view)),
            schedules: self.agent.schedules.is_some().then(|| {
                Arc::new(schedules::Own::new(self.context.schedules.clone(), self.session.agent.clone())) as Arc<dyn ScheduleService>
            }),
            outbound: Some(self.context.way_out(&self.session.agent)?.open(run, Arc::new(AuditEvents(Arc::clone(events) as _)))),
            events: Arc::clone(events) as _,
            config: self.agent.config.clone(),
            args: entry.args.clone().unwrap_or_else(|| self.agent.args.clone()),
            env: self.agent.env.clone().into_iter().collect(),
            limits: GuestLimits {
                memory: self.agent.limits.memory,
                time: self.agent.limits.turn,
                output: self.agent.limits.output,
                log: self.agent.limits.log,
                events: self.agent.limits.log,
            },
            grants,
        })
    }

    /// Opens the filesystems as they are before a run.
    pub(super) fn workspace(&self, source: &Arc<dyn Source>, base: &Base) -> Workspace {
        let Limits { entries, workspace, file, tmp, .. } = self.agent.limits;
        let limits = workspace::Limits { entries, bytes: workspace, file, ..workspace::Limits::default() };
        let tmp_limits = workspace::Limits { bytes: tmp, file, ..workspace::Limits::temporary() };
        let disk = workspace.saturating_mul(2).saturating_add(tmp);
        let spool = Arc::new(Spool::new(self.context.spool.clone(), SPOOL_MEMORY, disk));
        let state = base.checkpoint.as_ref().map(|checkpoint| checkpoint.root.state.clone());
        Workspace::open(source, self.store.clock(), &spool, limits, tmp_limits, base.workspace.clone(), state)
    }

    fn repository(&self, pin: Pin, git: &GitRoot, view: &Arc<dyn Source>) -> Arc<dyn RepositoryService> {
        let author = self.agent.repository.as_ref().and_then(|repository| repository.author.clone());
        Arc::new(repository::Repository {
            pin,
            session: self.session.clone(),
            identity: author.unwrap_or_else(|| Identity::of_agent(&self.session.agent)),
            git: git.clone(),
            store: self.store.clone(),
            reader: self.reader.clone(),
            source: Arc::clone(view),
            imported: tokio::sync::OnceCell::new(),
        })
    }
}
