//! `landfall:agent/schedules`: an agent's own schedules.

mod host;

use std::fmt;

pub(crate) use host::{HasSchedules, View};

use super::refusal::Refusal;
use crate::id::{RunId, ScheduleName};
use crate::schedule::history::Entry;
use crate::schedule::plan::Spec;
use crate::schedule::view::View as Schedule;

/// What the turn does for this interface. Names have been parsed; the schedules are those of the agent that runs.
#[async_trait::async_trait]
pub trait ScheduleService: Send + Sync + fmt::Debug {
    /// Makes a schedule or changes it. `revision` none: whichever there is.
    ///
    /// # Errors
    /// `Denied`, `Invalid`, `Limit`, `Conflict`.
    async fn put(&self, name: ScheduleName, spec: Spec, revision: Option<u64>) -> Result<Schedule, Refusal>;

    /// Returns one.
    ///
    /// # Errors
    /// `NotFound`.
    async fn get(&self, name: ScheduleName) -> Result<Schedule, Refusal>;

    /// Returns all, by name.
    ///
    /// # Errors
    /// What the store gives.
    async fn list(&self) -> Result<Vec<Schedule>, Refusal>;

    /// Removes one.
    ///
    /// # Errors
    /// `NotFound`.
    async fn remove(&self, name: ScheduleName) -> Result<(), Refusal>;

    /// Starts a run outside the plan.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `Limit`.
    async fn trigger(&self, name: ScheduleName, payload: Option<String>, key: Option<String>) -> Result<RunId, Refusal>;

    /// Returns the history, newest first.
    ///
    /// # Errors
    /// `NotFound`.
    async fn history(&self, name: ScheduleName) -> Result<Vec<Entry>, Refusal>;

    /// Returns a plan on demand of the agent that runs, to be filled in.
    fn blank(&self) -> Spec;
}
