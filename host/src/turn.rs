//! The turn: the one file that knows the order of events. Each step calls one room; `ARCHITECTURE.md` has the table of what a crash leaves.

mod accept;
mod base;
mod call;
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
mod roots;
mod schedules;
mod scratch;
mod stopping;
mod watching;

use std::sync::Arc;

use tokio::sync::Mutex;

use self::accept::Identified;
pub(crate) use self::accept::{Submitted, Work};
use self::call::Footing;
pub(crate) use self::driving::Driven;
use self::event::{NoWatch, RunEvent, SharedWatch, Step};
use self::lease::Leased;
use self::request::TurnRequest;
use self::roots::{Roots, capture_roots};
use self::stopping::Heeds;
use self::watching::Watching;
use crate::cancel::{Cancel, CancelReason};
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::Checkpoint;
use crate::component::body::Body;
use crate::component::failure::GuestFailure;
use crate::component::invoke::Invoked;
use crate::config::Agent;
use crate::context::Context;
use crate::drill::{self, Point};
use crate::error::{Error, Result};
use crate::id::{PackId, SessionRef};
use crate::outbound::EgressUsage;
use crate::policy::grants::Grants;
use crate::session::record::RunRecord;
use crate::session::{Held, Origin, Sessions, Snapshot};
use crate::store::Store;

/// Runs one turn, from the request to the commit.
pub(crate) async fn run(context: &Arc<Context>, request: TurnRequest, watch: SharedWatch, cancel: Cancel) -> Result<RunRecord> {
    let agent = context.agent(&request.agent)?.clone();
    request.check(&agent.limits)?;
    let turn = Turn::new(context, agent, request.session_ref(), watch, cancel);

    // Before anything is written: a component that can't run makes no session.
    let (component, grants) = turn.load().await?;

    // 1. Accept: from here on the run is known to every replica.
    let (run, incarnation) = match turn.identify(&request).await? {
        Identified::New(run, incarnation) => (run, incarnation),
        Identified::Ended(record) => return Ok(*record),
    };
    context.presence.announce().await?;
    let busy = request.busy;
    let _waits = turn.sessions.wait_for(&turn.session, run);
    let work = turn.accept(run, incarnation, request).await?;
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
    request.check(&agent.limits)?;
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
        let entry = work.entry.clone();
        drill::pass(Point::OpenBefore);
        // 3. Open the checkpoint; the first turn resolves and imports the pin.
        let before = held.lock().await.checkpoint().cloned();
        let base = self.open(before, entry.choice.as_ref()).await?;
        drill::pass(Point::OpenAfter);
        let footing = self.footing(base);

        // 4 and 5. Instantiate with exactly the granted imports, and run.
        self.step(Step::Running);
        let events = Arc::new(Watching::new(Arc::clone(&self.watch), self.context.mask.clone(), self.agent.limits.log));
        let mut record = self.sessions.new_record(&*held.lock().await, entry.trigger.clone(), entry.origin);
        record.input = Some(entry.input.clone());
        record.request = Some(entry.request()?);
        record.component = Some(component.digest());
        record.pin = footing.base.pin.clone();
        let call = self.call(held, work, &footing, &events, grants).await?;
        drill::pass(Point::InstantiateBefore);
        let door = call.outbound.clone();
        let invoked = self.invoke(held, component, call).await?;
        drill::pass(Point::RunAfter);
        if let Err(GuestFailure::Cancelled(reason @ (CancelReason::Shutdown | CancelReason::Fenced))) = &invoked.result {
            return Ok(Attempt::GivenBack(*reason));
        }

        // 6 and 7. Capture the edits and upload them, verified.
        self.step(Step::Committing);
        let egress = door.map(|door| door.usage()).unwrap_or_default();
        let mut ran = Ran { footing, events, invoked, egress };
        loop {
            let heeds = if ran.invoked.result.is_ok() { Heeds::All } else { Heeds::Process };
            let stored = self.unless_stopped(held, heeds, self.store_end(&ran, record.clone())).await;
            match stored {
                Ok(stored) => {
                    let Stored { record, packs, untouched } = stored?;
                    held.lock().await.began_with(untouched);
                    return Ok(Attempt::Ended(Box::new(record), packs));
                }
                // The run goes no further, and ends as one that was cancelled while it ran. What is up already is garbage that nothing names.
                Err(reason @ CancelReason::Requested) => ran.invoked.result = Err(GuestFailure::Cancelled(reason)),
                Err(reason) => return Ok(Attempt::GivenBack(reason)),
            }
        }
    }

    /// Steps 6 and 7: what a run leaves, captured and uploaded, and its record.
    async fn store_end(&self, ran: &Ran, mut record: RunRecord) -> Result<Stored> {
        let mut writer = self.writer();
        let Footing { base, view, workspace, git } = &ran.footing;
        let completed = ran.invoked.result.is_ok();
        drill::pass(Point::CaptureBefore);
        let edited = match completed {
            true => Some(capture_roots(workspace, &mut writer).await?),
            false => None,
        };
        // A first run leaves what it stood on, also when it fails or is cancelled at its commit: so the session's pin is fixed all the same.
        let untouched = match &base.checkpoint {
            None => Some(capture_roots(&self.workspace(view, base), &mut writer).await?),
            Some(_) => None,
        };
        drill::pass(Point::CaptureAfter);
        record::describe(&mut record, &ran.invoked, &self.context.mask);
        let texts = record::texts(&ran.invoked, &ran.events, &mut writer).await?;
        let written = writer.finish().await?;
        record::place(&mut record, texts, &writer)?;
        let checkpoint = |roots: Roots, git| Ok::<_, Error>(Checkpoint::new(roots.record(&writer, git, base.pin.clone())?));
        let untouched = untouched.map(|roots| checkpoint(roots, None)).transpose()?;
        // The commits of a run that failed go with its edits.
        let edited = edited.map(|roots| checkpoint(roots, git.get())).transpose()?;
        if let Some(after) = edited.or_else(|| untouched.clone()) {
            record.after = Some(after);
        }
        record.workspace_rolled_back = !completed;
        for warning in &base.warnings {
            record.warn(warning);
        }
        record.usage.store = self.store.counts();
        record.usage.egress = ran.egress;
        Ok(Stored { record, packs: written.packs.into_iter().map(|(pack, _)| pack).collect(), untouched })
    }
}

/// A run whose guest has ended.
struct Ran {
    footing: Footing,
    events: Arc<Watching>,
    invoked: Invoked,
    egress: EgressUsage,
}

/// What a run leaves, in the store.
struct Stored {
    record: RunRecord,
    packs: Vec<PackId>,
    /// What a session's first run stood on.
    untouched: Option<Checkpoint>,
}

enum Attempt {
    Ended(Box<RunRecord>, Vec<PackId>),
    GivenBack(CancelReason),
}
