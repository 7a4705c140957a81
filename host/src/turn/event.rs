//! What a turn tells those who watch it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::RunId;

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
