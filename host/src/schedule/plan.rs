//! Plans: what people and agents want of a schedule. How far it has come is its state's.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::cron::Expression;
use super::zone::Zone;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{AgentName, Digest, RunId, ScheduleId, SessionName, sha256};
use crate::session::record::{INPUT_INLINE, Text};
use crate::store::document::Document;
use crate::tick::Tick;

/// Longest jitter, and longest pause before a retry.
const SPREAD_MAX: u64 = 24 * 3600;
/// Longest catch-up window, seconds.
const WINDOW_MAX: u64 = 366 * 24 * 3600;
/// Most retries of a failed run.
const RETRIES_MAX: u32 = 10;
/// Longest name of a session that a schedule names, bytes.
const SESSION_MAX: usize = 64;

/// Which session the runs of a schedule work in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionPolicy {
    /// One session, named as the schedule: turn after turn on one workspace.
    #[default]
    Continue,
    /// A new session for each run, pinned anew.
    Fresh,
    /// The session of this name.
    Named(SessionName),
}

/// What a tick does while an earlier run of the schedule goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It is skipped; the history says so.
    #[default]
    Skip,
    /// It waits for its turn.
    Queue,
}

/// What happens to ticks that nobody was there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// The latest one runs.
    #[default]
    Latest,
    /// None runs.
    None,
    /// All run, oldest first, one after the other.
    All,
}

/// What is wanted: the part of a plan that people write, in the config, on the command line, over HTTP and from agents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The agent that runs.
    pub agent: AgentName,
    /// The cron expression. None, null and blank are the same: registered, never armed, runs by its trigger only.
    #[serde(default, deserialize_with = "blank_is_none")]
    pub cron: Option<String>,
    /// The time zone's IANA name.
    #[serde(default = "utc")]
    pub timezone: String,
    /// The input text of each run: at most 8 KiB as JSON.
    #[serde(default)]
    pub input: String,
    /// The session that its runs work in.
    #[serde(default)]
    pub session: SessionPolicy,
    /// What a tick does while an earlier run goes on.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to ticks that nobody was there for.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// How late a tick may still be caught up, seconds.
    #[serde(default = "day")]
    pub catch_up_window: u64,
    /// Runs start up to so much later than their tick, seconds; how much is fixed for each schedule by its name.
    #[serde(default)]
    pub jitter: u64,
    /// How often a run that failed as `unavailable` or ran out of time is tried again.
    #[serde(default)]
    pub retries: u32,
    /// The pause before the first retry, seconds; each later one is twice as long, up to a day.
    #[serde(default = "minute")]
    pub retry_pause: u64,
    /// Whether nothing fires for now. A trigger works all the same.
    #[serde(default)]
    pub paused: bool,
}

fn blank_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.trim().is_empty()))
}

fn utc() -> String {
    String::from("UTC")
}

fn day() -> u64 {
    24 * 3600
}

fn minute() -> u64 {
    60
}

impl Spec {
    /// Makes one for an agent, on demand, with the defaults.
    #[must_use]
    pub fn on_demand(agent: AgentName) -> Self {
        Self {
            agent,
            cron: None,
            timezone: utc(),
            input: String::new(),
            session: SessionPolicy::default(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            catch_up_window: day(),
            jitter: 0,
            retries: 0,
            retry_pause: minute(),
            paused: false,
        }
    }

    /// Returns its expression; none when it is on demand.
    ///
    /// # Errors
    /// As [`Expression::parse`].
    pub fn expression(&self) -> Result<Option<Expression>> {
        self.cron.as_deref().map_or(Ok(None), Expression::parse)
    }

    /// Checks everything that can be told without the store. `now` is where ten years are counted from.
    ///
    /// # Errors
    /// `Usage` (`invalid_expression`, `never_fires`, `unknown_timezone`, `invalid_schedule`), `Limit` (`schedule_limit`) with the name of what
    /// is wrong.
    pub fn check(&self, now: Tick) -> Result<()> {
        // A bad zone is an error also where nothing is armed.
        let zone = Zone::named(&self.timezone)?;
        if let Some(expression) = self.expression()? {
            expression.first(&zone, now)?;
        }
        self.check_bounds()
    }

    pub(crate) fn check_bounds(&self) -> Result<()> {
        let over = |what: &str, value: u64, limit: u64, unit: &str| {
            Error::limit(format!("{what} of {value} {unit} is over the limit of {limit}"))
                .code("schedule_limit")
                .hint(format!("give at most {limit}"))
        };
        if !Text::fits(&self.input, INPUT_INLINE) {
            return Err(over("input", self.input.len() as u64, INPUT_INLINE as u64, "bytes")
                .hint("keep what is longer in the agent's repository or its /state, or hand it over with a trigger"));
        }
        if let SessionPolicy::Named(name) = &self.session
            && name.as_str().len() > SESSION_MAX
        {
            return Err(over("a session name", name.as_str().len() as u64, SESSION_MAX as u64, "bytes"));
        }
        for (what, value, limit) in [
            ("a jitter", self.jitter, SPREAD_MAX),
            ("a pause before a retry", self.retry_pause, SPREAD_MAX),
            ("a catch-up window", self.catch_up_window, WINDOW_MAX),
        ] {
            if value > limit {
                return Err(over(what, value, limit, "seconds"));
            }
        }
        if self.retries > RETRIES_MAX {
            return Err(over("retries", self.retries.into(), RETRIES_MAX.into(), "times"));
        }
        if self.retries > 0 && self.retry_pause == 0 {
            return Err(Error::usage("retries without a pause between them")
                .code("invalid_schedule")
                .hint("give retry_pause, 1 s at least"));
        }
        Ok(())
    }
}

/// Who made a plan: the last one to write it decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The config declares it. Taking it out of the file disarms it.
    Config,
    /// The operator, by the command line, HTTP or the library.
    Operator,
    /// An agent, within its grant.
    Agent,
}

