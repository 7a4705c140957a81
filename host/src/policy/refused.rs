//! Why the gate refused, with the step that decided.

use std::fmt;
use std::net::IpAddr;

use super::grants::Denial;

/// A step of the gate, in the order in which they are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The method.
    Method,
    /// The URL's bytes and syntax.
    Url,
    /// Its scheme.
    Scheme,
    /// User name and password in it.
    UserInfo,
    /// Its port.
    Port,
    /// The form of its host; a host that is an address is judged here.
    Host,
    /// A redirect's own rules.
    Redirect,
    /// The lists of hosts.
    List,
    /// The guest's headers.
    Headers,
    /// The name server's answer.
    Resolve,
    /// The addresses of the answer.
    Address,
    /// The credentials.
    Credential,
    /// The agent's budgets.
    Budget,
    /// The connection and its certificate.
    Connect,
    /// What came back.
    Response,
}

impl Step {
    /// Returns its name, as in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Url => "url",
            Self::Scheme => "scheme",
            Self::UserInfo => "userinfo",
            Self::Port => "port",
            Self::Host => "host",
            Self::Redirect => "redirect",
            Self::List => "list",
            Self::Headers => "headers",
            Self::Resolve => "resolve",
            Self::Address => "address",
            Self::Credential => "credential",
            Self::Budget => "budget",
            Self::Connect => "connect",
            Self::Response => "response",
        }
    }
}

/// A refusal of the gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The step that decided.
    pub step: Step,
    /// The stable name of the reason, such as `ip_private`.
    pub code: &'static str,
    /// The reason, for a person. Names no address that a name server gave: guests see it, and could scan a network by it.
    pub why: String,
    /// The addresses that were looked at, for the operator alone.
    pub addresses: Vec<IpAddr>,
    /// The line of the configuration that would allow it; none when none does.
    pub config_line: Option<String>,
}

impl Refused {
    pub(crate) fn new(step: Step, code: &'static str, why: impl Into<String>) -> Self {
        Self { step, code, why: why.into(), addresses: Vec::new(), config_line: None }
    }

    pub(crate) fn seen(mut self, addresses: &[IpAddr]) -> Self {
        self.addresses = addresses.to_vec();
        self
    }

    pub(crate) fn allowed_by(mut self, line: impl Into<String>) -> Self {
        self.config_line = Some(line.into());
        self
    }

    /// Returns it as what a guest gets.
    #[must_use]
    pub fn denial(&self, agent: &str, capability: &str, target: &str) -> Denial {
        Denial {
            agent: agent.to_owned(),
            capability: capability.to_owned(),
            target: target.to_owned(),
            code: self.code.to_owned(),
            why: self.why.clone(),
            config_line: self.config_line.clone(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.code)
    }
}
