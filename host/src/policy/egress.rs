//! The gate: whether one request of one agent may leave, to which addresses, and with which credential.
//!
//! One function, [`Egress::admit`], is asked for every request and every redirect, by both doors (`fetch` and `wasi:http`) and by
//! `landfall policy check`. Its order is part of the contract: a host that isn't listed causes no question to a name server.

use std::net::IpAddr;

use http::Method;

use super::addresses::{self, OwnAddresses, PrivateRange};
use super::credentials::{self, Chain, CredentialRule, Injection};
use super::hosts::HostList;
use super::refused::{Refused, Step};
use super::resolve::{ANSWERS_MAX, Resolver};
use super::url::{DEFAULT_PORTS, Host, Scheme, Target};

/// Most redirects of one request.
pub const REDIRECTS_MAX: u32 = 5;

/// Which hosts may be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosts {
    /// No list is looked at: only the rules for URLs and addresses hold. For questions about those rules, never for an agent.
    Unlisted,
    /// What an agent asks for, and what the policy allows where there is one. Both have to cover a request.
    Listed {
        /// The agent's list.
        asked: HostList,
        /// The policy's list; none where there is no policy, and the agent's list stands.
        allowed: Option<HostList>,
    },
}

/// The gate of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Egress {
    /// The agent's name, for denials; empty where no agent asks.
    pub agent: String,
    /// Which hosts may be asked.
    pub hosts: Hosts,
    /// The credentials that may be added, as asked for and allowed.
    pub credentials: Vec<CredentialRule>,
    /// Addresses that aren't public and are opened at one host each.
    pub private: Vec<PrivateRange>,
}

/// One request that wants to leave.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The URL, or what a `Location` header held.
    pub url: &'a str,
    /// The method.
    pub method: &'a Method,
    /// The guest's headers.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The page that redirects to it, and the chain so far; none for a first request.
    pub from: Option<(&'a Target, &'a Chain)>,
}

/// A request that may leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// What is asked for.
    pub target: Target,
    /// The addresses that may be connected to, all of them judged.
    pub addresses: Vec<IpAddr>,
    /// The entry of the agent's list that covers it; none where no list was looked at.
    pub entry: Option<String>,
    /// The credential that is added, and why none is.
    pub injection: Injection,
}

impl Egress {
    /// A gate without a list, for questions about URLs and addresses.
    #[must_use]
    pub fn unlisted() -> Self {
        Self { agent: String::new(), hosts: Hosts::Unlisted, credentials: Vec::new(), private: Vec::new() }
    }

    /// A gate with one list.
    #[must_use]
    pub fn listed(agent: impl Into<String>, asked: HostList) -> Self {
        Self { agent: agent.into(), hosts: Hosts::Listed { asked, allowed: None }, credentials: Vec::new(), private: Vec::new() }
    }

    /// Decides about a request. Budgets are for who counts them to check.
    ///
    /// # Errors
    /// The refusal, with the step that decided.
    pub async fn admit(&self, ask: &Ask<'_>, resolver: &dyn Resolver, own: &OwnAddresses) -> Result<Admitted, Refused> {
        let (target, entry) = self.check_url(ask)?;
        self.check_headers(&target, ask.headers.iter().copied())?;
        let addresses = self.find_addresses(&target, resolver, own).await?;
        let injection = credentials::choose(&self.credentials, &target, ask.method, ask.from.map(|(_, chain)| chain));
        Ok(Admitted { target, addresses, entry, injection })
    }

