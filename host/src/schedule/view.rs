//! A schedule as it is shown. What is read can be written back: a write takes the same document and leaves out of account what it can't set.

use serde::{Deserialize, Serialize};

use super::Schedules;
use super::history::Entry;
use super::plan::{Plan, Source, Spec};
use super::state::{Open, Phase, Problem, State, Totals};
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::id::{AgentName, ScheduleId};
use crate::store::{Key, Prefix};
use crate::tick::Tick;

/// How many next ticks are shown.
const NEXT: usize = 5;

/// A schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// What is wanted.
    pub plan: Plan,
    /// How far it has come.
    pub state: State,
}

/// The document of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown<'a> {
    id: &'a ScheduleId,
    revision: u64,
    #[serde(flatten)]
    spec: &'a Spec,
    armed: bool,
    reading: Option<String>,
    next: Vec<Tick>,
    source: Source,
    undeclared: Option<String>,
    running: Vec<Running<'a>>,
    problem: Option<&'a Problem>,
    totals: Totals,
    last: Option<&'a Entry>,
    created: String,
    changed: String,
}

/// An open run in the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Running<'a> {
    run: String,
    tick: String,
    session: &'a str,
    attempt: u32,
    phase: &'static str,
}

/// What a write of that document takes.
#[derive(Clone, Debug, Deserialize)]
pub struct Written {
    /// The revision that the writer has seen; none: whichever there is.
    #[serde(default)]
    pub revision: Option<u64>,
    /// What is wanted.
    #[serde(flatten)]
    spec: serde_json::Map<String, serde_json::Value>,
}

/// What a document holds beside what is wanted.
const READ_ONLY: [&str; 11] = ["id", "armed", "reading", "next", "source", "undeclared", "running", "problem", "totals", "last", "created"];

impl Written {
    /// Returns what is wanted.
    ///
    /// # Errors
    /// `Usage` (`invalid_schedule`) for fields that don't exist or are of another form.
    pub fn into_spec(self) -> Result<Spec> {
        let mut spec = self.spec;
        spec.retain(|name, _| !READ_ONLY.contains(&name.as_str()) && name != "changed");
        serde_json::from_value(serde_json::Value::Object(spec)).map_err(|error| {
            Error::usage(format!("that is no schedule: {error}"))
                .code("invalid_schedule")
                .hint("`landfall schedule show NAME --json` shows the form; times are whole seconds")
        })
    }
}

impl View {
    /// Returns the document.
    #[must_use]
    pub fn shown(&self) -> Shown<'_> {
        let Self { plan, state } = self;
        Shown {
            id: &plan.id,
            revision: plan.generation,
            spec: &plan.spec,
            armed: plan.is_armed(),
            reading: plan.spec.expression().ok().flatten().map(|expression| expression.reading()),
            next: self.next(NEXT),
            source: plan.source,
            undeclared: plan.undeclared.map(rfc3339),
            running: state.open.iter().map(running).collect(),
            problem: state.problem.as_ref(),
            totals: state.totals,
            last: state.history.first(),
            created: rfc3339(plan.created),
            changed: rfc3339(plan.changed),
        }
    }

    /// Returns the next ticks.
    #[must_use]
    pub fn next(&self, count: usize) -> Vec<Tick> {
        let (Some(first), Ok(Some(expression)), Ok(zone)) =
            (self.state.next, self.plan.spec.expression(), super::zone::Zone::named(&self.plan.spec.timezone))
        else {
            return Vec::new();
        };
        std::iter::once(first).chain(expression.upcoming(&zone, first)).take(count).collect()
    }
}

/// Returns the document of a schedule's history.
#[must_use]
pub fn history_document(view: &View, limit: usize) -> serde_json::Value {
    let entries = view.state.history.iter().take(limit).map(|entry| {
        serde_json::json!({
            "tick": entry.tick.due(), "trigger": entry.tick.due().is_none(), "count": entry.count, "outcome": entry.outcome,
            "reason": entry.reason, "run": entry.run, "session": entry.session, "attempts": entry.attempts,
            "late_ms": entry.late_ms, "at": rfc3339(entry.at),
        })
    });
    serde_json::json!({ "schedule": view.plan.id, "totals": view.state.totals, "history": entries.collect::<Vec<_>>() })
}

fn running(open: &Open) -> Running<'_> {
    Running {
        run: open.run.to_string(),
        tick: open.tick.to_string(),
        session: open.session.session.as_str(),
        attempt: open.attempt,
        phase: match open.phase {
            Phase::Waiting => "waiting",
            Phase::Taken | Phase::Queued => "running",
            Phase::Pausing(_) => "pausing",
        },
    }
}

impl Schedules {
    /// Returns a schedule.
    ///
    /// # Errors
    /// `NotFound` (`schedule_missing`), `Damaged`, `Store`.
    pub async fn get(&self, id: &ScheduleId) -> Result<View> {
        match self.find(id).await? {
            Some(view) if view.plan.removed.is_none() => Ok(view),
            _ => Err(super::missing(id)),
        }
    }

    /// Returns a schedule, a removed one too.
    async fn find(&self, id: &ScheduleId) -> Result<Option<View>> {
        let Some(plan) = self.load_plan(id).await? else { return Ok(None) };
        let state = self.load_state(id).await?.map_or_else(|| State::new(&plan.value), |found| found.value);
        Ok(Some(View { plan: plan.value, state }))
    }

    /// Returns the schedules, of one agent or all, by id. One that can't be read is an error in its place.
    ///
    /// # Errors
    /// `Store`.
    pub async fn list(&self, agent: Option<&AgentName>) -> Result<Vec<(ScheduleId, Result<View>)>> {
        let mut found = Vec::new();
        for listed in self.inner.store.list(&Prefix::Plans).await?.objects {
            let Key::Plan(id) = listed.key else { continue };
            match self.find(&id).await {
                Ok(Some(view)) if view.plan.removed.is_none() && agent.is_none_or(|agent| view.plan.spec.agent == *agent) => {
                    found.push((id, Ok(view)));
                }
                Ok(_) => {}
                Err(error) => found.push((id, Err(error))),
            }
        }
        Ok(found)
    }
}
