//! Runs as people look at them: how one stands, where it is, what it said, and its end when it is asked for.

use bytes::Bytes;

use super::Host;
use crate::error::{Error, Result};
use crate::id::{AgentName, RunId, SessionRef};
use crate::session::RunState;
use crate::session::record::{RunRecord, Text};
use crate::store::Key;
use crate::workspace::source::Source as _;

impl Host {
    /// Returns the records of a session's ended runs, newest first.
    ///
    /// # Errors
    /// As [`Host::session`].
    pub async fn runs(&self, session: &SessionRef, limit: usize) -> Result<Vec<RunRecord>> {
        let head = self.session(session).await?;
        self.inner.sessions.records(&head, limit).await
    }

    /// Returns how an accepted run of a session stands.
    ///
    /// # Errors
    /// As [`crate::session::Sessions::state`].
    pub async fn run_state(&self, session: &SessionRef, run: RunId) -> Result<RunState> {
        self.inner.sessions.state(session, run).await
    }

    /// Asks for the end of a run, wherever it is. Its owner sees it within seconds; before the commit it counts, after it doesn't.
    ///
    /// # Errors
    /// As [`crate::session::Sessions::cancel`].
    pub async fn cancel_run(&self, session: &SessionRef, run: RunId) -> Result<()> {
        self.inner.sessions.cancel(session, run).await.map(drop)
    }

    /// Returns the whole output of a run.
    ///
    /// # Errors
    /// `Damaged`, `Store`.
    pub async fn output(&self, record: &RunRecord) -> Result<Bytes> {
        match &record.output {
            None => Ok(Bytes::new()),
            Some(Text::Inline(text)) => Ok(Bytes::from(text.clone())),
            Some(Text::Stored(stored)) => self.inner.reader.chunk(&stored.link()).await,
        }
    }

    /// Finds the session of an accepted run by the run's id alone: looks into the queue, and then into each session of the agents.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing`; `Store`.
    pub async fn session_of_run(&self, run: RunId, agents: Option<&[AgentName]>) -> Result<SessionRef> {
        let allowed = |session: &SessionRef| agents.is_none_or(|agents| agents.contains(&session.agent));
        let sessions = &self.inner.sessions;
        if let Some(place) = sessions.all_places().await?.into_iter().find(|place| place.run == run)
            && let Ok(Some(queued)) = sessions.queued_at(place.session, run).await
            && allowed(&queued.entry.session)
        {
            return Ok(queued.entry.session);
        }
        for (session, _) in sessions.list(None).await? {
            if allowed(&session) && self.inner.store.size(&Key::Run(session.clone(), run)).await?.is_some() {
                return Ok(session);
            }
        }
        Err(Error::not_found(format!("there is no run {run}"))
            .code("run_missing")
            .hint("`landfall session log` lists the runs of a session"))
    }

    /// Finds a run by its id alone: looks into each session of the agent, or of all.
    pub(super) async fn find_run(&self, agent: Option<&AgentName>, run: RunId) -> Result<RunRecord> {
        let mut not_done = None;
        for (session, head) in self.inner.sessions.list(agent).await? {
            if head.is_err() {
                continue;
            }
            match self.inner.sessions.record(&session, run).await {
                Ok(record) => return Ok(record),
                Err(error) if error.stable_code() == "run_missing" => {}
                Err(error) if error.stable_code() == "run_not_done" => not_done = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(not_done.unwrap_or_else(|| {
            let whose = agent.map_or_else(String::new, |agent| format!(" of agent {agent}"));
            Error::not_found(format!("there is no run {run}{whose}"))
                .code("run_missing")
                .hint("`landfall session log` lists the runs of a session")
        }))
    }
}
