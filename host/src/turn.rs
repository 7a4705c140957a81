//! The turn: the one file that knows the order of events. Each step calls one room; `ARCHITECTURE.md` has the table of what a crash leaves.

mod accept;
pub(crate) mod checkpoints;
pub mod commits;
pub(crate) mod compare;
mod driving;
pub mod event;
mod lease;
pub(crate) mod opening;
mod record;
mod repository;
pub mod request;
mod schedules;
mod scratch;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use self::accept::Identified;
pub(crate) use self::accept::{Submitted, Work};
pub(crate) use self::driving::Driven;
use self::event::{NoWatch, RunEvent, SharedWatch, Step};
use self::lease::Leased;
use self::request::TurnRequest;
use crate::cancel::{Cancel, CancelReason, Canceller};
use crate::capability::progress::AuditEvents;
use crate::capability::repository::RepositoryService;
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::writer::{PackWriter, WriterOptions};
use crate::component::body::Body;
use crate::component::failure::GuestFailure;
use crate::component::invoke::{self, Call, GuestRequest, Invoked};
use crate::component::limits::GuestLimits;
use crate::config::{Agent, Limits};
use crate::context::Context;
use crate::drill::{self, Point};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::id::{CommitId, PackId, SessionRef};
use crate::pin::Pin;
use crate::policy::grants::Grants;
use crate::repository::branch::BranchName;
use crate::repository::commit::Identity;
use crate::repository::remote::{Progress, ProgressSink, Revision};
use crate::session::queue::{ATTACHMENT_NAME_MAX, ATTACHMENTS_MAX, Choice};
use crate::session::record::RunRecord;
use crate::session::{Held, Origin, Sessions, Snapshot, Trigger};
use crate::store::Store;
use crate::workspace::capture::capture;
use crate::workspace::page::{Home, Root};
use crate::workspace::source::{Sink, Source};
use crate::workspace::{self, Spool, Workspace};

/// How often a running turn looks whether it is to be cancelled, or has lost its lease.
const LOOK: Duration = Duration::from_secs(2);
/// Bytes of edits that a turn holds in memory before they go to a file.
const SPOOL_MEMORY: u64 = 32 << 20;
/// Most bytes of the names and values given for one run.
const PARAMS_BYTES: usize = 8 << 10;
/// Most bytes of all attachments of a request together.
const ATTACHMENTS_BYTES: u64 = 8 << 20;

/// Runs one turn, from the request to the commit.
pub(crate) async fn run(context: &Arc<Context>, request: TurnRequest, watch: SharedWatch, cancel: Cancel) -> Result<RunRecord> {
    let agent = context.agent(&request.agent)?.clone();
    check(&request, &agent.limits)?;
    let turn = Turn::new(context, agent, request.session_ref(), watch, cancel);

    // Before anything is written: a component that can't run makes no session.
    let (component, grants) = turn.load().await?;

    // 1. Accept: from here on the run is known to every replica.
    let run = match turn.identify(&request).await? {
        Identified::New(run) => run,
        Identified::Ended(record) => return Ok(*record),
    };
    context.presence.announce().await?;
    let busy = request.busy;
    let _waits = turn.sessions.wait_for(&turn.session, run);
    let work = turn.accept(run, None, request).await?;
    turn.watch.event(RunEvent::Accepted { run });

    // 2. Lease: the epoch rises, and every run before is fenced.
    let held = match turn.lease(&work, busy, &*component, &grants).await? {
        Leased::Held(held) => held,
        Leased::Ended(record) => return Ok(*record),
    };
    turn.execute(held, work, &*component, grants).await
}

/// Accepts a run that any replica may drive: step 1. When this returns the run is known to every one of them.
pub(crate) async fn submit(context: &Arc<Context>, request: TurnRequest) -> Result<Submitted> {
    let agent = context.agent(&request.agent)?.clone();
    check(&request, &agent.limits)?;
    let turn = Turn::new(context, agent, request.session_ref(), Arc::new(NoWatch), Cancel::never());
    turn.load().await?;
    turn.submit(request).await
}

/// Drives an accepted run to its end: steps 2 to 10. `known` is the session's head where it was just read.
pub(crate) async fn drive(
    context: &Arc<Context>,
    work: Work,
    known: Option<Snapshot>,
    watch: SharedWatch,
    cancel: Cancel,
) -> Result<Driven> {
    let agent = context.agent(&work.entry.session.agent)?.clone();
    let turn = Turn::new(context, agent, work.entry.session.clone(), watch, cancel);
    let (component, grants) = turn.load().await?;
    turn.drive(work, known, &*component, &grants).await
}

