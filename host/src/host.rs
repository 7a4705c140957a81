//! The host: what an embedder makes once and runs turns with.

mod builder;
mod checkpoints;
mod find;
mod lines;
mod runs;

use std::sync::Arc;

pub use self::builder::HostBuilder;
pub use self::checkpoints::SessionCheckpoint;
use crate::cancel::Cancel;
use crate::component::imports::Import;
use crate::config::Config;
use crate::context::Context;
use crate::error::Result;
use crate::id::{AgentName, RunId, SessionName, SessionRef};
use crate::policy::grants::Grants;
use crate::schedule::Schedules;
use crate::session::head::Head;
use crate::session::record::RunRecord;
use crate::session::{Origin, Snapshot};
use crate::store::Store;
pub use crate::turn::commits::{Patch, PatchOptions};
use crate::turn::event::SharedWatch;
use crate::turn::request::TurnRequest;
use crate::turn::{self, Submitted, Work};

/// Runs agents' turns on a store. Cheap to clone; all clones are the same host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) inner: Arc<Context>,
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
        HostBuilder::new(store, config)
    }

    /// Runs one turn, from the request to the commit, and returns its record: also that of a run that failed or was cancelled.
    ///
    /// # Errors
    /// Where nothing was run: `Usage` and `Limit` for a request that can't be met, `NotFound` for an unknown agent or component,
    /// `Component`, `Denied`, `Remote` for the repository, `Conflict` for a busy session. `Store` and `Damaged` where the host
    /// failed in the middle: nothing was committed, and the run may be repeated.
    pub async fn run(&self, request: TurnRequest, watch: SharedWatch, cancel: Cancel) -> Result<RunRecord> {
        turn::run(&self.inner, request, watch, cancel).await
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
        Ok(match turn::submit(&self.inner, request).await? {
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
        self.inner.presence.announce().await
    }

    /// Whether this process shows signs of life: false when it couldn't for a whole lease, and others may have taken over what it had.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.inner.presence.is_known()
    }

    /// Returns what an agent's component imports, each with whether the agent may import it.
    ///
    /// # Errors
    /// `Usage` for an unknown agent; `Component` and `Local` for a component that can't be loaded.
    pub async fn imports(&self, name: &AgentName) -> Result<Vec<(Import, bool)>> {
        let agent = self.inner.config.agents.get(name).ok_or_else(|| self.inner.config.unknown_agent(name.as_str()))?;
        let component = self.inner.engine.load(&agent.component).await?;
        let grants = Grants::own(name.clone());
        let granted = |import: &Import| import.capability().is_none_or(|capability| grants.allows(capability));
        Ok(component.imports().iter().map(|import| (import.clone(), granted(import))).collect())
    }

    /// Makes this process unknown to others again. Call it after the last run; without it others have to notice that it has ended.
    ///
    /// # Errors
    /// `Store`.
    pub async fn close(&self) -> Result<()> {
        self.inner.presence.end().await
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
}
