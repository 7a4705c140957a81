//! Each agent's way out: its gate, its credentials' values, what it trusts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::id::AgentName;
use crate::outbound::{AgentOutbound, Outbound};
use crate::secret::Secret;

/// The ways out of all agents. Each is made when it is first needed: what is wrong with one agent's stops no other.
#[derive(Debug)]
pub(crate) struct Ways {
    secrets: BTreeMap<String, Secret>,
    outbound: Outbound,
    made: Mutex<BTreeMap<AgentName, AgentOutbound>>,
}

impl Ways {
    pub(crate) fn new(secrets: BTreeMap<String, Secret>, outbound: Outbound) -> Self {
        Self { secrets, outbound, made: Mutex::default() }
    }

    /// Returns an agent's way out. One that lists no hosts has it too: its gate denies each request and says what would allow it.
    ///
    /// # Errors
    /// `Config` for an unusable `ca_file`; `Usage` for an unknown agent.
    pub(crate) fn of(&self, config: &Config, name: &AgentName) -> Result<AgentOutbound> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(way) = made.get(name) {
            return Ok(way.clone());
        }
        let (Some(agent), Some(egress)) = (config.agents.get(name), config.egress(name)) else {
            return Err(config.unknown_agent(name.as_str()));
        };
        let secrets =
            egress.credentials.iter().filter_map(|rule| Some((rule.name.clone(), self.secrets.get(&rule.name)?.clone()))).collect();
        let ca_pem = match &agent.outbound.ca_file {
            None => None,
            Some(file) => Some(std::fs::read(file).map_err(|error| {
                let message = format!("the ca_file {} of the outbound requests of agent {name} can't be read", file.display());
                Error::config(message).source(error)
            })?),
        };
        let way = AgentOutbound::new(self.outbound.clone(), egress, secrets, ca_pem.as_deref(), agent.outbound.limits.clone())?;
        made.insert(name.clone(), way.clone());
        Ok(way)
    }
}
