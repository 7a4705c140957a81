//! Why a call to the host failed.

use std::fmt;

use crate::bindings::landfall::agent::types;
pub use types::{Denial, Limit};

/// Why a call to the host failed. Each function of the SDK says which of these it returns; any may return [`Error::Unavailable`] and
/// [`Error::Other`].
#[derive(Clone, Debug)]
pub enum Error {
    /// Nothing grants it. Trying again in this turn gives the same answer.
    Denied(Box<Denial>),
    /// What the call names doesn't exist. The text names it.
    NotFound(String),
    /// An argument breaks a rule of the function. The text names the argument and the rule.
    Invalid(String),
    /// A limit was reached; nothing was done.
    Limit(Limit),
    /// Another run or request got there first; the text says which. Nothing was done.
    Conflict(String),
    /// It took longer than its time limit, given in milliseconds. It may have had an effect.
    Timeout(u64),
    /// The store or a network peer can't be reached now. Trying again later may work.
    Unavailable(String),
    /// Something stored doesn't match its id. The text names the object. Trying again doesn't help.
    Damaged(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denial) => denial.fmt(f),
            Self::NotFound(what) => write!(f, "not found: {what}"),
            Self::Invalid(why) => write!(f, "invalid: {why}"),
            Self::Limit(limit) => limit.fmt(f),
            Self::Conflict(why) => write!(f, "conflict: {why}"),
            Self::Timeout(after) => write!(f, "no answer within {after} ms"),
            Self::Unavailable(why) => write!(f, "unavailable: {why}"),
            Self::Damaged(what) => write!(f, "damaged: {what}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<types::Error> for Error {
    fn from(error: types::Error) -> Self {
        match error {
            types::Error::Denied(denial) => Self::Denied(Box::new(denial)),
            types::Error::NotFound(what) => Self::NotFound(what),
            types::Error::Invalid(why) => Self::Invalid(why),
            types::Error::Limit(limit) => Self::Limit(limit),
            types::Error::Conflict(why) => Self::Conflict(why),
            types::Error::Timeout(after) => Self::Timeout(after),
            types::Error::Unavailable(why) => Self::Unavailable(why),
            types::Error::Damaged(what) => Self::Damaged(what),
            types::Error::Other(why) => Self::Other(why),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "denied: {}", self.why)?;
        match &self.config_line {
            Some(line) => write!(f, "; to allow it: {line}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over the limit {:?} of {}", self.name, self.allowed)?;
        match self.value {
            Some(value) => write!(f, ": {value}"),
            None => Ok(()),
        }
    }
}
