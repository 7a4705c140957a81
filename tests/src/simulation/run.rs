//! A run of a seed, from the first event to the last.

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use landfall::checkpoint::root::Checkpoint;
use landfall::clock::SystemClock;
use landfall::component::{Cancel, Engine, EngineOptions};
use landfall::config::{Agent, Config};
use landfall::drill;
use landfall::error::ErrorKind;
use landfall::gc;
use landfall::host::Host;
use landfall::id::{RunId, SessionRef};
use landfall::random::SystemRandom;
use landfall::schedule::Schedules;
use landfall::schedule::change::Expected;
use landfall::schedule::plan::Source;
use landfall::schedule::poller::{Poller, PollerOptions};
use landfall::session::head::{Head, State};
use landfall::session::replica::LEASE;
use landfall::session::selector::Selector;
use landfall::session::{Replica, RunState, Sessions, Status, Trigger};
use landfall::store::{Abilities, Store};
use landfall::trigger::{Busy, RunEvent, TurnRequest, Watch};
use landfall::worker::{QueueWorker, WorkerOptions};
use object_store::memory::InMemory;

use super::dice::Dice;
use super::guest::Guest;
use super::machine::{Machine, Process};
use super::oracle::{Asked, Life, Told};
use super::plan::Plan;
use super::store::{Connection, Weather};
use super::timeline::{BEGINNING, Effect, MachineClock, Target};
use super::{Action, Options, Report, Request, Way, World, lock, ticks};
use crate::clocks::ManualClock;

/// The agent's name.
const AGENT: &str = "agent";
/// Most events of a run; one that takes more doesn't come to rest.
const EVENTS: u64 = 2_000_000;
/// How long the last turns may take, in simulated time. They have no faults to meet.
const LAST_TURNS: Duration = Duration::from_secs(600);
/// Numbers of the requests that the end of a run makes itself.
const LAST: u64 = 1 << 32;

/// Runs a seed.
#[must_use]
pub fn simulate(seed: u64, options: Options) -> Report {
    let _away = drill::take_away(options.without).expect("a build with drills");
    let mut simulation = Simulation::new(seed, options.trace);
    simulation.go();
    simulation.report()
}

struct Simulation {
    seed: u64,
    world: Arc<World>,
    machines: Vec<Machine>,
    sessions: usize,
    workers: Option<Duration>,
    pollers: Option<Duration>,
    /// When the last turns were asked for.
    drained: Duration,
    mishaps: u64,
    cleared: bool,
    ended: bool,
}

impl Simulation {
    fn new(seed: u64, trace: bool) -> Self {
        let mut plan = Plan::draw(seed);
        let world = Arc::new(World::new(seed, plan.machines.len(), plan.weather, trace));
        for (at, action) in plan.actions.drain(..) {
            world.timeline.after(at, Target::World, Effect::Act(action));
        }
        let machines = plan.machines.iter().enumerate().map(|(number, drift)| Machine {
            name: format!("m{number}"),
            drift: Arc::clone(drift),
            process: None,
            boot: 0,
            frozen_until: None,
            backlog: VecDeque::new(),
        });
        let machines = machines.collect();
        let Plan { sessions, workers, pollers, .. } = plan;
        Self { seed, world, machines, sessions, workers, pollers, drained: Duration::ZERO, mishaps: 0, cleared: false, ended: false }
    }

    fn report(self) -> Report {
        // Processes first: what they drop may still ask for the world.
        drop(self.machines);
        let (hasher, requests) = lock(&self.world.fingerprint).clone();
        let oracle = self.world.oracle();
        Report {
            seed: self.seed,
            violation: oracle.violation.clone(),
            fingerprint: hasher.finish(),
            requests,
            runs: oracle.lives.values().map(|life| life.runs.len() as u64).sum(),
            mishaps: self.mishaps,
            time: self.world.timeline.now(),
            trace: self.world.lines.as_ref().map(|lines| lock(lines).iter().cloned().collect()).unwrap_or_default(),
        }
    }

