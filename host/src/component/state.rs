//! What the host keeps for one running guest: the `T` of its `Store<T>`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::invoke::Call;
use super::limits::{Meter, RANDOM_BYTES, TABLE_ENTRIES};
use super::output::Target;
use crate::capability::checkpoints::{self, CheckpointService};
use crate::capability::progress::{self, EventBudget, EventSink};
use crate::capability::repository::{self, RepositoryService};
use crate::capability::schedules::{self, ScheduleService};
use crate::capability::{config, fetch, http};
use crate::clock::SharedClock;
use crate::policy::grants::Grants;
use crate::workspace::Workspace;
use crate::workspace::wasi::{FilesystemCtx, FilesystemHost, FilesystemView, INITIAL_CWD};

/// The state of one running guest.
pub(crate) struct TurnState {
    pub(super) table: ResourceTable,
    pub(super) wasi: WasiCtx,
    filesystem: FilesystemCtx,
    workspace: Workspace,
    pub(super) meter: Meter,
    checkpoints: Arc<dyn CheckpointService>,
    repository: Option<Arc<dyn RepositoryService>>,
    schedules: Option<Arc<dyn ScheduleService>>,
    events: Arc<dyn EventSink>,
    budget: EventBudget,
    config: BTreeMap<String, String>,
    grants: Grants,
    http: WasiHttpCtx,
    hooks: http::Hooks,
}

/// The three standard streams of a guest.
pub(super) struct Stdio {
    pub(super) input: Bytes,
    pub(super) output: Target,
    pub(super) errors: Target,
}

impl TurnState {
    pub(super) fn new(call: Call, program: &str, stdio: Stdio, clock: &SharedClock) -> Self {
        let mut wasi = WasiCtx::builder();
        wasi.stdin(MemoryInputPipe::new(stdio.input));
        wasi.stdout(stdio.output);
        wasi.stderr(stdio.errors);
        wasi.initial_cwd(INITIAL_CWD);
        wasi.arg(program);
        wasi.args(&call.args);
        wasi.envs(&call.env);
        wasi.wall_clock(WallClock(Arc::clone(clock)));
        wasi.max_random_size(RANDOM_BYTES);
        // Sockets are linked, since standard libraries import them, and refuse everything. The check is the second lock.
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        wasi.socket_addr_check(|_, _| Box::pin(std::future::ready(false)));
        let mut table = ResourceTable::new();
        table.set_max_capacity(TABLE_ENTRIES);
        Self {
            table,
            wasi: wasi.build(),
            filesystem: FilesystemCtx::new(&call.workspace),
            workspace: call.workspace,
            meter: Meter::new(call.limits.memory),
            checkpoints: call.checkpoints,
            repository: call.repository,
            schedules: call.schedules,
            events: call.events,
            budget: EventBudget::new(call.limits.events),
            config: call.config,
            grants: call.grants,
            http: WasiHttpCtx::new(),
            hooks: http::Hooks { door: call.outbound },
        }
    }

    pub(super) fn checkpoints(&mut self) -> checkpoints::View<'_> {
        checkpoints::View { service: self.checkpoints.as_ref(), workspace: &self.workspace }
    }

    pub(super) fn repository(&mut self) -> repository::View<'_> {
        repository::View { grants: &self.grants, service: self.repository.as_deref(), workspace: &self.workspace }
    }

    pub(super) fn schedules(&mut self) -> schedules::View<'_> {
        schedules::View { grants: &self.grants, service: self.schedules.as_deref() }
    }

    pub(super) fn progress(&mut self) -> progress::View<'_> {
        progress::View { events: self.events.as_ref(), budget: &mut self.budget }
    }

    pub(super) fn fetch(&mut self) -> fetch::View<'_> {
        fetch::View { grants: &self.grants, door: self.hooks.door.as_ref() }
    }

    pub(super) fn config(&mut self) -> config::View<'_> {
        config::View { values: &self.config }
    }
}

impl WasiView for TurnState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for TurnState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.hooks }
    }
}

impl FilesystemHost for TurnState {
    fn filesystem(&mut self) -> FilesystemView<'_> {
        FilesystemView { ctx: &mut self.filesystem, table: &mut self.table }
    }
}

/// The host's wall clock, as guests see it.
struct WallClock(SharedClock);

impl HostWallClock for WallClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        // A guest's wall clock is unsigned: before 1970 it stands still.
        Duration::from_nanos(u64::try_from(self.0.now()).unwrap_or(0))
    }
}
