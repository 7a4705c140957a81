//! From a taken tick to a queued run: the claim, the checks behind it, the queue entry. Each step may be repeated by anybody.

use std::time::Duration;

use super::claim::Claim;
use super::plan::Plan;
use super::state::{Ended, Open, Phase, State};
use super::{Schedules, history};
use crate::drill::{self, Safeguard};
use crate::error::{Error, Result};
use crate::id::{RunId, ScheduleId, SessionRef};
use crate::session::queue::{OnCrash, QueueEntry};
use crate::session::record::{Input, Origin, RunRecord, Trigger};
use crate::session::{Owner, Status};
use crate::store::Key;
use crate::store::cas::{Created, Loaded};
use crate::tick::{Tick, TickName};

/// How long a claim that came too early is held on to; one that is earlier is left to a later look.
const EARLY: Duration = Duration::from_secs(2);

/// What came of a taken tick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fired {
    /// Its run is in the queue. Nanoseconds between when it was due and when its claim was stored; none for a trigger or a retry.
    Queued {
        /// The lateness.
        late: Option<i64>,
    },
    /// By the store's clock it isn't due yet.
    Early,
    /// Somebody else went on with it, or it has ended.
    Settled,
    /// It may not run any more.
    LetGo,
}

impl Schedules {
    /// Goes on with a run whose tick is taken, until it is in the queue.
    ///
    /// # Errors
    /// `Store`, `Damaged`: it is to be tried again.
    pub async fn fire(&self, plan: &Plan, open: &Open) -> Result<Fired> {
        let claim = self.claim(plan, open).await?;
        let due = if open.attempt == 1 { open.tick.due() } else { None };
        if let Some(tick) = due
            && !self.has_come(tick, claim.modified).await?
        {
            return Ok(Fired::Early);
        }
        // What was read before the claim may be long ago: this process may have slept. So everything is looked at again.
        let Some(plan) = self.load_plan(&plan.id).await?.map(|found| found.value) else { return Ok(Fired::Settled) };
        let Some(state) = self.load_state(&plan.id).await?.map(|found| found.value) else { return Ok(Fired::Settled) };
        if !still_taken(&state, open) || due.is_some_and(|tick| tick <= state.floor) {
            return Ok(Fired::Settled);
        }
        let session = claim.value.session.clone();
        let run = if open.attempt == 1 { claim.value.run } else { open.run };
        if let Some(reason) = self.objection(&plan, open)? {
            // Unless somebody who looked before the change has queued it already.
            if self.sessions().queued(&session, run).await?.is_none()
                && self.outcome(&session, run).await?.is_none_or(|ended| ended.started.is_none())
            {
                self.change_state(&plan, |state| {
                    state.let_go(open.first, reason, self.wall());
                    Ok(())
                })
                .await?;
                return Ok(Fired::LetGo);
            }
        }
        // The session is made here, so that the run can be asked for at once, and never runs in another of the same name.
        let incarnation = self.sessions().ensure(&session).await?.head.incarnation;
        let on_crash = self.inner.terms.agents.get(&session.agent).map_or(OnCrash::Retry(1), |terms| terms.on_crash);
        let entry = QueueEntry {
            run,
            session: session.clone(),
            incarnation: Some(incarnation),
            input: claim.value.input.clone(),
            attachments: Vec::new(),
            trigger: Trigger::Schedule { schedule: plan.id.to_string(), tick: open.tick.due().map(Tick::nanos) },
            choice: None,
            args: None,
            params: Vec::new(),
            on_crash,
            attempts: 0,
            origin: Origin::Server,
            owner: self.owner().clone(),
            created: self.wall(),
        };
        self.sessions().enqueue(&entry).await?;
        self.change_state(&plan, |state| {
            state.queued(open.first, claim.value.run, &session, self.owner(), self.wall());
            Ok(())
        })
        .await?;
        let late = due.map(|tick| {
            let delay = i64::try_from(plan.delay().as_nanos()).unwrap_or(i64::MAX);
            claim.modified.saturating_sub(tick.nanos()).saturating_sub(delay)
        });
        Ok(Fired::Queued { late })
    }

