//! Runs outside the plan: on demand, with a payload, once for each key.

use bytes::Bytes;

use super::claim::Claim;
use super::fire::Fired;
use super::plan::{Overlap, run_of_key};
use super::state::Busy;
use super::{Schedules, missing};
use crate::error::{Error, Result};
use crate::id::{RunId, ScheduleId, SessionRef};
use crate::session::record::Input;
use crate::store::Key;
use crate::store::cas::Created;
use crate::tick::TickName;

/// Longest idempotency key, bytes.
pub const KEY_MAX: usize = 255;
/// Largest payload, bytes, whatever the agent's limit of input is.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// A trigger that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Triggered {
    /// The run.
    pub run: RunId,
    /// The session that it works in.
    pub session: SessionRef,
    /// Whether it waits for an earlier run of the schedule.
    pub waits: bool,
    /// Whether the same key had triggered it before.
    pub repeated: bool,
}

impl Schedules {
    /// Starts a run outside the plan. It works on schedules that are on demand or paused too, and never moves the plan. When it returns, the run
    /// is durable: any server goes on with it.
    ///
    /// # Errors
    /// `NotFound`; `Usage` (`unknown_agent`, `invalid_key`); `Limit` (`payload_too_large`, `over_limit`); `Conflict`: `overlap` when a run goes on
    /// and the schedule skips overlaps, `queue_full`, `key_reused` when the key came with another payload before; `Store`.
    pub async fn trigger(&self, id: &ScheduleId, payload: Option<&str>, key: Option<&str>) -> Result<Triggered> {
        if key.is_some_and(|key| key.is_empty() || key.len() > KEY_MAX) {
            return Err(Error::usage(format!("an idempotency key has 1 to {KEY_MAX} bytes")).code("invalid_key"));
        }
        if let Some(payload) = payload
            && payload.len() > PAYLOAD_MAX
        {
            return Err(
                Error::limit(format!("a payload of {} bytes is over the limit of {PAYLOAD_MAX}", payload.len())).code("payload_too_large")
            );
        }
        let view = self.get(id).await?;
        let (plan, state) = (view.plan, view.state);
        let text = payload.unwrap_or(&plan.spec.input);
        let input = Input::of(text);
        let run = match key {
            Some(key) => run_of_key(id, key, 1)?,
            None => {
                let millis = u64::try_from(self.wall() / 1_000_000).unwrap_or(0);
                RunId::new_v7(millis, crate::random::bytes(&**self.inner.store.random()))
            }
        };
        let tick = TickName::Triggered(run);
        let claim_key = Key::Claim(id.clone(), tick);
        let earlier = if key.is_some() { self.inner.store.load::<Claim>(&claim_key).await? } else { None };
        if let Some(earlier) = &earlier {
            same_payload(&earlier.value, &input)?;
            if state.history.iter().any(|entry| entry.tick == tick) || state.open.iter().any(|open| open.tick == tick) {
                return Ok(Triggered { run, session: earlier.value.session.clone(), waits: false, repeated: true });
            }
        }
        self.may_trigger(&plan, &state)?;
        if !state.open.is_empty() && plan.spec.overlap == Overlap::Skip {
            return Err(busy(id, &Busy::Overlap(state.open[0].run)));
        }
        let session = SessionRef { agent: plan.spec.agent.clone(), session: plan.session(run)? };
        if input.inline.is_none() {
            self.sessions().put_input(&session, Bytes::copy_from_slice(text.as_bytes())).await?;
        }
        // The claim comes first here, since it holds the payload. It counts once the state names it.
        let claim = Claim {
            id: id.clone(),
            tick,
            run,
            session,
            input: input.clone(),
            generation: plan.generation,
            owner: self.owner().clone(),
            created: self.wall(),
        };
        let claim = match self.inner.store.create(&claim_key, &claim).await? {
            Created::Done(_) => claim,
            Created::Exists(found) => {
                same_payload(&found.value, &input)?;
                found.value
            }
        };
        let now = self.inner.time.now().await?;
        let (state, taken) = self.change_state(&plan, |state| state.trigger(run, &plan, self.owner(), now)).await?;
        taken.map_err(|why| busy(id, &why))?;
        let open = state.open.iter().find(|open| open.first == run).cloned();
        let waits = open.as_ref().is_some_and(|open| open.phase == super::state::Phase::Waiting);
        if let Some(open) = open.filter(|_| !waits) {
            match self.fire(&plan, &open).await {
                Ok(Fired::LetGo) => return Err(missing(id)),
                Ok(_) => {}
                // It is taken, so it isn't lost: a server goes on with it.
                Err(error) => {
                    tracing::warn!(schedule = %id, %run, error = %error.chain(), "a trigger is taken, and goes on at the next look");
                }
            }
        }
        Ok(Triggered { run, session: claim.session, waits, repeated: earlier.is_some() })
    }

    fn may_trigger(&self, plan: &super::plan::Plan, state: &super::state::State) -> Result<()> {
        use super::state::Verdict;
        use super::terms::Company;
        let now = self.wall();
        let started = state.starts.iter().filter(|start| now.saturating_sub(**start) < 3600 * 1_000_000_000).count();
        let company = Company { started: u32::try_from(started).unwrap_or(u32::MAX), older: 0 };
        match self.inner.terms.verdict(plan, company, &self.inner.zones, now)? {
            Verdict::Allowed => Ok(()),
            Verdict::Unknown(problem) => Err(Error::usage(problem.message).code("unknown_agent").hint("name an agent of this config")),
            Verdict::Refused(problem) if problem.code == "not_granted" => Err(Error::denied(problem.message).code("not_granted")),
            Verdict::Refused(problem) => Err(Error::limit(problem.message).code("over_limit")),
        }
    }
}

fn same_payload(earlier: &Claim, input: &Input) -> Result<()> {
    if earlier.input.digest == input.digest {
        return Ok(());
    }
    Err(Error::conflict("the idempotency key came with another payload before".to_owned())
        .code("key_reused")
        .hint("use another key for another payload"))
}

fn busy(id: &ScheduleId, why: &Busy) -> Error {
    match why {
        Busy::Overlap(run) => Error::conflict(format!("schedule {id} isn't triggered: its run {run} goes on, and it skips overlaps"))
            .code("overlap")
            .hint("wait for that run, or let the schedule queue: overlap = \"queue\""),
        Busy::Full => Error::conflict(format!("schedule {id} isn't triggered: {} of its runs wait already", super::state::WAITING_MAX))
            .code("queue_full")
            .hint("wait until some of them have ended"),
    }
}
