//! Schedules in a simulation: what people do to them, and what must hold of their ticks.
//!
//! A tick that runs is the business of one claim and one run, never before its instant by the store's clock (but for what a machine's clock gains on it in
//! a minute), and only where the plan that was in
//! force then has it. A schedule that nobody changed settles each of its ticks: none is lost, and where all are caught up and overlaps wait, each runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use landfall::clock::UnixNanos;
use landfall::id::{RunId, ScheduleId};
use landfall::schedule::claim::Claim;
use landfall::schedule::cron::Expression;
use landfall::schedule::plan::{CatchUp, Overlap, Plan, SessionPolicy, Spec};
use landfall::schedule::state::State;
use landfall::schedule::zone::Zones;
use landfall::session::QueueEntry;
use landfall::tick::{Tick, TickName};

use super::dice::Dice;
use super::guest::Script;
use super::oracle::body;
use super::{Action, plan};

/// How much too early a tick may be taken, by what can be known of the store's clock: its dates are whole seconds, and a request takes its time. Nanoseconds.
const EARLY: UnixNanos = 10_000_000_000;
/// How much a machine's clock may gain on the store's between two measurements: a tenth of a minute, where it is as fast as they get here. Nanoseconds.
const GAINED: UnixNanos = 7_000_000_000;
/// How late a schedule may be when all has come to rest, seconds.
const LATE: i64 = 240;

/// Returns the id of the schedule with a number.
#[must_use]
pub fn id(number: usize) -> ScheduleId {
    ScheduleId { agent: None, name: format!("p{number}").parse().expect("a name") }
}

/// Draws what people do to schedules, within so many seconds.
pub(super) fn draw(dice: &Dice, plan: &mut plan::Plan, length: u64) {
    let machines = plan.machines.len() as u64;
    let machine = |dice: &Dice| usize::try_from(dice.below(machines)).unwrap_or(0);
    let count = usize::try_from(dice.between(1, 3)).unwrap_or(1);
    for number in 0..count {
        plan.actions.push((Duration::from_millis(dice.below(20_000)), Action::PutPlan(machine(dice), number, Box::new(spec(dice)))));
    }
    // Changes come when ticks are due: at the minute, or a little before or after it.
    let at = |dice: &Dice| Duration::from_millis((dice.between(1, length / 60) * 60_000).saturating_sub(25_000) + dice.below(12_000));
    let changes = if dice.chance(6_000) { dice.between(1, 6) } else { 0 };
    for _ in 0..changes {
        let (at, number) = (at(dice), usize::try_from(dice.below(count as u64)).unwrap_or(0));
        let machine = machine(dice);
        plan.actions.push((
            at,
            match dice.below(10) {
                0..5 => Action::PutPlan(machine, number, Box::new(spec(dice))),
                5 | 6 => Action::Pause(machine, number, true),
                7 | 8 => Action::Pause(machine, number, false),
                _ => Action::Remove(machine, number),
            },
        ));
    }
    for _ in 0..dice.below(4) {
        let (at, number) = (Duration::from_millis(dice.below(length * 1_000)), usize::try_from(dice.below(count as u64)).unwrap_or(0));
        let key = dice.chance(7_000).then(|| dice.below(3));
        // The client hears nothing, and repeats it elsewhere.
        for _ in 0..=u64::from(key.is_some() && dice.chance(5_000)) {
            plan.actions.push((at, Action::Trigger(machine(dice), number, key)));
        }
    }
    if dice.chance(4_000) {
        plan.actions.push((Duration::from_millis(dice.below(length * 500)), Action::FreezeFor(machine(dice), Duration::from_secs(3_600))));
    }
}

fn spec(dice: &Dice) -> Spec {
    let mut spec = Spec::on_demand("agent".parse().expect("a name"));
    spec.cron = dice.chance(8_500).then(|| dice.pick(&["* * * * *", "*/2 * * * *", "*/5 * * * *"]).to_owned());
    spec.overlap = dice.pick(&[Overlap::Skip, Overlap::Queue]);
    spec.catch_up = dice.pick(&[CatchUp::Latest, CatchUp::None, CatchUp::All]);
    spec.session = if dice.chance(3_000) { SessionPolicy::Fresh } else { SessionPolicy::Continue };
    let script = Script { before: dice.below(3_000), after: dice.pick(&[0, 2_000, 90_000]), bytes: dice.below(7), ..Script::default() };
    spec.input = script.input();
    spec
}

/// A plan as it came to be in force, by the store's clock.
struct InForce {
    since: UnixNanos,
    plan: Plan,
}

/// The account of all schedules.
#[derive(Default)]
pub struct Ticks {
    plans: BTreeMap<ScheduleId, Vec<InForce>>,
    states: BTreeMap<ScheduleId, State>,
    claims: BTreeMap<(ScheduleId, TickName), Claim>,
    runs: BTreeMap<(ScheduleId, TickName), RunId>,
}

impl Ticks {
    pub(super) fn wrote_plan(&mut self, id: &ScheduleId, bytes: &Bytes, now: UnixNanos) -> Result<(), String> {
        let plan: Plan = body(bytes)?;
        let plans = self.plans.entry(id.clone()).or_default();
        if let Some(last) = plans.last()
            && plan.generation <= last.plan.generation
        {
            return if plan == last.plan {
                Ok(())
            } else {
                Err(format!("revision {} came after {}", plan.generation, last.plan.generation))
            };
        }
        plans.push(InForce { since: now, plan });
        Ok(())
    }

