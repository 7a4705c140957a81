//! The generated trait over the service.

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{schedules as wit, types};
use super::super::refusal::Refusal;
use super::super::types::instant;
use super::{Schedule, ScheduleService};
use crate::id::ScheduleName;
use crate::policy::grants::Grants;
use crate::schedule::history::{Entry, Outcome};
use crate::schedule::plan::{CatchUp, Overlap, SessionPolicy, Spec};

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) service: Option<&'a dyn ScheduleService>,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasSchedules;

impl HasData for HasSchedules {
    type Data<'a> = View<'a>;
}

impl<'a> View<'a> {
    fn service(&self) -> Result<&'a dyn ScheduleService, Refusal> {
        self.service.ok_or_else(|| Refusal::Denied(Box::new(self.grants.no_schedules())))
    }
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        refusal.into_wit()
    }
}

impl wit::Host for View<'_> {
    async fn put(&mut self, name: String, plan: wit::Plan, revision: Option<u64>) -> Result<wit::Schedule, Refusal> {
        let service = self.service()?;
        Ok(service.put(parse(&name)?, spec(service.blank(), plan)?, revision).await?.into())
    }

    async fn get(&mut self, name: String) -> Result<wit::Schedule, Refusal> {
        Ok(self.service()?.get(parse(&name)?).await?.into())
    }

    async fn list(&mut self) -> Result<Vec<wit::Schedule>, Refusal> {
        Ok(self.service()?.list().await?.into_iter().map(Into::into).collect())
    }

    async fn remove(&mut self, name: String) -> Result<(), Refusal> {
        self.service()?.remove(parse(&name)?).await
    }

    async fn trigger(&mut self, name: String, payload: Option<String>, key: Option<String>) -> Result<String, Refusal> {
        Ok(self.service()?.trigger(parse(&name)?, payload, key).await?.to_string())
    }

    async fn history(&mut self, name: String, limit: u32) -> Result<Vec<wit::Entry>, Refusal> {
        let entries = self.service()?.history(parse(&name)?).await?;
        Ok(entries.into_iter().take(usize::try_from(limit).unwrap_or(usize::MAX)).map(Into::into).collect())
    }
}

fn parse(name: &str) -> Result<ScheduleName, Refusal> {
    name.parse().map_err(Refusal::from)
}

fn spec(blank: Spec, plan: wit::Plan) -> Result<Spec, Refusal> {
    Ok(Spec {
        cron: plan.cron.filter(|cron| !cron.trim().is_empty()),
        timezone: plan.timezone,
        input: plan.input,
        session: match plan.session {
            wit::SessionPolicy::Continuing => SessionPolicy::Continue,
            wit::SessionPolicy::Fresh => SessionPolicy::Fresh,
            wit::SessionPolicy::Named(name) => SessionPolicy::Named(name.parse()?),
        },
        overlap: match plan.overlap {
            wit::Overlap::Skip => Overlap::Skip,
            wit::Overlap::Queue => Overlap::Queue,
        },
        catch_up: match plan.catch_up {
            wit::CatchUp::Latest => CatchUp::Latest,
            wit::CatchUp::None => CatchUp::None,
            wit::CatchUp::All => CatchUp::All,
        },
        paused: plan.paused,
        ..blank
    })
}

impl From<Schedule> for wit::Schedule {
    fn from(view: Schedule) -> Self {
        let armed = view.plan.is_armed();
        let spec = view.plan.spec;
        Self {
            name: view.plan.id.name.to_string(),
            revision: view.plan.generation,
            plan: wit::Plan {
                cron: spec.cron,
                timezone: spec.timezone,
                input: spec.input,
                session: match spec.session {
                    SessionPolicy::Continue => wit::SessionPolicy::Continuing,
                    SessionPolicy::Fresh => wit::SessionPolicy::Fresh,
                    SessionPolicy::Named(name) => wit::SessionPolicy::Named(name.to_string()),
                },
                overlap: match spec.overlap {
                    Overlap::Skip => wit::Overlap::Skip,
                    Overlap::Queue => wit::Overlap::Queue,
                },
                catch_up: match spec.catch_up {
                    CatchUp::Latest => wit::CatchUp::Latest,
                    CatchUp::None => wit::CatchUp::None,
                    CatchUp::All => wit::CatchUp::All,
                },
                paused: spec.paused,
            },
            armed,
            next: view.state.next.map(|tick| instant(tick.nanos())),
            problem: view.state.problem.map(|problem| problem.message),
        }
    }
}

impl From<Entry> for wit::Entry {
    fn from(entry: Entry) -> Self {
        Self {
            due: entry.tick.due().map(|tick| instant(tick.nanos())),
            count: entry.count,
            outcome: match entry.outcome {
                Outcome::Ran => wit::Outcome::Ran,
                Outcome::Failed => wit::Outcome::Failed,
                Outcome::Cancelled => wit::Outcome::Cancelled,
                Outcome::TimedOut => wit::Outcome::TimedOut,
                Outcome::Skipped => wit::Outcome::Skipped,
                Outcome::Missed => wit::Outcome::Missed,
                Outcome::Refused => wit::Outcome::Refused,
            },
            reason: entry.reason,
            run: entry.run.map(|run| run.to_string()),
            at: instant(entry.at),
        }
    }
}