/// A plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its id.
    pub id: ScheduleId,
    /// Counts the changes, from 1, over removals too. A change that names an older one is refused.
    pub generation: u64,
    /// What is wanted.
    pub spec: Spec,
    /// Who made it.
    pub source: Source,
    /// Ticks are due after this instant: of its making, of its last change of expression or zone, of its last resumption.
    pub armed_from: Tick,
    /// Set when the config that declared it doesn't any more: nothing fires.
    pub undeclared: Option<UnixNanos>,
    /// Set when it was removed. Its runs may finish.
    pub removed: Option<UnixNanos>,
    /// When it was made.
    pub created: UnixNanos,
    /// When it was changed last.
    pub changed: UnixNanos,
}

impl Document for Plan {
    const KIND: &'static str = "plan";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "plan_damaged";

    fn check(&self) -> Result<()> {
        if self.generation > i64::MAX as u64 {
            return Err(Error::damaged("its generation is beyond what is ever counted"));
        }
        self.spec.check_bounds().map_err(|error| Error::damaged(error.message().to_owned()))
    }
}

impl Plan {
    /// Whether ticks fire: it has an expression, and nothing keeps it from firing.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.spec.cron.is_some() && !self.spec.paused && self.undeclared.is_none() && self.removed.is_none()
    }

    /// Returns how much later than their ticks its runs start.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let mut number = [0; 8];
        number.copy_from_slice(&sha256(self.id.to_string().as_bytes()).as_bytes()[..8]);
        Duration::from_secs(u64::from_be_bytes(number) % (self.spec.jitter + 1))
    }

    /// Returns the session that a run works in.
    ///
    /// # Errors
    /// None that can happen: a schedule's name and a run's id are names of sessions.
    pub fn session(&self, run: RunId) -> Result<SessionName> {
        match &self.spec.session {
            SessionPolicy::Continue => self.id.name.as_str().parse(),
            SessionPolicy::Fresh => run.to_string().parse(),
            SessionPolicy::Named(name) => Ok(name.clone()),
        }
    }

    /// Returns the pause before an attempt, the second one being the first retry.
    #[must_use]
    pub fn retry_pause(&self, attempt: u32) -> Duration {
        let doubled = self.spec.retry_pause.saturating_mul(1 << attempt.saturating_sub(2).min(30));
        Duration::from_secs(doubled.clamp(1, SPREAD_MAX))
    }
}

/// Returns the id of the run that a tick becomes.
///
/// The first 16 bytes of SHA-256, as a UUIDv8, of the JSON array `["landfall:schedule:1", id, generation, tick, attempt]`.
///
/// # Errors
/// None that can happen.
pub fn run_of(id: &ScheduleId, generation: u64, tick: Tick, attempt: u32) -> Result<RunId> {
    derived(&("landfall:schedule:1", id, generation, tick, attempt))
}

/// Returns the id of the run that a trigger with an idempotency key becomes: of `["landfall:trigger:1", id, key, attempt]`.
///
/// # Errors
/// None that can happen.
pub fn run_of_key(id: &ScheduleId, key: &str, attempt: u32) -> Result<RunId> {
    derived(&("landfall:trigger:1", id, key, attempt))
}

/// Returns the id of a later attempt at a triggered run: of `["landfall:retry:1", first run, attempt]`.
///
/// # Errors
/// None that can happen.
pub(super) fn run_of_retry(first: RunId, attempt: u32) -> Result<RunId> {
    derived(&("landfall:retry:1", first, attempt))
}

fn derived(identity: &impl Serialize) -> Result<RunId> {
    let bytes = serde_json::to_vec(identity).map_err(|error| Error::internal("a run's identity can't be encoded").source(error))?;
    let digest: Digest = sha256(&bytes);
    Ok(RunId::derived(digest))
}
