//! The host: what an embedder makes once and runs turns with.

mod lines;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::materialise::{MaterialiseOptions, Materialised};
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::{Checkpoint, RootRecord};
use crate::checkpoint::verify::{self, Depth, Report};
use crate::component::CacheOptions;
use crate::component::body::{Body, Component};
use crate::component::cancel::{Cancel, CancelReason, Canceller};
use crate::component::engine::{Engine, EngineOptions};
use crate::config::{Agent, Config, GITHUB_READ_TOKEN};
use crate::error::{Error, Result};
use crate::id::{AgentName, ReplicaName, RunId, SessionName, SessionRef};
use crate::outbound::Outbound;
use crate::policy::grants::Grants;
use crate::policy::resolve::{Resolver, SystemResolver};
use crate::repository::base::Base;
use crate::repository::diff::DiffOptions;
use crate::repository::history::CommitInfo;
use crate::repository::status::StatusOptions;
use crate::schedule::Schedules;
use crate::schedule::zone::Zones;
use crate::secret::{Mask, Secret};
use crate::session::head::Head;
use crate::session::record::{RunRecord, Text};
use crate::session::replica::{Process, Replica};
use crate::session::selector::Selector;
use crate::session::{Kept, Origin, RunState, Sessions, Snapshot};
use crate::store::cache::DiskCache;
use crate::store::{Key, Store};
use crate::trigger::{SharedWatch, TurnRequest};
pub use crate::turn::commits::{Patch, PatchOptions};
use crate::turn::{Submitted, Work};
use crate::workspace::source::Source;

mod access;
mod ways;

use access::Access;
use ways::Ways;

/// Bytes of decoded pages and content that a host keeps in memory.
const READER_MEMORY: usize = 64 << 20;
/// Bytes of the local disk cache.
const CACHE_BYTES: u64 = 8 << 30;
/// How long a session's head is remembered between turns, which saves a request.
const WARM: Duration = Duration::from_secs(300);
/// Most sessions whose head is remembered.
const WARM_MAX: usize = 1024;

/// Runs agents' turns on a store. Cheap to clone; all clones are the same host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    /// Runs in place of every agent's component.
    body: Option<Arc<dyn Body>>,
    pub(crate) reader: Reader,
    pub(crate) store: Store,
    pub(crate) sessions: Sessions,
    pub(crate) schedules: Schedules,
    pub(crate) mask: Mask,
    pub(crate) spool: PathBuf,
    access: Access,
    ways: Ways,
    broad_token: bool,
    replica: Arc<Replica>,
    announced: OnceCell<()>,
    /// Cancelled when this process is taken for dead by others: its guests have to stop.
    lost: Mutex<Arc<Canceller>>,
    warm: Mutex<HashMap<SessionRef, (Snapshot, Duration)>>,
}

/// Collects what a [`Host`] is made of.
#[derive(Debug)]
pub struct HostBuilder {
    store: Store,
    config: Config,
    cache: Option<PathBuf>,
    secrets: BTreeMap<String, Secret>,
    broad_token: bool,
    engine: EngineOptions,
    shared_engine: Option<Engine>,
    body: Option<Arc<dyn Body>>,
    process: Option<Process>,
    name: Option<ReplicaName>,
    url: Option<String>,
    lease: Duration,
    resolver: Arc<dyn Resolver>,
}

