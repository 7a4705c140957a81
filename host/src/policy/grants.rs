//! The capabilities that an agent is granted, and how a refusal reads.

use std::collections::BTreeSet;
use std::fmt;

use crate::id::AgentName;

/// An interface that a component can import only with a grant. `fetch`, `schedules` and `wasi:http` aren't among them: toolchains for
/// Python and JavaScript import the whole world, so these are linked for all and each call asks the grants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Capability {
    /// `landfall:agent/checkpoints`: the agent's own session.
    Checkpoints,
    /// `wasi:config/store`: the agent's own configuration.
    Config,
    /// `landfall:agent/progress`: events of the run.
    Progress,
    /// `landfall:agent/repository`: the pinned repository, and the session's own commits on top of it.
    Repository,
}

impl Capability {
    /// Those that reach nothing but the agent's own session and configuration. Every agent has them.
    pub const OWN: [Self; 4] = [Self::Checkpoints, Self::Config, Self::Progress, Self::Repository];

    /// Returns its name, as in denials.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoints",
            Self::Config => "config",
            Self::Progress => "progress",
            Self::Repository => "repository",
        }
    }
}

/// What one agent is granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grants {
    /// The agent.
    pub agent: AgentName,
    /// The interfaces that it may import.
    pub capabilities: BTreeSet<Capability>,
}

impl Grants {
    /// Grants an agent what every agent has.
    #[must_use]
    pub fn own(agent: AgentName) -> Self {
        Self { agent, capabilities: Capability::OWN.into() }
    }

    /// Whether it may import an interface.
    #[must_use]
    pub fn allows(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Refuses everything of schedules to an agent that may have none of its own.
    #[must_use]
    pub fn no_schedules(&self) -> Denial {
        Denial {
            agent: self.agent.to_string(),
            capability: "schedules".to_owned(),
            target: String::new(),
            code: "not_granted".to_owned(),
            why: "the agent isn't granted schedules of its own".to_owned(),
            config_line: Some(format!("[agents.{}.schedules] max_schedules = 5", self.agent)),
        }
    }

    /// Refuses a request of an agent that has no way out.
    #[must_use]
    pub fn no_hosts(&self, target: &str) -> Denial {
        Denial {
            agent: self.agent.to_string(),
            capability: "fetch".to_owned(),
            target: target.to_owned(),
            code: "not_allowed".to_owned(),
            why: "no hosts are allowed".to_owned(),
            config_line: Some(format!(r#"[agents.{}] allowed_outbound_hosts = ["https://..."]"#, self.agent)),
        }
    }

    /// Refuses everything of the repository to an agent that has none.
    #[must_use]
    pub fn no_repository(&self) -> Denial {
        Denial {
            agent: self.agent.to_string(),
            capability: Capability::Repository.name().to_owned(),
            target: String::new(),
            code: "no_repository".to_owned(),
            why: "the session has no repository".to_owned(),
            config_line: Some(format!(r#"[agents.{}] repository = {{ url = "https://..." }}"#, self.agent)),
        }
    }
}

/// A call was refused because nothing grants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The agent that asked.
    pub agent: String,
    /// The interface that refused.
    pub capability: String,
    /// What was asked for; empty when the whole capability isn't granted.
    pub target: String,
    /// A stable word for the reason.
    pub code: String,
    /// The reason, for a person. Holds no secret.
    pub why: String,
    /// The line that would allow it, with its table; none when no configuration does.
    pub config_line: Option<String>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent {} was refused {}", self.agent, self.capability)?;
        if !self.target.is_empty() {
            write!(f, " of {}", self.target)?;
        }
        write!(f, ": {}", self.why)?;
        match &self.config_line {
            Some(line) => write!(f, " (allowed by {line})"),
            None => Ok(()),
        }
    }
}
