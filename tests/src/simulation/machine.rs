//! A machine and the process on it. Each start of the process is a tokio runtime of its own on the simulation's one thread, so that a crash
//! drops every task at the await where it happens to be, also those that the library has spawned.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use landfall::host::Host;
use landfall::worker::QueueWorker;
use tokio::runtime::{Builder, Runtime};

use super::timeline::{Drift, Effect};

/// A machine.
pub struct Machine {
    /// Its name: also the replica's.
    pub name: String,
    /// Its clocks.
    pub drift: Arc<Drift>,
    /// The process on it; none while it is down.
    pub process: Option<Process>,
    /// How often a process was started on it.
    pub boot: u64,
    /// Until when its process is frozen, in true time.
    pub frozen_until: Option<Duration>,
    /// What happened to it while it was frozen.
    pub backlog: VecDeque<(u64, Effect)>,
}

/// A running process.
pub struct Process {
    /// Runs its tasks.
    runtime: Runtime,
    idle: Arc<Idle>,
    /// The library.
    pub host: Host,
    /// Drives accepted runs, on a server.
    pub worker: Option<QueueWorker>,
}

#[derive(Default)]
struct Idle {
    reached: AtomicBool,
    waiting: Mutex<Option<Waker>>,
    /// Whether a task went to another thread: the order of events would depend on how fast that is.
    threads: AtomicBool,
}

impl Process {
    /// Starts a process; `begin` makes its host and what works beside it, inside of it.
    ///
    /// # Panics
    /// When there is no runtime to be had.
    pub fn start(begin: impl FnOnce() -> (Host, Option<QueueWorker>)) -> Self {
        let idle = Arc::new(Idle::default());
        let (parked, started) = (Arc::clone(&idle), Arc::clone(&idle));
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || {
                parked.reached.store(true, Ordering::Relaxed);
                if let Some(waker) = parked.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    waker.wake();
                }
            })
            .on_thread_start(move || started.threads.store(true, Ordering::Relaxed))
            .build()
            .expect("a runtime");
        let (host, worker) = {
            let _inside = runtime.enter();
            begin()
        };
        Self { runtime, idle, host, worker }
    }

    /// Adds a task. It begins with the next [`Process::settle`].
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Runs all tasks until each of them waits for something outside.
    ///
    /// # Panics
    /// When one has gone to another thread: such a simulation can't be repeated.
    pub fn settle(&self) {
        let idle = &self.idle;
        let mut begun = false;
        self.runtime.block_on(poll_fn(|context| {
            if begun && idle.reached.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            begun = true;
            idle.reached.store(false, Ordering::Relaxed);
            *idle.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            Poll::Pending
        }));
        assert!(!idle.threads.load(Ordering::Relaxed), "the code under simulation used a blocking thread: keep its data small");
    }
}
