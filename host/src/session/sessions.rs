//! The sessions of a store as one replica works on them: reading heads, and changing them by compare-and-swap.
//!
//! A refused write of a head isn't a lost lease: the change is tried again on the head that is there, and [`super::head`] decides whether it may still
//! be made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::at_work::{AtWork, Mark};
use super::head::{Head, Lease, Owner, Proof, Refusal};
use super::lease::Held;
use super::replica::Replica;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{AgentName, RunId, SessionRef};
use crate::store::cas::{Created, Loaded, Replaced, Version};
use crate::store::{Key, Nonce, Prefix, Store, keys};

/// How often a change is tried on heads that others change at the same time.
pub(super) const ROUNDS: u32 = 24;

/// The sessions of a store, as one replica works on them.
#[derive(Clone, Debug)]
pub struct Sessions {
    pub(super) store: Store,
    pub(super) replica: Arc<Replica>,
    /// Ended runs whose queue entries this process has deleted, to be noted with the next lease.
    pub(super) settled: Arc<Mutex<HashMap<SessionRef, Vec<RunId>>>>,
    /// The runs that this process is at.
    pub(super) at_work: AtWork,
    /// The runs of commands that somebody in this process waits for.
    pub(super) waited: AtWork,
}

/// A head as it was read or written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The head.
    pub head: Head,
    pub(super) version: Version,
}

pub(super) enum Wrote {
    Done(Version),
    /// It isn't what it was: this is there.
    Changed(Option<Box<Snapshot>>),
}

impl Sessions {
    /// Returns the sessions of a store for one replica.
    #[must_use]
    pub fn new(store: Store, replica: Arc<Replica>) -> Self {
        Self { store, replica, settled: Arc::default(), at_work: AtWork::default(), waited: AtWork::default() }
    }

    /// Returns the same sessions through another handle of the same store, whose requests are counted apart.
    #[must_use]
    pub fn through(&self, store: Store) -> Self {
        Self { store, ..self.clone() }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns this process as leases name it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.replica.owner()
    }

    /// Reads a session's head, none when there never was one. A deleted session has a head too ([`Head::is_open`]).
    ///
    /// # Errors
    /// `Damaged` (`head_damaged`), `TooNew`, `Store`.
    pub async fn load(&self, session: &SessionRef) -> Result<Option<Snapshot>> {
        let Some(loaded) = self.store.load::<Head>(&Key::Head(session.clone())).await? else { return Ok(None) };
        snapshot(session, loaded).map(Some)
    }

    /// Reads the head of a session that is in use.
    ///
    /// # Errors
    /// `NotFound` with the code `session_missing` or `session_deleted`; as [`Sessions::load`].
    pub async fn get(&self, session: &SessionRef) -> Result<Snapshot> {
        match self.load(session).await? {
            Some(snapshot) if snapshot.head.is_open() => Ok(snapshot),
            Some(_) => Err(Refusal::Deleted.into_error(session)),
            None => Err(Error::not_found(format!("there is no session {session} in {}", self.store))
                .code("session_missing")
                .hint("`landfall session list` lists the sessions")),
        }
    }

