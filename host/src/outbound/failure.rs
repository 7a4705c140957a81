//! Why a request has no response, or a response no end.

use std::fmt;
use std::time::Duration;

use crate::policy::refused::Refused;

/// Why a request failed. Holds no secret and no address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The gate refused it, or what came back must not be handed over.
    Refused(Box<Refused>),
    /// Something took longer than its limit.
    TimedOut {
        /// What: `resolve`, `connect`, `tls`, `first-byte`, `gap` or `total`.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// A limit on amounts was reached.
    TooMuch {
        /// The limit's name.
        name: &'static str,
        /// The most that is allowed.
        allowed: u64,
    },
    /// No connection came about, or it was lost.
    Unreachable(String),
    /// The other side isn't who it should be.
    Tls(String),
    /// The other side doesn't speak HTTP as it should.
    Protocol(String),
    /// The host itself failed.
    Host(String),
}

impl Failure {
    /// Returns the stable name of the reason.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.code,
            Self::TimedOut { .. } => "timeout",
            Self::TooMuch { .. } => "too_much",
            Self::Unreachable(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Protocol(_) => "protocol",
            Self::Host(_) => "host",
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::TimedOut { what, limit } => write!(f, "the time limit {what} of {} ms is over", limit.as_millis()),
            Self::TooMuch { name, allowed } => write!(f, "the limit {name} of {allowed} is reached"),
            Self::Unreachable(why) | Self::Tls(why) | Self::Protocol(why) | Self::Host(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}
