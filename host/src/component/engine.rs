//! The engine: one per process. It fixes what guests may use of WebAssembly, where their memories come from, and how they are interrupted.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{Config, EngineWeak, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails};

use super::artefact::CacheOptions;
use super::imports;
use super::load::Components;
use super::state::TurnState;
use crate::clock::SharedClock;
use crate::error::{Error, Result};
use crate::random::SharedRandom;

/// Length of one tick of the engine's epoch: how long a spinning guest can run before the host gets the thread back.
pub const TICK: Duration = Duration::from_millis(10);

/// Stack of a guest's WebAssembly frames, in bytes.
const WASM_STACK: usize = 4 << 20;
/// Stack of a guest's fiber, in bytes: its WebAssembly frames and the host calls above them.
const FIBER_STACK: usize = 6 << 20;
/// Core instances of one component: a Python component is made of some forty modules.
const CORE_INSTANCES: u32 = 200;
/// Memories and tables of one component.
const MEMORIES: u32 = 20;
const TABLES: u32 = 60;
/// Elements of one table in the pool; Python and JavaScript components have tens of thousands of functions in theirs.
const TABLE_ELEMENTS: usize = 100_000;
/// Bytes of host bookkeeping of one core instance and of one component.
const INSTANCE_SIZE: usize = 10 << 20;
/// Bytes of a freed memory or table that stay resident and are zeroed by hand: cheaper than giving a small guest's pages back to the kernel.
const KEEP_RESIDENT: usize = 128 << 10;

/// How an [`Engine`] is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Most guests that run at once; more wait for a place. At least 1.
    pub guests: u32,
    /// Whether memories come from a pool that is reserved at the start. It makes small guests start several times faster and costs
    /// address space only. Where the machine doesn't give that much, the engine does without.
    pub pooling: bool,
    /// Where compiled components are kept, when they are to be kept.
    pub cache: Option<CacheOptions>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { guests: 128, pooling: true, cache: None }
    }
}

/// Compiles and runs components. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    engine: wasmtime::Engine,
    linker: Linker<TurnState>,
    components: Components,
    ticker: Arc<Ticker>,
    places: Arc<Semaphore>,
    pooled: bool,
    clock: SharedClock,
}

impl Engine {
    /// Sets up an engine and starts the thread that ticks its epoch. The thread ends with the last clone of the engine.
    ///
    /// # Errors
    /// `Local` when the machine refuses even an engine without a pool, or its cache folder is unusable.
    pub fn new(options: &EngineOptions, clock: SharedClock, random: SharedRandom) -> Result<Self> {
        let (engine, pooled) = build(options)?;
        let linker = imports::linker(&engine)?;
        let components = Components::open(&engine, options.cache.as_ref(), Arc::clone(&clock), random)?;
        let ticker = Ticker::start(engine.weak())?;
        let places = Arc::new(Semaphore::new(options.guests.max(1) as usize));
        Ok(Self { shared: Arc::new(Shared { engine, linker, components, ticker, places, pooled, clock }) })
    }

    /// Whether guests' memories come from the pool.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.shared.pooled
    }

    pub(super) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.shared.engine
    }

    pub(super) fn linker(&self) -> &Linker<TurnState> {
        &self.shared.linker
    }

    pub(super) fn components(&self) -> &Components {
        &self.shared.components
    }

    pub(super) fn clock(&self) -> &SharedClock {
        &self.shared.clock
    }

    /// Waits for one of the places for running guests.
    pub(super) async fn place(&self) -> Result<Place> {
        let permit = Arc::clone(&self.shared.places)
            .acquire_owned()
            .await
            .map_err(|closed| Error::internal("the engine is closed").source(closed))?;
        Ok(Place { _permit: permit, _ticking: Ticking::new(&self.shared.ticker) })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("pooled", &self.shared.pooled).finish_non_exhaustive()
    }
}

/// The right to run one guest. While there is any, the epoch ticks.
pub(super) struct Place {
    _permit: tokio::sync::OwnedSemaphorePermit,
    _ticking: Ticking,
}

