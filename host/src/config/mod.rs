//! The configuration: `landfall.toml` as data, checked as a whole, with errors that name file, line and the nearest right name.

mod egress;
pub mod explain;
mod parse;
mod schedules;
mod server;
mod units;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use server::{DEFAULT_PORT, Scope, Server, Token};
pub use units::{parse_bytes, parse_span};

use crate::error::{Error, Result};
use crate::id::{AgentName, ScheduleName};
use crate::nearest::nearest;
use crate::outbound::limits::OutboundLimits;
use crate::policy::addresses::PrivateRange;
use crate::policy::credentials::{Audience, Placement};
use crate::policy::hosts::HostList;
use crate::schedule::plan::Spec;
use crate::schedule::terms::{AgentTerms, Grant, RUNS_PER_HOUR, Terms};

/// Everything that `landfall.toml` says.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where the store is: an URL, or none for the embedded one in `.landfall/store` beside the file.
    pub store: Option<String>,
    /// The agents by name.
    pub agents: BTreeMap<AgentName, Agent>,
    /// The credentials that the operator named, without their values.
    pub credentials: BTreeMap<String, Credential>,
    /// What any agent may have at most, when there is such a section.
    pub policy: Option<Policy>,
    /// How much of a session's history collections keep.
    pub retention: crate::gc::Retention,
    /// How `landfall serve` listens and works.
    pub server: Server,
    /// The schedules that it declares.
    pub schedules: BTreeMap<ScheduleName, Spec>,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The component's file; relative paths were joined to the folder of the config.
    pub component: PathBuf,
    /// The repository its sessions stand on.
    pub repository: Option<Repository>,
    /// Names of the credentials that the host may use for it.
    pub credentials: Vec<String>,
    /// The hosts that it may send requests to; empty for none.
    pub allowed_outbound_hosts: HostList,
    /// Addresses that aren't public and are opened to it, each at one exact host.
    pub private_addresses: Vec<PrivateRange>,
    /// How its requests to other hosts are made.
    pub outbound: OutboundOptions,
    /// What `wasi:config/store` answers.
    pub config: BTreeMap<String, String>,
    /// Arguments of a command component, after its name.
    pub args: Vec<String>,
    /// Environment variables of a command component. Never secrets: the guest sees them.
    pub env: BTreeMap<String, String>,
    /// Its limits.
    pub limits: Limits,
    /// Whether a run that was started when its process died is started again (three attempts) or fails.
    pub on_crash: OnCrash,
    /// What it may do with schedules of its own; none: nothing.
    pub schedules: Option<Grant>,
}

impl Agent {
    /// Makes an agent of a component's file that is granted nothing beyond its own session.
    #[must_use]
    pub fn of_component(component: impl Into<PathBuf>) -> Self {
        Self {
            component: component.into(),
            repository: None,
            credentials: Vec::new(),
            allowed_outbound_hosts: HostList::default(),
            private_addresses: Vec::new(),
            outbound: OutboundOptions::default(),
            config: BTreeMap::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            limits: Limits::default(),
            on_crash: OnCrash::default(),
            schedules: None,
        }
    }
}

/// How an agent's requests to other hosts are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundOptions {
    /// How long they may take and how much they may move.
    pub limits: OutboundLimits,
    /// A PEM file of certificate authorities to trust for them besides the system's.
    pub ca_file: Option<PathBuf>,
}

/// What happens to a run whose process died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnCrash {
    /// It starts again from the same checkpoint, at most three times in all.
    #[default]
    Retry,
    /// It has failed.
    Fail,
}

/// An agent's repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The URL: `https://` on any host, or `file://`.
    pub url: String,
    /// The branch; none for the remote's HEAD.
    pub branch: Option<String>,
    /// A PEM file of certificate authorities to trust for this repository besides the public ones.
    pub ca_file: Option<PathBuf>,
    /// Who its agents' commits are by; none for an identity made of the agent's name.
    pub author: Option<Identity>,
    /// Whether a commit that is chosen has to lie on the branch.
    pub require_commit_on_branch: bool,
}

pub use crate::repository::commit::Identity;

/// A credential that the operator named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Where the binary reads its value.
    pub source: CredentialSource,
    /// Where it may be sent.
    pub audience: Vec<Audience>,
    /// The user name sent with it to a git server.
    pub user: String,
    /// What it is for.
    pub uses: Uses,
    /// Where it goes in a request of the agent.
    pub place: Placement,
    /// The methods of an agent's requests that it is added to; none for all.
    pub methods: Option<Vec<http::Method>>,
}

