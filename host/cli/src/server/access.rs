//! Who may ask for what: bearer tokens with scopes and agents; without any, only this machine, and no web page on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use landfall::config::Scope;
use landfall::id::AgentName;
use landfall::{Error, Result};

use super::App;
use super::answer::Refused;

/// What a request may do.
pub(crate) struct Access {
    scopes: BTreeSet<Scope>,
    agents: Option<BTreeSet<AgentName>>,
}

impl Access {
    /// Refuses what the token isn't for.
    pub(crate) fn need(&self, scope: Scope) -> Result<()> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        let name = match scope {
            Scope::Read => "read",
            Scope::Run => "run",
        };
        Err(Error::denied(format!("the token doesn't have the scope {name:?}")).code("scope_missing"))
    }

    /// Refuses an agent that the token isn't for, as if there were none of that name.
    pub(crate) fn need_agent(&self, agent: &AgentName) -> Result<()> {
        if self.agents.as_ref().is_none_or(|agents| agents.contains(agent)) {
            return Ok(());
        }
        Err(Error::not_found(format!("no agent is named {agent}")).code("unknown_agent"))
    }

    /// Returns the agents that the token is for; none for all.
    pub(crate) fn agents(&self) -> Option<Vec<AgentName>> {
        self.agents.as_ref().map(|agents| agents.iter().cloned().collect())
    }
}

impl FromRequestParts<Arc<App>> for Access {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let State(app) = State::<Arc<App>>::from_request_parts(parts, app).await.unwrap_or_else(|never| match never {});
        if app.server.tokens.is_empty() {
            from_this_machine(parts)?;
            return Ok(Self { scopes: BTreeSet::from([Scope::Read, Scope::Run]), agents: None });
        }
        let bearer = parts
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        match bearer.and_then(|bearer| app.server.token(bearer)) {
            Some((_, token)) => Ok(Self { scopes: token.scopes.clone(), agents: token.agents.clone() }),
            None => Err(Refused::unauthorized()),
        }
    }
}

/// Without tokens the server is for programs of this machine. A web page in a browser here may reach it too, under its own name that resolves to
/// loopback or across origins; what such a request can't have is a loopback name as its host and no origin.
fn from_this_machine(parts: &Parts) -> Result<()> {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).or_else(|| parts.uri.authority().map(|host| host.as_str()));
    let name =
        host.map(|host| host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name));
    let is_local = name.is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost")
            || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    if is_local && !parts.headers.contains_key(ORIGIN) {
        return Ok(());
    }
    Err(Error::denied("without a token only programs of this machine are served, under 127.0.0.1, [::1] or localhost")
        .code("token_needed")
        .hint("`landfall token new` makes a token"))
}