impl HostBuilder {
    /// Sets the folder of the caches and of what doesn't fit in memory. It is made with mode 0700. Without it a folder of this
    /// process in the system's folder for temporary files is used, and nothing is kept.
    #[must_use]
    pub fn cache_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Gives the value of a credential that the config names.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, secret: Secret) -> Self {
        self.secrets.insert(name.into(), secret);
        self
    }

    /// Says whether the process also holds a `GITHUB_TOKEN`. Agents that name `GITHUB_READ_TOKEN` are then refused: the other one
    /// can usually do far more, and the process shouldn't have it.
    #[must_use]
    pub fn broad_token(mut self, present: bool) -> Self {
        self.broad_token = present;
        self
    }

    /// Sets how names of other hosts are resolved; the default is the system's resolver. Its answers are judged like all others.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets how components are run.
    #[must_use]
    pub fn engine(mut self, options: EngineOptions) -> Self {
        self.engine = options;
        self
    }

    /// Takes an engine that other hosts of this program use too, in place of one of its own.
    #[must_use]
    pub fn shared_engine(mut self, engine: Engine) -> Self {
        self.shared_engine = Some(engine);
        self
    }

    /// Runs this program's own code in place of every agent's component.
    #[must_use]
    pub fn body(mut self, body: Arc<dyn Body>) -> Self {
        self.body = Some(body);
        self
    }

    /// Says how other processes of this machine find out that this one has ended; the default is the kernel's own account of it. With
    /// none they have to wait for a lease without a sign of life.
    #[must_use]
    pub fn process(mut self, process: Option<Process>) -> Self {
        self.process = process;
        self
    }

    /// Names this replica; the default is `local`.
    #[must_use]
    pub fn replica_name(mut self, name: ReplicaName) -> Self {
        self.name = Some(name);
        self
    }

    /// Says where this replica answers HTTP, for the others.
    #[must_use]
    pub fn replica_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets how long this replica may be silent before others take its runs over; the default is 60 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Makes the host. Writes nothing to the store.
    ///
    /// # Errors
    /// `Local` when the cache folder or the engine can't be made.
    pub fn build(self) -> Result<Host> {
        let Self { store, config, cache, secrets, broad_token, mut engine, shared_engine, body, process, name, url, lease, resolver } =
            self;
        let (clock, random) = (Arc::clone(store.clock()), Arc::clone(store.random()));
        let (folder, disk) = match cache {
            Some(folder) => {
                make_private(&folder)?;
                let disk = DiskCache::open(&folder.join("packs"), CACHE_BYTES, Arc::clone(&clock))?;
                engine.cache.get_or_insert_with(|| CacheOptions::new(folder.join("components")));
                (folder, Some(disk))
            }
            None => (std::env::temp_dir(), None),
        };
        let reader = Reader::new(store.clone(), disk, READER_MEMORY);
        let mask = Mask::new(secrets.values());
        let name = match name {
            Some(name) => name,
            None => "local".parse()?,
        };
        let replica = Arc::new(Replica::new(store.clone(), name, url, process).with_lease(lease));
        let sessions = Sessions::new(store.clone(), Arc::clone(&replica));
        let ways = Ways::new(secrets.clone(), Outbound::new(resolver, Arc::clone(&clock), mask.clone()));
        let access = Access::new(secrets, store.clone(), &folder);
        let schedules = Schedules::new(store.clone(), sessions.clone(), config.schedule_terms(), Zones::default());
        let inner = Inner {
            schedules,
            engine: match shared_engine {
                Some(engine) => engine,
                None => Engine::new(&engine, clock, random)?,
            },
            body,
            config,
            reader,
            store,
            sessions,
            mask,
            spool: folder,
            access,
            ways,
            broad_token,
            replica,
            announced: OnceCell::new(),
            lost: Mutex::new(Arc::new(Canceller::new().0)),
            warm: Mutex::default(),
        };
        Ok(Host { inner: Arc::new(inner) })
    }
}

/// Shows signs of life for as long as the host is there. When that fails for a whole lease its guests are stopped, and it goes on trying: what others
/// haven't taken over by then, this process takes over from itself.
async fn keep_known(host: std::sync::Weak<Inner>, replica: Arc<Replica>) {
    loop {
        let error = tokio::select! {
            biased;
            error = replica.keep_alive() => error,
            () = gone(&host) => return,
        };
        match host.upgrade() {
            Some(host) if !replica.is_stopped() => host.lose(&error),
            _ => return,
        }
        loop {
            let Some(host) = host.upgrade() else { return };
            host.store.clock().sleep(replica.lease() / 3).await;
            if replica.revive().await.is_ok() {
                host.is_back();
                break;
            }
        }
    }
}

/// Waits until the host has been dropped.
async fn gone(host: &std::sync::Weak<Inner>) {
    while let Some(host) = host.upgrade() {
        let clock = Arc::clone(host.store.clock());
        drop(host);
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Makes a folder that only its owner can enter.
fn make_private(folder: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Error::local(format!("the cache folder {} can't be made", folder.display())).source(error).hint("give another one with --cache")
    })
}

/// A checkpoint in a session's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionCheckpoint {
    /// Its id.
    pub id: crate::id::CheckpointId,
    /// The name that it was saved under; none for the end of a turn.
    pub name: Option<String>,
    /// The run that made it.
    pub run: RunId,
    /// That run's turn; none for a named checkpoint.
    pub turn: Option<u64>,
    /// When it was made, nanoseconds since 1970.
    pub created: crate::clock::UnixNanos,
}

