//! The `[server]` section: how `landfall serve` listens and works.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::parse::Text;
use super::units;
use crate::error::{Error, Result};
use crate::id::{AgentName, Digest, ReplicaName};
use crate::nearest::nearest;
use crate::session::replica::{LEASE, LEASE_MAX, LEASE_MIN};

/// The port of `landfall serve` where none is said.
pub const DEFAULT_PORT: u16 = 7070;
/// Most runs at a time that may be configured.
const CONCURRENCY_MAX: usize = 1024;

/// How `landfall serve` listens and works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it listens. Beyond loopback a token is needed.
    pub listen: SocketAddr,
    /// The replica's name; none for the machine's.
    pub name: Option<ReplicaName>,
    /// Where other replicas reach it, when that isn't `http://` and [`Server::listen`].
    pub url: Option<String>,
    /// Most runs at a time.
    pub concurrency: usize,
    /// How long it may be silent before others take its runs over.
    pub lease: Duration,
    /// Time between two listings of the queue.
    pub poll: Duration,
    /// How long running turns may go on after SIGTERM.
    pub grace: Duration,
    /// The tokens that requests may carry, by name. With none, requests from this machine need none.
    pub tokens: BTreeMap<String, Token>,
}

/// A bearer token, as the config knows it: only its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the token's text.
    pub sha256: Digest,
    /// The agents that it is for; none: all.
    pub agents: Option<BTreeSet<AgentName>>,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
}

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at sessions and runs.
    Read,
    /// Start and cancel runs.
    Run,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            name: None,
            url: None,
            concurrency: 16,
            lease: LEASE,
            poll: Duration::from_secs(2),
            grace: Duration::from_secs(30),
            tokens: BTreeMap::new(),
        }
    }
}

impl Server {
    /// Looks for a bearer token. Every digest is compared, whichever matches, so that the time tells nothing of them.
    #[must_use]
    pub fn token(&self, bearer: &str) -> Option<(&str, &Token)> {
        let given = crate::id::sha256(bearer.as_bytes());
        let mut found = None;
        for (name, token) in &self.tokens {
            let differs = token.sha256.as_bytes().iter().zip(given.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
            if differs == 0 {
                found = Some((name.as_str(), token));
            }
        }
        found
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServer {
    listen: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    concurrency: Option<Spanned<usize>>,
    lease: Option<Spanned<String>>,
    poll: Option<Spanned<String>>,
    grace: Option<Spanned<String>>,
    #[serde(default)]
    tokens: BTreeMap<String, RawToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    sha256: Spanned<String>,
    agents: Option<Vec<Spanned<String>>>,
    #[serde(default = "all_scopes")]
    scopes: BTreeSet<Scope>,
}

fn all_scopes() -> BTreeSet<Scope> {
    BTreeSet::from([Scope::Read, Scope::Run])
}

pub(super) fn server(at: &Text<'_>, raw: &RawServer, agents: &BTreeMap<AgentName, super::Agent>) -> Result<Server> {
    let default = Server::default();
    let span = |value: &Option<Spanned<String>>, default: Duration, least: Duration, most: Duration| -> Result<Duration> {
        let Some(value) = value else { return Ok(default) };
        let span = units::parse_span(value.get_ref()).map_err(|message| at.error(value.span(), message))?;
        if (least..=most).contains(&span) {
            return Ok(span);
        }
        Err(at.error(value.span(), format!("{:?} is out of bounds: from {least:?} to {most:?}", value.get_ref())))
    };
    let listen = match &raw.listen {
        None => default.listen,
        Some(value) => value.get_ref().parse().map_err(|_| {
            at.error(value.span(), format!("{:?} is no address to listen on", value.get_ref()))
                .hint("an IP address and a port: 127.0.0.1:7070, 0.0.0.0:7070 or [::]:7070")
        })?,
    };
    let concurrency = match &raw.concurrency {
        None => default.concurrency,
        Some(value) if (1..=CONCURRENCY_MAX).contains(value.get_ref()) => *value.get_ref(),
        Some(value) => return Err(at.error(value.span(), format!("runs at a time: from 1 to {CONCURRENCY_MAX}"))),
    };
    let name = match &raw.name {
        None => None,
        Some(value) => Some(value.get_ref().parse().map_err(|error: Error| at.error(value.span(), error.message()))?),
    };
    let url = match &raw.url {
        None => None,
        Some(value) => match url::Url::parse(value.get_ref()) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.username().is_empty() => {
                Some(value.get_ref().trim_end_matches('/').to_owned())
            }
            _ => return Err(at.error(value.span(), format!("{:?} is no http:// or https:// URL", value.get_ref()))),
        },
    };
    let mut tokens = BTreeMap::new();
    for (name, raw) in &raw.tokens {
        tokens.insert(name.clone(), token(at, name, raw, agents)?);
    }
    Ok(Server {
        listen,
        name,
        url,
        concurrency,
        lease: span(&raw.lease, default.lease, LEASE_MIN, LEASE_MAX)?,
        poll: span(&raw.poll, default.poll, Duration::from_millis(100), Duration::from_secs(60))?,
        grace: span(&raw.grace, default.grace, Duration::ZERO, Duration::from_secs(24 * 60 * 60))?,
        tokens,
    })
}

fn token(at: &Text<'_>, name: &str, raw: &RawToken, agents: &BTreeMap<AgentName, super::Agent>) -> Result<Token> {
    let sha256 = raw.sha256.get_ref().parse().map_err(|_| {
        at.error(raw.sha256.span(), format!("the sha256 of the token {name:?} isn't 64 lower-case hex digits"))
            .hint("`landfall token new` prints a token and its digest; only the digest belongs here")
    })?;
    let mut named = BTreeSet::new();
    for agent in raw.agents.iter().flatten() {
        let found = agents.keys().find(|known| known.as_str() == agent.get_ref());
        let Some(found) = found else {
            let error = at.error(agent.span(), format!("no agent is named {:?}", agent.get_ref()));
            return Err(match nearest(agent.get_ref(), agents.keys().map(AgentName::as_str)) {
                Some(near) => error.hint(format!("did you mean {near:?}?")),
                None => error,
            });
        };
        named.insert(found.clone());
    }
    Ok(Token { sha256, agents: raw.agents.as_ref().map(|_| named), scopes: raw.scopes.clone() })
}
