//! One call of a guest: a fresh store and instance, within its limits, stopped from outside at any time, and thrown away afterwards.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use wasmtime::{Store, UpdateDeadline};

use super::engine::Engine;
use super::failure::{GuestFailure, classify};
use super::limits::{COMPONENT_HANDLES, GuestLimits, HOSTCALL_BYTES};
use super::load::{Entry, Loaded, World};
use super::output::{Log, Output, Target};
use super::state::{Stdio, TurnState};
use crate::cancel::Cancel;
use crate::capability::bindings::exports::landfall::agent::turn as wit;
use crate::capability::checkpoints::CheckpointService;
use crate::capability::progress::{EventSink, LogStream};
use crate::capability::repository::RepositoryService;
use crate::capability::schedules::ScheduleService;
use crate::capability::types::instant;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::outbound::Door;
use crate::policy::grants::Grants;
use crate::workspace::Workspace;

/// What a turn is asked to do. The agent's name is in [`Grants::agent`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestRequest {
    /// The run's id.
    pub run: RunId,
    /// The session's name.
    pub session: String,
    /// The turn's number, from 1.
    pub turn: u64,
    /// The attempt at this run, from 1.
    pub attempt: u32,
    /// What started the run.
    pub trigger: Trigger,
    /// The input text.
    pub input: String,
    /// What came with it.
    pub attachments: Vec<Attachment>,
    /// Names and values given for this run alone.
    pub params: Vec<(String, String)>,
}

/// Something handed to a turn beside its input text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// Its name, unique within a request.
    pub name: String,
    /// Its media type, when it was said.
    pub media_type: Option<String>,
    /// Its bytes.
    pub content: Bytes,
}

/// What started a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// A person or a program.
    Manual,
    /// A schedule.
    Schedule {
        /// Its id.
        schedule: String,
        /// When the run was due; none when the schedule was triggered outside its plan.
        due: Option<UnixNanos>,
    },
}

/// All that a guest gets for one call.
#[derive(Debug)]
pub struct Call {
    /// What it is asked to do.
    pub request: GuestRequest,
    /// Its files: a clone of what the turn holds. After a failure they may be in the middle of an edit.
    pub workspace: Workspace,
    /// Behind `checkpoints`.
    pub checkpoints: Arc<dyn CheckpointService>,
    /// Behind `repository`; none when the session has no repository.
    pub repository: Option<Arc<dyn RepositoryService>>,
    /// Behind `schedules`; none when the agent may have none of its own.
    pub schedules: Option<Arc<dyn ScheduleService>>,
    /// Its way to other hosts; none when it has none, and every request is denied.
    pub outbound: Option<Door>,
    /// Takes its log lines and events.
    pub events: Arc<dyn EventSink>,
    /// Its configuration, for `wasi:config`.
    pub config: BTreeMap<String, String>,
    /// Its arguments, after the program's name. Agents of the world `agent` see them too.
    pub args: Vec<String>,
    /// Its environment variables: those of the configuration, never the host's.
    pub env: Vec<(String, String)>,
    /// What it may use.
    pub limits: GuestLimits,
    /// What it may import.
    pub grants: Grants,
}

/// What a guest answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestResponse {
    /// The output: text of an agent; whatever a command wrote to stdout.
    pub output: Bytes,
}

/// What a call used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Processor time of the threads that ran the guest and the host calls it made, while they did.
    pub cpu: Duration,
    /// Time from the start of the call to its end; waiting for a place to run is not in it.
    pub wall: Duration,
    /// Largest sum of all its memories, in bytes.
    pub memory_peak: u64,
    /// Bytes of its log, without what was dropped.
    pub log: u64,
    /// Whether some of its log was dropped.
    pub log_truncated: bool,
}

/// How a call ended.
#[derive(Debug)]
pub struct Invoked {
    /// The response, or why there is none.
    pub result: Result<GuestResponse, GuestFailure>,
    /// What it used, also when it failed.
    pub usage: Usage,
}

