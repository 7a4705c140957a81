//! What an agent asks for, what the policy allows, and what comes of both: one page for people, one document for programs. Stable
//! enough to be kept beside the config and compared with what it was.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Config, OnCrash};
use crate::component::imports::Import;
use crate::id::AgentName;
use crate::policy::egress::Hosts;
use crate::policy::hosts::HostPattern;

/// Everything about one agent's reach.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// The agent.
    pub agent: String,
    /// The component's file.
    pub component: String,
    /// What the component imports; none where it couldn't be looked at.
    pub imports: Option<Vec<ExplainedImport>>,
    /// The repository of its sessions.
    pub repository: Option<ExplainedRepository>,
    /// The hosts, as asked for.
    pub hosts: Vec<ExplainedHost>,
    /// Ranges of addresses that are opened, by host; what is left of them after the policy.
    pub private_addresses: BTreeMap<String, Vec<String>>,
    /// The credentials, as asked for.
    pub credentials: Vec<ExplainedCredential>,
    /// Its limits: bytes, counts, and milliseconds where the name ends in `_ms`.
    pub limits: BTreeMap<&'static str, u64>,
    /// What happens to a run whose process died: `retry` or `fail`.
    pub on_crash: &'static str,
    /// Whether there is a policy beside the agent's own entry.
    pub has_policy: bool,
}

/// One import of a component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExplainedImport {
    /// Its name, with the version.
    pub name: String,
    /// The capability that it needs; none where it needs none.
    pub capability: Option<&'static str>,
    /// Whether the agent may import it.
    pub granted: bool,
}

/// The repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExplainedRepository {
    /// Its URL.
    pub url: String,
    /// The branch; none for the remote's default.
    pub branch: Option<String>,
}

/// One entry of the agent's list of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExplainedHost {
    /// The entry.
    pub asked: String,
    /// The entries of the policy that share hosts with it; none without a policy.
    pub allowed_by: Option<Vec<String>>,
    /// Whether anything of it can be reached.
    pub reachable: bool,
}

/// One credential that the agent names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExplainedCredential {
    /// Its name.
    pub name: String,
    /// Whether the policy lets agents name it.
    pub allowed: bool,
    /// Whether the git client sends it for the repository.
    pub repository: bool,
    /// Where the host adds it to the agent's requests; empty for nowhere.
    pub fetch_audience: Vec<String>,
    /// The header that it goes into.
    pub header: Option<String>,
    /// The methods that it is added to; none for all.
    pub methods: Option<Vec<String>>,
}

impl Config {
    /// Explains an agent; `imports` are those of its component with whether they are granted. None for an agent that doesn't exist.
    #[must_use]
    pub fn explain(&self, name: &AgentName, imports: Option<Vec<(Import, bool)>>) -> Option<Explanation> {
        let agent = self.agents.get(name)?;
        let egress = self.egress(name)?;
        let Hosts::Listed { asked, allowed } = &egress.hosts else { return None };
        let host = |pattern: &HostPattern| {
            let allowed_by = allowed.as_ref().map(|allowed| {
                let shared = allowed.patterns().iter().filter(|other| other.hosts_overlap(pattern));
                shared.map(|other| other.as_str().to_owned()).collect::<Vec<_>>()
            });
            ExplainedHost {
                asked: pattern.as_str().to_owned(),
                reachable: allowed_by.as_ref().is_none_or(|shared| !shared.is_empty()),
                allowed_by,
            }
        };
        let credential = |name: &String| {
            let named = self.credentials.get(name);
            let rule = egress.credentials.iter().find(|rule| rule.name == *name);
            let allowed = self.allows_credential(name);
            ExplainedCredential {
                name: name.clone(),
                allowed,
                repository: allowed && named.is_some_and(|named| named.uses.repository) && agent.repository.is_some(),
                fetch_audience: rule.map(|rule| rule.audience.iter().map(ToString::to_string).collect()).unwrap_or_default(),
                header: rule.map(|rule| rule.place.header.clone()),
                methods: rule.and_then(|rule| rule.methods.as_ref()).map(|methods| methods.iter().map(ToString::to_string).collect()),
            }
        };
        Some(Explanation {
            agent: name.to_string(),
            component: agent.component.display().to_string(),
            imports: imports.map(|imports| {
                let explained = |(import, granted): (Import, bool)| ExplainedImport {
                    capability: import.capability().map(crate::policy::grants::Capability::name),
                    name: import.name,
                    granted,
                };
                imports.into_iter().map(explained).collect()
            }),
            repository: agent
                .repository
                .as_ref()
                .map(|repository| ExplainedRepository { url: repository.url.clone(), branch: repository.branch.clone() }),
            hosts: asked.patterns().iter().map(host).collect(),
            private_addresses: egress
                .private
                .iter()
                .map(|range| (range.host.clone(), range.nets.iter().map(ToString::to_string).collect()))
                .collect(),
            credentials: agent.credentials.iter().map(credential).collect(),
            limits: self.explain_limits(name),
            on_crash: match agent.on_crash {
                OnCrash::Retry => "retry",
                OnCrash::Fail => "fail",
            },
            has_policy: self.policy.is_some(),
        })
    }

    fn explain_limits(&self, name: &AgentName) -> BTreeMap<&'static str, u64> {
        let Some(agent) = self.agents.get(name) else { return BTreeMap::new() };
        let (limits, outbound) = (&agent.limits, &agent.outbound.limits);
        let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        BTreeMap::from([
            ("memory", limits.memory),
            ("turn_ms", millis(limits.turn)),
            ("entries", limits.entries),
            ("workspace", limits.workspace),
            ("file", limits.file),
            ("tmp", limits.tmp),
            ("input", limits.input),
            ("output", limits.output),
            ("log", limits.log),
            ("outbound_request", outbound.request),
            ("outbound_response", outbound.response),
            ("outbound_run_bytes", outbound.run_bytes),
            ("outbound_per_minute", u64::from(outbound.per_minute)),
            ("outbound_parallel", outbound.parallel as u64),
            ("outbound_parallel_host", outbound.parallel_host as u64),
            ("fetch_total_ms", millis(outbound.fetch.total)),
            ("http_total_ms", millis(outbound.http.total)),
        ])
    }
}
