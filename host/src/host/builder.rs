//! What a [`Host`] is made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Host;
use crate::checkpoint::reader::Reader;
use crate::component::CacheOptions;
use crate::component::body::Body;
use crate::component::engine::{Engine, EngineOptions};
use crate::config::Config;
use crate::context::{Access, Context, Presence, WarmHeads, Ways};
use crate::error::{Error, Result};
use crate::id::ReplicaName;
use crate::outbound::Outbound;
use crate::policy::resolve::{Resolver, SystemResolver};
use crate::schedule::Schedules;
use crate::schedule::zone::Zones;
use crate::secret::{Mask, Secret};
use crate::session::Sessions;
use crate::session::replica::{LEASE, Process, Replica};
use crate::store::Store;
use crate::store::cache::DiskCache;

/// Bytes of decoded pages and content that a host keeps in memory.
const READER_MEMORY: usize = 64 << 20;
/// Bytes of the local disk cache.
const CACHE_BYTES: u64 = 8 << 30;

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
    pub(super) fn new(store: Store, config: Config) -> Self {
        Self {
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
            lease: LEASE,
            resolver: Arc::new(SystemResolver),
        }
    }

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
        let context = Context {
            schedules,
            engine: match shared_engine {
                Some(engine) => engine,
                None => Engine::new(&engine, Arc::clone(&clock), random)?,
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
            presence: Arc::new(Presence::new(replica, Arc::clone(&clock))),
            warm: WarmHeads::new(clock),
        };
        Ok(Host { inner: Arc::new(context) })
    }
}

/// Makes a folder that only its owner can enter.
fn make_private(folder: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        Error::local(format!("the cache folder {} can't be made", folder.display())).source(error).hint("give another one with --cache")
    })
}
