//! On which terms this process's config lets schedules run. They are looked at for each run, so a schedule never outlives or widens them.

use std::collections::BTreeMap;

use super::plan::{Plan, Source, Spec};
use super::state::{Problem, Verdict};
use super::zone::Zones;
use crate::clock::UnixNanos;
use crate::error::Result;
use crate::id::AgentName;
use crate::session::queue::{ATTEMPTS_DEFAULT, OnCrash};
use crate::tick::Tick;

/// Runs that schedules and triggers may start for one agent within an hour, where nothing else is said.
pub const RUNS_PER_HOUR: u32 = 60;
/// So many ticks ahead the shortest interval of an expression is looked for.
const INTERVALS: usize = 200;

/// What an agent may do with schedules of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Most schedules.
    pub max_schedules: u32,
    /// Shortest time between two ticks of one, seconds.
    pub min_interval: u64,
    /// Most runs of them within an hour.
    pub max_runs_per_hour: u32,
}

/// An agent of the config, as schedules see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentTerms {
    /// What happens to a run whose process died.
    pub on_crash: OnCrash,
    /// Runs that schedules and triggers may start for it within an hour.
    pub runs_per_hour: u32,
    /// What it may do with schedules of its own; none: nothing.
    pub grant: Option<Grant>,
}

impl Default for AgentTerms {
    fn default() -> Self {
        Self { on_crash: OnCrash::Retry(ATTEMPTS_DEFAULT), runs_per_hour: RUNS_PER_HOUR, grant: None }
    }
}

/// The terms of all agents.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// By agent.
    pub agents: BTreeMap<AgentName, AgentTerms>,
}

/// What else counts for a verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Company {
    /// Runs that schedules and triggers started for the agent within the last hour.
    pub started: u32,
    /// How many of the agent's own schedules are older than this one.
    pub older: u32,
}

impl Terms {
    /// Says whether a run of a plan may begin.
    ///
    /// # Errors
    /// As [`Spec::expression`].
    pub fn verdict(&self, plan: &Plan, company: Company, zones: &Zones, now: UnixNanos) -> Result<Verdict> {
        let agent = &plan.spec.agent;
        let problem = |code: &str, message: String| Problem { code: code.to_owned(), message, at: now };
        let Some(terms) = self.agents.get(agent) else {
            return Ok(Verdict::Unknown(problem(
                "unknown_agent",
                format!("the config has no agent {agent}: add it, or remove the schedule"),
            )));
        };
        let mut most = terms.runs_per_hour;
        if plan.source == Source::Agent {
            let Some(grant) = terms.grant else {
                let message =
                    format!("agent {agent} isn't granted schedules of its own any more: [agents.{agent}.schedules] would allow them");
                return Ok(Verdict::Refused(problem("not_granted", message)));
            };
            if company.older >= grant.max_schedules {
                let message =
                    format!("agent {agent} may have {} schedules of its own; this one is more: remove another", grant.max_schedules);
                return Ok(Verdict::Refused(problem("over_limit", message)));
            }
            if let Some(interval) = shortest(&plan.spec, zones, now)?
                && interval < grant.min_interval
            {
                let message = format!("its ticks come every {interval} s; the grant's min_interval is {} s", grant.min_interval);
                return Ok(Verdict::Refused(problem("over_limit", message)));
            }
            most = most.min(grant.max_runs_per_hour);
        }
        if company.started >= most {
            let message = format!("agent {agent} has had its {most} runs of this hour: raise runs_per_hour, or let it run less often");
            return Ok(Verdict::Refused(problem("over_limit", message)));
        }
        Ok(Verdict::Allowed)
    }
}

/// Returns the shortest time between two of the next ticks, seconds; none for a plan on demand.
///
/// # Errors
/// As [`Spec::expression`].
pub fn shortest(spec: &Spec, zones: &Zones, now: UnixNanos) -> Result<Option<u64>> {
    let Some(expression) = spec.expression()? else { return Ok(None) };
    let zone = zones.get(&spec.timezone)?;
    let ticks: Vec<Tick> = expression.upcoming(&zone, Tick::at_or_before(now)).take(INTERVALS).collect();
    let spans = ticks.windows(2).map(|pair| pair[1].seconds().abs_diff(pair[0].seconds()));
    Ok(spans.min())
}
