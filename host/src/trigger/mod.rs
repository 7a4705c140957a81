//! What starts a turn. The command line, HTTP and schedules all become one [`TurnRequest`]; nothing below knows which it was.

pub mod http;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, CommitId, RunId, SessionName, SessionRef};
pub use crate::session::{Origin, Trigger};

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

/// What happens while a run goes on, for whoever watches it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunEvent {
    /// The run was accepted and has this id.
    Accepted {
        /// The run's id.
        run: RunId,
    },
    /// The pipeline entered a step.
    Step(Step),
    /// A step moved on: how much of how much, in the unit of the step.
    Moved {
        /// The step.
        step: Step,
        /// How much is done.
        done: u64,
        /// How much there is, when that is known.
        of: Option<u64>,
    },
    /// A line that the guest wrote.
    Log {
        /// Which stream it came by.
        stream: LogStream,
        /// The line without its end; secrets are masked.
        line: String,
    },
    /// What the guest reported through `progress.emit`.
    Progress {
        /// The guest's name for the kind of event.
        kind: String,
        /// The payload; secrets are masked.
        payload: String,
    },
    /// Something a person should know; the run goes on.
    Warning(String),
}

/// A step of the pipeline, as shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Waiting for another run of the session.
    Waiting,
    /// Asking the remote for the commit.
    Resolving,
    /// Fetching the commit (bytes).
    Fetching,
    /// Making pages and packs of the commit's tree (files).
    Importing,
    /// Compiling the component, or loading the compiled one.
    Loading,
    /// Running the component.
    Running,
    /// Making pages and packs of the edits, uploading them and committing.
    Committing,
}

/// The guest's output streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives the events of a run. It is called on the run's way and must not block.
pub trait Watch: Send + Sync {
    /// Takes one event.
    fn event(&self, event: RunEvent);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWatch;

impl Watch for NoWatch {
    fn event(&self, _event: RunEvent) {}
}

/// A shared watcher.
pub type SharedWatch = Arc<dyn Watch>;