/// What a credential is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The git client sends it for the agent's repository.
    pub repository: bool,
    /// It is added to the agent's own requests.
    pub fetch: bool,
}

/// Where a credential's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// An environment variable of the process; it is removed from the environment once read.
    Env(String),
    /// A file.
    File(PathBuf),
}

/// What any agent may have at most. What an agent gets is what its entry asks for and this allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Patterns of repository URLs, `*` at the end allowed; none: any.
    pub repositories: Option<Vec<String>>,
    /// The hosts that agents may send requests to. Nothing listed, nothing allowed.
    pub allowed_outbound_hosts: HostList,
    /// The credentials that agents may name; none: any, each within its audience.
    pub credentials: Option<Vec<String>>,
    /// Addresses that aren't public and may be opened. Nothing listed, nothing opened.
    pub private_addresses: Vec<PrivateRange>,
}

/// The limits of an agent. Bytes and spans; the defaults are those of the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sum of all memories of the guest, bytes.
    pub memory: u64,
    /// Longest turn.
    pub turn: Duration,
    /// Entries in one root.
    pub entries: u64,
    /// Bytes in one root.
    pub workspace: u64,
    /// Bytes in one file.
    pub file: u64,
    /// Bytes in `/tmp`.
    pub tmp: u64,
    /// Bytes of the input text.
    pub input: u64,
    /// Bytes of the output text.
    pub output: u64,
    /// Bytes of logs, and again of events, kept of one run.
    pub log: u64,
    /// Runs that schedules and triggers may start within an hour.
    pub runs_per_hour: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            turn: Duration::from_secs(15 * 60),
            entries: 1_000_000,
            workspace: 16 << 30,
            file: 4 << 30,
            tmp: 1 << 30,
            input: 1 << 20,
            output: 1 << 20,
            log: 1 << 20,
            runs_per_hour: RUNS_PER_HOUR,
        }
    }
}

/// Longest turn that may be configured.
pub const MAX_TURN: Duration = Duration::from_secs(24 * 60 * 60);

/// The credential that every config knows: read access to GitHub repositories, from the environment variable of that name.
pub const GITHUB_READ_TOKEN: &str = "GITHUB_READ_TOKEN";

impl Config {
    /// Reads the text of a config.
    ///
    /// `name` is the file's name in errors; `folder` is where relative paths in it start.
    ///
    /// # Errors
    /// `Config` with the file, the line and, where a name is wrong, the nearest right one.
    pub fn parse(name: &str, text: &str, folder: &std::path::Path) -> Result<Self> {
        parse::parse(name, text, folder)
    }

    /// Returns the error for a name that no agent has, with the nearest one that does.
    #[must_use]
    pub fn unknown_agent(&self, name: &str) -> Error {
        let error = Error::usage(format!("no agent is named {name}")).code("unknown_agent");
        match nearest(name, self.agents.keys().map(AgentName::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None if self.agents.is_empty() => error.hint("the config names no agents: `landfall init` writes one to start from"),
            None => {
                let names: Vec<&str> = self.agents.keys().map(AgentName::as_str).collect();
                error.hint(format!("the config has {}", names.join(", ")))
            }
        }
    }

    /// Returns on which terms schedules run the agents.
    #[must_use]
    pub fn schedule_terms(&self) -> Terms {
        let terms = |agent: &Agent| AgentTerms {
            on_crash: match agent.on_crash {
                OnCrash::Retry => crate::session::queue::OnCrash::Retry(crate::session::queue::ATTEMPTS_DEFAULT),
                OnCrash::Fail => crate::session::queue::OnCrash::Fail,
            },
            runs_per_hour: agent.limits.runs_per_hour,
            grant: agent.schedules,
        };
        Terms { agents: self.agents.iter().map(|(name, agent)| (name.clone(), terms(agent))).collect() }
    }

    /// Reads the text of a policy file: only a `[policy]` section.
    ///
    /// # Errors
    /// As [`Config::parse`].
    pub fn parse_policy(name: &str, text: &str) -> Result<Policy> {
        parse::parse_policy(name, text)
    }
}

#[cfg(test)]
mod tests;
