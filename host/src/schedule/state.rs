//! How far a schedule has come: the cursor over its ticks, the runs that go on, and the history. Pure rules; their I/O is the poller's.

use serde::{Deserialize, Serialize};

use super::history::{Entry, Outcome, note};
use super::plan::{CatchUp, Overlap, Plan, run_of, run_of_retry};
use super::zone::Zones;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{RunId, ScheduleId, SessionRef};
use crate::session::Owner;
use crate::store::document::Document;
use crate::tick::{Tick, TickName};

/// Most runs that wait for their turn.
pub const WAITING_MAX: usize = 50;
/// Most starts that are remembered for the limit of runs per hour.
pub const STARTS_MAX: usize = 240;
/// A tick this much later than its instant, seconds, is caught up rather than on time: looks, take-overs and slow stores fit in.
pub const ON_TIME: i64 = 60;
/// How long, seconds, a replica leaves a tick to others that know the agent or have newer time zones.
const PATIENCE: i64 = 60;
/// Most ticks before the catch-up window that are counted one by one.
const COUNTED: u64 = 10_000;
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// Where a run of a schedule stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Behind others.
    Waiting,
    /// Its tick is taken: the claim and the queue entry are to be made.
    Taken,
    /// It is in the queue, or runs.
    Queued,
    /// It failed; the next attempt comes after this instant.
    Pausing(UnixNanos),
}

/// A run that hasn't ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Its tick.
    pub tick: TickName,
    /// The run that the tick became: the first attempt.
    pub first: RunId,
    /// The run of this attempt.
    pub run: RunId,
    /// The session it works in.
    pub session: SessionRef,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The plan's generation when it was taken.
    pub generation: u64,
    /// Where it stands.
    pub phase: Phase,
    /// The process that moved it there.
    pub owner: Owner,
    /// When, by that process's clock.
    pub at: UnixNanos,
}

/// Why a schedule can't run, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// A stable word: `unknown_agent`, `not_granted`, `over_limit`, `plan`.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
    /// When it was met last.
    pub at: UnixNanos,
}

/// How many ticks and triggers ended how, from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Completed.
    pub ran: u64,
    /// Failed, cancelled or timed out.
    pub failed: u64,
    /// Skipped for an overlap.
    pub skipped: u64,
    /// Missed.
    pub missed: u64,
    /// Refused.
    pub refused: u64,
}

/// A schedule's state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The schedule.
    pub id: ScheduleId,
    /// The generation of the plan that `next` was computed from.
    pub generation: u64,
    /// The version of the time zone database that `next` was computed with.
    pub zones: String,
    /// The last tick that was settled: taken, skipped, missed or refused. None up to it is due any more.
    pub cursor: Tick,
    /// The next tick; none when the schedule isn't armed.
    pub next: Option<Tick>,
    /// Claims of ticks up to this one may have been deleted: whoever makes one has slept.
    pub floor: Tick,
    /// The newest tick that was found late while all are to be caught up: up to it none is skipped for an overlap.
    pub backlog: Option<Tick>,
    /// The runs that haven't ended, in order; all but the first at work wait.
    pub open: Vec<Open>,
    /// When runs were taken within the last hour.
    pub starts: Vec<UnixNanos>,
    /// Why it can't run.
    pub problem: Option<Problem>,
    /// How many ended how.
    pub totals: Totals,
    /// What became of the last ticks and triggers, newest first.
    pub history: Vec<Entry>,
}

impl Document for State {
    const KIND: &'static str = "schedule";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "schedule_damaged";

    fn check(&self) -> Result<()> {
        if self.open.len() > WAITING_MAX + 2 || self.starts.len() > STARTS_MAX {
            return Err(Error::damaged("it has too many open runs or starts"));
        }
        Ok(())
    }
}

/// Whether a schedule's run may begin here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not.
    Refused(Problem),
    /// This replica can't, but another may: its config doesn't know the agent.
    Unknown(Problem),
}

/// What the rules are told.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The plan, as it is now.
    pub plan: &'a Plan,
    /// The time by the store.
    pub now: UnixNanos,
    /// The time zones of this process.
    pub zones: &'a Zones,
    /// This process.
    pub owner: &'a Owner,
    /// Whether a run may begin.
    pub verdict: &'a Verdict,
}

/// How a run of a schedule ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// Why it didn't complete.
    pub reason: String,
    /// Whether another attempt may do better.
    pub transient: bool,
    /// When its first attempt at running began; none when it never did.
    pub started: Option<UnixNanos>,
}

