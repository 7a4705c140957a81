//! What people and agents do to plans. Every change is a compare-and-swap of the plan, and then the state takes it over.

use std::collections::BTreeMap;

use super::plan::{Plan, Source, Spec};
use super::terms::{Grant, shortest};
use super::view::View;
use super::{ROUNDS, Schedules, contended, missing};
use crate::error::{Error, Result};
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::nearest::nearest;
use crate::store::Key;
use crate::store::cas::{Created, Replaced};
use crate::tick::Tick;

/// What a write of a plan expects to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing, or a removed one.
    New,
    /// The plan of this revision.
    Revision(u64),
    /// Whatever there is.
    Any,
}

/// What a declaration of the config's schedules did, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Declared {
    /// A schedule was made.
    Made(ScheduleId),
    /// A schedule was changed.
    Changed(ScheduleId),
    /// A schedule isn't in the config any more: it is disarmed.
    Disarmed(ScheduleId),
    /// A schedule couldn't be declared.
    Failed(ScheduleId, String),
}

impl Schedules {
    /// Writes a plan.
    ///
    /// # Errors
    /// `Usage` and `Limit` as [`Spec::check`]; `Usage` (`unknown_agent`) for an agent that the config doesn't have; `Conflict` with the code
    /// `schedule_exists`, `schedule_changed` (the message has the newer revision) or `schedule_declared` for one that the config declares; `Store`.
    pub async fn put(&self, id: &ScheduleId, spec: Spec, source: Source, expected: Expected) -> Result<View> {
        let now = self.inner.time.now().await?;
        spec.check(Tick::at_or_before(now))?;
        if !self.inner.terms.agents.contains_key(&spec.agent) {
            return Err(Error::usage(format!("schedule {id}: no agent is named {}", spec.agent)).code("unknown_agent").hint(
                match nearest(spec.agent.as_str(), self.inner.terms.agents.keys().map(AgentName::as_str)) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "name an agent of the config".to_owned(),
                },
            ));
        }
        self.change(id, |found| {
            let old = match (found, expected) {
                (None, Expected::Revision(_)) => return Err(missing(id)),
                (Some(old), Expected::Revision(_)) if old.removed.is_some() => return Err(missing(id)),
                (Some(old), Expected::Revision(seen)) if seen != old.generation => return Err(changed(old)),
                (Some(old), Expected::New) if old.removed.is_none() => {
                    return Err(Error::conflict(format!("there is a schedule {id} already, of agent {}", old.spec.agent))
                        .code("schedule_exists")
                        .hint("take another name, or change it: `landfall schedule add --replace`"));
                }
                (Some(old), _) if old.removed.is_none() => {
                    refuse_declared(old, source)?;
                    Some(old)
                }
                (old, _) => {
                    // A removed one begins anew; its generations go on, so that its runs' ids never come again.
                    let generation = old.map_or(1, |old| old.generation + 1);
                    return Ok(Some(Plan {
                        id: id.clone(),
                        generation,
                        spec: spec.clone(),
                        source,
                        armed_from: Tick::at_or_before(now),
                        undeclared: None,
                        removed: None,
                        created: now,
                        changed: now,
                    }));
                }
            };
            let Some(old) = old else { return Ok(None) };
            if old.spec == spec && old.source == source && old.undeclared.is_none() {
                return Ok(None);
            }
            let same_ticks = old.spec.cron == spec.cron && old.spec.timezone == spec.timezone && old.is_armed();
            let armed_from = if same_ticks { old.armed_from } else { Tick::at_or_before(now) };
            Ok(Some(Plan {
                generation: old.generation + 1,
                spec: spec.clone(),
                source,
                armed_from,
                undeclared: None,
                changed: now,
                ..old.clone()
            }))
        })
        .await
    }

    /// Returns what an agent may do to schedules of its own; none when the config grants it none.
    pub(crate) fn grant(&self, agent: &AgentName) -> Option<Grant> {
        self.inner.terms.agents.get(agent).and_then(|terms| terms.grant)
    }

    /// Writes a plan of an agent's own, within its grant.
    ///
    /// # Errors
    /// As [`Schedules::put`]; `Denied` (`not_granted`) without a grant; `Limit` (`max_schedules`, `min_interval`).
    pub async fn put_own(&self, agent: &AgentName, name: ScheduleName, mut spec: Spec, expected: Expected) -> Result<View> {
        let grant = self.grant(agent).ok_or_else(|| {
            Error::denied(format!("agent {agent} isn't granted schedules of its own"))
                .code("not_granted")
                .hint(format!("[agents.{agent}.schedules]"))
        })?;
        spec.agent = agent.clone();
        let now = self.inner.time.now().await?;
        spec.check(Tick::at_or_before(now))?;
        if let Some(interval) = shortest(&spec, &self.inner.zones, now)?
            && interval < grant.min_interval
        {
            return Err(
                Error::limit(format!("ticks every {interval} s are closer than the granted {} s", grant.min_interval)).code("min_interval")
            );
        }
        let id = ScheduleId { agent: Some(agent.clone()), name };
        let own = self.own(agent).await?;
        if !own.iter().any(|view| view.plan.id == id) && own.len() >= usize::try_from(grant.max_schedules).unwrap_or(usize::MAX) {
            return Err(
                Error::limit(format!("agent {agent} has {} schedules of its own, and may have no more", own.len())).code("max_schedules")
            );
        }
        self.put(&id, spec, Source::Agent, expected).await
    }

    /// Returns the schedules that an agent made.
    ///
    /// # Errors
    /// `Store`, `Damaged`.
    pub async fn own(&self, agent: &AgentName) -> Result<Vec<View>> {
        let mut own = Vec::new();
        for id in self.ids().await? {
            if id.agent.as_ref() == Some(agent)
                && let Ok(view) = self.get(&id).await
            {
                own.push(view);
            }
        }
        Ok(own)
    }

    /// Pauses a schedule, or lets it go on: ticks in between are over.
    ///
    /// # Errors
    /// `NotFound`, `Store`.
    pub async fn set_paused(&self, id: &ScheduleId, paused: bool) -> Result<View> {
        let now = self.inner.time.now().await?;
        self.change(id, |found| {
            let Some(old) = found.filter(|old| old.removed.is_none()) else { return Err(missing(id)) };
            if old.spec.paused == paused {
                return Ok(None);
            }
            let armed_from = if paused { old.armed_from } else { Tick::at_or_before(now) };
            let spec = Spec { paused, ..old.spec.clone() };
            Ok(Some(Plan { generation: old.generation + 1, spec, armed_from, changed: now, ..old.clone() }))
        })
        .await
    }

    /// Removes a schedule. A run that goes on may finish.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` (`schedule_declared`, `schedule_changed`); `Store`.
    pub async fn remove(&self, id: &ScheduleId, source: Source, expected: Expected) -> Result<View> {
        let now = self.inner.time.now().await?;
        self.change(id, |found| {
            let Some(old) = found.filter(|old| old.removed.is_none()) else { return Err(missing(id)) };
            if matches!(expected, Expected::Revision(seen) if seen != old.generation) {
                return Err(changed(old));
            }
            if old.undeclared.is_none() {
                refuse_declared(old, source)?;
            }
            Ok(Some(Plan { generation: old.generation + 1, removed: Some(now), changed: now, ..old.clone() }))
        })
        .await
    }

    /// Makes the config's schedules what is declared, and disarms those that were and aren't any more. Pauses stay as people set them.
    ///
    /// # Errors
    /// `Store`. What is wrong with one schedule is in its answer, and keeps no other from being declared.
    pub async fn declare(&self, declared: &BTreeMap<ScheduleName, Spec>) -> Result<Vec<Declared>> {
        let mut done = Vec::new();
        let before = self.list(None).await?;
        for (name, spec) in declared {
            let id = ScheduleId { agent: None, name: name.clone() };
            let old = before.iter().find(|(other, _)| *other == id).and_then(|(_, view)| view.as_ref().ok());
            let mut spec = spec.clone();
            spec.paused = old.is_some_and(|view| view.plan.spec.paused);
            let generation = old.map(|view| view.plan.generation);
            match self.put(&id, spec, Source::Config, Expected::Any).await {
                Ok(view) if Some(view.plan.generation) == generation => {}
                Ok(_) if generation.is_some() => done.push(Declared::Changed(id)),
                Ok(_) => done.push(Declared::Made(id)),
                Err(error) if error.kind() == crate::ErrorKind::Store => return Err(error),
                Err(error) => done.push(Declared::Failed(id, error.chain())),
            }
        }
        for (id, view) in before {
            let Ok(view) = view else { continue };
            if view.plan.source != Source::Config || view.plan.undeclared.is_some() || id.agent.is_none() && declared.contains_key(&id.name)
            {
                continue;
            }
            let now = self.inner.time.now().await?;
            self.change(&id, |found| {
                let Some(old) = found.filter(|old| old.undeclared.is_none() && old.removed.is_none()) else { return Ok(None) };
                Ok(Some(Plan { generation: old.generation + 1, undeclared: Some(now), changed: now, ..old.clone() }))
            })
            .await?;
            done.push(Declared::Disarmed(id));
        }
        Ok(done)
    }

    /// Changes a plan by compare-and-swap, and lets the state take it over. `change` gives none to leave it as it is.
    async fn change(&self, id: &ScheduleId, change: impl Fn(Option<&Plan>) -> Result<Option<Plan>> + Send + Sync) -> Result<View> {
        let key = Key::Plan(id.clone());
        let mut found = self.load_plan(id).await?;
        for round in 0..ROUNDS {
            let Some(next) = change(found.as_ref().map(|found| &found.value))? else {
                let plan = found.ok_or_else(|| missing(id))?.value;
                return self.take_over(plan).await;
            };
            found = match &found {
                None => match self.inner.store.create(&key, &next).await? {
                    Created::Done(_) => return self.take_over(next).await,
                    Created::Exists(other) => Some(*other),
                },
                Some(found) => match self.inner.store.replace(&key, &found.version, &next).await? {
                    Replaced::Done(_) => return self.take_over(next).await,
                    Replaced::Refused(other) => Some(*other),
                    Replaced::Gone => None,
                },
            };
            self.pause(round).await;
        }
        Err(contended(id))
    }

    /// Lets the state take over a plan. A poller does the same when this doesn't come to it.
    pub(super) async fn take_over(&self, plan: Plan) -> Result<View> {
        let now = self.inner.time.now().await?;
        let (state, ()) = self.change_state(&plan, |state| state.adopt(&plan, &self.inner.zones, now)).await?;
        Ok(View { plan, state })
    }
}

fn changed(old: &Plan) -> Error {
    Error::conflict(format!("schedule {} was changed by somebody else: it has revision {} now", old.id, old.generation))
        .code("schedule_changed")
        .hint("read it again, and make the change to what is there now")
}

fn refuse_declared(old: &Plan, source: Source) -> Result<()> {
    if old.source == Source::Config && source != Source::Config {
        return Err(Error::conflict(format!("schedule {} is declared in the config", old.id))
            .code("schedule_declared")
            .hint(format!("change [schedules.{}] there; `landfall schedule pause` works on it", old.id)));
    }
    Ok(())
}
