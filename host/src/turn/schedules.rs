//! Behind `landfall:agent/schedules`: an agent's own schedules, for its guest.

use crate::capability::refusal::{LimitReached, Refusal};
use crate::capability::schedules::ScheduleService;
use crate::error::{Error, ErrorKind};
use crate::id::{AgentName, RunId, ScheduleId, ScheduleName};
use crate::policy::grants::Grants;
use crate::schedule::Schedules;
use crate::schedule::change::Expected;
use crate::schedule::history::Entry;
use crate::schedule::plan::{Source, Spec};
use crate::schedule::view::View;

/// The schedules of one agent.
#[derive(Debug)]
pub(super) struct Own {
    schedules: Schedules,
    agent: AgentName,
}

impl Own {
    pub(super) fn new(schedules: Schedules, agent: AgentName) -> Self {
        Self { schedules, agent }
    }

    /// Only ids with this agent in front are ever asked for, so another's schedule can't be named.
    fn id(&self, name: ScheduleName) -> ScheduleId {
        ScheduleId { agent: Some(self.agent.clone()), name }
    }

    fn refusal(&self, error: Error) -> Refusal {
        let grant = self.schedules.grant(&self.agent);
        let limit = |name: &str, allowed: u64| Refusal::Limit(LimitReached { name: name.to_owned(), allowed, value: None });
        match (error.stable_code(), grant) {
            ("not_granted", _) => Refusal::Denied(Box::new(Grants::own(self.agent.clone()).no_schedules())),
            ("max_schedules", Some(grant)) => limit("max_schedules", grant.max_schedules.into()),
            ("min_interval", Some(grant)) => limit("min_interval", grant.min_interval),
            ("over_limit", Some(grant)) => limit("max_runs_per_hour", grant.max_runs_per_hour.into()),
            _ if error.kind() == ErrorKind::Limit => Refusal::Invalid(error.message().to_owned()),
            _ => error.into(),
        }
    }
}

#[async_trait::async_trait]
impl ScheduleService for Own {
    async fn put(&self, name: ScheduleName, spec: Spec, revision: Option<u64>) -> Result<View, Refusal> {
        let expected = revision.map_or(Expected::Any, Expected::Revision);
        self.schedules.put_own(&self.agent, name, spec, expected).await.map_err(|error| self.refusal(error))
    }

    async fn get(&self, name: ScheduleName) -> Result<View, Refusal> {
        self.schedules.get(&self.id(name)).await.map_err(|error| self.refusal(error))
    }

    async fn list(&self) -> Result<Vec<View>, Refusal> {
        self.schedules.own(&self.agent).await.map_err(|error| self.refusal(error))
    }

    async fn remove(&self, name: ScheduleName) -> Result<(), Refusal> {
        self.schedules.remove(&self.id(name), Source::Agent, Expected::Any).await.map(drop).map_err(|error| self.refusal(error))
    }

    async fn trigger(&self, name: ScheduleName, payload: Option<String>, key: Option<String>) -> Result<RunId, Refusal> {
        let triggered = self.schedules.trigger(&self.id(name), payload.as_deref(), key.as_deref()).await;
        triggered.map(|triggered| triggered.run).map_err(|error| self.refusal(error))
    }

    async fn history(&self, name: ScheduleName) -> Result<Vec<Entry>, Refusal> {
        Ok(ScheduleService::get(self, name).await?.state.history)
    }

    fn blank(&self) -> Spec {
        Spec::on_demand(self.agent.clone())
    }
}