struct Turn<'h> {
    context: &'h Arc<Context>,
    agent: Agent,
    session: SessionRef,
    store: Store,
    sessions: Sessions,
    reader: Reader,
    watch: SharedWatch,
    cancel: Cancel,
}

impl<'h> Turn<'h> {
    fn new(context: &'h Arc<Context>, agent: Agent, session: SessionRef, watch: SharedWatch, cancel: Cancel) -> Self {
        // What this run asks of the store is counted apart from what others ask.
        let store = context.store.metered();
        let (sessions, reader) = (context.sessions.through(store.clone()), context.reader.through(store.clone()));
        Self { context, agent, session, store, sessions, reader, watch, cancel }
    }

    /// Loads the component and compares its imports with what the agent is granted.
    async fn load(&self) -> Result<(Arc<dyn Body>, Grants)> {
        self.step(Step::Loading);
        let component = self.context.body(&self.agent.component).await?;
        let grants = Grants::own(self.session.agent.clone());
        component.check_granted(&grants)?;
        Ok((component, grants))
    }
}

/// What a turn stands on.
struct Base {
    /// The session's checkpoint; none for its first turn.
    checkpoint: Option<Checkpoint>,
    /// The files of `/workspace`; none begins empty.
    workspace: Option<Root>,
    pin: Option<Pin>,
    warnings: Vec<String>,
}