    /// Lists the sessions in use, of one agent or of all, in the order of their names.
    ///
    /// Damaged heads are returned as errors beside the others, so that one of them doesn't hide the rest.
    ///
    /// # Errors
    /// `Store`.
    pub async fn list(&self, agent: Option<&AgentName>) -> Result<Vec<(SessionRef, Result<Head>)>> {
        let agents = match agent {
            Some(agent) => vec![agent.clone()],
            None => self.store.list_folders(&Prefix::Sessions).await?.iter().filter_map(|segment| keys::agent_of(segment).ok()).collect(),
        };
        let mut found = Vec::new();
        for agent in agents {
            for segment in self.store.list_folders(&Prefix::Agent(agent.clone())).await? {
                let Ok(name) = keys::session_of(&segment) else { continue };
                let session = SessionRef { agent: agent.clone(), session: name };
                match self.load(&session).await {
                    Ok(Some(snapshot)) if snapshot.head.is_open() => found.push((session, Ok(snapshot.head))),
                    Ok(_) => {}
                    Err(error) if error.kind() == crate::ErrorKind::Store => return Err(error),
                    Err(error) => found.push((session, Err(error))),
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Changes the head of a session in use without a lease.
    ///
    /// # Errors
    /// The refusal's own error; `NotFound`; `Store`; `Conflict` after too many changes by others.
    pub async fn alter(&self, session: &SessionRef, change: impl Fn(&Head) -> Result<Head, Refusal> + Send + Sync) -> Result<Snapshot> {
        let mut snapshot = self.get(session).await?;
        for round in 0..ROUNDS {
            let next = change(&snapshot.head).map_err(|refusal| refusal.into_error(session))?;
            if next == snapshot.head {
                return Ok(snapshot);
            }
            match self.write(session, Some(&snapshot.version), &next).await? {
                Wrote::Done(version) => return Ok(Snapshot { head: next, version }),
                Wrote::Changed(Some(found)) => snapshot = *found,
                Wrote::Changed(None) => return Err(vanished(session)),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }

    /// Asks for a run's end. Its owner sees it within seconds, or at its commit; one that still waits ends when its place comes.
    ///
    /// # Errors
    /// `Conflict` with the code `already_done`; `NotFound` (`run_missing` for a run that was never accepted); `Store`.
    pub async fn cancel(&self, session: &SessionRef, run: RunId) -> Result<Snapshot> {
        let head = self.get(session).await?.head;
        // Only what may still run is noted: the list has few places.
        let known = head.ended(run).is_some() || head.lease.as_ref().is_some_and(|lease| lease.run == run);
        if !known && self.store.size(&super::queue::queue_key(session, run)).await?.is_none() {
            let record = self.record(session, run).await?;
            return Err(Error::conflict(format!("run {run} has ended already: {}", record.status)).code("already_done"));
        }
        self.alter(session, |head| head.cancel(run)).await
    }

    pub(super) async fn write(&self, session: &SessionRef, expected: Option<&Version>, next: &Head) -> Result<Wrote> {
        let key = Key::Head(session.clone());
        let found = match expected {
            None => match self.store.create(&key, next).await? {
                Created::Done(version) => return Ok(Wrote::Done(version)),
                Created::Exists(found) => found,
            },
            Some(version) => match self.store.replace(&key, version, next).await? {
                Replaced::Done(version) => return Ok(Wrote::Done(version)),
                Replaced::Refused(found) => found,
                Replaced::Gone => return Ok(Wrote::Changed(None)),
            },
        };
        Ok(Wrote::Changed(Some(Box::new(snapshot(session, *found)?))))
    }

    /// Makes a change that stands on a lease, on whatever head is there.
    pub(super) async fn change(
        &self,
        held: &mut Held,
        change: impl Fn(&Head, &Proof) -> Result<Head, Refusal> + Send + Sync,
    ) -> Result<Result<(), Refusal>> {
        let session = held.session().clone();
        for round in 0..ROUNDS {
            let next = match change(&held.head, &held.proof) {
                Ok(next) => next,
                Err(refusal) => return Ok(Err(refusal)),
            };
            match self.write(&session, Some(&held.version), &next).await? {
                Wrote::Done(version) => {
                    held.head = next;
                    held.version = version;
                    return Ok(Ok(()));
                }
                Wrote::Changed(Some(found)) => {
                    held.head = found.head;
                    held.version = found.version;
                }
                Wrote::Changed(None) => return Err(vanished(&session)),
            }
            self.pause(round).await;
        }
        Err(contended(&session))
    }

    pub(super) async fn update(
        &self,
        held: &mut Held,
        change: impl Fn(&Head, &Proof) -> Result<Head, Refusal> + Send + Sync,
    ) -> Result<()> {
        let session = held.session().clone();
        self.change(held, change).await?.map_err(|refusal| refusal.into_error(&session))
    }

    /// Returns the head of a session in use; makes the session, or makes it anew, when it isn't.
    ///
    /// # Errors
    /// As [`Sessions::load`]; `Conflict` after too many changes by others.
    pub async fn ensure(&self, session: &SessionRef) -> Result<Snapshot> {
        let mut current = self.load(session).await?;
        for round in 0..ROUNDS {
            let (next, version) = match current {
                Some(snapshot) if snapshot.head.is_open() => return Ok(snapshot),
                Some(Snapshot { head, version }) => {
                    (self.fresh(|incarnation, now| head.renewed(incarnation, now), session)?, Some(version))
                }
                None => (self.fresh(|incarnation, now| Ok(Head::new(session.clone(), incarnation, now)), session)?, None),
            };
            match self.write(session, version.as_ref(), &next).await? {
                Wrote::Done(version) => return Ok(Snapshot { head: next, version }),
                Wrote::Changed(found) => current = found.map(|found| *found),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }

    pub(super) fn fresh(&self, make: impl FnOnce(Nonce, UnixNanos) -> Result<Head, Refusal>, session: &SessionRef) -> Result<Head> {
        make(Nonce::draw(&**self.store.random()), self.store.clock().now()).map_err(|refusal| refusal.into_error(session))
    }

    /// Says that somebody in this process waits for a run, until the result is dropped: its entry holds up those that were accepted after it.
    pub(crate) fn wait_for(&self, session: &SessionRef, run: RunId) -> Mark {
        self.waited.mark(session, run)
    }

    /// Whether nobody is at the run of a lease any more: its process is gone, or is this one and has dropped it.
    pub(crate) async fn is_lost(&self, session: &SessionRef, lease: &Lease) -> Result<bool> {
        if lease.owner == *self.owner() { Ok(!self.at_work.contains(session, lease.run)) } else { self.is_gone(&lease.owner).await }
    }

    /// Deletes what processes that are gone left of themselves.
    ///
    /// # Errors
    /// `Store`.
    pub async fn sweep_replicas(&self) -> Result<usize> {
        self.replica.sweep().await
    }

    pub(crate) async fn is_gone(&self, owner: &Owner) -> Result<bool> {
        match self.replica.is_gone(owner).await {
            // A damaged sign of life is none, but not a death certificate either.
            Err(error) if error.kind() == crate::ErrorKind::Damaged => Ok(false),
            result => result,
        }
    }

    /// Lets the others go on: longer after every lost round, and never two in step.
    pub(super) async fn pause(&self, round: u32) {
        let [jitter] = crate::random::bytes::<1>(&**self.store.random());
        let most = 10_u64 << round.min(6);
        self.store.clock().sleep(Duration::from_millis(most * u64::from(jitter) / 256)).await;
    }
}

fn snapshot(session: &SessionRef, loaded: Loaded<Head>) -> Result<Snapshot> {
    if loaded.value.session != *session {
        return Err(Error::damaged(format!("the head of session {session} is damaged: it is that of {}", loaded.value.session))
            .code("head_damaged")
            .hint(crate::store::RESTORE));
    }
    Ok(Snapshot { head: loaded.value, version: loaded.version })
}

pub(crate) fn contended(session: &SessionRef) -> Error {
    Error::conflict(format!("the head of session {session} is changed by others all the time")).code("contended").hint("repeat later")
}

fn vanished(session: &SessionRef) -> Error {
    Error::damaged(format!("the head of session {session} has vanished")).code("head_missing").hint(crate::store::RESTORE)
}