/// Runs one call of a component.
///
/// Waits for a place first when as many guests run as the engine lets. Dropping the future stops the guest at its next epoch.
///
/// # Errors
/// `Denied` when the component imports what isn't granted. A host error inside a call of the guest (the store failed, content is
/// damaged) comes back as that error. What the guest does wrong is in [`Invoked::result`].
pub async fn invoke(engine: &Engine, component: &Loaded, call: Call, cancel: &Cancel) -> Result<Invoked> {
    component.check_granted(&call.grants)?;
    let _place = tokio::select! {
        biased;
        reason = cancel.cancelled() => {
            return Ok(Invoked { result: Err(GuestFailure::Cancelled(reason)), usage: Usage::default() });
        }
        place = engine.place() => place?,
    };
    let (limits, clock) = (call.limits.clone(), Arc::clone(engine.clock()));
    let Prepared { mut store, request, log, output } = prepare(engine, component, call);
    let memory = store.data().meter.memory();

    let started = clock.boot();
    let mut cpu = Duration::ZERO;
    let ended = {
        let run = Metered { future: Box::pin(run(component.entry(), &mut store, request)), cpu: &mut cpu };
        tokio::select! {
            // The guest first: one that ends in the same instant has ended.
            biased;
            returned = run => Ended::Returned(returned),
            reason = cancel.cancelled() => Ended::Stopped(GuestFailure::Cancelled(reason)),
            () = clock.sleep(limits.time) => Ended::Stopped(GuestFailure::OutOfTime { limit: limits.time }),
        }
    };
    let wall = clock.boot().saturating_sub(started);
    let (log, log_truncated, stderr) = log.finish();
    let usage = Usage { cpu, wall, memory_peak: memory.peak(), log, log_truncated };
    // The store goes in any case: an instance whose call was dropped must never be entered again.
    drop(store);
    let result = match ended {
        Ended::Stopped(failure) => Err(failure),
        Ended::Returned(Ok(Answer::Agent(answer))) => {
            answer.map_err(Into::into).and_then(|response| bounded(response.output, limits.output))
        }
        Ended::Returned(Ok(Answer::Command(Ok(())))) => Ok(GuestResponse { output: output.take() }),
        Ended::Returned(Ok(Answer::Command(Err(())))) => Err(GuestFailure::ExitCode { code: 1, stderr }),
        Ended::Returned(Err(error)) => match classify(error, &memory, limits.memory, stderr)? {
            // `exit(0)` ends a command well; an agent that exits has given no response.
            GuestFailure::ExitCode { code: 0, .. } if component.world() == World::Command => Ok(GuestResponse { output: output.take() }),
            failure => Err(failure),
        },
    };
    Ok(Invoked { result, usage })
}

fn bounded(output: String, limit: u64) -> Result<GuestResponse, GuestFailure> {
    let size = output.len() as u64;
    if size > limit { Err(GuestFailure::OutputTooLarge { limit, size }) } else { Ok(GuestResponse { output: output.into() }) }
}

/// Instantiates a component with all that a call needs and throws the instance away: whether it starts at all, and how fast.
///
/// # Errors
/// As [`invoke`], and `Component` when it doesn't start.
pub async fn instantiate(engine: &Engine, component: &Loaded, call: Call) -> Result<()> {
    component.check_granted(&call.grants)?;
    let _place = engine.place().await?;
    let mut store = prepare(engine, component, call).store;
    let started = match component.entry() {
        Entry::Agent(pre) => pre.instantiate_async(&mut store).await.map(drop),
        Entry::Command(pre) => pre.instantiate_async(&mut store).await.map(drop),
    };
    started.map_err(|error| Error::component(format!("{} doesn't start", component.name())).source(error.into_boxed_dyn_error()))
}