impl Turn<'_> {
    fn step(&self, step: Step) {
        self.watch.event(RunEvent::Step(step));
    }

    /// Steps 3 to 10, under a lease.
    async fn execute(&self, held: Box<Held>, work: Work, component: &dyn Body, grants: Grants) -> Result<RunRecord> {
        let entry = work.entry.clone();
        let held = Arc::new(Mutex::new(*held));
        let attempt = self.attempt(&held, work, component, grants).await;
        let mut held = Arc::try_unwrap(held).map_err(|_| Error::internal("a capability outlived its guest"))?.into_inner();
        let error = match attempt {
            Ok(Attempt::Ended(record, packs)) => {
                // 8, 9, 10. The record, the commit, and the queue entry.
                match self.sessions.commit(&mut held, *record, &packs).await {
                    Ok(committed) => {
                        self.context.warm.keep(self.session.clone(), committed.snapshot);
                        return Ok(committed.record);
                    }
                    // Its record may be there already, so the run can't be forgotten: its lease stays, and whoever comes next on the session
                    // (this very process, too) takes it over and settles the run first.
                    Err(error) => return Err(error),
                }
            }
            Ok(Attempt::GivenBack(CancelReason::Shutdown)) => {
                self.sessions.release(held, false).await?;
                return Err(Error::cancelled(format!("run {} was given back: this process is shutting down", entry.run)).code("drained"));
            }
            Ok(Attempt::GivenBack(_)) => {
                let error = Error::conflict(format!("run {} has lost its lease on session {}", entry.run, self.session))
                    .code("fenced")
                    .hint("another replica goes on with the session: look at it again, then repeat");
                // This process was silent for too long, and perhaps nobody has taken over yet. Then the lease is still its own to give back: as
                // long as it lives, nobody else would take it away.
                if entry.origin == Origin::Server {
                    if let Err(left) = self.sessions.release(held, true).await {
                        tracing::debug!(run = %entry.run, error = %left.chain(), "another replica has the lease");
                    }
                    return Err(error);
                }
                error
            }
            Err(error) if entry.origin == Origin::Server || held.head.is_cancelled(entry.run) => {
                return self.end_or_repeat(held, &entry, error).await;
            }
            Err(error) => error,
        };
        // Nothing was written: the session is as if the run had never been.
        if let Err(left) = self.sessions.forget(held).await {
            tracing::warn!(run = %entry.run, error = %left.chain(), "a lease could not be given back; the next run on the session settles it");
        }
        Err(error)
    }

    /// Steps 3 to 7: all that may be repeated.
    async fn attempt(&self, held: &Arc<Mutex<Held>>, work: Work, component: &dyn Body, grants: Grants) -> Result<Attempt> {
        let Work { entry, input, attachments, .. } = work;
        drill::pass(Point::OpenBefore);
        // 3. Open the checkpoint; the first turn resolves and imports the pin.
        let before = held.lock().await.checkpoint().cloned();
        let base = self.open(before, entry.choice.as_ref()).await?;
        drill::pass(Point::OpenAfter);
        let view: Arc<dyn Source> = Arc::new(self.reader.view());
        let workspace = self.workspace(&view, &base);
        let git = repository::GitRoot::new(base.git());

        // 4 and 5. Instantiate with exactly the granted imports, and run.
        self.step(Step::Running);
        let (turn, attempt, run) = {
            let held = held.lock().await;
            (held.turn(), held.attempt, held.run())
        };
        let events = Arc::new(watching::Watching::new(Arc::clone(&self.watch), self.context.mask.clone(), self.agent.limits.log));
        let mut record = self.sessions.new_record(&*held.lock().await, entry.trigger.clone(), entry.origin);
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
        let call = Call {
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
            repository: base.pin.clone().map(|pin| self.repository(pin, &git, &view)),
            schedules: self.agent.schedules.is_some().then(|| {
                Arc::new(schedules::Own::new(self.context.schedules.clone(), self.session.agent.clone()))
                    as Arc<dyn crate::capability::schedules::ScheduleService>
            }),
            outbound: Some(self.context.way_out(&self.session.agent)?.open(run, Arc::new(AuditEvents(Arc::clone(&events) as _)))),
            events: Arc::clone(&events) as _,
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
        };
        drill::pass(Point::InstantiateBefore);
        let door = call.outbound.clone();
        let invoked = self.invoke(held, component, call).await?;
        drill::pass(Point::RunAfter);
        if let Err(GuestFailure::Cancelled(reason @ (CancelReason::Shutdown | CancelReason::Fenced))) = &invoked.result {
            return Ok(Attempt::GivenBack(*reason));
        }

        // 6 and 7. Capture the edits and upload them, verified.
        self.step(Step::Committing);
        let mut writer = self.writer();
        let completed = invoked.result.is_ok();
        let workspace = match (&invoked.result, &base.checkpoint) {
            (Ok(_), _) => Some(workspace),
            // A failed first run leaves what it stood on, so that the session's pin is fixed all the same.
            (Err(_), None) => Some(self.workspace(&view, &base)),
            (Err(_), Some(_)) => None,
        };
        drill::pass(Point::CaptureBefore);
        let roots = match &workspace {
            Some(workspace) => Some(capture_roots(workspace, &mut writer).await?),
            None => None,
        };
        drill::pass(Point::CaptureAfter);
        record.input = Some(entry.input.clone());
        record.request = Some(entry.request()?);
        record.component = Some(component.digest());
        record.pin = base.pin.clone();
        record::describe(&mut record, &invoked, &self.context.mask);
        let texts = record::texts(&invoked, &events, &mut writer).await?;
        let written = writer.finish().await?;
        record::place(&mut record, texts, &writer)?;
        if let Some(roots) = roots {
            let root = RootRecord {
                workspace: writer.resolve_root(&roots.workspace)?,
                state: writer.resolve_root(&roots.state)?,
                // The commits of a run that failed go with its edits.
                git: if completed { git.get() } else { base.git() },
                pin: base.pin.clone(),
            };
            record.after = Some(Checkpoint::new(root));
        }
        record.workspace_rolled_back = !completed;
        for warning in &base.warnings {
            record.warn(warning);
        }
        record.usage.store = self.store.counts();
        record.usage.egress = door.map(|door| door.usage()).unwrap_or_default();
        Ok(Attempt::Ended(Box::new(record), written.packs.into_iter().map(|(pack, _)| pack).collect()))
    }

    fn workspace(&self, source: &Arc<dyn Source>, base: &Base) -> Workspace {
        let Limits { entries, workspace, file, tmp, .. } = self.agent.limits;
        let limits = workspace::Limits { entries, bytes: workspace, file, ..workspace::Limits::default() };
        let tmp_limits = workspace::Limits { bytes: tmp, file, ..workspace::Limits::temporary() };
        let disk = workspace.saturating_mul(2).saturating_add(tmp);
        let spool = Arc::new(Spool::new(self.context.spool.clone(), SPOOL_MEMORY, disk));
        let state = base.checkpoint.as_ref().map(|checkpoint| checkpoint.root.state.clone());
        Workspace::open(source, self.store.clock(), &spool, limits, tmp_limits, base.workspace.clone(), state)
    }

    fn repository(&self, pin: Pin, git: &repository::GitRoot, view: &Arc<dyn Source>) -> Arc<dyn RepositoryService> {
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

    fn writer(&self) -> PackWriter {
        let home = Arc::new(Home::Session(self.session.clone()));
        let options = WriterOptions { known: None, reader: Some(self.reader.clone()), ..WriterOptions::default() };
        PackWriter::new(self.store.clone(), home, options)
    }

    /// Opens what the turn stands on. Only a session's first turn asks the remote.
    async fn open(&self, checkpoint: Option<Checkpoint>, choice: Option<&Choice>) -> Result<Base> {
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

    /// Runs the guest, and stops it when somebody wants that or the lease is lost.
    async fn invoke(&self, held: &Arc<Mutex<Held>>, component: &dyn Body, call: Call) -> Result<Invoked> {
        let (canceller, token) = Canceller::new();
        let lost = self.context.presence.lost();
        let invoked = component.invoke(call, &token);
        tokio::pin!(invoked);
        let reason = tokio::select! {
            biased;
            invoked = &mut invoked => return invoked,
            reason = self.cancel.cancelled() => reason,
            reason = lost.cancelled() => reason,
            reason = self.watch_head(held) => reason,
        };
        canceller.cancel(reason);
        invoked.await
    }

    /// Looks at the head now and then, and returns why the guest has to stop.
    async fn watch_head(&self, held: &Arc<Mutex<Held>>) -> CancelReason {
        loop {
            self.store.clock().sleep(LOOK).await;
            match self.sessions.check(&*held.lock().await).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Cancelled => return CancelReason::Requested,
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => return CancelReason::Fenced,
                // A store that can't be read for a while: whether the lease still holds is the replica's sign of life to say.
                Err(error) => tracing::warn!(error = %error.chain(), "the session's head could not be looked at"),
            }
        }
    }
}