    fn go(&mut self) {
        for _ in 0..EVENTS {
            if self.ended || self.world.oracle().violation.is_some() {
                return;
            }
            let Some((target, effect)) = self.world.timeline.next() else { break };
            match (target, effect) {
                (_, Effect::Act(action)) => self.act(action),
                (Target::World, Effect::Call(call)) => call(),
                (Target::Process(machine, boot), effect) => self.deliver(machine, boot, effect),
            }
        }
        self.world.oracle().blame(String::from("the run doesn't come to rest"));
    }

    fn deliver(&mut self, number: usize, boot: u64, effect: Effect) {
        let machine = &mut self.machines[number];
        if machine.boot != boot || machine.process.is_none() {
            return;
        }
        if machine.frozen_until.is_some() {
            machine.backlog.push_back((boot, effect));
            return;
        }
        if let Effect::Call(call) = effect {
            call();
        }
        self.settle(number);
    }

    fn settle(&self, machine: usize) {
        if let Machine { process: Some(process), frozen_until: None, .. } = &self.machines[machine] {
            process.settle();
        }
    }

    fn note(&self, machine: usize, action: &Action) {
        self.world.note(machine, || format!("{action:?}"), |hash| hash.write(format!("{action:?}").as_bytes()));
    }

    fn act(&mut self, action: Action) {
        let (timeline, dice) = (Arc::clone(&self.world.timeline), &self.world.dice);
        match action {
            Action::Boot(machine) => self.boot(machine),
            Action::Kill(machine) => {
                let boot = self.machines[machine].boot;
                self.act(Action::Crash(machine, boot));
            }
            Action::Crash(machine, boot) => {
                if self.machines[machine].boot != boot || self.machines[machine].process.is_none() || self.cleared {
                    return;
                }
                self.note(machine, &Action::Crash(machine, boot));
                self.mishaps += 1;
                self.crash(machine);
                let down = self.world.dice.span(Duration::from_millis(100), Duration::from_secs(120));
                timeline.after(down, Target::World, Effect::Act(Action::Boot(machine)));
            }
            Action::Freeze(machine) => {
                if self.machines[machine].process.is_none() || self.machines[machine].frozen_until.is_some() || self.cleared {
                    return;
                }
                let span = dice.span(Duration::from_secs(1), Duration::from_secs(200));
                self.act(Action::FreezeFor(machine, span));
            }
            Action::FreezeFor(machine, span) => {
                if self.machines[machine].process.is_none() || self.machines[machine].frozen_until.is_some() || self.cleared {
                    return;
                }
                self.note(machine, &Action::FreezeFor(machine, span));
                self.mishaps += 1;
                self.machines[machine].frozen_until = Some(timeline.now() + span);
                timeline.after(span, Target::World, Effect::Act(Action::Thaw(machine)));
            }
            Action::Thaw(machine) => self.thaw(machine),
            Action::CutOff(machine) => {
                self.note(machine, &action);
                self.mishaps += 1;
                self.world.cut_off[machine].store(!self.cleared, Ordering::Relaxed);
            }
            Action::Reconnect(machine) => self.world.cut_off[machine].store(false, Ordering::Relaxed),
            Action::SetClock(machine, offset) => self.machines[machine].drift.offset.store(offset, Ordering::Relaxed),
            Action::Ask(request) => self.ask(request),
            Action::Cancel(machine, session) => self.cancel(machine, session),
            Action::CancelRun(machine, number) => self.cancel_run(machine, number),
            Action::Delete(machine, session) => self.delete(machine, session),
            Action::Fork(machine, of, child, save) => self.fork(machine, of, child, save),
            Action::Rollback(machine, session, turn) => self.rollback(machine, session, turn),
            Action::Collect(machine, keep_last, grace) => self.collect(machine, keep_last, grace),
            Action::Stop(machine) => self.stop(machine),
            Action::PutPlan(machine, number, spec) => {
                self.note(machine, &Action::PutPlan(machine, number, spec.clone()));
                let Some(schedules) = self.schedules(machine) else { return };
                self.spawn(machine, async move {
                    drop(schedules.put(&ticks::id(number), *spec, Source::Operator, Expected::Any).await);
                });
            }
            Action::Pause(machine, number, paused) => {
                self.note(machine, &action);
                let Some(schedules) = self.schedules(machine) else { return };
                self.spawn(machine, async move { drop(schedules.set_paused(&ticks::id(number), paused).await) });
            }
            Action::Remove(machine, number) => {
                self.note(machine, &action);
                let Some(schedules) = self.schedules(machine) else { return };
                self.spawn(machine, async move { drop(schedules.remove(&ticks::id(number), Source::Operator, Expected::Any).await) });
            }
            Action::Trigger(machine, number, key) => {
                self.note(machine, &action);
                let Some(schedules) = self.schedules(machine) else { return };
                let key = key.map(|key| format!("key-{key}"));
                self.spawn(machine, async move { drop(schedules.trigger(&ticks::id(number), None, key.as_deref()).await) });
            }
            Action::Look => self.look(),
            Action::Clear => self.clear(),
            Action::Drain => self.drain(),
            Action::Rest => self.rest(),
        }
    }