/// An accepted run.
#[derive(Debug)]
pub struct Accepted {
    /// Its session.
    pub session: SessionRef,
    /// Its id.
    pub run: RunId,
    /// Its record, when it is a repeated request whose run has ended.
    pub ended: Option<Box<RunRecord>>,
    /// What a worker of this process needs not read again.
    pub(crate) handed: Option<Box<(Work, Snapshot)>>,
}

/// Most runs that are looked through for a turn or a run.
const HISTORY: usize = 100_000;

impl Host {
    /// Begins a host on a store with a config.
    #[must_use]
    pub fn builder(store: Store, config: Config) -> HostBuilder {
        HostBuilder {
            store,
            config,
            cache: None,
            secrets: BTreeMap::new(),
            broad_token: false,
            engine: EngineOptions::default(),
            shared_engine: None,
            body: None,
            process: Process::current(),
            name: None,
            url: None,
            lease: crate::session::replica::LEASE,
            resolver: Arc::new(SystemResolver),
        }
    }

    /// Runs one turn, from the request to the commit, and returns its record: also that of a run that failed or was cancelled.
    ///
    /// # Errors
    /// Where nothing was run: `Usage` and `Limit` for a request that can't be met, `NotFound` for an unknown agent or component,
    /// `Component`, `Denied`, `Remote` for the repository, `Conflict` for a busy session. `Store` and `Damaged` where the host
    /// failed in the middle: nothing was committed, and the run may be repeated.
    pub async fn run(&self, request: TurnRequest, watch: SharedWatch, cancel: Cancel) -> Result<RunRecord> {
        crate::turn::run(&self.inner, request, watch, cancel).await
    }

    /// Accepts a run that any replica may drive, this one when it has a [`crate::worker::QueueWorker`]: durable when this returns, and the same run
    /// however often it is asked for under the same key or run id.
    ///
    /// # Errors
    /// `Usage`, `Limit`, `NotFound`, `Component`, `Denied` for a request that can't be met; `Conflict` with the code `key_reused` or `session_busy`;
    /// `Damaged`, `Store`.
    pub async fn submit(&self, mut request: TurnRequest) -> Result<Accepted> {
        request.origin = Origin::Server;
        let session = request.session_ref();
        Ok(match crate::turn::submit(&self.inner, request).await? {
            Submitted::Accepted(work, known) => {
                Accepted { session, run: work.entry.run, ended: None, handed: Some(Box::new((*work, *known))) }
            }
            Submitted::Ended(record) => Accepted { session, run: record.run, ended: Some(record), handed: None },
        })
    }

    /// Makes this process known to others before its first run, as a server does at its start.
    ///
    /// # Errors
    /// `Store`; with the code `store_unconditional` when another process is alive on a store that doesn't enforce conditional writes.
    pub async fn announce(&self) -> Result<()> {
        self.inner.announce().await
    }

