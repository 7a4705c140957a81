//! The queue worker: drives accepted runs to their end, on this replica, as many at a time as it may. A server and a schedule's poller accept runs
//! ([`crate::host::Host::submit`]); any worker on the store drives them, and what a dead replica left.
//!
//! One task drives one session at a time, in the order of its queue. A listing of the whole queue, now and then, finds what nobody is at:
//! `due.rs` decides from it, and from what was seen before, which sessions are worth requests of their own.

mod due;
mod session;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::sync::{Semaphore, watch};

use self::due::Looks;
use crate::cancel::{CancelReason, Canceller};
use crate::error::Result;
use crate::host::{Accepted, Host};
use crate::id::{RunId, SessionRef};
use crate::session::record::RunRecord;
use crate::session::{RunState, Snapshot};
use crate::store::SessionHash;
use crate::turn::Work;
use crate::turn::request::TurnRequest;

/// How many ended runs are remembered for those who wait for them.
const ENDED_KEPT: usize = 1024;
/// Time between two looks at a run that another replica drives.
const LOOK: Duration = Duration::from_secs(1);
/// How long interrupted runs may take to give their leases back.
const GIVING_BACK: Duration = Duration::from_secs(20);
/// Largest input and attachments, in bytes together, that wait in memory for their session; larger ones are read again.
const HANDED_MAX: usize = 64 << 10;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Most runs at a time; at least 1. The engine's places for guests bound it too.
    pub concurrency: usize,
    /// Time between two listings of the queue. It is stretched at random by up to a quarter, so that replicas don't march in step.
    pub poll: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self { concurrency: 16, poll: Duration::from_secs(2) }
    }
}

/// Drives accepted runs. Clones are the same worker. It works from [`QueueWorker::start`] to [`QueueWorker::stop`].
#[derive(Clone, Debug)]
pub struct QueueWorker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    options: WorkerOptions,
    places: Semaphore,
    stopping: AtomicBool,
    state: Mutex<State>,
    /// Counts what happened: waiters look again when it changes.
    ticks: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// The sessions that a task of this process is at.
    sessions: HashMap<SessionHash, Tasked>,
    /// The runs that those tasks have or will come to.
    local: HashSet<RunId>,
    /// What stops the running ones.
    running: BTreeMap<RunId, Arc<Canceller>>,
    ended: LruCache<RunId, Arc<RunRecord>>,
    looks: Looks,
}

/// A session with a task.
#[derive(Debug, Default)]
struct Tasked {
    /// Whether something was accepted since the task last looked.
    again: bool,
    handed: HashMap<RunId, (Work, Snapshot)>,
}

impl QueueWorker {
    /// Starts to work: from now on accepted runs are driven, and the queue is looked through for others.
    #[must_use]
    pub fn start(host: Host, options: WorkerOptions) -> Self {
        let kept = std::num::NonZeroUsize::new(ENDED_KEPT).unwrap_or(std::num::NonZeroUsize::MIN);
        let state = State {
            sessions: HashMap::new(),
            local: HashSet::new(),
            running: BTreeMap::new(),
            ended: LruCache::new(kept),
            looks: Looks::default(),
        };
        let inner = Arc::new(Inner {
            host,
            places: Semaphore::new(options.concurrency.max(1)),
            options,
            stopping: AtomicBool::new(false),
            state: Mutex::new(state),
            ticks: watch::Sender::new(0),
        });
        tokio::spawn(due::poll(Arc::clone(&inner)));
        Self { inner }
    }

    /// Accepts a run and drives it here when its turn comes, unless another replica is first.
    ///
    /// # Errors
    /// As [`Host::submit`].
    pub async fn submit(&self, request: TurnRequest) -> Result<Accepted> {
        let mut accepted = self.inner.host.submit(request).await?;
        if let Some(handed) = accepted.handed.take() {
            self.inner.take_up(&accepted.session, accepted.run, Some(*handed));
        }
        Ok(accepted)
    }

    /// Looks at a session's queue at once, for a run that was accepted by other means.
    pub fn look_at(&self, session: &SessionRef, run: RunId) {
        self.inner.take_up(session, run, None);
    }

