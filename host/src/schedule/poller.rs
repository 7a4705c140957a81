//! The poller: what a server does for schedules all the time. It lists the states every few seconds, reads those that were written since, and
//! wakes for the ticks of the others by itself. Any number of pollers may work on one store.

mod metrics;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;

use self::metrics::Counters;
pub use self::metrics::Metrics;
use super::Schedules;
use super::fire::Fired;
use super::plan::Source;
use super::state::{Circumstances, Open, Phase, State};
use super::terms::Company;
use crate::cancel::Cancel;
use crate::clock::UnixNanos;
use crate::error::Result;
use crate::id::{AgentName, RunId, ScheduleId};
use crate::session::Owner;
use crate::store::cas::{Created, Loaded, Replaced};
use crate::store::{Key, Mark, Prefix};
use crate::tick::TickName;

/// Every so many looks at the states the plans are listed too: for one whose state was never made.
const PLANS_EVERY: u64 = 6;
/// How long a tick that another process has taken may lie before this one goes on with it.
const STALE: Duration = Duration::from_secs(15);
/// How long claims are kept, seconds. Idempotency keys of triggers are good for as long.
pub const CLAIMS_KEPT: i64 = 48 * 3600;
/// How much longer they may lie before they are looked for, seconds.
const CLEAN_EVERY: i64 = 24 * 3600;
/// A skew of this machine's clock that is worth a warning, nanoseconds.
const SKEW: i64 = 5_000_000_000;

/// How a poller works.
#[derive(Clone, Debug)]
pub struct PollerOptions {
    /// Time between two listings of the states.
    pub poll: Duration,
    /// How many schedules are worked at at once.
    pub concurrency: usize,
}

impl Default for PollerOptions {
    fn default() -> Self {
        Self { poll: Duration::from_secs(10), concurrency: 16 }
    }
}

/// What is known of a schedule between two looks.
#[derive(Clone, Debug)]
struct Known {
    mark: Option<Mark>,
    agent: Option<AgentName>,
    source: Option<Source>,
    created: UnixNanos,
    starts: Vec<UnixNanos>,
    wake: Option<UnixNanos>,
    /// Whether it is worked at at each look: it has open runs, something of it waits, or the last look failed.
    again: bool,
}

/// Fires schedules.
#[derive(Debug)]
pub struct Poller {
    schedules: Schedules,
    options: PollerOptions,
    known: Mutex<BTreeMap<ScheduleId, Known>>,
    /// Ticks that others have taken, with when that was seen first.
    taken: Mutex<HashMap<(ScheduleId, RunId), Duration>>,
    looks: Mutex<u64>,
    counters: Counters,
}