    fn session(number: usize) -> SessionRef {
        SessionRef { agent: AGENT.parse().expect("a name"), session: format!("s{number}").parse().expect("a name") }
    }

    fn boot(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        if machine.process.is_some() {
            return;
        }
        machine.boot += 1;
        let boot = machine.boot;
        self.world.running[number].store(boot, Ordering::Relaxed);
        let clock = || MachineClock {
            timeline: Arc::clone(&self.world.timeline),
            drift: Arc::clone(&machine.drift),
            process: Target::Process(number, boot),
        };
        let connection = Connection { world: Arc::clone(&self.world), machine: number, boot };
        let random = Dice::new(self.seed, 1_000 * (number as u64 + 1) + boot);
        let store = Store::with_backend(Arc::new(connection), "", Abilities::ALL, Arc::new(clock()), Arc::new(random));
        let body = Arc::new(Guest { world: Arc::clone(&self.world), clock: clock() });
        let name = machine.name.parse().expect("a name");
        let mut config = Config::default();
        config.agents.insert(AGENT.parse().expect("a name"), Agent::of_component("simulated.wasm"));
        machine.process = Some(Process::start(|| {
            let host = Host::builder(store, config).shared_engine(engine()).body(body).process(None).replica_name(name);
            let host = host.build().expect("a host");
            let worker = self.workers.map(|poll| QueueWorker::start(host.clone(), WorkerOptions { concurrency: 4, poll }));
            if let Some(poll) = self.pollers {
                let poller = Poller::new(host.schedules().clone(), PollerOptions { poll, concurrency: 4 });
                drop(tokio::spawn(async move { poller.run(&Cancel::never()).await }));
            }
            (host, worker)
        }));
        self.note(number, &Action::Boot(number));
    }

    fn crash(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        self.world.running[number].store(0, Ordering::Relaxed);
        machine.process = None;
        machine.frozen_until = None;
        machine.backlog.clear();
    }

    fn thaw(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        // It may have died meanwhile, or been frozen anew.
        if machine.frozen_until.is_none_or(|until| until > self.world.timeline.now()) {
            return;
        }
        machine.frozen_until = None;
        let backlog = std::mem::take(&mut machine.backlog);
        self.note(number, &Action::Thaw(number));
        for (boot, effect) in backlog {
            self.deliver(number, boot, effect);
        }
    }