    pub(super) fn wrote_state(&mut self, id: &ScheduleId, bytes: &Bytes) -> Result<(), String> {
        let state: State = body(bytes)?;
        if let Some(before) = self.states.insert(id.clone(), state.clone())
            && (state.cursor < before.cursor || state.generation < before.generation || state.floor < before.floor)
        {
            return Err(format!("the state went back, from {before:?} to {state:?}"));
        }
        Ok(())
    }

    pub(super) fn wrote_claim(&mut self, id: &ScheduleId, tick: TickName, bytes: &Bytes) -> Result<(), String> {
        let claim: Claim = body(bytes)?;
        let first = self.claims.entry((id.clone(), tick)).or_insert_with(|| claim.clone());
        if *first == claim { Ok(()) } else { Err(format!("a claim was changed, from {first:?} to {claim:?}")) }
    }

    /// Looks at a schedule's run that has just come into the queue.
    pub(super) fn queued(&mut self, schedule: &str, due: Option<UnixNanos>, entry: &QueueEntry, now: UnixNanos) -> Result<(), String> {
        let id: ScheduleId = schedule.parse().map_err(|error: landfall::Error| error.to_string())?;
        let tick = match due {
            None => TickName::Triggered(entry.run),
            Some(due) if due > now + GAINED => {
                return Err(format!("run {} is queued {} ms before its tick", entry.run, (due - now) / 1_000_000));
            }
            Some(due) => TickName::Due(Tick::at_or_before(due)),
        };
        let claim = self.claims.get(&(id.clone(), tick)).ok_or_else(|| format!("run {} of {id} has no claim", entry.run))?;
        if (claim.run, &claim.session, &claim.input) != (entry.run, &entry.session, &entry.input) {
            return Err(format!("the claim of tick {tick} says {claim:?}, and what is queued is {entry:?}"));
        }
        let run = *self.runs.entry((id.clone(), tick)).or_insert(entry.run);
        if run != entry.run {
            return Err(format!("tick {tick} of {id} became two runs, {run} and {}", entry.run));
        }
        match tick.due() {
            Some(due) => self.was_in_force(&id, due),
            None => Ok(()),
        }
    }

    /// Whether a plan that was in force at a tick, or later, has it.
    fn was_in_force(&self, id: &ScheduleId, tick: Tick) -> Result<(), String> {
        let plans = self.plans.get(id).map_or(&[][..], Vec::as_slice);
        let ended = |place: usize| plans.get(place + 1).map_or(UnixNanos::MAX, |next| next.since);
        let has = plans.iter().enumerate().any(|(place, InForce { plan, .. })| {
            ended(place) > tick.nanos() - EARLY && plan.is_armed() && plan.armed_from < tick && fires(plan, tick)
        });
        if has { Ok(()) } else { Err(format!("tick {tick:?} of {id} is none of a plan that was in force")) }
    }

    /// Checks that the schedules that nobody has changed have settled all their ticks, by the time of the store.
    pub(super) fn settled(&self, now: UnixNanos) -> Result<(), String> {
        for (id, plans) in &self.plans {
            let ([InForce { plan, .. }], Some(state)) = (plans.as_slice(), self.states.get(id)) else { continue };
            if !plan.is_armed() || self.runs.keys().any(|(of, tick)| of == id && tick.due().is_none()) {
                continue;
            }
            let Some(expression) = parsed(plan) else { continue };
            let zone = Zones::default().get(&plan.spec.timezone).map_err(|error| error.to_string())?;
            let due: BTreeSet<Tick> = expression.upcoming(&zone, plan.armed_from).take_while(|tick| *tick <= state.cursor).collect();
            let totals = &state.totals;
            let open = state.open.iter().filter(|open| open.tick.due().is_some()).count() as u64;
            let ended = totals.ran + totals.failed;
            if ended + totals.skipped + totals.missed + totals.refused + open != due.len() as u64 {
                return Err(format!("schedule {id} has settled {totals:?} with {open} open, and {} ticks were due", due.len()));
            }
            let runs = self.runs.keys().filter(|(of, _)| of == id).count() as u64;
            if runs < ended || runs > ended + open {
                return Err(format!("schedule {id} has {totals:?} with {open} open, and {runs} ticks became runs"));
            }
            let all = plan.spec.catch_up == CatchUp::All && plan.spec.overlap == Overlap::Queue;
            if all && totals.skipped + totals.missed > 0 {
                return Err(format!("schedule {id} runs all its ticks, and has lost some: {:?}", state.history));
            }
            let behind = expression.upcoming(&zone, state.cursor).next().is_some_and(|next| next.seconds() + LATE < now / 1_000_000_000);
            if behind && state.open.is_empty() {
                return Err(format!("schedule {id} stands still at {:?}", state.cursor));
            }
        }
        Ok(())
    }

    /// Whether a run is a schedule's.
    pub(super) fn is_one(&self, run: RunId) -> bool {
        self.runs.values().any(|other| *other == run)
    }
}

fn parsed(plan: &Plan) -> Option<Expression> {
    plan.spec.expression().ok().flatten()
}

fn fires(plan: &Plan, tick: Tick) -> bool {
    let zone = Zones::default().get(&plan.spec.timezone);
    let (Some(expression), Ok(zone)) = (parsed(plan), zone) else { return false };
    expression.next(&zone, tick.plus(-1)) == Some(tick)
}
