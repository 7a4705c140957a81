//! Why a capability's call failed: the values of the WIT variant `types.error`, and the host's own failures, which end the call instead.

use std::fmt;

use super::bindings::landfall::agent::types as wit;
use crate::error::{Error, ErrorKind};
use crate::policy::grants::Denial;

/// A limit was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitReached {
    /// The limit's name, as in the configuration's `limits` tables.
    pub name: String,
    /// The most that is allowed: bytes, a count, or milliseconds where the name ends in `-ms`.
    pub allowed: u64,
    /// What was asked for or reached; none when it was stopped before that was known.
    pub value: Option<u64>,
}

impl LimitReached {
    /// Makes one whose value is known.
    #[must_use]
    pub fn new(name: &str, allowed: u64, value: u64) -> Self {
        Self { name: name.to_owned(), allowed, value: Some(value) }
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value} is over the limit `{}` of {}", self.name, self.allowed),
            None => write!(f, "the limit `{}` of {} is reached", self.name, self.allowed),
        }
    }
}

/// Why a capability's call failed. All but [`Refusal::Host`] are answers that the guest gets as values.
#[derive(Debug)]
pub enum Refusal {
    /// Nothing grants it.
    Denied(Box<Denial>),
    /// What the call names doesn't exist.
    NotFound(String),
    /// An argument breaks a rule of the function.
    Invalid(String),
    /// A limit was reached; nothing was done.
    Limit(LimitReached),
    /// Another run or request got there first; nothing was done.
    Conflict(String),
    /// It took longer than its time limit in milliseconds. It may have had an effect.
    Timeout(u64),
    /// The store or a network peer can't be reached now.
    Unavailable(String),
    /// Something stored doesn't match its id.
    Damaged(String),
    /// Anything else.
    Other(String),
    /// The host itself failed or stops: the guest's call never returns, and the run ends with this error.
    Host(Error),
}

impl From<Error> for Refusal {
    /// Gives the guest what it can do something about. What comes from the store is said by its code alone: the messages name the
    /// operator's bucket and objects. Of other errors the guest gets the message without its causes.
    fn from(error: Error) -> Self {
        let text = error.message().to_owned();
        let code = error.stable_code();
        let stored = |what: &str| format!("{what} ({code})");
        match error.kind() {
            ErrorKind::Store => Self::Unavailable(stored("the host's store failed")),
            ErrorKind::Damaged | ErrorKind::TooNew => Self::Damaged(stored("what is stored can't be read")),
            ErrorKind::Conflict if code.starts_with("store_") => Self::Conflict(stored("it was changed by somebody else")),
            ErrorKind::NotFound if code == "object_missing" => Self::Damaged(stored("what is stored isn't all there")),
            ErrorKind::NotFound => Self::NotFound(text),
            ErrorKind::Usage => Self::Invalid(text),
            ErrorKind::Conflict => Self::Conflict(text),
            ErrorKind::Remote => Self::Unavailable(text),
            ErrorKind::Limit => Self::Other(text),
            _ => Self::Host(error),
        }
    }
}

impl From<wasmtime::component::ResourceTableError> for Refusal {
    fn from(error: wasmtime::component::ResourceTableError) -> Self {
        Self::Host(Error::internal("a resource of the guest is lost").source(error))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => denial.fmt(f),
            Self::NotFound(text)
            | Self::Invalid(text)
            | Self::Conflict(text)
            | Self::Unavailable(text)
            | Self::Damaged(text)
            | Self::Other(text) => f.write_str(text),
            Self::Limit(limit) => limit.fmt(f),
            Self::Timeout(millis) => write!(f, "it took longer than {millis} ms"),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl Refusal {
    /// Returns the WIT value, or the error that ends the guest's call.
    pub(super) fn into_wit(self) -> wasmtime::Result<wit::Error> {
        Ok(match self {
            Self::Denied(denial) => wit::Error::Denied((*denial).into()),
            Self::NotFound(text) => wit::Error::NotFound(text),
            Self::Invalid(text) => wit::Error::Invalid(text),
            Self::Limit(limit) => wit::Error::Limit(limit.into()),
            Self::Conflict(text) => wit::Error::Conflict(text),
            Self::Timeout(millis) => wit::Error::Timeout(millis),
            Self::Unavailable(text) => wit::Error::Unavailable(text),
            Self::Damaged(text) => wit::Error::Damaged(text),
            Self::Other(text) => wit::Error::Other(text),
            Self::Host(error) => return Err(wasmtime::Error::new(error)),
        })
    }
}

impl From<LimitReached> for wit::Limit {
    fn from(limit: LimitReached) -> Self {
        Self { name: limit.name, allowed: limit.allowed, value: limit.value }
    }
}

impl From<wit::Limit> for LimitReached {
    fn from(limit: wit::Limit) -> Self {
        Self { name: limit.name, allowed: limit.allowed, value: limit.value }
    }
}

impl From<Denial> for wit::Denial {
    fn from(denial: Denial) -> Self {
        Self {
            agent: denial.agent,
            capability: denial.capability,
            target: denial.target,
            code: denial.code,
            why: denial.why,
            config_line: denial.config_line,
        }
    }
}

impl From<wit::Denial> for Denial {
    fn from(denial: wit::Denial) -> Self {
        Self {
            agent: denial.agent,
            capability: denial.capability,
            target: denial.target,
            code: denial.code,
            why: denial.why,
            config_line: denial.config_line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_can_act_on_is_a_value_and_the_hosts_own_failure_comes_back_whole() {
        let refusal = Refusal::from(Error::damaged("pack ab is truncated").source(std::io::Error::other("s3://secret")));
        assert!(matches!(refusal.into_wit(), Ok(wit::Error::Damaged(text)) if text.contains("(damaged)") && !text.contains("pack")));
        let failed = Refusal::from(Error::local("disk full").code("spool")).into_wit().unwrap_err();
        assert_eq!(failed.downcast_ref::<Error>().map(Error::stable_code), Some("spool"));
    }

    #[test]
    fn the_operator_s_store_is_not_named_to_guests() {
        let message = "writing sessions/a/b/head in s3://acme-secret-bucket/prefix: the store doesn't answer";
        let errors = [
            Error::new(ErrorKind::Store, message).code("store_unreachable"),
            Error::new(ErrorKind::Damaged, message).code("pack_damaged"),
            Error::new(ErrorKind::TooNew, message).code("too_new"),
            Error::new(ErrorKind::Conflict, message).code("store_conflict"),
            Error::new(ErrorKind::NotFound, message).code("object_missing"),
        ];
        for error in errors {
            let code = error.stable_code();
            let text = Refusal::from(error).to_string();
            assert!(!text.contains("bucket") && !text.contains("sessions/"), "{text}");
            assert!(text.contains(code), "{text} can be looked up");
        }
    }
}
