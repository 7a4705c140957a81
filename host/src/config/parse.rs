//! From the text of `landfall.toml` to [`Config`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::egress::{self, RawCredential, RawHosts, RawOutbound, RawPolicy, RawRanges};
use super::schedules::{self, RawGrant, RawSchedule};
use super::{Agent, Config, Credential, Limits, MAX_TURN, OnCrash, Policy, Repository, units};
use crate::error::{Error, Result};
use crate::id::AgentName;
use crate::nearest::nearest;

/// Most bytes of the output, the log and the events of a run: each is kept as one chunk.
const TEXT_MAX: u64 = crate::workspace::page::CHUNK_MAX as u64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    version: Spanned<u32>,
    #[serde(default)]
    store: RawStore,
    #[serde(default)]
    agents: BTreeMap<Spanned<String>, RawAgent>,
    #[serde(default)]
    credentials: BTreeMap<Spanned<String>, RawCredential>,
    policy: Option<RawPolicy>,
    #[serde(default)]
    retention: RawRetention,
    #[serde(default)]
    server: super::server::RawServer,
    #[serde(default)]
    schedules: BTreeMap<Spanned<String>, RawSchedule>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawRetention {
    keep_last: Option<u64>,
    keep_days: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawStore {
    url: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAgent {
    component: PathBuf,
    repository: Option<RawRepository>,
    #[serde(default)]
    credentials: Vec<Spanned<String>>,
    #[serde(default)]
    allowed_outbound_hosts: RawHosts,
    #[serde(default)]
    private_addresses: RawRanges,
    #[serde(default)]
    outbound: RawOutbound,
    #[serde(default)]
    config: BTreeMap<String, String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default)]
    on_crash: RawOnCrash,
    schedules: Option<RawGrant>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum RawOnCrash {
    #[default]
    Retry,
    Fail,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRepository {
    url: Spanned<String>,
    branch: Option<String>,
    ca_file: Option<PathBuf>,
    author: Option<Spanned<RawAuthor>>,
    #[serde(default)]
    require_commit_on_branch: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAuthor {
    name: String,
    email: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicyFile {
    policy: RawPolicy,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    memory: Option<Spanned<String>>,
    turn: Option<Spanned<String>>,
    entries: Option<u64>,
    workspace: Option<Spanned<String>>,
    file: Option<Spanned<String>>,
    tmp: Option<Spanned<String>>,
    input: Option<Spanned<String>>,
    output: Option<Spanned<String>>,
    log: Option<Spanned<String>>,
    runs_per_hour: Option<u32>,
}

/// The text being read: what an error needs to point at a place in it.
pub(super) struct Text<'t> {
    name: &'t str,
    text: &'t str,
}

impl Text<'_> {
    pub(super) fn error(&self, at: Range<usize>, message: impl std::fmt::Display) -> Error {
        let before = &self.text.as_bytes()[..at.start.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::config(format!("{}:{line}: {message}", self.name))
    }

    fn toml_error(&self, error: &toml::de::Error) -> Error {
        let message = error.message();
        let made = self.error(error.span().unwrap_or(0..0), message);
        match nearest_expected(message) {
            Some(nearest) => made.hint(format!("did you mean `{nearest}`?")),
            None => made,
        }
    }

    pub(super) fn bytes(&self, value: Option<&Spanned<String>>, default: u64) -> Result<u64> {
        value.map_or(Ok(default), |value| units::parse_bytes(value.get_ref()).map_err(|message| self.error(value.span(), message)))
    }

    fn bytes_to(&self, value: Option<&Spanned<String>>, default: u64, most: u64) -> Result<u64> {
        let bytes = self.bytes(value, default)?;
        match value {
            Some(value) if bytes > most => Err(self
                .error(value.span(), format!("{:?} is more than this limit can be: {most} bytes", value.get_ref()))
                .hint("what is larger belongs into a file under /workspace or /state")),
            _ => Ok(bytes),
        }
    }
}

/// Reads serde's "unknown field `x`, expected one of `a`, `b`" and returns the expected name that is nearest to `x`.
fn nearest_expected(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut names = rest.split('`').skip(1).step_by(2);
    let given = names.next()?;
    nearest(given, names)
}

pub(super) fn parse(name: &str, text: &str, folder: &Path) -> Result<Config> {
    let at = Text { name, text };
    let raw: RawConfig = toml::from_str(text).map_err(|error| at.toml_error(&error))?;
    if *raw.version.get_ref() != 1 {
        return Err(at
            .error(raw.version.span(), format!("version {} of the config is unknown", raw.version.get_ref()))
            .hint("this program reads `version = 1`; a newer config needs a newer program"));
    }
    let credentials = egress::credentials(&at, &raw.credentials, folder)?;
    let mut agents = BTreeMap::new();
    for (name, raw) in raw.agents {
        let agent = agent(&at, &raw, &credentials, folder)?;
        let parsed: AgentName = name.get_ref().parse().map_err(|error: Error| at.error(name.span(), error.message()))?;
        agents.insert(parsed, agent);
    }
    let policy = raw.policy.as_ref().map(|raw| egress::policy(&at, raw, Some(&credentials))).transpose()?;
    let kept = crate::gc::Retention::default();
    let retention = crate::gc::Retention {
        keep_last: raw.retention.keep_last.unwrap_or(kept.keep_last),
        keep_days: raw.retention.keep_days.unwrap_or(kept.keep_days),
    };
    let server = super::server::server(&at, &raw.server, &agents)?;
    let schedules = schedules::schedules(&at, raw.schedules, &agents)?;
    Ok(Config { store: raw.store.url, agents, credentials, policy, retention, server, schedules })
}

pub(super) fn parse_policy(name: &str, text: &str) -> Result<Policy> {
    let at = Text { name, text };
    let raw: RawPolicyFile = toml::from_str(text).map_err(|error| at.toml_error(&error))?;
    egress::policy(&at, &raw.policy, None)
}

fn agent(at: &Text<'_>, raw: &RawAgent, credentials: &BTreeMap<String, Credential>, folder: &Path) -> Result<Agent> {
    egress::check_names(at, &raw.credentials, credentials)?;
    egress::check_overlaps(at, &raw.credentials, credentials)?;
    let repository = raw.repository.as_ref().map(|raw| repository(at, raw, folder)).transpose()?;
    Ok(Agent {
        component: folder.join(&raw.component),
        repository,
        credentials: raw.credentials.iter().map(|name| name.get_ref().clone()).collect(),
        allowed_outbound_hosts: egress::hosts(at, &raw.allowed_outbound_hosts)?,
        private_addresses: egress::ranges(at, &raw.private_addresses)?,
        outbound: egress::outbound(at, &raw.outbound, folder)?,
        config: raw.config.clone(),
        args: raw.args.clone(),
        env: raw.env.clone(),
        limits: limits(at, &raw.limits)?,
        on_crash: match raw.on_crash {
            RawOnCrash::Retry => OnCrash::Retry,
            RawOnCrash::Fail => OnCrash::Fail,
        },
        schedules: raw.schedules.as_ref().map(|raw| schedules::grant(at, raw)).transpose()?,
    })
}

fn repository(at: &Text<'_>, raw: &RawRepository, folder: &Path) -> Result<Repository> {
    // The full rules are the repository room's; it is asked here so that a bad URL is an error of its line.
    crate::repository::check_url(raw.url.get_ref()).map_err(|error| {
        let made = at.error(raw.url.span(), error.message());
        match error.next_step() {
            Some(hint) => made.hint(hint),
            None => made,
        }
    })?;
    let author = raw.author.as_ref().map(|raw| {
        let RawAuthor { name, email } = raw.get_ref();
        super::Identity::new(name, email).map_err(|error| at.error(raw.span(), error.message()))
    });
    Ok(Repository {
        url: raw.url.get_ref().clone(),
        branch: raw.branch.clone(),
        ca_file: raw.ca_file.as_ref().map(|file| folder.join(file)),
        author: author.transpose()?,
        require_commit_on_branch: raw.require_commit_on_branch,
    })
}

fn limits(at: &Text<'_>, raw: &RawLimits) -> Result<Limits> {
    let default = Limits::default();
    let turn = match &raw.turn {
        None => default.turn,
        Some(value) => {
            let span = units::parse_span(value.get_ref()).map_err(|message| at.error(value.span(), message))?;
            if span > MAX_TURN {
                return Err(at.error(value.span(), "a turn can take 24 h at most"));
            }
            span
        }
    };
    Ok(Limits {
        memory: at.bytes(raw.memory.as_ref(), default.memory)?,
        turn,
        entries: raw.entries.unwrap_or(default.entries),
        workspace: at.bytes(raw.workspace.as_ref(), default.workspace)?,
        file: at.bytes(raw.file.as_ref(), default.file)?,
        tmp: at.bytes(raw.tmp.as_ref(), default.tmp)?,
        input: at.bytes(raw.input.as_ref(), default.input)?,
        output: at.bytes_to(raw.output.as_ref(), default.output, TEXT_MAX)?,
        log: at.bytes_to(raw.log.as_ref(), default.log, TEXT_MAX)?,
        runs_per_hour: raw.runs_per_hour.unwrap_or(default.runs_per_hour),
    })
}
