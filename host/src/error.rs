//! The library's public error: what went wrong, in words that hold ids and paths, and what the reader does next.
//!
//! Rules: the message leaves out its source (the chain prints it); a hint names the next move; no secret is ever part of either.
//! What a guest did wrong isn't an [`Error`]: it is a value of the WIT interface it called, or the reason of a failed run.

use std::fmt;

/// The result of the library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the reader of an error can do about it. The command's exit codes are made of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Correct the request or the command line.
    Usage,
    /// Correct the configuration.
    Config,
    /// Name something that exists.
    NotFound,
    /// Ask the operator for the grant, or the credential's owner for access.
    Denied,
    /// Somebody else has it or was first: look again, then repeat or give up.
    Conflict,
    /// Something given is over a limit: make it smaller, or have the limit raised.
    Limit,
    /// The store could not be reached or refused: repeat later, or check its settings (`landfall doctor`).
    Store,
    /// A remote repository could not be reached or gave something unusable.
    Remote,
    /// Stored bytes aren't what their id says, or a reference leads nowhere: restore them from a copy, or go back to another checkpoint.
    Damaged,
    /// Stored by a newer version: upgrade this program.
    TooNew,
    /// The component can't be loaded or doesn't fit the world or its grants.
    Component,
    /// The work was cancelled or the process is shutting down.
    Cancelled,
    /// This machine failed (disk full, no permission on a local path).
    Local,
    /// A fault of the library itself: report it.
    Internal,
}

/// An error of the library.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    code: Option<&'static str>,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),* $(,)?) => {
        $($(#[$doc])* #[must_use] pub fn $name(message: impl Into<String>) -> Self { Self::new(ErrorKind::$kind, message) })*
    };
}

impl Error {
    /// Makes an error of a kind with a message that names what it is about.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, code: None, message: message.into(), hint: None, source: None }))
    }

    constructors! {
        /// Makes an [`ErrorKind::Usage`] error.
        usage => Usage,
        /// Makes an [`ErrorKind::Config`] error.
        config => Config,
        /// Makes an [`ErrorKind::NotFound`] error.
        not_found => NotFound,
        /// Makes an [`ErrorKind::Denied`] error.
        denied => Denied,
        /// Makes an [`ErrorKind::Conflict`] error.
        conflict => Conflict,
        /// Makes an [`ErrorKind::Limit`] error.
        limit => Limit,
        /// Makes an [`ErrorKind::Store`] error.
        store => Store,
        /// Makes an [`ErrorKind::Remote`] error.
        remote => Remote,
        /// Makes an [`ErrorKind::Damaged`] error.
        damaged => Damaged,
        /// Makes an [`ErrorKind::TooNew`] error.
        too_new => TooNew,
        /// Makes an [`ErrorKind::Component`] error.
        component => Component,
        /// Makes an [`ErrorKind::Cancelled`] error.
        cancelled => Cancelled,
        /// Makes an [`ErrorKind::Local`] error.
        local => Local,
        /// Makes an [`ErrorKind::Internal`] error.
        internal => Internal,
    }

    /// Adds a stable, machine-readable code such as `pack_missing`.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.0.code = Some(code);
        self
    }

    /// Adds what the reader does next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the underlying cause.
    #[must_use]
    pub fn source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says what was being done; keeps the kind, the code and the hint of the cause.
    #[must_use]
    pub fn context(self, doing: impl Into<String>) -> Self {
        let (kind, code, hint) = (self.0.kind, self.0.code, self.0.hint.clone());
        let mut inner = self;
        inner.0.hint = None;
        Self(Box::new(Inner { kind, code, message: doing.into(), hint, source: Some(Box::new(inner)) }))
    }

    /// Returns what the reader can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stable code: the specific one, or the kind's.
    #[must_use]
    pub fn stable_code(&self) -> &'static str {
        self.0.code.unwrap_or(match self.0.kind {
            ErrorKind::Usage => "usage",
            ErrorKind::Config => "config",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Denied => "denied",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Limit => "limit",
            ErrorKind::Store => "store",
            ErrorKind::Remote => "remote",
            ErrorKind::Damaged => "damaged",
            ErrorKind::TooNew => "too_new",
            ErrorKind::Component => "component",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Local => "local",
            ErrorKind::Internal => "internal",
        })
    }

    /// Returns the message without its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns what the reader does next, where that is known.
    #[must_use]
    pub fn next_step(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the message and its causes on one line, for logs and records.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.0.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.chain())?;
        match &self.0.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

/// Adds what was being done to a failed result.
pub trait Context<T> {
    /// Wraps the error with the text that `doing` returns.
    ///
    /// # Errors
    /// The wrapped error, when `self` is one.
    fn context_with<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context_with<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Self {
        self.map_err(|error| error.context(doing()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_kind_code_and_hint_and_says_each_part_once() {
        let error = Error::damaged("pack ab is truncated").code("pack_damaged").hint("restore it").context("opening checkpoint cd");
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert_eq!(error.stable_code(), "pack_damaged");
        assert_eq!(error.next_step(), Some("restore it"));
        assert_eq!(error.chain(), "opening checkpoint cd: pack ab is truncated");
    }
}