    fn ask(&mut self, mut request: Request) {
        self.note(request.machine, &Action::Ask(request.clone()));
        let reference = Self::session(request.session);
        let asked = Asked { session: reference.clone(), key: request.key.clone(), run: None, told: None };
        let number = request.number;
        self.world.oracle().asked.insert(number, asked);
        // A client whose request meets nobody, or that hears nothing in time, tries again elsewhere.
        let again = (request.retries > 0).then(|| {
            let mut again = request.clone();
            again.retries -= 1;
            again.number += 1 << 16;
            again.machine = (again.machine + 1) % self.machines.len();
            again
        });
        if let Some(again) = again.clone() {
            let patience = self.world.dice.span(Duration::from_secs(5), Duration::from_secs(100));
            let world = Arc::clone(&self.world);
            self.world.timeline.call_after(patience, Target::World, move || {
                let silent = !matches!(world.oracle().asked.get(&number), Some(Asked { told: Some(Told::Ended(_) | Told::Accepted), .. }));
                if silent {
                    world.timeline.after(Duration::ZERO, Target::World, Effect::Act(Action::Ask(again)));
                }
            });
        }
        let Some(process) = &self.machines[request.machine].process else { return };
        let mut turn = TurnRequest::new(reference.agent.clone(), reference.session.clone(), request.script.input());
        turn.key = request.key.take();
        turn.busy = if request.waits { Busy::Wait } else { Busy::Refuse };
        let (host, world) = (process.host.clone(), Arc::clone(&self.world));
        let machine = request.machine;
        let worker = process.worker.clone();
        process.spawn(async move {
            let watch = Arc::new(Accepted { world: Arc::clone(&world), number });
            let done = async {
                match (worker, request.way) {
                    (Some(worker), Way::Anywhere(patience)) => accepted(&host, &worker, turn, patience, &watch).await,
                    _ => host
                        .run(turn, Arc::<Accepted>::clone(&watch) as _, Cancel::never())
                        .await
                        .map(|record| Told::Ended(Box::new(record))),
                }
            };
            let told = match std::panic::AssertUnwindSafe(done).catch_unwind().await {
                Ok(Ok(told)) => told,
                Ok(Err(error)) => Told::Error(error.stable_code(), error.chain()),
                Err(_) => {
                    world.oracle().blame(format!("request {number} made the library panic"));
                    return;
                }
            };
            world.note(machine, || format!("told {number}: {told:?}"), |hash| hash.write_u64(number));
            let mut oracle = world.oracle();
            if let Some(asked) = oracle.asked.get_mut(&number) {
                if let Told::Ended(record) = &told {
                    asked.run = Some(record.run);
                }
                asked.told = Some(told);
            }
        });
        self.settle(machine);
    }

    fn cancel_run(&mut self, machine: usize, number: u64) {
        let Some(Asked { session, run: Some(run), .. }) = self.world.oracle().asked.get(&number).cloned() else { return };
        self.note(machine, &Action::CancelRun(machine, number));
        let Some(Process { worker: Some(worker), .. }) = &self.machines[machine].process else { return };
        let worker = worker.clone();
        self.spawn(machine, async move { drop(worker.cancel(&session, run).await) });
    }

    fn fork(&mut self, machine: usize, of: usize, child: usize, save: Option<u64>) {
        self.note(machine, &Action::Fork(machine, of, child, save));
        let Some(Process { host, .. }) = &self.machines[machine].process else { return };
        let (host, of, child) = (host.clone(), Self::session(of), Self::session(child));
        let from = save.map_or_else(|| Selector::Head(of.clone()), |save| Selector::Saved(of.clone(), format!("save-{save}")));
        self.spawn(machine, async move { drop(host.fork(&from, &child).await) });
    }

    fn rollback(&mut self, machine: usize, session: usize, turn: u64) {
        self.note(machine, &Action::Rollback(machine, session, turn));
        let Some(Process { host, .. }) = &self.machines[machine].process else { return };
        let (host, session) = (host.clone(), Self::session(session));
        self.spawn(machine, async move { drop(host.rollback(&session, &Selector::Turn(session.clone(), turn)).await) });
    }

