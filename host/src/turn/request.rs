//! What a turn is asked for. The command line, HTTP and schedules all make one of these; no step of the turn knows which it was.

use bytes::Bytes;

use crate::config::Limits;
use crate::error::{Error, Result};
use crate::id::{AgentName, CommitId, RunId, SessionName, SessionRef};
use crate::session::queue::{ATTACHMENT_NAME_MAX, ATTACHMENTS_MAX};
use crate::session::{Origin, Trigger};

/// Most bytes of the names and values given for one run.
const PARAMS_BYTES: usize = 8 << 10;
/// Most bytes of all attachments of a request together.
const ATTACHMENTS_BYTES: u64 = 8 << 20;

/// One call of an agent, as asked for.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// The agent.
    pub agent: AgentName,
    /// The session; made by its first turn.
    pub session: SessionName,
    /// The input text.
    pub input: String,
    /// Files that go with the input.
    pub attachments: Vec<Attachment>,
    /// What the first turn pins instead of the configured branch. Later turns go on from the session's pin and warn.
    pub choice: Option<PinChoice>,
    /// Arguments that take the place of the configured ones for a command component.
    pub args: Option<Vec<String>>,
    /// Names and values for this run alone; names are unique.
    pub params: Vec<(String, String)>,
    /// What started it.
    pub trigger: Trigger,
    /// Makes repeated requests one run: the same key on the same session gives the recorded result again.
    pub key: Option<String>,
    /// What to do when another run of the session goes on.
    pub busy: Busy,
    /// Whether a command that waits for it made it. Such entries are run by no server.
    pub origin: Origin,
    /// The run's id, where the caller derives it from what it stands for (a schedule's tick, say), so that the same one is accepted once. It goes
    /// before a key. None: a new one, or the key's.
    pub run: Option<RunId>,
}

impl TurnRequest {
    /// Makes a request with an input text and nothing else, as a person's command would.
    #[must_use]
    pub fn new(agent: AgentName, session: SessionName, input: impl Into<String>) -> Self {
        Self {
            agent,
            session,
            input: input.into(),
            attachments: Vec::new(),
            choice: None,
            args: None,
            params: Vec::new(),
            trigger: Trigger::Manual,
            key: None,
            busy: Busy::Wait,
            origin: Origin::Command,
            run: None,
        }
    }

    /// Checks the request against the limits, before anything is written.
    ///
    /// # Errors
    /// `Limit` with the code `request_too_large`; `Usage` for params and attachments without a name of their own.
    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        let over = |what: &str, value: u64, limit: u64| {
            Error::limit(format!("{what}: {value} is over the limit of {limit}")).code("request_too_large")
        };
        let input = self.input.len() as u64;
        if input > limits.input {
            return Err(over("bytes of input", input, limits.input).hint("raise `input` in the agent's limits, or attach it as a file"));
        }
        let params: usize = self.params.iter().map(|(name, value)| name.len() + value.len()).sum();
        if params > PARAMS_BYTES {
            return Err(over("bytes of params", params as u64, PARAMS_BYTES as u64));
        }
        let names: std::collections::BTreeSet<&str> = self.params.iter().map(|(name, _)| name.as_str()).collect();
        if names.len() < self.params.len() || names.contains("") {
            return Err(Error::usage("params need names, each its own"));
        }
        if self.attachments.len() > ATTACHMENTS_MAX {
            return Err(over("attachments", self.attachments.len() as u64, ATTACHMENTS_MAX as u64));
        }
        let bytes: u64 = self.attachments.iter().map(|file| file.bytes.len() as u64).sum();
        if bytes > ATTACHMENTS_BYTES {
            return Err(over("bytes of attachments", bytes, ATTACHMENTS_BYTES));
        }
        let mut names = std::collections::BTreeSet::new();
        for file in &self.attachments {
            let name = &file.name;
            if name.is_empty() || name.len() > ATTACHMENT_NAME_MAX || name.contains('/') || name.chars().any(char::is_control) {
                return Err(Error::usage(format!(
                    "{name:?} can't name an attachment: 1 to {ATTACHMENT_NAME_MAX} bytes, no slashes, no control characters"
                )));
            }
            if !names.insert(name) {
                return Err(Error::usage(format!("two attachments are named {name:?}")));
            }
            let kind = &file.media_type;
            if kind.is_empty() || kind.len() > ATTACHMENT_NAME_MAX || kind.chars().any(char::is_control) {
                return Err(Error::usage(format!("{kind:?} is no media type: 1 to {ATTACHMENT_NAME_MAX} bytes, no control characters")));
            }
        }
        Ok(())
    }

    /// Returns the session.
    #[must_use]
    pub fn session_ref(&self) -> SessionRef {
        SessionRef { agent: self.agent.clone(), session: self.session.clone() }
    }
}

/// A file given with the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, without a path.
    pub name: String,
    /// Its media type (RFC 9110 8.3.1), `application/octet-stream` where nobody knows better.
    pub media_type: String,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The first turn's own choice of what to pin. The URL can't be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinChoice {
    /// A full commit id.
    Commit(CommitId),
    /// Another branch than the configured one.
    Branch(String),
}

/// What a request does when its session is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// Waits for its place in the order of the queue.
    Wait,
    /// Answers at once with a conflict that names the run that goes on.
    Refuse,
}