/// Why a trigger is refused now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Busy {
    /// A run goes on, and the schedule skips overlaps.
    Overlap(RunId),
    /// As many wait as may.
    Full,
}

impl State {
    /// Makes the state of a new plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            id: plan.id.clone(),
            generation: 0,
            zones: String::new(),
            cursor: plan.armed_from,
            next: None,
            floor: plan.armed_from,
            backlog: None,
            open: Vec::new(),
            starts: Vec::new(),
            problem: None,
            totals: Totals::default(),
            history: Vec::new(),
        }
    }

    /// Takes over what a changed plan says. Nothing that was due before the change is due after it.
    ///
    /// # Errors
    /// As [`super::plan::Spec::check`], for a plan that another version wrote.
    pub fn adopt(&mut self, plan: &Plan, zones: &Zones, now: UnixNanos) -> Result<()> {
        let newer = plan.generation > self.generation;
        // A plan that was read before somebody else's change is nothing to go by.
        if !newer && (plan.generation < self.generation || zones.version() <= self.zones.as_str()) {
            return Ok(());
        }
        if newer {
            self.generation = plan.generation;
            self.cursor = self.cursor.max(plan.armed_from);
            self.backlog = None;
            if self.problem.as_ref().is_some_and(|problem| problem.code == "plan") {
                self.problem = None;
            }
            if plan.removed.is_some() {
                let waits = |open: &Open| matches!(open.phase, Phase::Waiting | Phase::Pausing(_));
                for open in self.open.extract_if(.., |open| waits(open)).collect::<Vec<_>>() {
                    self.note(Entry::unrun(open.tick, Outcome::Skipped, "the schedule was removed", now));
                }
            }
        }
        zones.version().clone_into(&mut self.zones);
        self.next = match (plan.is_armed(), plan.spec.expression()?) {
            (true, Some(expression)) => expression.next(&zones.get(&plan.spec.timezone)?, self.cursor),
            _ => None,
        };
        Ok(())
    }

    /// Does what is due now: takes ticks, lets waiting runs go on, begins retries.
    ///
    /// # Errors
    /// As [`State::adopt`].
    pub fn advance(&mut self, at: &Circumstances<'_>) -> Result<()> {
        self.adopt(at.plan, at.zones, at.now)?;
        if at.plan.generation < self.generation {
            return Ok(());
        }
        self.starts.retain(|start| at.now.saturating_sub(*start) < HOUR);
        if at.plan.removed.is_none() {
            self.go_on(at);
        }
        if at.plan.is_armed() {
            self.take_due(at)?;
        }
        Ok(())
    }

    /// Returns when there is something to do next, by the store's time; none while only others have.
    #[must_use]
    pub fn wake_at(&self, plan: &Plan) -> Option<UnixNanos> {
        let delay = i64::try_from(plan.delay().as_nanos()).unwrap_or(i64::MAX);
        let pauses = self.open.iter().filter_map(|open| match open.phase {
            Phase::Pausing(until) => Some(until),
            _ => None,
        });
        self.next.map(|next| next.nanos().saturating_add(delay)).into_iter().chain(pauses).min()
    }

    /// Returns the run at work, waiting ones aside.
    #[must_use]
    pub fn at_work(&self) -> Option<&Open> {
        self.open.iter().find(|open| open.phase != Phase::Waiting)
    }

    /// Waiting runs and retries.
    fn go_on(&mut self, at: &Circumstances<'_>) {
        let ready = |open: &Open| matches!(open.phase, Phase::Pausing(until) if until <= at.now);
        // While paused nothing begins but what is triggered.
        let may = |open: &Open| !at.plan.spec.paused || open.tick.due().is_none();
        let idle = self.at_work().is_none();
        let found = match idle {
            true => self.open.iter_mut().find(|open| open.phase == Phase::Waiting && may(open)),
            false => self.open.iter_mut().find(|open| ready(open) && may(open)),
        };
        if let Some(open) = found {
            (open.phase, open.owner, open.at) = (Phase::Taken, at.owner.clone(), at.now);
        }
    }

    fn take_due(&mut self, at: &Circumstances<'_>) -> Result<()> {
        let spec = &at.plan.spec;
        let delay = i64::try_from(at.plan.delay().as_secs()).unwrap_or(i64::MAX);
        let until = Tick::at_or_before(at.now).plus(-delay);
        let Some(first) = self.next.filter(|next| *next <= until) else { return Ok(()) };
        let Some(expression) = spec.expression()? else { return Ok(()) };
        let zone = at.zones.get(&spec.timezone)?;
        let late = until.seconds().saturating_sub(first.seconds());
        // A replica with older time zones, or with a config that doesn't know the agent, leaves the tick to those that know better.
        let outdated = at.zones.version() < self.zones.as_str();
        if late < PATIENCE && (outdated || matches!(at.verdict, Verdict::Unknown(_))) {
            return Ok(());
        }

        let opens = until.plus(-i64::try_from(spec.catch_up_window).unwrap_or(i64::MAX));
        let (mut old, mut last_old, mut due) = (0, None, Vec::new());
        let mut next = Some(first);
        while let Some(tick) = next.filter(|tick| *tick <= until) {
            if tick < opens {
                (old, last_old) = (old + 1, Some(tick));
                let from = if old < COUNTED { tick } else { tick.max(opens.plus(-1)) };
                next = expression.next(&zone, from);
            } else {
                due.push(tick);
                next = expression.next(&zone, tick);
            }
        }
        if let Some(last) = last_old {
            self.missed(last, old, "older than the catch-up window", at.now);
        }
        let run = match spec.catch_up {
            CatchUp::All => due,
            CatchUp::Latest | CatchUp::None => {
                let last = due.pop();
                let late = last.map_or(0, |last| until.seconds().saturating_sub(last.seconds()));
                let lost = spec.catch_up == CatchUp::None && late > ON_TIME;
                let reason =
                    if spec.catch_up == CatchUp::None { "nobody was there, and none is caught up" } else { "a later one ran instead" };
                due.extend(last.filter(|_| lost));
                if let Some(newest) = due.last() {
                    self.missed(*newest, due.len() as u64, reason, at.now);
                }
                last.filter(|_| !lost).into_iter().collect()
            }
        };
        // By older data the next tick may be another one: whoever has newer data works it out again at its next look.
        at.zones.version().clone_into(&mut self.zones);
        if run.len() > 1 {
            self.backlog = self.backlog.max(run.last().copied());
        }
        for tick in run {
            if !self.take(tick, at)? {
                // It waits in its place: the cursor stands before it.
                self.next = Some(tick);
                return Ok(());
            }
            self.cursor = tick;
        }
        self.next = next;
        Ok(())
    }

    /// Takes a tick, or settles it otherwise. False when it has to wait in its place.
    fn take(&mut self, tick: Tick, at: &Circumstances<'_>) -> Result<bool> {
        let name = TickName::Due(tick);
        if let Verdict::Refused(problem) | Verdict::Unknown(problem) = at.verdict {
            self.problem = Some(problem.clone());
            self.note(Entry::unrun(name, Outcome::Refused, &problem.message, at.now));
            return Ok(true);
        }
        let caught_up = at.plan.spec.catch_up == CatchUp::All && self.backlog.is_some_and(|backlog| tick <= backlog);
        let phase = match (self.at_work(), at.plan.spec.overlap) {
            (None, _) if self.open.is_empty() => Phase::Taken,
            (_, Overlap::Queue) if self.open.len() < WAITING_MAX => Phase::Waiting,
            (Some(_), Overlap::Skip) if caught_up => return Ok(false),
            (_, Overlap::Queue) if caught_up => return Ok(false),
            (_, Overlap::Queue) => {
                self.note(Entry::unrun(name, Outcome::Skipped, &format!("overlap: {WAITING_MAX} runs wait already"), at.now));
                return Ok(true);
            }
            (busy, Overlap::Skip) => {
                let reason = busy.map_or_else(|| "overlap: a run waits".to_owned(), |open| format!("overlap: run {} went on", open.run));
                self.note(Entry::unrun(name, Outcome::Skipped, &reason, at.now));
                return Ok(true);
            }
        };
        let run = run_of(&self.id, at.plan.generation, tick, 1)?;
        self.push(name, run, phase, at.plan, at.owner, at.now)?;
        Ok(true)
    }

    /// Takes a trigger.
    ///
    /// # Errors
    /// The outer one as [`Plan::session`].
    pub fn trigger(&mut self, run: RunId, plan: &Plan, owner: &Owner, now: UnixNanos) -> Result<std::result::Result<(), Busy>> {
        if self.open.iter().any(|open| open.first == run) {
            return Ok(Ok(()));
        }
        let phase = match (self.open.first(), plan.spec.overlap) {
            (None, _) => Phase::Taken,
            (Some(_), Overlap::Queue) if self.open.len() < WAITING_MAX => Phase::Waiting,
            (Some(_), Overlap::Queue) => return Ok(Err(Busy::Full)),
            (Some(open), Overlap::Skip) => return Ok(Err(Busy::Overlap(open.run))),
        };
        self.push(TickName::Triggered(run), run, phase, plan, owner, now)?;
        Ok(Ok(()))
    }

    fn push(&mut self, tick: TickName, run: RunId, phase: Phase, plan: &Plan, owner: &Owner, now: UnixNanos) -> Result<()> {
        let session = SessionRef { agent: plan.spec.agent.clone(), session: plan.session(run)? };
        let (owner, generation) = (owner.clone(), plan.generation);
        self.open.push(Open { tick, first: run, run, session, attempt: 1, generation, phase, owner, at: now });
        self.problem = None;
        if self.starts.len() >= STARTS_MAX {
            self.starts.remove(0);
        }
        self.starts.push(now);
        Ok(())
    }

    /// Notes that a taken run is in the queue, as its claim says.
    pub fn queued(&mut self, first: RunId, claimed: RunId, session: &SessionRef, owner: &Owner, now: UnixNanos) {
        if let Some(open) = self.open.iter_mut().find(|open| open.first == first && open.phase == Phase::Taken) {
            if open.attempt == 1 {
                (open.first, open.run) = (claimed, claimed);
            }
            open.session = session.clone();
            (open.phase, open.owner, open.at) = (Phase::Queued, owner.clone(), now);
        }
    }

    /// Lets a taken run go that may not begin any more.
    pub fn let_go(&mut self, first: RunId, reason: &str, now: UnixNanos) {
        if let Some(place) = self.open.iter().position(|open| open.first == first) {
            let open = self.open.remove(place);
            self.note(Entry::unrun(open.tick, Outcome::Skipped, reason, now));
        }
    }

    /// Notes that a run has ended: in the history, or as the first of more attempts.
    ///
    /// # Errors
    /// None that can happen.
    pub fn ended(&mut self, run: RunId, ended: &Ended, plan: &Plan, now: UnixNanos) -> Result<()> {
        let Some(place) = self.open.iter().position(|open| open.run == run && open.phase == Phase::Queued) else { return Ok(()) };
        let open = &mut self.open[place];
        if ended.transient && open.attempt <= plan.spec.retries && plan.removed.is_none() {
            open.attempt += 1;
            open.run = run_of_retry(open.first, open.attempt)?;
            open.phase = Phase::Pausing(now.saturating_add(i64::try_from(plan.retry_pause(open.attempt).as_nanos()).unwrap_or(i64::MAX)));
            open.at = now;
            return Ok(());
        }
        let open = self.open.remove(place);
        let late_ms = open.tick.due().zip(ended.started).map(|(tick, started)| {
            let late = started.saturating_sub(tick.nanos()).max(0) / 1_000_000;
            u64::try_from(late).unwrap_or(0)
        });
        self.note(Entry {
            tick: open.tick,
            count: 1,
            outcome: ended.outcome,
            reason: ended.reason.clone(),
            run: Some(open.run),
            session: Some(open.session.session),
            attempts: open.attempt.into(),
            late_ms,
            at: now,
        });
        Ok(())
    }

    /// Records why the schedule can't go on.
    pub fn fault(&mut self, code: &str, message: &str, now: UnixNanos) {
        if self.problem.as_ref().is_none_or(|problem| problem.code != code || problem.message != message) {
            self.problem = Some(Problem { code: code.to_owned(), message: message.to_owned(), at: now });
        }
    }

    fn missed(&mut self, last: Tick, count: u64, reason: &str, now: UnixNanos) {
        self.cursor = self.cursor.max(last);
        self.note(Entry { count, ..Entry::unrun(TickName::Due(last), Outcome::Missed, reason, now) });
    }

    fn note(&mut self, entry: Entry) {
        let total = match entry.outcome {
            Outcome::Ran => &mut self.totals.ran,
            Outcome::Failed | Outcome::Cancelled | Outcome::TimedOut => &mut self.totals.failed,
            Outcome::Skipped => &mut self.totals.skipped,
            Outcome::Missed => &mut self.totals.missed,
            Outcome::Refused => &mut self.totals.refused,
        };
        *total = total.saturating_add(entry.count);
        note(&mut self.history, entry);
    }
}

#[cfg(test)]
mod tests;
