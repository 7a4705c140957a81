//! `[schedules.*]`, and what agents may do with schedules of their own.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::parse::Text;
use super::{Agent, units};
use crate::error::{Error, Result};
use crate::id::{AgentName, ScheduleName, SessionName};
use crate::nearest::nearest;
use crate::schedule::cron::Expression;
use crate::schedule::plan::{CatchUp, Overlap, SessionPolicy, Spec};
use crate::schedule::terms::{Grant, RUNS_PER_HOUR};
use crate::schedule::zone::Zone;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSchedule {
    agent: Spanned<String>,
    cron: Option<Spanned<String>>,
    timezone: Option<Spanned<String>>,
    #[serde(default)]
    input: String,
    #[serde(default)]
    session: RawSession,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    catch_up: CatchUp,
    catch_up_window: Option<Spanned<String>>,
    jitter: Option<Spanned<String>>,
    #[serde(default)]
    retries: u32,
    retry_pause: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum RawSession {
    #[default]
    Continue,
    Fresh,
    Named(SessionName),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGrant {
    max_schedules: Option<u32>,
    min_interval: Option<Spanned<String>>,
    max_runs_per_hour: Option<u32>,
}

/// Schedules that an agent with a grant may have where nothing else is said.
const MAX_SCHEDULES: u32 = 5;
/// Their shortest interval where nothing else is said, seconds.
const MIN_INTERVAL: u64 = 15 * 60;

pub(super) fn grant(at: &Text<'_>, raw: &RawGrant) -> Result<Grant> {
    Ok(Grant {
        max_schedules: raw.max_schedules.unwrap_or(MAX_SCHEDULES),
        min_interval: seconds(at, raw.min_interval.as_ref(), MIN_INTERVAL)?,
        max_runs_per_hour: raw.max_runs_per_hour.unwrap_or(RUNS_PER_HOUR),
    })
}

pub(super) fn schedules(
    at: &Text<'_>,
    raw: BTreeMap<Spanned<String>, RawSchedule>,
    agents: &BTreeMap<AgentName, Agent>,
) -> Result<BTreeMap<ScheduleName, Spec>> {
    let mut schedules = BTreeMap::new();
    for (name, raw) in raw {
        let parsed: ScheduleName = name.get_ref().parse().map_err(|error: Error| at.error(name.span(), error.message()))?;
        schedules.insert(parsed, schedule(at, raw, agents)?);
    }
    Ok(schedules)
}

fn schedule(at: &Text<'_>, raw: RawSchedule, agents: &BTreeMap<AgentName, Agent>) -> Result<Spec> {
    let Some(agent) = agents.keys().find(|agent| agent.as_str() == raw.agent.get_ref()) else {
        let error = at.error(raw.agent.span(), format!("no agent is named {:?}", raw.agent.get_ref()));
        return Err(match nearest(raw.agent.get_ref(), agents.keys().map(AgentName::as_str)) {
            Some(name) => error.hint(format!("did you mean {name:?}?")),
            None => error.hint(format!("add a section [agents.{}]", raw.agent.get_ref())),
        });
    };
    let mut spec = Spec::on_demand(agent.clone());
    if let Some(zone) = &raw.timezone {
        Zone::named(zone.get_ref()).map_err(|error| placed(at, zone, &error))?;
        spec.timezone.clone_from(zone.get_ref());
    }
    if let Some(cron) = &raw.cron {
        let expression = Expression::parse(cron.get_ref()).map_err(|error| placed(at, cron, &error))?;
        spec.cron = expression.map(|expression| expression.as_str().to_owned());
    }
    spec.catch_up_window = seconds(at, raw.catch_up_window.as_ref(), spec.catch_up_window)?;
    spec.jitter = seconds(at, raw.jitter.as_ref(), spec.jitter)?;
    spec.retry_pause = seconds(at, raw.retry_pause.as_ref(), spec.retry_pause)?;
    let session = match raw.session {
        RawSession::Continue => SessionPolicy::Continue,
        RawSession::Fresh => SessionPolicy::Fresh,
        RawSession::Named(name) => SessionPolicy::Named(name),
    };
    let spec = Spec { input: raw.input, session, overlap: raw.overlap, catch_up: raw.catch_up, retries: raw.retries, ..spec };
    spec.check_bounds().map_err(|error| placed(at, &raw.agent, &error))?;
    Ok(spec)
}

fn placed<T>(at: &Text<'_>, value: &Spanned<T>, error: &Error) -> Error {
    let made = at.error(value.span(), error.message());
    match error.next_step() {
        Some(hint) => made.hint(hint),
        None => made,
    }
}

fn seconds(at: &Text<'_>, value: Option<&Spanned<String>>, default: u64) -> Result<u64> {
    value.map_or(Ok(default), |value| {
        units::parse_span(value.get_ref()).map(|span| span.as_secs()).map_err(|message| at.error(value.span(), message))
    })
}
