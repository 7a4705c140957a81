//! The parts of the config that say what leaves: hosts, credentials, the policy; and the gate that they make for one agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::parse::Text;
use super::{Config, Credential, CredentialSource, GITHUB_READ_TOKEN, OutboundOptions, Policy, Uses, units};
use crate::error::{Error, Result};
use crate::id::AgentName;
use crate::nearest::nearest;
use crate::outbound::limits::OutboundLimits;
use crate::policy::addresses::PrivateRange;
use crate::policy::credentials::{Audience, CredentialRule, Placement};
use crate::policy::egress::{Egress, Hosts};
use crate::policy::hosts::{BadPattern, HostList, HostPattern};
use crate::policy::{headers, url as url_rules};

pub(super) type RawHosts = Vec<Spanned<String>>;
pub(super) type RawRanges = BTreeMap<Spanned<String>, Vec<Spanned<String>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCredential {
    source: Option<RawSource>,
    audience: Option<Vec<Spanned<String>>>,
    user: Option<String>,
    inject: Option<RawInject>,
    #[serde(rename = "for")]
    uses: Option<Vec<Spanned<RawUse>>>,
    methods: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum RawSource {
    Env(String),
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInject {
    header: Spanned<String>,
    scheme: Option<Spanned<String>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum RawUse {
    Repository,
    Fetch,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicy {
    repositories: Option<Vec<String>>,
    #[serde(default)]
    allowed_outbound_hosts: RawHosts,
    credentials: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    private_addresses: RawRanges,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutbound {
    ca_file: Option<PathBuf>,
    request: Option<Spanned<String>>,
    response: Option<Spanned<String>>,
    run_bytes: Option<Spanned<String>>,
    connect: Option<Spanned<String>>,
    first_byte: Option<Spanned<String>>,
    gap: Option<Spanned<String>>,
    total: Option<Spanned<String>>,
    parallel: Option<std::num::NonZeroUsize>,
    parallel_host: Option<std::num::NonZeroUsize>,
    per_minute: Option<std::num::NonZeroU32>,
}

/// The hosts that the built-in credential may ever be sent to by an agent's requests.
const GITHUB_HOSTS: [&str; 4] = ["github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com"];

fn bad(at: &Text<'_>, value: &Spanned<String>, error: BadPattern) -> Error {
    at.error(value.span(), error.message).code("bad_pattern").hint(error.hint)
}

pub(super) fn hosts(at: &Text<'_>, raw: &RawHosts) -> Result<HostList> {
    raw.iter().map(|text| HostPattern::parse(text.get_ref()).map_err(|error| bad(at, text, error))).collect()
}

pub(super) fn ranges(at: &Text<'_>, raw: &RawRanges) -> Result<Vec<PrivateRange>> {
    raw.iter()
        .map(|(host, nets)| {
            let key = url_rules::host_key(host.get_ref()).ok_or_else(|| {
                at.error(host.span(), format!("{:?} can't be a host", host.get_ref()))
                    .hint("addresses are opened at one exact host: \"git.corp.example.com\" = [\"10.0.0.0/8\"]")
            })?;
            let nets = nets.iter().map(|net| range(at, net)).collect::<Result<_>>()?;
            Ok(PrivateRange { host: key, nets })
        })
        .collect()
}

fn range(at: &Text<'_>, text: &Spanned<String>) -> Result<IpNet> {
    let written = text.get_ref();
    let net = written.parse::<IpNet>().ok().or_else(|| written.parse::<std::net::IpAddr>().ok().map(IpNet::from));
    match net {
        Some(net) if net.trunc() == net => Ok(net),
        Some(net) => {
            Err(at.error(text.span(), format!("{written:?} has bits set behind its prefix length")).hint(format!("write {}", net.trunc())))
        }
        None => Err(at
            .error(text.span(), format!("{written:?} is not a range of addresses"))
            .hint("write an address or a range such as \"10.1.2.0/24\" or \"fd00::/8\"")),
    }
}

pub(super) fn credentials(
    at: &Text<'_>,
    raw: &BTreeMap<Spanned<String>, RawCredential>,
    folder: &Path,
) -> Result<BTreeMap<String, Credential>> {
    let mut credentials = BTreeMap::from([(GITHUB_READ_TOKEN.to_owned(), built_in()?)]);
    for (name, raw) in raw {
        credentials.insert(name.get_ref().clone(), credential(at, name, raw, folder)?);
    }
    Ok(credentials)
}

fn built_in() -> Result<Credential> {
    let audience = Audience::parse("https://github.com").map_err(|error| Error::internal(error.message))?;
    Ok(Credential {
        source: CredentialSource::Env(GITHUB_READ_TOKEN.to_owned()),
        audience: vec![audience],
        user: USER.to_owned(),
        uses: Uses { repository: true, fetch: false },
        place: Placement::default(),
        methods: Some(READING.to_vec()),
    })
}

/// The user name that git servers take with a token.
const USER: &str = "x-access-token";
/// The methods that only read.
const READING: [Method; 2] = [Method::GET, Method::HEAD];

fn credential(at: &Text<'_>, name: &Spanned<String>, raw: &RawCredential, folder: &Path) -> Result<Credential> {
    let (span, name) = (name.span(), name.get_ref().as_str());
    let is_built_in = name == GITHUB_READ_TOKEN;
    if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        return Err(at.error(span, format!("{name:?} can't name a credential: letters, digits, _ and -, at most 64")));
    }
    let source = match &raw.source {
        Some(RawSource::Env(variable)) => CredentialSource::Env(variable.clone()),
        Some(RawSource::File(file)) => CredentialSource::File(folder.join(file)),
        None if is_built_in => CredentialSource::Env(GITHUB_READ_TOKEN.to_owned()),
        None => {
            return Err(at
                .error(span, format!("[credentials.{name}] has no source"))
                .hint(format!("add source = {{ env = \"{name}\" }} or source = {{ file = \"PATH\" }}")));
        }
    };
    let audience = audience(at, name, &span, raw)?;
    let uses = match &raw.uses {
        Some(uses) if uses.is_empty() => {
            return Err(at.error(span, format!("[credentials.{name}] is for nothing")).hint("for = [\"repository\"], [\"fetch\"] or both"));
        }
        Some(uses) => {
            let has = |wanted| uses.iter().any(|one| *one.get_ref() == wanted);
            Uses { repository: has(RawUse::Repository), fetch: has(RawUse::Fetch) }
        }
        // Whoever says where it goes in a request means requests.
        None => Uses { repository: raw.inject.is_none(), fetch: raw.inject.is_some() },
    };
    let methods = match &raw.methods {
        Some(methods) => Some(methods.iter().map(|text| method(at, text)).collect::<Result<Vec<_>>>()?),
        None => is_built_in.then(|| READING.to_vec()),
    };
    if is_built_in && methods.as_ref().is_none_or(|methods| methods.iter().any(|method| !READING.contains(method))) {
        return Err(at
            .error(span, format!("{GITHUB_READ_TOKEN} is only for reading: GET and HEAD"))
            .hint("name a credential of your own for writing"));
    }
    Ok(Credential {
        source,
        audience,
        user: raw.user.clone().unwrap_or_else(|| USER.to_owned()),
        uses,
        place: raw.inject.as_ref().map(|inject| placement(at, inject)).transpose()?.unwrap_or_default(),
        methods,
    })
}

fn audience(at: &Text<'_>, name: &str, span: &std::ops::Range<usize>, raw: &RawCredential) -> Result<Vec<Audience>> {
    let texts = match &raw.audience {
        Some(texts) if !texts.is_empty() => texts,
        None if name == GITHUB_READ_TOKEN => return Ok(built_in()?.audience),
        _ => {
            return Err(at
                .error(span.clone(), format!("[credentials.{name}] has no audience"))
                .hint("add audience = [\"https://host\"]: where it may be sent"));
        }
    };
    let mut audiences: Vec<Audience> = Vec::with_capacity(texts.len());
    for text in texts {
        let audience = Audience::parse(text.get_ref()).map_err(|error| bad(at, text, error))?;
        if audiences.iter().any(|other| other.overlaps(&audience)) {
            return Err(at
                .error(text.span(), format!("[credentials.{name}] names the audience {audience} twice"))
                .hint("leave one of them out"));
        }
        let of_github = audience.exact_host().is_some_and(|host| GITHUB_HOSTS.contains(&host));
        if name == GITHUB_READ_TOKEN && !of_github {
            return Err(at
                .error(text.span(), format!("{GITHUB_READ_TOKEN} is only for {}", GITHUB_HOSTS.join(", ")))
                .hint("name a credential of your own for another host"));
        }
        audiences.push(audience);
    }
    Ok(audiences)
}

fn method(at: &Text<'_>, text: &Spanned<String>) -> Result<Method> {
    let upper = text.get_ref().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    Method::from_bytes(text.get_ref().as_bytes())
        .ok()
        .filter(|method| upper && !matches!(*method, Method::CONNECT | Method::TRACE))
        .ok_or_else(|| at.error(text.span(), format!("{:?} is not a method", text.get_ref())).hint("methods are written as \"GET\""))
}

fn placement(at: &Text<'_>, raw: &RawInject) -> Result<Placement> {
    let header = raw.header.get_ref();
    if !headers::is_token(header) || headers::is_reserved(header) {
        return Err(at
            .error(raw.header.span(), format!("{header:?} can't be the header of a credential"))
            .hint("write the header's name alone, such as \"x-api-key\" or \"authorization\""));
    }
    let scheme = raw.scheme.as_ref().map(|scheme| {
        let valid = headers::is_token(scheme.get_ref());
        valid.then(|| scheme.get_ref().clone()).ok_or_else(|| {
            at.error(scheme.span(), format!("{:?} is not an authentication scheme", scheme.get_ref()))
                .hint("write it alone, such as \"Bearer\"")
        })
    });
    let header = header.to_ascii_lowercase();
    Ok(Placement { scheme: scheme.transpose()?, header })
}

/// Reads how an agent's requests are made. Times are for `fetch`; a longer one is for `wasi:http` too.
pub(super) fn outbound(at: &Text<'_>, raw: &RawOutbound, folder: &Path) -> Result<OutboundOptions> {
    let mut limits = OutboundLimits::default();
    let span = |value: &Option<Spanned<String>>, default: Duration| match value {
        None => Ok(default),
        Some(value) => units::parse_span(value.get_ref()).map_err(|message| at.error(value.span(), message)),
    };
    let fetch = &mut limits.fetch;
    fetch.connect = span(&raw.connect, fetch.connect)?;
    fetch.first_byte = span(&raw.first_byte, fetch.first_byte)?;
    fetch.gap = span(&raw.gap, fetch.gap)?;
    fetch.total = span(&raw.total, fetch.total)?;
    let http = &mut limits.http;
    http.connect = http.connect.max(fetch.connect);
    http.first_byte = http.first_byte.max(fetch.first_byte);
    http.gap = http.gap.max(fetch.gap);
    http.total = http.total.max(fetch.total);
    limits.request = at.bytes(raw.request.as_ref(), limits.request)?;
    limits.response = at.bytes(raw.response.as_ref(), limits.response)?;
    limits.run_bytes = at.bytes(raw.run_bytes.as_ref(), limits.run_bytes)?;
    limits.parallel = raw.parallel.map_or(limits.parallel, Into::into);
    limits.parallel_host = raw.parallel_host.map_or(limits.parallel_host, Into::into);
    limits.per_minute = raw.per_minute.map_or(limits.per_minute, Into::into);
    Ok(OutboundOptions { limits, ca_file: raw.ca_file.as_ref().map(|file| folder.join(file)) })
}

/// Refuses names of credentials that don't exist.
pub(super) fn check_names(at: &Text<'_>, wanted: &[Spanned<String>], credentials: &BTreeMap<String, Credential>) -> Result<()> {
    for wanted in wanted {
        if !credentials.contains_key(wanted.get_ref()) {
            let error = at.error(wanted.span(), format!("no credential is named {:?}", wanted.get_ref()));
            return Err(match nearest(wanted.get_ref(), credentials.keys().map(String::as_str)) {
                Some(name) => error.hint(format!("did you mean {name:?}?")),
                None => error.hint(format!("add a section [credentials.{}]", wanted.get_ref())),
            });
        }
    }
    Ok(())
}

/// Refuses two credentials of one agent that would go into the same header at the same host.
pub(super) fn check_overlaps(at: &Text<'_>, wanted: &[Spanned<String>], credentials: &BTreeMap<String, Credential>) -> Result<()> {
    for (index, name) in wanted.iter().enumerate() {
        for earlier in &wanted[..index] {
            let (Some(one), Some(other)) = (credentials.get(earlier.get_ref()), credentials.get(name.get_ref())) else { continue };
            let same_place = one.uses.fetch && other.uses.fetch && one.place.header == other.place.header;
            let shared = one.audience.iter().find(|audience| other.audience.iter().any(|other| other.overlaps(audience)));
            if let (true, Some(shared)) = (same_place, shared) {
                let header = &one.place.header;
                let message = format!("{} and {} would both be the header {header:?} at {shared}", earlier.get_ref(), name.get_ref());
                return Err(at.error(name.span(), message).hint("one header takes one credential: leave one out, or narrow its audience"));
            }
        }
    }
    Ok(())
}

pub(super) fn policy(at: &Text<'_>, raw: &RawPolicy, credentials: Option<&BTreeMap<String, Credential>>) -> Result<Policy> {
    if let (Some(names), Some(credentials)) = (&raw.credentials, credentials) {
        check_names(at, names, credentials)?;
    }
    Ok(Policy {
        repositories: raw.repositories.clone(),
        allowed_outbound_hosts: hosts(at, &raw.allowed_outbound_hosts)?,
        credentials: raw.credentials.as_ref().map(|names| names.iter().map(|name| name.get_ref().clone()).collect()),
        private_addresses: ranges(at, &raw.private_addresses)?,
    })
}

impl Config {
    /// Makes the gate of an agent: what its entry asks for, as far as the policy allows. None for an agent that doesn't exist.
    ///
    /// # Errors
    /// `Internal` for paths of a repository that can't be an audience.
    pub fn egress(&self, name: &AgentName) -> Option<Egress> {
        let agent = self.agents.get(name)?;
        let policy = self.policy.as_ref();
        Some(Egress {
            agent: name.to_string(),
            hosts: Hosts::Listed {
                asked: agent.allowed_outbound_hosts.clone(),
                allowed: policy.map(|policy| policy.allowed_outbound_hosts.clone()),
            },
            credentials: agent
                .credentials
                .iter()
                .filter(|credential| self.allows_credential(credential))
                .filter_map(|credential| {
                    self.credential_rule(credential, agent.repository.as_ref().map(|repository| repository.url.as_str()))
                })
                .collect(),
            private: match policy {
                None => agent.private_addresses.clone(),
                Some(policy) => agent.private_addresses.iter().filter_map(|range| common(range, &policy.private_addresses)).collect(),
            },
        })
    }

    /// Whether the policy lets agents name a credential.
    #[must_use]
    pub fn allows_credential(&self, name: &str) -> bool {
        let listed = self.policy.as_ref().and_then(|policy| policy.credentials.as_ref());
        listed.is_none_or(|names| names.iter().any(|allowed| allowed == name))
    }

    /// Returns how a credential is added to the requests of an agent with this repository; none when it isn't for that.
    fn credential_rule(&self, name: &str, repository: Option<&str>) -> Option<CredentialRule> {
        let credential = self.credentials.get(name)?;
        if !credential.uses.fetch {
            return None;
        }
        let narrow = name == GITHUB_READ_TOKEN && built_in().is_ok_and(|built_in| built_in.audience == credential.audience);
        let audience = if narrow { of_repository(repository?) } else { credential.audience.clone() };
        Some(CredentialRule { name: name.to_owned(), audience, place: credential.place.clone(), methods: credential.methods.clone() })
    }
}

/// The places of one repository on GitHub: its pages, the API, archives, raw files.
fn of_repository(url: &str) -> Vec<Audience> {
    let Some(path) = url.strip_prefix("https://github.com/") else { return Vec::new() };
    let path = path.trim_end_matches('/').trim_end_matches(".git");
    let places = [
        format!("https://github.com/{path}"),
        format!("https://github.com/{path}.git"),
        format!("https://api.github.com/repos/{path}"),
        format!("https://codeload.github.com/{path}"),
        format!("https://raw.githubusercontent.com/{path}"),
    ];
    // A path that can't be one opens nothing.
    places.iter().filter_map(|place| Audience::parse(place).ok()).collect()
}

/// The part of an agent's ranges at a host that the policy opens there too.
fn common(asked: &PrivateRange, allowed: &[PrivateRange]) -> Option<PrivateRange> {
    let allowed = allowed.iter().find(|range| range.host == asked.host)?;
    let narrower = |one: &IpNet, other: &IpNet| match (one.contains(other), other.contains(one)) {
        (true, _) => Some(*other),
        (_, true) => Some(*one),
        _ => None,
    };
    let nets: Vec<IpNet> = asked.nets.iter().flat_map(|one| allowed.nets.iter().filter_map(move |other| narrower(one, other))).collect();
    (!nets.is_empty()).then(|| PrivateRange { host: asked.host.clone(), nets })
}