impl Poller {
    /// Makes one that knows nothing yet.
    #[must_use]
    pub fn new(schedules: Schedules, options: PollerOptions) -> Self {
        Self {
            schedules,
            options,
            known: Mutex::default(),
            taken: Mutex::default(),
            looks: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Polls until it is stopped. Nothing that goes wrong ends it.
    pub async fn run(&self, stop: &Cancel) {
        loop {
            if let Err(error) = self.look().await {
                self.counters.error();
                tracing::warn!(error = %error.chain(), "the schedules could not be looked at; they are at the next look");
            }
            let clock = self.schedules.inner.store.clock();
            let next_look = clock.boot().saturating_add(self.options.poll);
            loop {
                let left = next_look.saturating_sub(clock.boot());
                if left.is_zero() {
                    break;
                }
                let wait = self.until_due().await.map_or(left, |due| due.min(left));
                tokio::select! {
                    biased;
                    _ = stop.cancelled() => {
                        if let Err(error) = self.schedules.inner.time.close().await {
                            tracing::debug!(error = %error.chain(), "a scratch object was left over");
                        }
                        return;
                    }
                    () = clock.sleep(wait.max(Duration::from_millis(1))) => {}
                }
                if next_look > clock.boot() {
                    self.fire_due().await;
                }
            }
        }
    }

    /// Returns what it did so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let known = self.known();
        self.counters.snapshot(known.len(), known.values().filter(|known| known.wake.is_some()).count())
    }

    /// Looks at all states, and works at those that were written since the last look, are due, or have open runs.
    ///
    /// # Errors
    /// `Store` when they can't be listed. What goes wrong with one schedule is its own.
    pub async fn look(&self) -> Result<()> {
        let store = &self.schedules.inner.store;
        let looks = {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            *looks += 1;
            *looks
        };
        let now = self.schedules.inner.time.now().await?;
        let skew = self.schedules.inner.time.skew().await?;
        if skew.abs() > SKEW {
            tracing::warn!(seconds = skew / 1_000_000_000, "this machine's clock differs from the store's; schedules go by the store's");
        }
        let mut work = Vec::new();
        let mut seen = BTreeSet::new();
        for listed in store.list(&Prefix::ScheduleStates).await?.objects {
            let Key::ScheduleState(id) = listed.key else { continue };
            let known = self.known().get(&id).cloned();
            let idle = known
                .is_some_and(|known| known.mark.as_ref() == Some(&listed.mark) && !known.again && known.wake.is_none_or(|wake| wake > now));
            if !idle {
                work.push((id.clone(), Some(listed.mark)));
            }
            seen.insert(id);
        }
        if looks % PLANS_EVERY == 1 {
            let plans = self.schedules.ids().await?;
            work.extend(plans.into_iter().filter(|id| !seen.contains(id)).map(|id| (id, None)));
        }
        self.known().retain(|id, _| seen.contains(id));
        self.work(work).await;
        Ok(())
    }

    /// Works at the schedules whose time has come since the last look.
    pub async fn fire_due(&self) {
        let Ok(now) = self.schedules.inner.time.now().await else { return };
        let due: Vec<_> =
            self.known().iter().filter(|(_, known)| known.wake.is_some_and(|wake| wake <= now)).map(|(id, _)| (id.clone(), None)).collect();
        self.work(due).await;
    }

    /// Returns how long it is until the next tick of any schedule.
    async fn until_due(&self) -> Option<Duration> {
        let wake = self.known().values().filter_map(|known| known.wake).min()?;
        let now = self.schedules.inner.time.now().await.ok()?;
        Some(Duration::from_nanos(u64::try_from(wake.saturating_sub(now)).unwrap_or(0)))
    }

    async fn work(&self, schedules: Vec<(ScheduleId, Option<Mark>)>) {
        futures::stream::iter(schedules)
            .for_each_concurrent(self.options.concurrency.max(1), |(id, mark)| async move {
                let known = match self.attend(&id).await {
                    Ok(Some(known)) => known,
                    Ok(None) => return,
                    Err(error) => {
                        self.counters.error();
                        tracing::warn!(schedule = %id, error = %error.chain(), "a schedule could not be worked at; it is at the next look");
                        let mut known = self.known();
                        if let Some(known) = known.get_mut(&id) {
                            // Not at once again: at the next look.
                            (known.again, known.wake) = (true, None);
                        }
                        return;
                    }
                };
                // A mark from a listing is older than what was read after it, so it can only make for one look too many.
                self.known().insert(id, Known { mark, ..known });
            })
            .await;
    }

    /// Does what is to be done for one schedule.
    async fn attend(&self, id: &ScheduleId) -> Result<Option<Known>> {
        let Some(plan) = self.schedules.load_plan(id).await? else { return Ok(None) };
        let mut plan = plan.value;
        for _ in 0..super::ROUNDS {
            let found = self.schedules.load_state(id).await?;
            if found.as_ref().is_some_and(|found| found.value.generation > plan.generation) {
                match self.schedules.load_plan(id).await? {
                    Some(newer) => plan = newer.value,
                    None => return Ok(None),
                }
            }
            let before = found.as_ref().map(|found| found.value.clone());
            let mut state = before.clone().unwrap_or_else(|| State::new(&plan));
            let now = self.schedules.inner.time.now().await?;
            for open in state.open.clone().iter().filter(|open| open.phase == Phase::Queued) {
                if let Some(ended) = self.schedules.outcome(&open.session, open.run).await? {
                    state.ended(open.run, &ended, &plan, now)?;
                    self.counters.ended(ended.outcome);
                }
            }
            let zones = &self.schedules.inner.zones;
            let verdict = self.schedules.inner.terms.verdict(&plan, self.company(&plan, &state, now), zones, now)?;
            let at = Circumstances { plan: &plan, now, zones, owner: self.schedules.owner(), verdict: &verdict };
            if let Err(error) = state.advance(&at) {
                // A plan that can't be read by this version: recorded on itself, and no other is held up.
                state.fault("plan", error.message(), now);
                state.next = None;
            }
            let written = match &before {
                Some(before) if *before == state => true,
                _ => self.write(&state, found.as_ref()).await?,
            };
            if !written {
                self.counters.lost();
                continue;
            }
            self.count(before.as_ref(), &state);
            self.fire_taken(&plan, &state).await?;
            self.clean(&plan, &state, now).await?;
            return Ok(Some(Known {
                mark: None,
                agent: Some(plan.spec.agent.clone()),
                source: Some(plan.source),
                created: plan.created,
                starts: state.starts.clone(),
                wake: state.wake_at(&plan).filter(|wake| *wake > now),
                again: !state.open.is_empty() || state.wake_at(&plan).is_some_and(|wake| wake <= now),
            }));
        }
        Err(super::contended(id))
    }

    async fn write(&self, state: &State, found: Option<&Loaded<State>>) -> Result<bool> {
        let key = Key::ScheduleState(state.id.clone());
        let store = &self.schedules.inner.store;
        Ok(match found {
            None => matches!(store.create(&key, state).await?, Created::Done(_)),
            Some(found) => matches!(store.replace(&key, &found.version, state).await?, Replaced::Done(_)),
        })
    }

    /// Goes on with taken runs: this process's own at once, those of others when they are gone or seem to be stuck.
    async fn fire_taken(&self, plan: &super::plan::Plan, state: &State) -> Result<()> {
        for open in state.open.iter().filter(|open| open.phase == Phase::Taken) {
            if !self.may_go_on(plan, open).await? {
                continue;
            }
            match self.schedules.fire(plan, open).await? {
                Fired::Queued { late } => self.counters.queued(late),
                Fired::Early => self.counters.early(),
                Fired::Settled => self.counters.lost(),
                Fired::LetGo => {}
            }
        }
        Ok(())
    }

    async fn may_go_on(&self, plan: &super::plan::Plan, open: &Open) -> Result<bool> {
        let key = (plan.id.clone(), open.run);
        if open.owner == *self.schedules.owner() {
            return Ok(true);
        }
        let now = self.schedules.inner.store.clock().boot();
        let since = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.retain(|_, since| now.saturating_sub(*since) < STALE * 4);
            *taken.entry(key).or_insert(now)
        };
        let stale = now.saturating_sub(since) >= STALE || self.is_gone(&open.owner).await?;
        if stale {
            self.counters.taken_over();
        }
        Ok(stale)
    }