    /// Makes the claim, or finds the one that is there: what it says counts.
    async fn claim(&self, plan: &Plan, open: &Open) -> Result<Loaded<Claim>> {
        let key = Key::Claim(plan.id.clone(), open.tick);
        let first = open.attempt == 1 && open.tick.due().is_some();
        if first {
            let claim = Claim {
                id: plan.id.clone(),
                tick: open.tick,
                run: open.run,
                session: open.session.clone(),
                input: Input::of(&plan.spec.input),
                generation: plan.generation,
                owner: self.owner().clone(),
                created: self.wall(),
            };
            if let Created::Exists(mut found) = self.inner.store.create(&key, &claim).await? {
                if drill::disabled(Safeguard::Claims) {
                    found.value = claim;
                }
                return Ok(*found);
            }
        }
        self.inner.store.load(&key).await?.ok_or_else(|| {
            Error::damaged(format!("{key} is missing, though its run was taken"))
                .code("claim_missing")
                .hint("remove the schedule and make it again")
        })
    }

    /// Whether the store's clock has reached a tick; waits when that is near.
    async fn has_come(&self, tick: Tick, claimed: i64) -> Result<bool> {
        if claimed >= tick.nanos() {
            return Ok(true);
        }
        let early = tick.nanos().saturating_sub(self.inner.time.reached().await?);
        if early > i64::try_from(EARLY.as_nanos()).unwrap_or(i64::MAX) {
            return Ok(false);
        }
        if let Ok(early) = u64::try_from(early) {
            self.inner.store.clock().sleep(Duration::from_nanos(early)).await;
        }
        Ok(self.inner.time.reached().await? >= tick.nanos())
    }

    /// Says why a taken run may not begin; none when it may.
    fn objection(&self, plan: &Plan, open: &Open) -> Result<Option<&'static str>> {
        if plan.removed.is_some() {
            return Ok(Some("the schedule was removed"));
        }
        let TickName::Due(tick) = open.tick else { return Ok(None) };
        if plan.generation == open.generation {
            return Ok(None);
        }
        let still = match (plan.is_armed(), plan.spec.expression()?) {
            (true, Some(expression)) => expression.next(&self.inner.zones.get(&plan.spec.timezone)?, tick.plus(-1)) == Some(tick),
            _ => false,
        };
        Ok((!still).then_some("the schedule was changed when it was due"))
    }

    /// Returns how a run has ended; none when it goes on or waits.
    pub(super) async fn outcome(&self, session: &SessionRef, run: RunId) -> Result<Option<Ended>> {
        for look in 0..2 {
            match self.sessions().record(session, run).await {
                Ok(record) => return Ok(ended(&record)),
                Err(error) if error.stable_code() == "run_not_done" => return Ok(None),
                Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            if look == 0 && self.sessions().queued(session, run).await?.is_some() {
                return Ok(None);
            }
            // Neither record nor entry: it may have ended between the two looks, so there is a second one.
        }
        let reason = "it left no record: it could not begin, or its session was deleted".to_owned();
        Ok(Some(Ended { outcome: history::Outcome::Failed, reason, transient: false, started: None }))
    }

    pub(super) fn sessions(&self) -> &crate::session::Sessions {
        &self.inner.sessions
    }

    pub(super) fn owner(&self) -> &Owner {
        self.inner.sessions.owner()
    }

    /// This machine's time, for what people read.
    pub(super) fn wall(&self) -> i64 {
        self.inner.store.clock().now()
    }

    /// Reads the claim of a tick or trigger.
    ///
    /// # Errors
    /// `Store`, `Damaged`.
    pub async fn claimed(&self, id: &ScheduleId, tick: TickName) -> Result<Option<Claim>> {
        Ok(self.inner.store.load::<Claim>(&Key::Claim(id.clone(), tick)).await?.map(|found| found.value))
    }
}

fn still_taken(state: &State, open: &Open) -> bool {
    state.open.iter().any(|now| now.first == open.first && now.attempt == open.attempt && now.phase == Phase::Taken)
}

fn ended(record: &RunRecord) -> Option<Ended> {
    let outcome = history::Outcome::of(record.status)?;
    let code = record.failure.as_ref().map(|failure| failure.code.as_str());
    let reason = record.failure.as_ref().map_or_else(String::new, |failure| failure.message.clone());
    let transient = code == Some("unavailable") || record.status == Status::TimedOut;
    Some(Ended { outcome, reason, transient, started: Some(record.started) })
}