fn build(options: &EngineOptions) -> Result<(wasmtime::Engine, bool)> {
    if options.pooling {
        // A pool reserves address space only, but some machines limit that too (RLIMIT_AS, no overcommit). Asking is the only sure probe.
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options.guests.max(1))));
        match wasmtime::Engine::new(&config) {
            Ok(engine) => return Ok((engine, true)),
            Err(error) => tracing::warn!(
                guests = options.guests,
                error = %format!("{error:#}"),
                "no address space for a pool of guests; their memories are allocated one by one, which starts them more slowly"
            ),
        }
    }
    let engine = wasmtime::Engine::new(&config())
        .map_err(|error| Error::local("cannot set up the WebAssembly engine").source(error.into_boxed_dyn_error()))?;
    Ok((engine, false))
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true);
    // Every feature that guests don't need is one less way into the host. Threads, collected types and exceptions aren't even compiled in.
    config.wasm_memory64(false);
    config.wasm_gc(false);
    config.wasm_stack_switching(false);
    config.wasm_shared_everything_threads(false);
    // The same input gives the same result on every replica, whatever its processor.
    config.relaxed_simd_deterministic(true);
    config.cranelift_nan_canonicalization(true);
    config.cranelift_opt_level(OptLevel::Speed);
    config.epoch_interruption(true);
    config.max_wasm_stack(WASM_STACK);
    config.async_stack_size(FIBER_STACK);
    config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    config
}

fn pool(guests: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(guests);
    pool.total_core_instances(guests.saturating_mul(CORE_INSTANCES));
    pool.total_memories(guests.saturating_mul(2).saturating_add(MEMORIES));
    pool.total_tables(guests.saturating_mul(4).saturating_add(TABLES));
    pool.total_stacks(guests);
    pool.max_core_instances_per_component(CORE_INSTANCES);
    pool.max_memories_per_component(MEMORIES);
    pool.max_tables_per_component(TABLES);
    pool.max_memories_per_module(MEMORIES);
    pool.max_tables_per_module(TABLES);
    pool.max_core_instance_size(INSTANCE_SIZE);
    pool.max_component_instance_size(INSTANCE_SIZE);
    pool.table_elements(TABLE_ELEMENTS);
    pool.linear_memory_keep_resident(KEEP_RESIDENT);
    pool.table_keep_resident(KEEP_RESIDENT);
    pool
}

/// Ticks the epoch of an engine while guests run. An idle process isn't woken.
struct Ticker {
    running: Mutex<usize>,
    changed: Condvar,
}

impl Ticker {
    fn start(engine: EngineWeak) -> Result<Arc<Self>> {
        let ticker = Arc::new(Self { running: Mutex::new(0), changed: Condvar::new() });
        let shared = Arc::downgrade(&ticker);
        let spawned = std::thread::Builder::new().name("landfall-epoch".into()).spawn(move || {
            loop {
                // Holds neither the engine nor the counter while it waits, so that the last user's drop ends this thread.
                let Some(ticker) = shared.upgrade() else { return };
                ticker.wait_for_guests();
                drop(ticker);
                std::thread::sleep(TICK);
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        });
        spawned.map_err(|error| Error::local("cannot start the thread that interrupts guests").source(error))?;
        Ok(ticker)
    }

    /// Waits until a guest runs, at most for a second: then the engine may be gone.
    fn wait_for_guests(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if *running == 0 {
            drop(self.changed.wait_timeout_while(running, Duration::from_secs(1), |running| *running == 0));
        }
    }

    fn add(&self, more: bool) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = if more { running.saturating_add(1) } else { running.saturating_sub(1) };
        if *running == 1 && more {
            self.changed.notify_all();
        }
    }
}

struct Ticking(Arc<Ticker>);

impl Ticking {
    fn new(ticker: &Arc<Ticker>) -> Self {
        ticker.add(true);
        Self(Arc::clone(ticker))
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.add(false);
    }
}
