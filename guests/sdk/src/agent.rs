//! The turn: what an agent is asked and what it answers.

use std::fmt;

use crate::bindings::exports::landfall::agent::turn;
pub use turn::{Attachment, Request, Response, Tick, Trigger};

use crate::error::{Denial, Error, Limit};

/// An agent.
///
/// Each turn is a fresh instance of the component, so statics and globals don't live from one turn to the next: `/state` does. A turn
/// may be started more than once before it commits, each time from the same files; `request.attempt` tells.
pub trait Agent {
    /// Runs one turn.
    ///
    /// A response commits the files. A failure or a panic drops the edits. Either way the run is recorded, with what it printed to
    /// stdout and stderr.
    ///
    /// # Errors
    /// The agent's own: `?` turns [`Error`] and [`std::io::Error`] into a [`Failure`].
    fn run(request: Request) -> Result<Response, Failure>;
}

impl<A: Agent> turn::Guest for A {
    fn run(request: Request) -> Result<Response, turn::Failure> {
        A::run(request).map_err(Into::into)
    }
}

/// Exports a type that implements [`Agent`] as the component's turn. Once per component; nothing happens on other targets than
/// `wasm32`, so that an agent's crate can be tested on the machine it is written on.
#[macro_export]
macro_rules! export {
    ($agent:ident) => {
        const _: fn() = || {
            fn is_agent<A: $crate::Agent>() {}
            is_agent::<$agent>();
        };
        #[cfg(target_arch = "wasm32")]
        $crate::bindings::export!($agent with_types_in $crate::bindings);
    };
}

impl Request {
    /// Returns the value of a parameter that was given for this run; none when it wasn't given.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the attachment of this name; none when there isn't one.
    #[must_use]
    pub fn attachment(&self, name: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| attachment.name == name)
    }
}

impl<T: Into<String>> From<T> for Response {
    fn from(output: T) -> Self {
        Self { output: output.into() }
    }
}

/// Why a turn failed. Its edits are dropped, but for checkpoints that it saved by name.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The request asks for something that this agent doesn't do or that makes no sense. Not tried again.
    InvalidRequest(String),
    /// A capability refused. Not tried again.
    Denied(Box<Denial>),
    /// A limit was reached. Not tried again.
    Limit(Limit),
    /// Something outside can't be reached now. A schedule with retries tries again after its pause.
    Unavailable(String),
    /// Anything else. Not tried again.
    Other(String),
}

impl Failure {
    /// Returns a failure with this message, for `ok_or_else` and `map_err`.
    pub fn other(message: impl fmt::Display) -> Self {
        Self::Other(message.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidRequest(why) | Self::Unavailable(why) | Self::Other(why) => f.write_str(why),
            Self::Denied(denial) => denial.fmt(f),
            Self::Limit(limit) => limit.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denial) => Self::Denied(denial),
            Error::Limit(limit) => Self::Limit(limit),
            Error::Unavailable(why) => Self::Unavailable(why),
            error => Self::Other(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<Failure> for turn::Failure {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::InvalidRequest(why) => Self::InvalidRequest(why),
            Failure::Denied(denial) => Self::Denied(*denial),
            Failure::Limit(limit) => Self::Limit(limit),
            Failure::Unavailable(why) => Self::Unavailable(why),
            Failure::Other(why) => Self::Other(why),
        }
    }
}
