//! A deterministic simulation of many replicas on one store.
//!
//! The code under simulation is the library itself, from [`Host::run`](landfall::host::Host::run) down; what it stands on is simulated: the
//! clocks ([`timeline`]), the randomness ([`dice`]), the store with the network to it ([`store`]), the machines and their processes ([`machine`]),
//! and the agent ([`guest`]). All of it runs on one thread, and all chance comes from one seed: the same seed gives the same run, event by event.
//! [`plan`] draws from the seed what happens; [`oracle`] judges, from outside, each write that takes effect and the state at the end.
//!
//! A run has two parts. First there is trouble: requests come in on all machines, are cancelled and repeated, sessions are forked, rolled back,
//! deleted and collected, processes die, drain and are frozen at any await, machines are cut off, clocks are wrong by hours and drift, and the store
//! does what the [`store::Weather`] says. Then the weather clears, every machine is started anew, and everything has to come to rest: each session
//! takes one more turn, the queue drains, and every checkpoint opens.
//!
//! In most runs all machines are servers with a queue worker; in the others each request is run by the process that is asked.
//!
//! `cargo xtask sim --seeds N` runs many seeds; a failing one prints how to repeat it, and `--seed S` prints all its events.
//!
//! In some of them there are schedules, too ([`ticks`]), with a poller on each machine. Wall clocks differ by machine, so "due" is judged by the store's
//! time, [`timeline::Timeline::now`] after [`timeline::BEGINNING`].
//!
//! **To simulate another subject**: give [`Action`] a variant for what people do to it, draw some in [`plan::Plan::draw`], do it in `Simulation::act`
//! through the host of the machine, and give the oracle an arm in [`oracle::Oracle::wrote`] for its keys and a check in `Simulation::rest` for what must
//! hold in the end. What a process spawns when it starts (`Simulation::boot`) lives and dies with it.

pub mod dice;
pub mod guest;
pub mod machine;
pub mod oracle;
pub mod plan;
pub mod store;
pub mod ticks;
pub mod timeline;

mod run;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall::clock::UnixNanos;
use landfall::drill::Safeguard;
use landfall::schedule::plan::Spec;

use self::dice::Dice;
use self::guest::Script;
use self::oracle::Oracle;
pub use self::run::simulate;
use self::store::{Objects, Weather};
use self::timeline::Timeline;

/// Most lines of a trace that are kept.
const LINES: usize = 20_000;

/// How a seed is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The safeguard that is taken away, to see whether that shows.
    pub without: Option<Safeguard>,
    /// Whether the events are kept as text.
    pub trace: bool,
}

/// What a run of a seed showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub violation: Option<String>,
    /// A hash of all events: equal for equal runs.
    pub fingerprint: u64,
    /// Requests to the store.
    pub requests: u64,
    /// Runs that ended.
    pub runs: u64,
    /// Crashes and freezes.
    pub mishaps: u64,
    /// Simulated time.
    pub time: Duration,
    /// The events, when they were wanted.
    pub trace: Vec<String>,
}

/// Something that is done to the machines, or on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A process dies, if it still is this start of it.
    Crash(usize, u64),
    /// The process on a machine dies, whichever it is.
    Kill(usize),
    /// A process is started, if none runs.
    Boot(usize),
    /// A process is frozen for a span that the dice give.
    Freeze(usize),
    /// A frozen process goes on.
    Thaw(usize),
    /// A machine can't reach the store any more.
    CutOff(usize),
    /// It can again.
    Reconnect(usize),
    /// Somebody sets a machine's wall clock.
    SetClock(usize, i64),
    /// A client asks for a turn.
    Ask(Request),
    /// A client asks for the cancelling of what the session's head says is going on.
    Cancel(usize, usize),
    /// A client asks, at a machine, for the cancelling of the run of a request with this number.
    CancelRun(usize, u64),
    /// A client deletes a session.
    Delete(usize, usize),
    /// A client forks a session into another, from its last checkpoint or from a named one.
    Fork(usize, usize, usize, Option<u64>),
    /// A client takes a session back to what a turn left.
    Rollback(usize, usize, u64),
    /// An operator collects what isn't needed, keeping so many last turns, with so long a grace.
    Collect(usize, u64, Duration),
    /// Somebody writes the plan of the schedule with this number.
    PutPlan(usize, usize, Box<Spec>),
    /// Somebody pauses a schedule, or lets it go on.
    Pause(usize, usize, bool),
    /// Somebody removes a schedule.
    Remove(usize, usize),
    /// Somebody triggers a schedule, with a key or without.
    Trigger(usize, usize, Option<u64>),
    /// A process is frozen for so long.
    FreezeFor(usize, Duration),
    /// A process is told to end: it drains its worker, leaves, and is started again.
    Stop(usize),
    /// The trouble ends.
    Clear,
    /// What was left over has had its time: each session takes one more turn.
    Drain,
    /// Somebody looks whether all have come to rest.
    Look,
    /// The end.
    Rest,
}

