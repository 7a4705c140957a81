//! What the turns, the worker and the views of a host have in common: its store, its engine, its config, and what is made of them once.

mod access;
mod presence;
mod warm;
mod ways;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::access::{Access, AgentRepository};
pub(crate) use self::presence::Presence;
pub(crate) use self::warm::WarmHeads;
pub(crate) use self::ways::Ways;
use crate::checkpoint::reader::Reader;
use crate::checkpoint::root::RootRecord;
use crate::component::body::{Body, Component};
use crate::component::engine::Engine;
use crate::config::{Agent, Config, GITHUB_READ_TOKEN};
use crate::error::{Error, Result};
use crate::id::{AgentName, RunId};
use crate::outbound::AgentOutbound;
use crate::repository::imported::{self, Imported};
use crate::schedule::Schedules;
use crate::secret::Mask;
use crate::session::Sessions;
use crate::store::Store;

/// What a host's turns work with. There is one for each host.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    /// Runs in place of every agent's component.
    pub(crate) body: Option<Arc<dyn Body>>,
    pub(crate) reader: Reader,
    pub(crate) store: Store,
    pub(crate) sessions: Sessions,
    pub(crate) schedules: Schedules,
    pub(crate) mask: Mask,
    /// The folder of what doesn't fit in memory.
    pub(crate) spool: PathBuf,
    pub(crate) access: Access,
    pub(crate) ways: Ways,
    /// Whether the process also holds a token that can do more than read.
    pub(crate) broad_token: bool,
    pub(crate) presence: Arc<Presence>,
    pub(crate) warm: WarmHeads,
}

impl Context {
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
    pub(crate) async fn body(&self, component: &Path) -> Result<Arc<dyn Body>> {
        match &self.body {
            Some(body) => Ok(Arc::clone(body)),
            None => Ok(Arc::new(Component { engine: self.engine.clone(), loaded: self.engine.load(component).await? })),
        }
    }

    /// Returns an agent's way to other hosts.
    ///
    /// # Errors
    /// `Config` for an unusable `ca_file`; `Usage` for an unknown agent.
    pub(crate) fn way_out(&self, agent: &AgentName) -> Result<AgentOutbound> {
        self.ways.of(&self.config, agent)
    }

    /// Returns an agent's repository; none for an agent without one.
    pub(crate) fn repository(&self, agent: &AgentName) -> Result<Option<AgentRepository>> {
        self.access.of(&self.config, agent)
    }

    pub(crate) fn new_run_id(&self) -> RunId {
        let millis = u64::try_from(self.store.clock().now() / 1_000_000).unwrap_or(0);
        RunId::new_v7(millis, crate::random::bytes(&**self.store.random()))
    }

    /// Returns the import that a checkpoint stands on.
    pub(crate) async fn imported(&self, root: &RootRecord) -> Result<Imported> {
        let pin = root.pin.as_ref().ok_or_else(|| {
            Error::usage("the session has no repository to compare with")
                .code("no_repository")
                .hint("compare two of its checkpoints: `landfall checkpoint diff`")
        })?;
        imported::open(&self.store, pin).await
    }
}