    fn collect(&mut self, machine: usize, keep_last: u64, grace: Duration) {
        self.note(machine, &Action::Collect(machine, keep_last, grace));
        let Some(Process { host, .. }) = &self.machines[machine].process else { return };
        // While sessions are deleted, another collection may have been faster.
        let (host, world, settled) = (host.clone(), Arc::clone(&self.world), self.cleared);
        let options = gc::Options { retention: gc::Retention { keep_last, keep_days: 0 }, grace, dry_run: false };
        self.spawn(machine, async move {
            let Ok(report) = host.collect(&options).await else { return };
            // What isn't there can't be marked: somebody has deleted what was needed.
            for (session, error) in &report.left_alone {
                if settled && error.kind() == ErrorKind::Damaged {
                    world.oracle().blame(format!("session {session} can't be collected: {}", error.chain()));
                }
            }
        });
    }

    /// As a server ends: it drains its worker, leaves, and its process is started again some time later.
    fn stop(&mut self, machine: usize) {
        let boot = self.machines[machine].boot;
        self.note(machine, &Action::Stop(machine));
        let Some(Process { host, worker: Some(worker), .. }) = &self.machines[machine].process else { return };
        let (host, worker, world) = (host.clone(), worker.clone(), Arc::clone(&self.world));
        let grace = self.world.dice.pick(&[0, 5, 30]);
        self.spawn(machine, async move {
            worker.stop(Duration::from_secs(grace)).await;
            drop(host.close().await);
            world.timeline.after(Duration::ZERO, Target::World, Effect::Act(Action::Crash(machine, boot)));
        });
    }

    fn schedules(&self, machine: usize) -> Option<Schedules> {
        self.machines[machine].process.as_ref().map(|process| process.host.schedules().clone())
    }

    /// Starts a task of a machine's process.
    fn spawn(&self, machine: usize, task: impl Future<Output = ()> + Send + 'static) {
        let Some(process) = &self.machines[machine].process else { return };
        let world = Arc::clone(&self.world);
        process.spawn(async move {
            if std::panic::AssertUnwindSafe(task).catch_unwind().await.is_err() {
                world.oracle().blame(format!("the library panicked on machine {machine}"));
            }
        });
        self.settle(machine);
    }

    /// Returns the sessions as a process that was started on a machine sees them, without a host around them.
    fn sessions(&self, machine: usize) -> Option<Sessions> {
        let process = self.machines[machine].process.as_ref()?;
        let store = process.host.store().clone();
        let replica = Arc::new(Replica::new(store.clone(), "other".parse().expect("a name"), None, None));
        Some(Sessions::new(store, replica))
    }

    fn cancel(&mut self, machine: usize, session: usize) {
        let Some(sessions) = self.sessions(machine) else { return };
        self.note(machine, &Action::Cancel(machine, session));
        let Some(process) = &self.machines[machine].process else { return };
        process.spawn(async move {
            let session = Self::session(session);
            let Ok(Some(snapshot)) = sessions.load(&session).await else { return };
            if let Some(lease) = snapshot.head.lease {
                let _ = sessions.cancel(&session, lease.run).await;
            }
        });
        self.settle(machine);
    }

    fn delete(&mut self, machine: usize, session: usize) {
        let Some(sessions) = self.sessions(machine) else { return };
        self.note(machine, &Action::Delete(machine, session));
        let Some(process) = &self.machines[machine].process else { return };
        process.spawn(async move { drop(sessions.delete(&Self::session(session)).await) });
        self.settle(machine);
    }

    fn clear(&mut self) {
        self.note(0, &Action::Clear);
        self.cleared = true;
        *lock(&self.world.weather) = Weather::FINE;
        for cut_off in &self.world.cut_off {
            cut_off.store(false, Ordering::Relaxed);
        }
        for machine in 0..self.machines.len() {
            self.crash(machine);
            self.boot(machine);
        }
    }

    /// What is left over is settled by each session's next turn.
    fn drain(&mut self) {
        self.note(0, &Action::Drain);
        let machines = self.machines.len() as u64;
        for session in 0..self.sessions {
            let request = Request {
                number: LAST + session as u64,
                machine: usize::try_from(self.world.dice.below(machines)).unwrap_or(0),
                session,
                key: None,
                waits: true,
                way: match self.workers {
                    Some(_) if self.world.dice.chance(5_000) => Way::Anywhere(LAST_TURNS),
                    _ => Way::Here,
                },
                script: super::Script::default(),
                retries: 0,
            };
            self.ask(request);
        }
        self.drained = self.world.timeline.now();
        self.look();
    }

