//! A host over a store, ready to run turns of the built guests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use landfall::cancel::Cancel;
use landfall::clock::SystemClock;
use landfall::config::{Agent, Config, Repository};
use landfall::host::Host;
use landfall::random::SystemRandom;
use landfall::session::record::RunRecord;
use landfall::store::Store;
use landfall::trigger::{NoWatch, RunEvent, TurnRequest, Watch};

use crate::git_server::{GitServer, TestRepository};

/// Makes agents, hosts and requests for one test.
pub struct Turns {
    /// A folder for the test.
    pub folder: tempfile::TempDir,
    /// The store that its hosts share.
    pub store: Store,
}

impl Turns {
    /// Begins with an empty store in memory.
    ///
    /// # Errors
    /// When there is no folder to be had.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, store: Store::memory(Arc::new(SystemClock), Arc::new(SystemRandom)) })
    }

    /// Makes a host with its own empty cache, as another process would have, on the same store.
    ///
    /// # Errors
    /// As [`landfall::host::HostBuilder::build`].
    pub fn host(&self, cache: &str, agents: &[(&str, Agent)]) -> landfall::Result<Host> {
        let mut config = Config::default();
        for (name, agent) in agents {
            config.agents.insert(name.parse()?, agent.clone());
        }
        // Compiled components are the same for all tests; packs and spool are this host's own.
        let components = landfall::component::CacheOptions::new(crate::guests::target().join("components-cache"));
        let engine =
            landfall::component::EngineOptions { guests: 4, cache: Some(components), ..landfall::component::EngineOptions::default() };
        let store = self.store.as_replica(Arc::new(SystemClock), Arc::new(SystemRandom));
        Host::builder(store, config).cache_dir(self.folder.path().join(cache)).engine(engine).build()
    }
}

/// Makes an agent of a built guest.
#[must_use]
pub fn agent(guest: &str) -> Agent {
    Agent::of_component(crate::guests::path(guest))
}

/// The same with a repository.
#[must_use]
pub fn agent_on(guest: &str, url: &str, ca: Option<&Path>) -> Agent {
    let repository =
        Repository { url: url.to_owned(), branch: None, ca_file: ca.map(PathBuf::from), author: None, require_commit_on_branch: false };
    Agent { repository: Some(repository), ..agent(guest) }
}

/// A repository `app.git` on a server of its own, and turns whose agents stand on it.
pub struct OnRepository {
    /// The turns.
    pub turns: Turns,
    /// The repository.
    pub repository: TestRepository,
    /// The server.
    pub server: GitServer,
    /// The file with the server's CA.
    pub ca: PathBuf,
}

impl OnRepository {
    /// Begins with an empty repository, on the store of these turns.
    ///
    /// # Errors
    /// When the repository can't be made or the server can't be started.
    pub async fn new(turns: Turns) -> anyhow::Result<Self> {
        let origin = turns.folder.path().join("origin");
        std::fs::create_dir(&origin)?;
        let repository = TestRepository::create(&origin, "app.git")?;
        let server = GitServer::start(&origin).await?;
        let ca = turns.folder.path().join("ca.pem");
        std::fs::write(&ca, server.ca_pem().ok_or_else(|| anyhow::anyhow!("the server has no CA"))?)?;
        Ok(Self { turns, repository, server, ca })
    }

    /// Makes an agent of a built guest that stands on the repository.
    #[must_use]
    pub fn agent(&self, guest: &str) -> Agent {
        agent_on(guest, &self.server.url("app.git"), Some(&self.ca))
    }
}

/// Runs a turn and returns its record.
///
/// # Errors
/// As [`Host::run`].
pub async fn run(host: &Host, agent: &str, session: &str, input: &str) -> landfall::Result<RunRecord> {
    let request = TurnRequest::new(agent.parse()?, session.parse()?, input);
    host.run(request, Arc::new(NoWatch), Cancel::never()).await
}

/// Keeps what happens.
#[derive(Default, Debug)]
pub struct Seen(pub Mutex<Vec<RunEvent>>);

impl Watch for Seen {
    fn event(&self, event: RunEvent) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(event);
    }
}
