//! The agent's own schedules: runs of itself by the clock or on demand, within what the operator grants.

use crate::Error;
use crate::bindings::landfall::agent::schedules as host;
pub use host::{CatchUp, Entry, Outcome, Overlap, Plan, Schedule, SessionPolicy};

/// Returns a plan that fires as a cron expression says, in a time zone (an exact IANA name); the rest are the defaults.
#[must_use]
pub fn by_clock(cron: &str, timezone: &str) -> Plan {
    Plan { cron: Some(cron.to_owned()), timezone: timezone.to_owned(), ..on_demand() }
}

/// Returns a plan that runs only when it is triggered.
#[must_use]
pub fn on_demand() -> Plan {
    Plan {
        cron: None,
        timezone: "UTC".to_owned(),
        input: String::new(),
        session: SessionPolicy::Continuing,
        overlap: Overlap::Skip,
        catch_up: CatchUp::Latest,
        paused: false,
    }
}

/// Makes a schedule, or changes it. With a revision the change is refused when somebody else made one since.
///
/// # Errors
/// [`Error::Denied`] without a grant; [`Error::Invalid`] for a bad name, expression or zone; [`Error::Limit`] when the grant is used up;
/// [`Error::Conflict`] when the revision isn't the current one.
pub fn put(name: &str, plan: &Plan, revision: Option<u64>) -> Result<Schedule, Error> {
    Ok(host::put(name, plan, revision)?)
}

/// Returns one schedule of this agent's own.
///
/// # Errors
/// [`Error::Denied`], [`Error::NotFound`].
pub fn get(name: &str) -> Result<Schedule, Error> {
    Ok(host::get(name)?)
}

/// Returns this agent's own schedules, by name.
///
/// # Errors
/// [`Error::Denied`].
pub fn list() -> Result<Vec<Schedule>, Error> {
    Ok(host::list()?)
}

/// Removes a schedule. A run of it that goes on may finish.
///
/// # Errors
/// [`Error::Denied`], [`Error::NotFound`].
pub fn remove(name: &str) -> Result<(), Error> {
    Ok(host::remove(name)?)
}

/// Starts a run outside the plan, and returns its id at once. The same key again is the same run.
///
/// # Errors
/// [`Error::Denied`], [`Error::NotFound`]; [`Error::Conflict`] when a run goes on and overlaps are skipped; [`Error::Limit`].
pub fn trigger(name: &str, payload: Option<&str>, key: Option<&str>) -> Result<String, Error> {
    Ok(host::trigger(name, payload, key)?)
}

/// Returns what became of its due instants and triggers, newest first.
///
/// # Errors
/// [`Error::Denied`], [`Error::NotFound`].
pub fn history(name: &str, limit: u32) -> Result<Vec<Entry>, Error> {
    Ok(host::history(name, limit)?)
}
