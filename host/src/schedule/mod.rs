//! Schedules: agents by the clock and on demand, on any number of replicas, with one official result for each due instant.
//!
//! A schedule is three kinds of objects: its *plan* (what is wanted), its *state* (how far it has come), and a *claim* for each tick that
//! became a run. There is no leader: whoever sees that a tick is due tries to take it by a compare-and-swap of the state, and whoever sees
//! that a taken tick has no run goes on with it. `ARCHITECTURE.md` has the table of the steps and of what a crash leaves.
//!
//! - [`cron`], [`zone`]: when an expression fires. [`plan`], [`state`], [`claim`], [`history`]: the objects, and the rules between them.
//! - [`change`]: what people and agents do to plans. [`trigger`]: runs outside the plan. [`fire`]: from a taken tick to a queued run.
//! - [`poller`]: what a server does all the time.

pub mod change;
pub mod claim;
pub mod cron;
pub mod fire;
pub mod history;
pub mod plan;
pub mod poller;
pub mod state;
pub mod terms;
pub mod time;
pub mod trigger;
pub mod view;
pub mod zone;

use std::sync::Arc;

use self::plan::Plan;
use self::state::State;
use self::terms::Terms;
use self::time::StoreTime;
use self::zone::Zones;
use crate::error::{Error, Result};
use crate::id::ScheduleId;
use crate::session::Sessions;
use crate::store::cas::{Created, Loaded, Replaced};
use crate::store::{Key, Prefix, Store};

/// How often a change is tried against the changes of others.
const ROUNDS: u32 = 16;

/// The schedules of a store. Clones are the same.
#[derive(Clone, Debug)]
pub struct Schedules {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    sessions: Sessions,
    terms: Terms,
    zones: Zones,
    time: StoreTime,
}

impl Schedules {
    /// Makes them of a store, of what this process runs runs with, and of what its config allows.
    #[must_use]
    pub fn new(store: Store, sessions: Sessions, terms: Terms, zones: Zones) -> Self {
        let time = StoreTime::new(store.clone());
        Self { inner: Arc::new(Inner { store, sessions, terms, zones, time }) }
    }

    /// Returns the ids of all schedules that there are or were.
    ///
    /// # Errors
    /// `Store`.
    pub async fn ids(&self) -> Result<Vec<ScheduleId>> {
        let listing = self.inner.store.list(&Prefix::Plans).await?;
        let ids = listing.objects.into_iter().filter_map(|listed| match listed.key {
            Key::Plan(id) => Some(id),
            _ => None,
        });
        Ok(ids.collect())
    }

    async fn load_plan(&self, id: &ScheduleId) -> Result<Option<Loaded<Plan>>> {
        self.inner.store.load(&Key::Plan(id.clone())).await
    }

    async fn load_state(&self, id: &ScheduleId) -> Result<Option<Loaded<State>>> {
        self.inner.store.load(&Key::ScheduleState(id.clone())).await
    }

    /// Changes a state by compare-and-swap, made where there is none. Returns what is there afterwards, and what the change gave.
    async fn change_state<R>(&self, plan: &Plan, change: impl Fn(&mut State) -> Result<R> + Send + Sync) -> Result<(State, R)> {
        let key = Key::ScheduleState(plan.id.clone());
        let mut found = self.load_state(&plan.id).await?;
        for round in 0..ROUNDS {
            let before = found.as_ref().map(|found| &found.value);
            let mut state = before.cloned().unwrap_or_else(|| State::new(plan));
            let gave = change(&mut state)?;
            if before == Some(&state) {
                return Ok((state, gave));
            }
            found = match &found {
                None => match self.inner.store.create(&key, &state).await? {
                    Created::Done(_) => return Ok((state, gave)),
                    Created::Exists(other) => Some(*other),
                },
                Some(found) => match self.inner.store.replace(&key, &found.version, &state).await? {
                    Replaced::Done(_) => return Ok((state, gave)),
                    Replaced::Refused(other) => Some(*other),
                    Replaced::Gone => None,
                },
            };
            self.pause(round).await;
        }
        Err(contended(&plan.id))
    }

    /// Lets the others go on, longer after every lost round and never in step.
    async fn pause(&self, round: u32) {
        let [jitter] = crate::random::bytes::<1>(&**self.inner.store.random());
        let span = 10 * u64::from(round) + u64::from(jitter) / 16;
        self.inner.store.clock().sleep(std::time::Duration::from_millis(span)).await;
    }
}

fn contended(id: &ScheduleId) -> Error {
    Error::conflict(format!("schedule {id} is changed by others all the time")).code("contended").hint("try again in a moment")
}

fn missing(id: &ScheduleId) -> Error {
    Error::not_found(format!("there is no schedule {id}")).code("schedule_missing").hint("`landfall schedule list` lists them")
}

impl Schedules {
    /// Deletes what this process left in the store for itself. Call it at the end.
    ///
    /// # Errors
    /// `Store`.
    pub async fn close(&self) -> Result<()> {
        self.inner.time.close().await
    }
}