    fn last(&self, session: usize) -> Option<Told> {
        self.world.oracle().asked.get(&(LAST + session as u64)).and_then(|asked| asked.told.clone())
    }

    /// The end comes when the last turns have ended and the queue is empty, or when they have had their time.
    fn look(&mut self) {
        let ended = (0..self.sessions).all(|session| matches!(self.last(session), Some(Told::Ended(_) | Told::Error(..))));
        let drained = self.workers.is_none() || self.world.oracle().is_drained(&self.world);
        let late = self.world.timeline.now() >= self.drained + LAST_TURNS;
        let next = if late || (ended && drained) { Action::Rest } else { Action::Look };
        self.world.timeline.after(Duration::from_secs(5), Target::World, Effect::Act(next));
    }

    /// The end: everything is looked at by a process that has seen nothing of it, after all others have ended.
    fn rest(&mut self) {
        self.ended = true;
        let mut wrong = Ok(());
        for session in 0..self.sessions {
            let last = self.last(session);
            if !matches!(&last, Some(Told::Ended(record)) if record.status == Status::Completed) {
                wrong = Err(format!("the last turn of session {session} ended as {last:?}"));
            }
        }
        if self.workers.is_some() && !self.world.oracle().is_drained(&self.world) {
            let left: Vec<String> = self.world.objects().below("queue/").map(str::to_owned).collect();
            wrong = wrong.and(Err(format!("the queue isn't drained: {left:?}")));
        }
        let wrong = wrong
            .and_then(|()| self.world.oracle().accepted_ended())
            .and_then(|()| self.world.oracle().ticks.settled(self.world.store_time()))
            .and_then(|()| self.world.oracle().answers())
            .and_then(|()| self.world.oracle().only_committed_count(&self.world))
            .and_then(|()| audit(&self.world));
        if let Err(wrong) = wrong {
            self.world.oracle().blame(wrong);
        }
    }
}

/// Reads everything that was committed from a copy of the store.
fn audit(world: &World) -> Result<(), String> {
    let said = |error: landfall::Error| format!("{error:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let copy = Arc::new(InMemory::new());
        let objects = world.objects().clone();
        objects.copy_to(&copy).await.map_err(|error| error.to_string())?;
        let clock = Arc::new(ManualClock::new(BEGINNING));
        let store = Store::with_backend(copy, "", Abilities::ALL, Arc::<ManualClock>::clone(&clock) as _, Arc::new(SystemRandom));
        let replica = Replica::start(store.clone(), "auditor".parse().map_err(said)?, None, None).await.map_err(said)?;
        let sessions = Sessions::new(store.clone(), Arc::new(replica));
        let host = Host::builder(store, Config::default()).shared_engine(engine()).build().map_err(said)?;
        let heads = world.oracle().heads();
        // A process is known to be gone when it was silent for a whole lease.
        for _ in 0..2 {
            for head in &heads {
                sessions.sweep(&head.session).await.map_err(said)?;
            }
            clock.advance(LEASE);
        }
        for head in &heads {
            audit_session(&host, &sessions, world, head).await?;
        }
        Ok(())
    })
}