/// Who drives a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The process that is asked, as a command does it.
    Here,
    /// Any worker, as servers do it; the client waits for so long for the end.
    Anywhere(Duration),
}

/// A client's request for a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// The machine it is sent to.
    pub machine: usize,
    /// The session's number.
    pub session: usize,
    /// The idempotency key.
    pub key: Option<String>,
    /// Whether it waits for its turn when the session is busy.
    pub waits: bool,
    /// Whether it is accepted for whichever worker comes to it, or run by the process that is asked.
    pub way: Way,
    /// What the agent is to do.
    pub script: Script,
    /// How often the client tries again, on another machine, when it gets no good answer. Only with a key.
    pub retries: u32,
}

/// What all machines share: the store, time and chance.
pub struct World {
    /// Time.
    pub timeline: Arc<Timeline>,
    /// Chance, for all that happens outside the library.
    pub dice: Dice,
    /// Which machines can't reach the store.
    pub cut_off: Vec<AtomicBool>,
    running: Vec<AtomicU64>,
    weather: Mutex<Weather>,
    objects: Mutex<Objects>,
    oracle: Mutex<Oracle>,
    fingerprint: Mutex<(DefaultHasher, u64)>,
    lines: Option<Mutex<VecDeque<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(seed: u64, machines: usize, weather: Weather, trace: bool) -> Self {
        Self {
            timeline: Arc::default(),
            dice: Dice::new(seed, 1),
            cut_off: (0..machines).map(|_| AtomicBool::new(false)).collect(),
            running: (0..machines).map(|_| AtomicU64::new(0)).collect(),
            weather: Mutex::new(weather),
            objects: Mutex::default(),
            oracle: Mutex::default(),
            fingerprint: Mutex::default(),
            lines: trace.then(Mutex::default),
        }
    }

    /// Returns the time by the store's clock.
    #[must_use]
    pub fn store_time(&self) -> UnixNanos {
        timeline::BEGINNING.saturating_add(i64::try_from(self.timeline.now().as_nanos()).unwrap_or(i64::MAX))
    }

    /// Returns the weather.
    #[must_use]
    pub fn weather(&self) -> Weather {
        *lock(&self.weather)
    }

    /// Returns the objects. Whoever holds them asks nothing else of the world.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        lock(&self.objects)
    }

    /// Returns the account of what happened. Whoever holds it asks the world for nothing but objects.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        lock(&self.oracle)
    }

    /// Whether this start of a machine's process still runs.
    #[must_use]
    pub fn is_running(&self, machine: usize, boot: u64) -> bool {
        self.running[machine].load(Ordering::Relaxed) == boot
    }

    /// Notes an event: for the fingerprint, and as text when that is wanted.
    pub fn note(&self, machine: usize, text: impl FnOnce() -> String, hash: impl FnOnce(&mut DefaultHasher)) {
        let now = self.timeline.now();
        {
            let (hasher, count) = &mut *lock(&self.fingerprint);
            hasher.write_u128(now.as_nanos());
            hasher.write_usize(machine);
            hash(hasher);
            *count += 1;
        }
        if let Some(lines) = &self.lines {
            let mut lines = lock(lines);
            if lines.len() >= LINES {
                lines.pop_front();
            }
            lines.push_back(format!("{:>11.6} m{machine} {}", now.as_secs_f64(), text()));
        }
    }
}