    /// Whether this process shows signs of life: false when it couldn't for a whole lease, and others may have taken over what it had.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.inner.announced.initialized() && self.inner.lost().reason().is_none()
    }

    /// Returns how an accepted run of a session stands.
    ///
    /// # Errors
    /// As [`crate::session::Sessions::state`].
    pub async fn run_state(&self, session: &SessionRef, run: RunId) -> Result<RunState> {
        self.inner.sessions.state(session, run).await
    }

    /// Asks for the end of a run, wherever it is. Its owner sees it within seconds; before the commit it counts, after it doesn't.
    ///
    /// # Errors
    /// As [`crate::session::Sessions::cancel`].
    pub async fn cancel_run(&self, session: &SessionRef, run: RunId) -> Result<()> {
        self.inner.sessions.cancel(session, run).await.map(drop)
    }

    /// Finds the session of an accepted run by the run's id alone: looks into the queue, and then into each session of the agents.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing`; `Store`.
    pub async fn session_of_run(&self, run: RunId, agents: Option<&[AgentName]>) -> Result<SessionRef> {
        let allowed = |session: &SessionRef| agents.is_none_or(|agents| agents.contains(&session.agent));
        let sessions = &self.inner.sessions;
        if let Some(place) = sessions.all_places().await?.into_iter().find(|place| place.run == run)
            && let Ok(Some(queued)) = sessions.queued_at(place.session, run).await
            && allowed(&queued.entry.session)
        {
            return Ok(queued.entry.session);
        }
        for (session, _) in sessions.list(None).await? {
            if allowed(&session) && self.inner.store.size(&Key::Run(session.clone(), run)).await?.is_some() {
                return Ok(session);
            }
        }
        Err(Error::not_found(format!("there is no run {run}"))
            .code("run_missing")
            .hint("`landfall session log` lists the runs of a session"))
    }

    /// Returns what an agent's component imports, each with whether the agent may import it.
    ///
    /// # Errors
    /// `Usage` for an unknown agent; `Component` and `Local` for a component that can't be loaded.
    pub async fn imports(&self, name: &AgentName) -> Result<Vec<(crate::component::imports::Import, bool)>> {
        let agent = self.inner.config.agents.get(name).ok_or_else(|| self.inner.config.unknown_agent(name.as_str()))?;
        let component = self.inner.engine.load(&agent.component).await?;
        let grants = Grants::own(name.clone());
        let granted = |import: &crate::component::imports::Import| import.capability().is_none_or(|capability| grants.allows(capability));
        Ok(component.imports().iter().map(|import| (import.clone(), granted(import))).collect())
    }

    /// Makes this process unknown to others again. Call it after the last run; without it others have to notice that it has ended.
    ///
    /// # Errors
    /// `Store`.
    pub async fn close(&self) -> Result<()> {
        if self.inner.announced.initialized() { self.inner.replica.stop().await } else { Ok(()) }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Returns the schedules of the store, on the terms of this host's config.
    #[must_use]
    pub fn schedules(&self) -> &Schedules {
        &self.inner.schedules
    }

    /// Returns the name of a session that nobody has yet.
    ///
    /// # Errors
    /// None that can happen.
    pub fn fresh_session_name(&self) -> Result<SessionName> {
        self.inner.new_run_id().to_string().parse()
    }

    /// Returns the heads of the sessions in use, of one agent or of all, by name. One whose first turn never began (its branch was
    /// misspelt, say) isn't in use. A damaged head is a warning in the log and left out.
    ///
    /// # Errors
    /// `Store`.
    pub async fn sessions(&self, agent: Option<&AgentName>) -> Result<Vec<Head>> {
        let mut heads = Vec::new();
        for (session, head) in self.inner.sessions.list(agent).await? {
            match head {
                Ok(head) if head.seq == 0 && head.lease.is_none() && head.saves.is_empty() && head.checkpoint.is_none() => {}
                Ok(head) => heads.push(head),
                Err(error) => tracing::warn!(%session, error = %error.chain(), "a session is left out of the list"),
            }
        }
        Ok(heads)
    }

    /// Returns the head of a session.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`, `TooNew`, `Store`.
    pub async fn session(&self, session: &SessionRef) -> Result<Head> {
        Ok(self.inner.sessions.get(session).await?.head)
    }

    /// Returns the records of a session's ended runs, newest first.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub async fn runs(&self, session: &SessionRef, limit: usize) -> Result<Vec<RunRecord>> {
        let head = self.session(session).await?;
        self.inner.sessions.records(&head, limit).await
    }

    /// Returns a session's checkpoints, newest first: the ends of turns, and the named ones.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub async fn checkpoints(&self, session: &SessionRef) -> Result<Vec<SessionCheckpoint>> {
        let head = self.session(session).await?;
        self.inner.checkpoints(&head, HISTORY).await
    }

    /// Returns the whole output of a run.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub async fn output(&self, record: &RunRecord) -> Result<Bytes> {
        match &record.output {
            None => Ok(Bytes::new()),
            Some(Text::Inline(text)) => Ok(Bytes::from(text.clone())),
            Some(Text::Stored(stored)) => self.inner.reader.chunk(&stored.link()).await,
        }
    }

    /// Opens what a finished run of an agent left behind, wherever it ran.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing` for an unknown run or another agent's, `run_not_done` for one that goes on (the message
    /// names the checkpoint before it); `pack_missing` and `pack_damaged` come when the content is read.
    pub async fn open_run_checkpoint(&self, agent: &AgentName, run: RunId) -> Result<OpenCheckpoint> {
        let record = self.find_run(Some(agent), run).await?;
        let head = self.session(&record.session).await?;
        Ok(self.open_checkpoint(left_by(&head, record)?.checkpoint))
    }

    /// Opens the checkpoint that a person names.
    ///
    /// # Errors
    /// As [`Host::open_run_checkpoint`]; `NotFound` for a session, a turn or a name that doesn't exist.
    pub async fn open(&self, selector: &Selector) -> Result<OpenCheckpoint> {
        Ok(self.open_checkpoint(self.find(selector).await?.checkpoint))
    }

    /// Finds the checkpoint that a person names, and what keeps it.
    ///
    /// # Errors
    /// As [`Host::open`]; `NotFound` with the code `checkpoint_dropped` when its session doesn't keep it any more.
    pub async fn find(&self, selector: &Selector) -> Result<Kept> {
        match selector {
            Selector::Run(run) => {
                let record = self.find_run(None, *run).await?;
                let head = self.session(&record.session).await?;
                left_by(&head, record)
            }
            Selector::Head(session) => {
                let head = self.session(session).await?;
                head.current().ok_or_else(|| {
                    Error::not_found(format!("session {session} has no checkpoint yet"))
                        .code("no_checkpoint")
                        .hint("it has one after its first turn")
                })
            }
            Selector::Turn(session, turn) => {
                let head = self.session(session).await?;
                let found = self.inner.sessions.records(&head, HISTORY).await?;
                let found = found.into_iter().find(|record| record.is_completed() && record.turn == *turn);
                left_by(
                    &head,
                    found.ok_or_else(|| {
                        Error::not_found(format!("session {session} has no turn {turn}"))
                            .code("no_turn")
                            .hint("`landfall session log` lists the turns")
                    })?,
                )
            }
            Selector::Saved(session, name) => {
                let head = self.session(session).await?;
                let save = head.saves.iter().find(|save| save.name == *name).ok_or_else(|| {
                    Error::not_found(format!("session {session} has no checkpoint named {name:?}"))
                        .code("no_save")
                        .hint("`landfall session show` lists them")
                })?;
                let (session, checkpoint) = (session.clone(), save.checkpoint.clone());
                Ok(Kept { session, incarnation: head.incarnation, checkpoint, seq: None })
            }
        }
    }

    /// Opens a checkpoint that was read before.
    #[must_use]
    pub fn open_checkpoint(&self, checkpoint: Checkpoint) -> OpenCheckpoint {
        OpenCheckpoint::new(checkpoint, Arc::new(self.inner.reader.clone()))
    }

    /// Returns the checkpoint of the pinned commit itself: the files before any turn, and the same `/state` as `of`.
    ///
    /// # Errors
    /// `Usage` when it has no repository; `NotFound` (`import_missing`), `Damaged`, `Store`.
    pub async fn pinned(&self, of: &OpenCheckpoint) -> Result<OpenCheckpoint> {
        let root = &of.checkpoint().root;
        let imported = self.inner.imported(root).await?;
        let root = RootRecord { workspace: imported.workspace, ..root.clone() };
        Ok(self.open_checkpoint(Checkpoint::new(root)))
    }

    /// Returns the paths at which two checkpoints differ, sorted by bytes, with `/workspace` or `/state` before each.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub async fn changes(&self, before: &OpenCheckpoint, after: &OpenCheckpoint) -> Result<Vec<crate::capability::types::Change>> {
        crate::turn::compare::changes(
            before.source().as_ref(),
            &before.checkpoint().root,
            after.source().as_ref(),
            &after.checkpoint().root,
        )
        .await
    }

    /// Returns the difference of two checkpoints' `/workspace` as a diff that `git apply` accepts, for some paths or for all.
    ///
    /// # Errors
    /// `Limit` for one that is too large, `Damaged`, `Store`.
    pub async fn diff(&self, before: &OpenCheckpoint, after: &OpenCheckpoint, paths: &[String]) -> Result<Bytes> {
        crate::turn::compare::unified(
            before.source().as_ref(),
            &before.checkpoint().root,
            after.source().as_ref(),
            &after.checkpoint().root,
            paths,
        )
        .await
    }

    /// Returns what a checkpoint's `/workspace` changed since its pin, as a diff that `git apply` accepts in a checkout of the pin: the
    /// repository's attributes are applied backwards, as git does it.
    ///
    /// # Errors
    /// As [`Host::pinned`] and [`Host::diff`].
    pub async fn diff_from_pin(&self, of: &OpenCheckpoint, paths: &[String]) -> Result<Bytes> {
        let root = &of.checkpoint().root;
        let imported = self.inner.imported(root).await?;
        let paths = paths.iter().map(|path| path.trim_matches('/').as_bytes().to_vec()).collect();
        let options = DiffOptions { status: StatusOptions { paths, ..StatusOptions::default() }, ..DiffOptions::default() };
        let patch = crate::repository::diff::diff(of.source().as_ref(), &Base::pin(&imported), &root.workspace, &options).await?;
        Ok(patch.into())
    }

    /// Returns what a session hands back: its commits as mails for `git am`, or else what differs from its pin as one patch.
    ///
    /// # Errors
    /// As [`Host::pinned`] and [`Host::diff`].
    pub async fn patch(&self, of: &OpenCheckpoint, options: &PatchOptions) -> Result<Patch> {
        crate::turn::commits::patch(&self.inner, of, options).await
    }

    /// Returns the commits that a session has made up to a checkpoint, the newest first, and its pin as the last; none without a
    /// repository.
    ///
    /// # Errors
    /// `NotFound` (`import_missing`), `Damaged`, `Store`.
    pub async fn commits(&self, of: &OpenCheckpoint, limit: usize) -> Result<Vec<CommitInfo>> {
        crate::turn::commits::commits(&self.inner, of, limit).await
    }

    /// Returns the commits that one run made, the newest first.
    ///
    /// # Errors
    /// As [`Host::commits`].
    pub async fn commits_of(&self, record: &RunRecord) -> Result<Vec<CommitInfo>> {
        crate::turn::commits::commits_of(&self.inner, record).await
    }

    /// Writes a checkpoint's `/workspace` as a folder, every byte checked; with a repository it gets a `.git` at the session's last commit, or
    /// at the pin.
    ///
    /// # Errors
    /// `Local` when the folder exists and isn't empty or can't be written, `Damaged`, `Store`.
    pub async fn materialise(
        &self,
        checkpoint: &OpenCheckpoint,
        to: &std::path::Path,
        options: &MaterialiseOptions,
    ) -> Result<Materialised> {
        crate::turn::opening::open(&self.inner, checkpoint, to, options).await
    }

    /// Checks a checkpoint against the store: its pages and packs, and with `deep` every byte of every pack that it uses.
    ///
    /// # Errors
    /// `Store` when the store can't be read. Damage is in the report.
    pub async fn verify(&self, checkpoint: &OpenCheckpoint, deep: bool) -> Result<Report> {
        let depth = if deep { Depth::Deep } else { Depth::Shallow };
        verify::verify(&self.inner.store, checkpoint.checkpoint(), depth).await
    }

    /// Finds a run by its id alone: looks into each session of the agent, or of all.
    async fn find_run(&self, agent: Option<&AgentName>, run: RunId) -> Result<RunRecord> {
        let mut not_done = None;
        for (session, head) in self.inner.sessions.list(agent).await? {
            if head.is_err() {
                continue;
            }
            match self.inner.sessions.record(&session, run).await {
                Ok(record) => return Ok(record),
                Err(error) if error.stable_code() == "run_missing" => {}
                Err(error) if error.stable_code() == "run_not_done" => not_done = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(not_done.unwrap_or_else(|| {
            let whose = agent.map_or_else(String::new, |agent| format!(" of agent {agent}"));
            Error::not_found(format!("there is no run {run}{whose}"))
                .code("run_missing")
                .hint("`landfall session log` lists the runs of a session")
        }))
    }
}

/// Returns what a run left behind.
fn left_by(head: &Head, record: RunRecord) -> Result<Kept> {
    let Some(checkpoint) = record.after else {
        return Err(Error::not_found(format!("run {} left no checkpoint: it {}", record.run, record.status)).code("no_checkpoint"));
    };
    let kept = Kept { session: record.session, incarnation: record.incarnation, checkpoint, seq: Some(record.seq) };
    if head.keeps(&kept) {
        return Ok(kept);
    }
    Err(Error::not_found(format!("what run {} left behind isn't kept any more", record.run))
        .code("checkpoint_dropped")
        .hint("`landfall checkpoint list` lists what is kept; [retention] in the config says how much that is"))
}

impl Inner {
    /// Returns an agent's way to other hosts.
    ///
    /// # Errors
    /// `Config` for an unusable `ca_file`; `Usage` for an unknown agent.
    pub(crate) fn way_out(&self, agent: &AgentName) -> Result<crate::outbound::AgentOutbound> {
        self.ways.of(&self.config, agent)
    }

    /// Returns an agent's repository; none for an agent without one.
    pub(crate) fn repository(&self, agent: &AgentName) -> Result<Option<access::AgentRepository>> {
        self.access.of(&self.config, agent)
    }

    /// Makes this process known to others, once, and keeps it known while it lives.
    pub(crate) async fn announce(self: &Arc<Self>) -> Result<()> {
        if self.replica.is_stopped() {
            return Err(Error::conflict("this host was closed: other replicas don't know of it any more")
                .code("host_closed")
                .hint("make another"));
        }
        self.announced
            .get_or_try_init(|| async {
                self.replica.announce().await?;
                // The task holds no host: it ends when that is dropped.
                tokio::spawn(keep_known(Arc::downgrade(self), Arc::clone(&self.replica)));
                Ok(())
            })
            .await
            .map(drop)
    }

    pub(crate) fn lost(&self) -> Cancel {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).token()
    }

    fn lose(&self, error: &Error) {
        tracing::error!(error = %error.chain(), "others may take this process for dead; its guests are stopped");
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).cancel(CancelReason::Fenced);
    }

    fn is_back(&self) {
        tracing::warn!("this process shows signs of life again");
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Canceller::new().0);
    }

    pub(crate) fn agent(&self, name: &AgentName) -> Result<&Agent> {
        let agent = self.config.agents.get(name).ok_or_else(|| self.config.unknown_agent(name.as_str()))?;
        if self.broad_token && agent.credentials.iter().any(|credential| credential == GITHUB_READ_TOKEN) {
            return Err(Error::denied(format!("agent {name} uses {GITHUB_READ_TOKEN}, and the environment also holds GITHUB_TOKEN"))
                .code("token_too_broad")
                .hint("GITHUB_TOKEN can usually write: unset it for this process, and keep only the read token"));
        }
        Ok(agent)
    }

    /// Returns what runs the turns of a component.
    pub(crate) async fn body(&self, component: &std::path::Path) -> Result<Arc<dyn Body>> {
        match &self.body {
            Some(body) => Ok(Arc::clone(body)),
            None => Ok(Arc::new(Component { engine: self.engine.clone(), loaded: self.engine.load(component).await? })),
        }
    }

    pub(crate) fn new_run_id(&self) -> RunId {
        let millis = u64::try_from(self.store.clock().now() / 1_000_000).unwrap_or(0);
        RunId::new_v7(millis, crate::random::bytes(&**self.store.random()))
    }

    /// Returns the session's head as it was last seen here, when that isn't long ago.
    pub(crate) fn warm(&self, session: &SessionRef) -> Option<Snapshot> {
        let (snapshot, seen) = self.warm.lock().unwrap_or_else(PoisonError::into_inner).remove(session)?;
        (self.store.clock().boot().saturating_sub(seen) < WARM).then_some(snapshot)
    }

    pub(crate) fn keep_warm(&self, session: SessionRef, snapshot: Snapshot) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() >= WARM_MAX {
            warm.clear();
        }
        warm.insert(session, (snapshot, self.store.clock().boot()));
    }

    /// Returns the import that a checkpoint stands on.
    pub(crate) async fn imported(&self, root: &RootRecord) -> Result<crate::repository::imported::Imported> {
        let pin = root.pin.as_ref().ok_or_else(|| {
            Error::usage("the session has no repository to compare with")
                .code("no_repository")
                .hint("compare two of its checkpoints: `landfall checkpoint diff`")
        })?;
        crate::repository::imported::open(&self.store, pin).await
    }

    pub(crate) async fn checkpoints(&self, head: &Head, limit: usize) -> Result<Vec<SessionCheckpoint>> {
        let mut all: Vec<SessionCheckpoint> = head
            .saves
            .iter()
            .map(|save| SessionCheckpoint {
                id: save.checkpoint.id,
                name: Some(save.name.clone()),
                run: save.run,
                turn: None,
                created: save.at,
            })
            .collect();
        for record in self.sessions.records(head, limit).await? {
            let there = record.is_completed() && record.seq >= head.kept_from;
            if let (true, Some(after), Some(ended)) = (there, &record.after, record.ended) {
                all.push(SessionCheckpoint { id: after.id, name: None, run: record.run, turn: Some(record.turn), created: ended });
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.created));
        Ok(all)
    }
}