    /// Waits for the end of an accepted run for so long at most, and returns how it stands.
    ///
    /// # Errors
    /// As [`Host::run_state`].
    pub async fn wait(&self, session: &SessionRef, run: RunId, within: Duration) -> Result<RunState> {
        let clock = Arc::clone(self.inner.host.store().clock());
        let deadline = clock.boot() + within;
        let mut ticks = self.inner.ticks.subscribe();
        let mut looked = None;
        loop {
            ticks.borrow_and_update();
            let (ended, local) = {
                let mut state = self.inner.state();
                (state.ended.get(&run).cloned(), state.local.contains(&run))
            };
            if let Some(record) = ended {
                return Ok(RunState::Ended(Box::new(RunRecord::clone(&record))));
            }
            let now = clock.boot();
            // Where it runs here, its end is told; else the store is asked.
            if now >= deadline || (!local && looked.is_none_or(|at| now >= at + LOOK)) {
                let state = self.inner.host.run_state(session, run).await?;
                if matches!(state, RunState::Ended(_)) || now >= deadline {
                    return Ok(state);
                }
                looked = Some(now);
            }
            let rest = deadline.saturating_sub(clock.boot()).min(LOOK);
            tokio::select! {
                biased;
                changed = ticks.changed() => if changed.is_err() { clock.sleep(rest).await },
                () = clock.sleep(rest) => {}
            }
        }
    }

    /// Cancels a run, wherever it is; one that runs here is stopped at once.
    ///
    /// # Errors
    /// As [`Host::cancel_run`].
    pub async fn cancel(&self, session: &SessionRef, run: RunId) -> Result<()> {
        self.inner.host.cancel_run(session, run).await?;
        if let Some(canceller) = self.inner.state().running.get(&run) {
            canceller.cancel(CancelReason::Requested);
        }
        self.inner.take_up(session, run, None);
        Ok(())
    }

    /// Returns how many runs are going on here.
    #[must_use]
    pub fn running(&self) -> usize {
        self.inner.state().running.len()
    }

    /// Whether it takes runs up.
    #[must_use]
    pub fn is_working(&self) -> bool {
        !self.inner.stopping.load(Ordering::SeqCst)
    }

    /// Takes up no more runs, lets those that are going on finish within `grace`, and interrupts the rest: they commit nothing, lose no attempt, and
    /// start again elsewhere. Returns how many were interrupted.
    pub async fn stop(&self, grace: Duration) -> usize {
        self.inner.stopping.store(true, Ordering::SeqCst);
        self.inner.idle_within(grace).await;
        let left: Vec<Arc<Canceller>> = self.inner.state().running.values().cloned().collect();
        for canceller in &left {
            canceller.cancel(CancelReason::Shutdown);
        }
        self.inner.idle_within(GIVING_BACK).await;
        left.len()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn tick(&self) {
        self.ticks.send_modify(|ticks| *ticks = ticks.wrapping_add(1));
    }

    /// Has a session's queue looked at by its task, which is made when there is none.
    fn take_up(self: &Arc<Self>, session: &SessionRef, run: RunId, handed: Option<(Work, Snapshot)>) {
        if self.is_stopping() {
            return;
        }
        let hash = SessionHash::of(session);
        let mut state = self.state();
        let is_new = !state.sessions.contains_key(&hash);
        let tasked = state.sessions.entry(hash).or_default();
        tasked.again = true;
        let small = |work: &Work| work.input.len() + work.attachments.iter().map(|file| file.bytes.len()).sum::<usize>() <= HANDED_MAX;
        if let Some(handed) = handed.filter(|(work, _)| is_new || small(work)) {
            tasked.handed.insert(run, handed);
            state.local.insert(run);
        }
        if is_new {
            tokio::spawn(session::task(Arc::clone(self), session.clone()));
        }
    }

    /// Waits until nothing runs here, for so long at most.
    async fn idle_within(&self, within: Duration) {
        let clock = self.host.store().clock();
        let deadline = clock.boot() + within;
        let mut ticks = self.ticks.subscribe();
        loop {
            ticks.borrow_and_update();
            let rest = deadline.saturating_sub(clock.boot());
            if self.state().running.is_empty() || rest.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                _ = ticks.changed() => {}
                () = clock.sleep(rest) => {}
            }
        }
    }
}
