//! How each agent's repository is reached: the policy's word on it, its credential, the operator's CA.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{Agent, Config};
use crate::error::{Error, Result};
use crate::id::AgentName;
use crate::policy::repositories;
use crate::policy::url::Target;
use crate::repository::checkout::TreeLimits;
use crate::repository::imported::Repositories;
use crate::repository::remote::{Credential, Git, RemoteOptions};
use crate::repository::url::RepositoryUrl;
use crate::secret::Secret;
use crate::store::Store;

/// An agent's repository with what its sessions reach it with.
#[derive(Clone, Debug)]
pub(crate) struct AgentRepository {
    pub(crate) url: RepositoryUrl,
    pub(crate) repositories: Repositories,
    pub(crate) credential: Option<Credential>,
}

/// The repositories of all agents. Each is looked at when it is first needed: what is wrong with one agent's stops no other.
#[derive(Debug)]
pub(crate) struct Access {
    secrets: BTreeMap<String, Secret>,
    store: Store,
    folder: PathBuf,
    made: Mutex<BTreeMap<AgentName, AgentRepository>>,
}

impl Access {
    /// `folder` is where commits are fetched to before they are imported.
    pub(crate) fn new(secrets: BTreeMap<String, Secret>, store: Store, folder: &Path) -> Self {
        Self { secrets, store, folder: folder.join("git"), made: Mutex::default() }
    }

    /// Returns an agent's repository; none for an agent without one.
    ///
    /// # Errors
    /// `Denied` where the policy doesn't allow it, `Config` for an unreadable `ca_file`, `Usage` for a URL that is none.
    pub(crate) fn of(&self, config: &Config, name: &AgentName) -> Result<Option<AgentRepository>> {
        let Some(agent) = config.agents.get(name) else { return Ok(None) };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made.get(name) {
            return Ok(Some(found.clone()));
        }
        let Some(found) = self.make(config, name, agent)? else { return Ok(None) };
        made.insert(name.clone(), found.clone());
        Ok(Some(found))
    }

    fn make(&self, config: &Config, name: &AgentName, agent: &Agent) -> Result<Option<AgentRepository>> {
        let Some(repository) = &agent.repository else { return Ok(None) };
        let url = RepositoryUrl::parse(&repository.url)?;
        if let Some(allowed) = config.policy.as_ref().and_then(|policy| policy.repositories.as_ref())
            && !repositories::allows(allowed, &url)
        {
            return Err(Error::denied(format!("agent {name} asks for the repository {url}, which the policy doesn't allow"))
                .code("repository_not_allowed")
                .hint(format!("[policy] repositories = [\"{url}\"] would allow it")));
        }
        let ca_pem =
            match &repository.ca_file {
                Some(file) => Some(std::fs::read(file).map_err(|error| {
                    Error::config(format!("the ca_file {} of agent {name} can't be read", file.display())).source(error)
                })?),
                None => None,
            };
        let credential = agent.credentials.iter().find_map(|credential| {
            let (named, secret) = (config.credentials.get(credential)?, self.secrets.get(credential)?);
            let origin = Target::parse(url.as_str()).ok()?;
            let fits = named.audience.iter().any(|audience| audience.covers_origin(origin.origin()));
            (named.uses.repository && fits && config.allows_credential(credential)).then(|| Credential::basic(&named.user, secret.expose()))
        });
        let options = RemoteOptions {
            ca_pem,
            // The config's author is the operator, and has written the URL there; a policy above has had its say.
            allow_file: true,
            // In clear text only to this machine, and never with a secret.
            allow_http_loopback: credential.is_none(),
            ..RemoteOptions::default()
        };
        let limits =
            TreeLimits { entries: agent.limits.entries, bytes: agent.limits.workspace, file: agent.limits.file, ..TreeLimits::default() };
        let git = Git::new(options, Arc::clone(self.store.clock()));
        let repositories = Repositories::new(git, self.store.clone(), self.folder.clone(), limits);
        Ok(Some(AgentRepository { url, repositories, credential }))
    }
}