/// A store that is set up for one call.
struct Prepared {
    store: Store<TurnState>,
    /// None for a command: it has its input on stdin.
    request: Option<wit::Request>,
    log: Arc<Log>,
    output: Arc<Output>,
}

fn prepare(engine: &Engine, component: &Loaded, call: Call) -> Prepared {
    let log = Log::new(Arc::clone(&call.events), call.limits.log);
    let output = Output::new(call.limits.output);
    let errors = Target::Log(LogStream::Stderr, Arc::clone(&log));
    let (stdio, request) = match component.entry() {
        Entry::Agent(_) => {
            let stdio = Stdio { input: Bytes::new(), output: Target::Log(LogStream::Stdout, Arc::clone(&log)), errors };
            (stdio, Some(wit_request(&call)))
        }
        Entry::Command(_) => {
            let input = Bytes::from(call.request.input.clone());
            (Stdio { input, output: Target::Output(Arc::clone(&output)), errors }, None)
        }
    };
    let state = TurnState::new(call, component.program(), stdio, engine.clock());
    Prepared { store: store(engine, state), request, log, output }
}

enum Ended {
    Returned(wasmtime::Result<Answer>),
    Stopped(GuestFailure),
}

enum Answer {
    Agent(Result<wit::Response, wit::Failure>),
    Command(Result<(), ()>),
}

fn store(engine: &Engine, state: TurnState) -> Store<TurnState> {
    let mut store = Store::new(engine.wasmtime(), state);
    store.limiter(|state| &mut state.meter);
    store.set_hostcall_fuel(HOSTCALL_BYTES);
    store.set_max_component_handles(COMPONENT_HANDLES);
    store.set_epoch_deadline(1);
    // At every tick the guest gives its thread back for a moment. Tokio's own yield lets the thread look at its timers first, so that
    // neither a time limit nor a cancel waits for a guest that never calls the host.
    store.epoch_deadline_callback(|_| Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))));
    store
}

async fn run(entry: &Entry, store: &mut Store<TurnState>, request: Option<wit::Request>) -> wasmtime::Result<Answer> {
    match (entry, request) {
        (Entry::Agent(pre), Some(request)) => {
            let agent = pre.instantiate_async(&mut *store).await?;
            Ok(Answer::Agent(agent.landfall_agent_turn().call_run(store, &request).await?))
        }
        (Entry::Command(pre), _) => {
            let command = pre.instantiate_async(&mut *store).await?;
            Ok(Answer::Command(command.wasi_cli_run().call_run(store).await?))
        }
        (Entry::Agent(_), None) => Err(wasmtime::Error::new(Error::internal("an agent was called without a request"))),
    }
}

fn wit_request(call: &Call) -> wit::Request {
    let request = &call.request;
    wit::Request {
        run: request.run.to_string(),
        agent: call.grants.agent.to_string(),
        session: request.session.clone(),
        turn: request.turn,
        attempt: request.attempt,
        trigger: match &request.trigger {
            Trigger::Manual => wit::Trigger::Manual,
            Trigger::Schedule { schedule, due } => wit::Trigger::Schedule(wit::Tick { schedule: schedule.clone(), due: due.map(instant) }),
        },
        input: request.input.clone(),
        attachments: request
            .attachments
            .iter()
            .map(|attachment| wit::Attachment {
                name: attachment.name.clone(),
                media_type: attachment.media_type.clone(),
                content: attachment.content.to_vec(),
            })
            .collect(),
        params: request.params.clone(),
    }
}

/// Adds up the processor time of the polls of a future. The guest moves between threads, but never within a poll.
struct Metered<'a, F> {
    future: Pin<Box<F>>,
    cpu: &'a mut Duration,
}

impl<F: Future> Future for Metered<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = thread_cpu();
        let polled = self.future.as_mut().poll(cx);
        *self.cpu += thread_cpu().saturating_sub(before);
        polled
    }
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