impl Base {
    fn git(&self) -> Option<Root> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.git.clone())
    }
}

enum Attempt {
    Ended(Box<RunRecord>, Vec<PackId>),
    GivenBack(CancelReason),
}

/// The captured roots of a workspace; their places are the writer's to resolve.
pub(crate) struct Roots {
    pub(crate) workspace: Root,
    pub(crate) state: Root,
}

/// Captures `/workspace` and `/state`.
pub(crate) async fn capture_roots(workspace: &Workspace, writer: &mut dyn Sink) -> Result<Roots> {
    let captured = capture(&workspace.workspace, writer).await.context_with(|| "capturing /workspace")?;
    let state = capture(&workspace.state, writer).await.context_with(|| "capturing /state")?;
    Ok(Roots { workspace: captured.root, state: state.root })
}

/// Checks a request against the limits before anything is written.
fn check(request: &TurnRequest, limits: &Limits) -> Result<()> {
    let over = |what: &str, value: u64, limit: u64| {
        Error::limit(format!("{what}: {value} is over the limit of {limit}")).code("request_too_large")
    };
    let input = request.input.len() as u64;
    if input > limits.input {
        return Err(over("bytes of input", input, limits.input).hint("raise `input` in the agent's limits, or attach it as a file"));
    }
    let params: usize = request.params.iter().map(|(name, value)| name.len() + value.len()).sum();
    if params > PARAMS_BYTES {
        return Err(over("bytes of params", params as u64, PARAMS_BYTES as u64));
    }
    let names: std::collections::BTreeSet<&str> = request.params.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() < request.params.len() || names.contains("") {
        return Err(Error::usage("params need names, each its own"));
    }
    if request.attachments.len() > ATTACHMENTS_MAX {
        return Err(over("attachments", request.attachments.len() as u64, ATTACHMENTS_MAX as u64));
    }
    let bytes: u64 = request.attachments.iter().map(|file| file.bytes.len() as u64).sum();
    if bytes > ATTACHMENTS_BYTES {
        return Err(over("bytes of attachments", bytes, ATTACHMENTS_BYTES));
    }
    let mut names = std::collections::BTreeSet::new();
    for file in &request.attachments {
        let name = &file.name;
        if name.is_empty() || name.len() > ATTACHMENT_NAME_MAX || name.contains('/') || name.chars().any(char::is_control) {
            return Err(Error::usage(format!(
                "{name:?} can't name an attachment: 1 to {ATTACHMENT_NAME_MAX} bytes, no slashes, no control characters"
            )));
        }
        if !names.insert(name) {
            return Err(Error::usage(format!("two attachments are named {name:?}")));
        }
        let kind = &file.media_type;
        if kind.is_empty() || kind.len() > ATTACHMENT_NAME_MAX || kind.chars().any(char::is_control) {
            return Err(Error::usage(format!("{kind:?} is no media type: 1 to {ATTACHMENT_NAME_MAX} bytes, no control characters")));
        }
    }
    Ok(())
}