    async fn is_gone(&self, owner: &Owner) -> Result<bool> {
        self.schedules.sessions().is_gone(owner).await
    }

    /// Deletes old claims: first the floor rises, so that whoever makes one of them again can see that it is late.
    async fn clean(&self, plan: &super::plan::Plan, state: &State, now: UnixNanos) -> Result<()> {
        if state.cursor.seconds().saturating_sub(state.floor.seconds()) < CLAIMS_KEPT + CLEAN_EVERY {
            return Ok(());
        }
        let floor = state.cursor.plus(-CLAIMS_KEPT);
        self.schedules
            .change_state(plan, |state| {
                state.floor = state.floor.max(floor);
                Ok(())
            })
            .await?;
        for listed in self.schedules.inner.store.list(&Prefix::Claims(plan.id.clone())).await?.objects {
            let Key::Claim(_, tick) = &listed.key else { continue };
            let old = match tick {
                TickName::Due(tick) => *tick <= floor,
                TickName::Triggered(run) => {
                    now.saturating_sub(listed.modified) > CLAIMS_KEPT * 1_000_000_000 && !state.open.iter().any(|open| open.first == *run)
                }
            };
            if old {
                self.schedules.inner.store.delete(&listed.key).await?;
            }
        }
        Ok(())
    }

    fn company(&self, plan: &super::plan::Plan, state: &State, now: UnixNanos) -> Company {
        let hour = |starts: &[UnixNanos]| starts.iter().filter(|start| now.saturating_sub(**start) < 3600 * 1_000_000_000).count();
        let mut company = Company { started: u32::try_from(hour(&state.starts)).unwrap_or(u32::MAX), older: 0 };
        for (id, known) in &*self.known() {
            if *id == plan.id || known.agent.as_ref() != Some(&plan.spec.agent) {
                continue;
            }
            company.started = company.started.saturating_add(u32::try_from(hour(&known.starts)).unwrap_or(u32::MAX));
            if known.source == Some(Source::Agent) && (known.created, id) < (plan.created, &plan.id) {
                company.older += 1;
            }
        }
        company
    }

    fn count(&self, before: Option<&State>, after: &State) {
        let was = before.map(|state| state.totals).unwrap_or_default();
        self.counters.settled(&was, &after.totals);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ScheduleId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