async fn audit_session(host: &Host, sessions: &Sessions, world: &World, head: &Head) -> Result<(), String> {
    let said = |error: landfall::Error| format!("{error:?}");
    let session = &head.session;
    let left = sessions.queue(session).await.map_err(said)?;
    if let Some(left) = left.first().filter(|left| !matches!(left.entry.trigger, Trigger::Schedule { .. })) {
        return Err(format!("session {session}: the queue isn't drained, {:?} is left", left.entry));
    }
    if head.state != State::Open {
        return Ok(());
    }
    let life: Life = world.oracle().lives.get(&(session.clone(), head.incarnation)).cloned().unwrap_or_default();
    let mut records = sessions.records(head, usize::MAX).await.map_err(said)?;
    records.reverse();
    let listed: Vec<RunId> = records.iter().map(|record| record.run).collect();
    let happened: Vec<RunId> = life.runs.iter().map(|official| official.run).collect();
    if listed != happened {
        return Err(format!("session {session} lists the runs {listed:?}, and there were {happened:?}"));
    }
    for record in records.iter().filter(|record| record.status == Status::Completed && record.seq >= head.kept_from) {
        let Some(after) = &record.after else { return Err(format!("run {} completed without a checkpoint", record.run)) };
        sound(host, world, after, &format!("the checkpoint of run {}", record.run)).await?;
    }
    // What a fork stands on, also where nothing has been done with it yet.
    if let Some(checkpoint) = &head.checkpoint {
        sound(host, world, checkpoint, &format!("the checkpoint of session {session}")).await?;
    }
    for save in &head.saves {
        sound(host, world, &save.checkpoint, &format!("the saved checkpoint {:?}", save.name)).await?;
    }
    Ok(())
}

/// Whether a checkpoint opens whole, and its log tells of the runs that made it.
async fn sound(host: &Host, world: &World, checkpoint: &Checkpoint, what: &str) -> Result<(), String> {
    let said = |error: landfall::Error| format!("{what}: {error:?}");
    let open = host.open_checkpoint(checkpoint.clone());
    let report = host.verify(&open, true).await.map_err(said)?;
    if !report.is_ok() {
        return Err(format!("{what} is damaged: {report:?}"));
    }
    let expected = world.oracle().log(checkpoint.id).map(str::to_owned);
    if expected.as_deref() == Some("") {
        return Ok(());
    }
    let found = open.read("/state/log", 0, 1 << 20).await.map_err(said)?;
    if expected.as_deref().map(str::as_bytes) == Some(&*found) {
        return Ok(());
    }
    Err(format!("{what} has the log {:?}, and it should be {expected:?}", String::from_utf8_lossy(&found)))
}

/// Has a run accepted, and waits for its end for a while.
async fn accepted(host: &Host, worker: &QueueWorker, turn: TurnRequest, patience: Duration, watch: &Accepted) -> landfall::Result<Told> {
    let clock = Arc::clone(host.store().clock());
    let accepted = worker.submit(turn).await?;
    if let Some(record) = accepted.ended {
        return Ok(Told::Ended(record));
    }
    watch.event(RunEvent::Accepted { run: accepted.run });
    if let Some(asked) = watch.world.oracle().asked.get_mut(&watch.number) {
        asked.told = Some(Told::Accepted);
    }
    // The client asks how it stands now and then. It could be told; but who of several waiters is told first is tokio's own chance.
    let deadline = clock.boot() + patience;
    while clock.boot() < deadline {
        clock.sleep(Duration::from_secs(3)).await;
        // When the store can't be asked, what was said holds.
        if let Ok(RunState::Ended(record)) = host.run_state(&accepted.session, accepted.run).await {
            return Ok(Told::Ended(record));
        }
    }
    Ok(Told::Accepted)
}

/// Notes which run a request became.
struct Accepted {
    world: Arc<World>,
    number: u64,
}

impl Watch for Accepted {
    fn event(&self, event: RunEvent) {
        let accepted: Option<RunId> = match event {
            RunEvent::Accepted { run } => Some(run),
            _ => None,
        };
        if let (Some(run), Some(asked)) = (accepted, self.world.oracle().asked.get_mut(&self.number)) {
            asked.run = Some(run);
        }
    }
}

/// One engine for all: no component runs in a simulation, and an engine is costly to make.
fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let make = || {
        let options = EngineOptions { guests: 1, pooling: false, cache: None };
        Engine::new(&options, Arc::new(SystemClock), Arc::new(SystemRandom)).expect("an engine")
    };
    ENGINE.get_or_init(make).clone()
}