    /// Checks a guest's headers for a request to this URL.
    ///
    /// # Errors
    /// `header_syntax`, `header_reserved`, `headers_too_large`.
    pub fn check_headers<'h>(&self, target: &Target, headers: impl IntoIterator<Item = (&'h str, &'h [u8])>) -> Result<(), Refused> {
        super::headers::check(headers, &credentials::owned_headers(&self.credentials, target))
    }

    /// All that can be said without a name server.
    fn check_url(&self, ask: &Ask<'_>) -> Result<(Target, Option<String>), Refused> {
        if matches!(*ask.method, Method::CONNECT | Method::TRACE) {
            return Err(Refused::new(Step::Method, "method", format!("the method {} is never sent", ask.method)));
        }
        let target = match ask.from {
            None => Target::parse(ask.url)?,
            Some((page, _)) => page.join(ask.url)?,
        };
        self.check_port(&target)?;
        self.check_host(&target)?;
        if let Some((_, chain)) = ask.from {
            if chain.hops() >= REDIRECTS_MAX {
                return Err(Refused::new(Step::Redirect, "redirects", format!("there are more than {REDIRECTS_MAX} redirects")));
            }
            if chain.is_secure() && target.origin().scheme == Scheme::Http {
                return Err(Refused::new(Step::Redirect, "downgrade", "a redirect leads from https to http"));
            }
        }
        let entry = self.check_lists(&target, ask.method)?;
        Ok((target, entry))
    }

    fn check_port(&self, target: &Target) -> Result<(), Refused> {
        let port = target.origin().port;
        let named = match &self.hosts {
            Hosts::Unlisted => false,
            Hosts::Listed { asked, .. } => asked.patterns().iter().any(|pattern| pattern.port() == Some(port)),
        };
        if named || DEFAULT_PORTS.contains(&port) {
            return Ok(());
        }
        let refused = Refused::new(Step::Port, "port", format!("port {port} isn't one that may be asked for"));
        Err(if port == 0 || self.agent.is_empty() { refused } else { refused.allowed_by(self.line_for(target)) })
    }

    fn check_host(&self, target: &Target) -> Result<(), Refused> {
        match target.check_host() {
            // What an operator opened at an exact host may have a private name or be an address.
            Err(refused) if matches!(refused.code, "host_special" | "host_single_label") && self.range_of(target).is_some() => Ok(()),
            Err(refused) if matches!(&target.origin().host, Host::Address(address) if self.opens(target, *address)) => {
                drop(refused);
                Ok(())
            }
            other => other,
        }
    }

    fn check_lists(&self, target: &Target, method: &Method) -> Result<Option<String>, Refused> {
        let Hosts::Listed { asked, allowed } = &self.hosts else { return Ok(None) };
        let host = target.origin();
        let Some(entry) = asked.covering(target, method) else {
            let why = if asked.covers_place(target) {
                format!("the method {method} isn't allowed at {host}")
            } else if asked.patterns().is_empty() {
                "no hosts are allowed".to_owned()
            } else {
                format!("{host} isn't an allowed host")
            };
            let refused = Refused::new(Step::List, "not_allowed", why);
            return Err(if self.agent.is_empty() { refused } else { refused.allowed_by(self.line_for(target)) });
        };
        if let Some(allowed) = allowed
            && allowed.covering(target, method).is_none()
        {
            return Err(Refused::new(Step::List, "not_allowed", format!("the policy doesn't allow {host} to any agent"))
                .allowed_by(format!(r#"[policy] allowed_outbound_hosts = ["{host}"]"#)));
        }
        Ok(Some(entry.as_str().to_owned()))
    }

    async fn find_addresses(&self, target: &Target, resolver: &dyn Resolver, own: &OwnAddresses) -> Result<Vec<IpAddr>, Refused> {
        let name = match &target.origin().host {
            Host::Address(address) => return self.judge(target, vec![*address], own),
            Host::Name(name) => name,
        };
        let found = resolver.resolve(name).await.map_err(|error| {
            tracing::debug!(agent = %self.agent, %name, %error, "a name has no answer");
            Refused::new(Step::Resolve, "dns_fail", format!("the name {name} can't be resolved"))
        })?;
        if found.is_empty() {
            return Err(Refused::new(Step::Resolve, "dns_empty", format!("the name {name} has no addresses")));
        }
        if found.len() > ANSWERS_MAX {
            return Err(Refused::new(Step::Resolve, "dns_too_many", format!("the name {name} has more than {ANSWERS_MAX} addresses")));
        }
        self.judge(target, found, own)
    }

    /// Judges all addresses. One bad one refuses them all: the choice among them isn't ours.
    fn judge(&self, target: &Target, found: Vec<IpAddr>, own: &OwnAddresses) -> Result<Vec<IpAddr>, Refused> {
        let verdicts: Vec<_> = found.iter().map(|address| (*address, addresses::judge(*address, own))).collect();
        let bad: Vec<_> = verdicts.iter().filter(|(address, judged)| !judged.is_allowed() && !self.opens(target, *address)).collect();
        let Some((address, judged)) = bad.first() else { return Ok(found) };
        let host = &target.origin().host;
        if bad.len() < verdicts.len() {
            let why = format!("some of the addresses of {host} are ones that no agent is connected to");
            return Err(Refused::new(Step::Address, "dns_mixed", why).seen(&found));
        }
        let refused =
            Refused::new(Step::Address, judged.code(), format!("{host} is at an address that no agent is connected to: {}", judged.why()));
        let refused = refused.seen(&found);
        Err(if self.agent.is_empty() || addresses::is_metadata(*address) {
            refused
        } else {
            refused.allowed_by(format!(r#"[agents.{}.private_addresses] "{host}" = ["RANGE"]"#, self.agent))
        })
    }

    fn opens(&self, target: &Target, address: IpAddr) -> bool {
        self.range_of(target).is_some_and(|range| range.opens(&range.host, address))
    }

    fn range_of(&self, target: &Target) -> Option<&PrivateRange> {
        let host = target.origin().host.to_string();
        self.private.iter().find(|range| range.host == host)
    }

    fn line_for(&self, target: &Target) -> String {
        format!(r#"[agents.{}] allowed_outbound_hosts = ["{}"]"#, self.agent, target.origin())
    }
}

#[cfg(test)]
mod tests;
