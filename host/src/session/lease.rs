//! The I/O of a session: reading and writing its head, taking and giving back its lease, and the commit that ends a run.
//!
//! Order of a commit: packs (by the caller), then the run's record, then the head; last the queue entry goes. A crash between any two leaves
//! garbage or something that the next taker settles, never a lie. A refused write of the head isn't a lost lease: the change is tried again on the
//! head that is there, and [`super::head`] decides whether it still may be made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::head::{Claim, End, Head, Lease, Owner, Pending, Proof, Recent, Refusal};
use super::queue::QueueEntry;
use super::record::{Failure, Input, Origin, Previous, RunRecord, Status, Trigger, Usage};
use super::replica::Replica;
use crate::checkpoint::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{AgentName, PackId, RunId, SessionRef};
use crate::store::cas::{Created, Loaded, Replaced, Version};
use crate::store::{Key, Nonce, Prefix, SessionHash, Store, keys};

/// How often a change is tried on heads that others change at the same time.
const ROUNDS: u32 = 24;
/// Time between two looks at a busy session.
const LOOK: Duration = Duration::from_millis(500);
/// Most sessions whose last head is remembered.
const REMEMBERED_MAX: usize = 1024;

/// The sessions of a store, as one replica works on them.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Store,
    replica: Arc<Replica>,
    /// Ended runs whose queue entries this process has deleted, to be noted with the next lease.
    settled: Arc<Mutex<HashMap<SessionRef, Vec<RunId>>>>,
}

/// A head as it was read or written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The head.
    pub head: Head,
    version: Version,
}

/// A lease that this process holds.
#[derive(Debug)]
pub struct Held {
    /// The head with the lease in it.
    pub head: Head,
    /// Which attempt of the run this is, from 1.
    pub attempt: u32,
    version: Version,
    proof: Proof,
    /// What an earlier attempt left in the run's record, claimed by this one.
    claimed: Option<Version>,
    started: UnixNanos,
}

impl Held {
    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.proof.run
    }

    /// Returns the epoch: anything with a smaller one is fenced.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.proof.epoch
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &SessionRef {
        &self.head.session
    }

    /// Returns the checkpoint that the turn begins with; none for a session's first.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.head.checkpoint.as_ref()
    }

    /// Returns the number that this turn gets when it completes, from 1.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.head.turn + 1
    }
}

/// The answer to a wish for a lease.
#[derive(Debug)]
pub enum Acquired {
    /// The lease is there.
    Held(Box<Held>),
    /// Somebody else has it.
    Busy(Lease),
    /// The run has ended before: its record says how.
    Ended(Box<RunRecord>),
    /// The lease was that of another run, whose process is gone: it is held for that run, which has to end (or run again and end) first.
    /// The entry is the run's, unless it is gone too.
    Settle(Box<Held>, Option<Box<QueueEntry>>),
}

/// How a run ended, after its commit.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The head after it.
    pub snapshot: Snapshot,
    /// The record as it was stored: cancelled, when a cancel came before the commit.
    pub record: RunRecord,
}

/// An entry of a queue, with what orders it.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The entry.
    pub entry: QueueEntry,
    /// When it was written, by the store's clock.
    pub accepted: UnixNanos,
}

impl Sessions {
    /// Returns the sessions of a store for one replica.
    #[must_use]
    pub fn new(store: Store, replica: Arc<Replica>) -> Self {
        Self { store, replica, settled: Arc::default() }
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

    /// Accepts a run: makes its queue entry. The same entry made twice is one.
    ///
    /// # Errors
    /// `Conflict` with the code `run_differs` when the run id was accepted with another input; `Store`.
    pub async fn enqueue(&self, entry: &QueueEntry) -> Result<()> {
        let key = queue_key(&entry.session, entry.run);
        match self.store.create(&key, entry).await? {
            Created::Done(_) => Ok(()),
            Created::Exists(found) if found.value.input.digest == entry.input.digest && found.value.attachments == entry.attachments => {
                Ok(())
            }
            Created::Exists(_) => Err(Error::conflict(format!("run {} was accepted before, with another input", entry.run))
                .code("run_differs")
                .hint("use another idempotency key for another input")),
        }
    }

    /// Reads a run's queue entry.
    ///
    /// # Errors
    /// `Damaged` (`queue_entry_damaged`), `Store`.
    pub async fn queued(&self, session: &SessionRef, run: RunId) -> Result<Option<Queued>> {
        let found = self.store.load::<QueueEntry>(&queue_key(session, run)).await?;
        Ok(found.map(|found| Queued { entry: found.value, accepted: found.modified }))
    }

    /// Lists a session's queue in the order in which its runs are due.
    ///
    /// # Errors
    /// As [`Sessions::queued`].
    pub async fn queue(&self, session: &SessionRef) -> Result<Vec<Queued>> {
        let listing = self.store.list(&Prefix::SessionQueue(SessionHash::of(session))).await?;
        let mut found = Vec::new();
        for listed in listing.objects {
            if let Key::Queue(_, run) = listed.key
                && let Some(queued) = self.queued(session, run).await?
            {
                found.push(queued);
            }
        }
        found.sort_by_key(|queued| (queued.accepted, queued.entry.run));
        Ok(found)
    }

    /// Deletes the queue entry of a run that has ended or is given up.
    ///
    /// # Errors
    /// `Store`.
    pub async fn dequeue(&self, session: &SessionRef, run: RunId) -> Result<()> {
        self.store.delete(&queue_key(session, run)).await?;
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= REMEMBERED_MAX {
            // Not noted by us, then: the sweep finds these entries gone.
            settled.clear();
        }
        settled.entry(session.clone()).or_default().push(run);
        Ok(())
    }

    /// Takes the lease for a run; makes the session when there is none. `known` is a head seen before, which saves a read when it still is the one.
    ///
    /// A run whose id isn't fresh (found in the queue, or made from an idempotency key) is to be looked for with [`Sessions::ended`] before: the head
    /// names only the last ended runs. If that is left out, the commit refuses to end the run twice, but its guest has run.
    ///
    /// # Errors
    /// `Conflict` after too many changes by others; as [`Sessions::load`].
    pub async fn acquire(&self, session: &SessionRef, run: RunId, known: Option<Snapshot>) -> Result<Acquired> {
        let mut current = match known {
            Some(snapshot) => Some(snapshot),
            None => self.load(session).await?,
        };
        let mut claim = Claim { owner: self.owner().clone(), run, over: None };
        for round in 0..ROUNDS {
            let (base, version) = match &current {
                Some(Snapshot { head, version }) if head.is_open() => (head.clone(), Some(version)),
                Some(Snapshot { head, version }) => {
                    (self.fresh(|incarnation, now| head.renewed(incarnation, now), session)?, Some(version))
                }
                None => (self.fresh(|incarnation, now| Ok(Head::new(session.clone(), incarnation, now)), session)?, None),
            };
            let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned().unwrap_or_default();
            match base.settle(&settled).acquire(&claim) {
                Ok(next) => match self.write(session, version, &next).await? {
                    Wrote::Done(version) => {
                        self.forget_settled(session, &settled);
                        return self.taken(next, version, &claim, run).await;
                    }
                    Wrote::Changed(found) => current = found,
                },
                Err(Refusal::Ended(recent)) => return Ok(Acquired::Ended(Box::new(self.record_of(&base, &recent).await?))),
                Err(Refusal::Busy(lease)) => {
                    if !self.is_gone(&lease.owner).await? {
                        return Ok(Acquired::Busy(lease));
                    }
                    // The run of the lost lease goes first.
                    claim = Claim { run: lease.run, over: Some(lease.epoch), ..claim };
                    // A warm head may be an old one, so who holds the lease is looked up before it is taken away.
                    current = self.load(session).await?;
                }
                Err(Refusal::Unsettled(runs)) => {
                    for run in runs {
                        self.dequeue(session, run).await?;
                    }
                }
                Err(refusal) => return Err(refusal.into_error(session)),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }

    /// Takes the lease as [`Sessions::acquire`] and waits while somebody else has it, behind the runs that were accepted before.
    /// `waiting` is told once who has it. Returns [`Acquired::Busy`] only when `deadline` (on the boot clock) has passed.
    ///
    /// # Errors
    /// As [`Sessions::acquire`].
    pub async fn acquire_in_order(
        &self,
        session: &SessionRef,
        run: RunId,
        deadline: Option<Duration>,
        waiting: impl Fn(&Lease) + Send + Sync,
    ) -> Result<Acquired> {
        let mut told = false;
        loop {
            let answer = self.acquire(session, run, None).await?;
            let Acquired::Busy(lease) = &answer else { return Ok(answer) };
            if !told {
                waiting(lease);
                told = true;
            }
            loop {
                if deadline.is_some_and(|deadline| self.store.clock().boot() >= deadline) {
                    return Ok(answer);
                }
                self.store.clock().sleep(LOOK).await;
                let free = match self.load(session).await?.map(|snapshot| snapshot.head) {
                    Some(Head { lease: Some(lease), .. }) => self.is_gone(&lease.owner).await?,
                    _ => true,
                };
                if free && self.is_first(session, run).await? {
                    break;
                }
            }
        }
    }

    /// Whether no run that somebody still waits for was accepted before this one.
    async fn is_first(&self, session: &SessionRef, run: RunId) -> Result<bool> {
        for queued in self.queue(session).await? {
            if queued.entry.run == run {
                return Ok(true);
            }
            if queued.entry.origin == Origin::Server || !self.is_gone(&queued.entry.owner).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn is_gone(&self, owner: &Owner) -> Result<bool> {
        match self.replica.is_gone(owner).await {
            // A damaged sign of life is none, but not a death certificate either.
            Err(error) if error.kind() == crate::ErrorKind::Damaged => Ok(false),
            result => result,
        }
    }

    /// After the head was written with the lease: claims what an earlier attempt left.
    async fn taken(&self, head: Head, version: Version, claim: &Claim, wanted: RunId) -> Result<Acquired> {
        let session = head.session.clone();
        let proof = Proof { incarnation: head.incarnation, epoch: head.epoch, run: claim.run };
        let attempt = head.lease.as_ref().map_or(1, |lease| lease.attempt);
        let started = self.store.clock().now();
        let mut held = Held { head, attempt, version, proof, claimed: None, started };
        if (attempt > 1 || claim.over.is_some())
            && let Some(record) = self.claim_record(&mut held).await?
        {
            // It ended long ago and had left the head's list: nothing may run.
            self.update(&mut held, |head, proof| head.forget(proof)).await?;
            self.dequeue(&session, claim.run).await?;
            if claim.run == wanted {
                return Ok(Acquired::Ended(Box::new(record)));
            }
            return Box::pin(self.acquire(&session, wanted, Some(Snapshot { head: held.head, version: held.version }))).await;
        }
        if claim.run == wanted {
            return Ok(Acquired::Held(Box::new(held)));
        }
        let entry = self.queued(&session, claim.run).await?;
        Ok(Acquired::Settle(Box::new(held), entry.map(|queued| Box::new(queued.entry))))
    }

    /// Writes {running, epoch} into the run's record, so that a fenced attempt can't write it any more. Returns the record if it is official.
    async fn claim_record(&self, held: &mut Held) -> Result<Option<RunRecord>> {
        let key = Key::Run(held.session().clone(), held.run());
        let mut record = self.new_record(held, Trigger::Manual, Origin::Server);
        let mut found = match self.store.create(&key, &record).await? {
            Created::Done(version) => {
                held.claimed = Some(version);
                return Ok(None);
            }
            Created::Exists(found) => found,
        };
        for round in 0..ROUNDS {
            if found.value.is_official(&held.head) {
                return Ok(Some(found.value));
            }
            if found.value.incarnation == held.proof.incarnation && found.value.epoch > held.epoch() {
                return Err(Refusal::Fenced(found.value.epoch).into_error(held.session()));
            }
            record.trigger = found.value.trigger.clone();
            record.origin = found.value.origin;
            record.input = found.value.input.clone();
            if found.value.incarnation == held.proof.incarnation {
                record.started = found.value.started;
                held.started = found.value.started;
            }
            match self.store.replace(&key, &found.version, &record).await? {
                Replaced::Done(version) => {
                    held.claimed = Some(version);
                    return Ok(None);
                }
                Replaced::Refused(other) => found = other,
                Replaced::Gone => {
                    return Err(Error::damaged(format!("{key} has vanished")).code("record_missing").hint(crate::store::RESTORE));
                }
            }
            self.pause(round).await;
        }
        Err(contended(held.session()))
    }

    /// Begins the record of a run: who and where it is, and what it began with. The rest is the caller's to fill in.
    #[must_use]
    pub fn new_record(&self, held: &Held, trigger: Trigger, origin: Origin) -> RunRecord {
        let head = &held.head;
        RunRecord {
            run: held.run(),
            session: head.session.clone(),
            incarnation: head.incarnation,
            seq: head.seq + 1,
            epoch: held.epoch(),
            turn: head.turn + 1,
            attempt: held.attempt,
            status: Status::Running,
            trigger,
            origin,
            input: None,
            output: None,
            before: head.checkpoint.clone(),
            after: head.checkpoint.clone(),
            pin: head.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.pin.clone()),
            component: None,
            usage: Usage::default(),
            failure: None,
            workspace_rolled_back: false,
            started: held.started,
            ended: None,
            owner: self.owner().clone(),
            log: None,
            events: None,
            warnings: Vec::new(),
            previous: head.recent.first().map(|recent| Previous { run: recent.run, seq: recent.seq, record: recent.record }),
        }
    }

    /// Ends a run: writes its record, then the head, then deletes the queue entry. The packs of `record.after` have to be stored before.
    ///
    /// The record says how it ended; only a completed one moves the session's checkpoint. `packs` are those that the checkpoint needs (they leave
    /// the trash list). A cancel that came first turns a completed run into a cancelled one.
    ///
    /// # Errors
    /// `Conflict` with the code `fenced` when the lease is lost: nothing was committed. `Store` with the code `outcome_unknown`: the run is to be
    /// reported as running. Other `Store` errors: nothing was committed, and it may be tried again.
    pub async fn commit(&self, held: &mut Held, mut record: RunRecord, packs: &[PackId]) -> Result<Committed> {
        if record.status == Status::Running || record.run != held.run() {
            return Err(Error::internal(format!(
                "run {} can't be committed as {} under the lease of {}",
                record.run,
                record.status,
                held.run()
            )));
        }
        let session = held.session().clone();
        record.ended.get_or_insert_with(|| self.store.clock().now());
        loop {
            let written = self.write_record(held, &record).await?;
            let checkpoint = record.after.clone();
            let end = End { status: record.status, record: written.digest(), checkpoint, packs: packs.to_vec() };
            held.claimed = Some(written);
            match self.change(held, |head, proof| head.end(proof, &end)).await? {
                Ok(()) => break,
                Err(Refusal::Ended(recent)) if recent.epoch == held.epoch() && recent.record == end.record => {
                    // Our own write, whose answer was lost and whose nonce has been pushed out since.
                    break;
                }
                Err(Refusal::Cancelled) => record.cancel(),
                Err(refusal) => return Err(refusal.into_error(&session)),
            }
        }
        if let Err(error) = self.dequeue(&session, record.run).await {
            tracing::warn!(run = %record.run, error = %error.chain(), "a queue entry was left over; the next sweep deletes it");
        }
        Ok(Committed { snapshot: Snapshot { head: held.head.clone(), version: held.version.clone() }, record })
    }

    /// Ends a run that nobody will run again.
    ///
    /// # Errors
    /// As [`Sessions::commit`].
    pub async fn abandon(&self, held: &mut Held, entry: Option<&QueueEntry>, message: &str) -> Result<Committed> {
        let (trigger, origin) = entry.map_or((Trigger::Manual, Origin::Server), |entry| (entry.trigger.clone(), entry.origin));
        let mut record = self.new_record(held, trigger, origin);
        record.input = entry.map(|entry| entry.input.clone());
        record.status = Status::Failed;
        record.failure = Some(Failure::new("abandoned", message));
        record.workspace_rolled_back = true;
        self.commit(held, record, &[]).await
    }

    async fn write_record(&self, held: &Held, record: &RunRecord) -> Result<Version> {
        let key = Key::Run(held.session().clone(), held.run());
        let mut expected = held.claimed.clone();
        for round in 0..ROUNDS {
            let found = match &expected {
                None => match self.store.create(&key, record).await? {
                    Created::Done(version) => return Ok(version),
                    Created::Exists(found) => found,
                },
                Some(version) => match self.store.replace(&key, version, record).await? {
                    Replaced::Done(version) => return Ok(version),
                    Replaced::Refused(found) => found,
                    Replaced::Gone => {
                        return Err(Error::damaged(format!("{key} has vanished")).code("record_missing").hint(crate::store::RESTORE));
                    }
                },
            };
            if found.value.incarnation == held.proof.incarnation && found.value.epoch > held.epoch() {
                return Err(Refusal::Fenced(found.value.epoch).into_error(held.session()));
            }
            if found.value.is_official(&held.head) {
                return Err(Error::conflict(format!("run {} has ended already: {}", held.run(), found.value.status)).code("already_done"));
            }
            expected = Some(found.version);
            self.pause(round).await;
        }
        Err(contended(held.session()))
    }

    /// Gives a lease back without an end. The run goes on elsewhere, from its start; `counts` says whether this attempt counts.
    ///
    /// # Errors
    /// As [`Sessions::commit`].
    pub async fn release(&self, mut held: Held, counts: bool) -> Result<Snapshot> {
        self.update(&mut held, |head, proof| head.release(proof, counts)).await?;
        Ok(Snapshot { head: held.head, version: held.version })
    }

    /// Gives a lease back and deletes the run's entry, as if it had never been accepted.
    ///
    /// # Errors
    /// As [`Sessions::commit`].
    pub async fn forget(&self, mut held: Held) -> Result<Snapshot> {
        self.update(&mut held, |head, proof| head.forget(proof)).await?;
        self.dequeue(&held.head.session.clone(), held.proof.run).await?;
        Ok(Snapshot { head: held.head, version: held.version })
    }

    /// Saves a checkpoint under a name, in the middle of a run. It is durable when this returns.
    ///
    /// # Errors
    /// `Conflict` with the code `save_conflict` or `fenced`; `Cancelled`; `Limit` (`head_full`); `Usage` for a name that isn't one; `Store`.
    pub async fn save(&self, held: &mut Held, name: &str, checkpoint: &Checkpoint) -> Result<()> {
        if name.is_empty() || name.len() > super::head::SAVE_NAME_MAX || name.trim() != name || name.chars().any(char::is_control) {
            return Err(Error::usage(format!(
                "{name:?} can't name a checkpoint: expected 1 to {} bytes without control characters or blanks at the ends",
                super::head::SAVE_NAME_MAX
            )));
        }
        let at = self.store.clock().now();
        self.update(held, |head, proof| head.save(proof, name, checkpoint, at)).await
    }

    /// Looks whether the run goes on: an error says why it has to stop.
    ///
    /// # Errors
    /// `Cancelled`; `Conflict` with the code `fenced`; `Store`.
    pub async fn check(&self, held: &Held) -> Result<()> {
        let session = held.session();
        let head = self.get(session).await?.head;
        if head.incarnation != held.proof.incarnation || head.lease.as_ref().map(|lease| lease.epoch) != Some(held.epoch()) {
            return Err(Refusal::Fenced(head.epoch).into_error(session));
        }
        if head.is_cancelled(held.run()) { Err(Refusal::Cancelled.into_error(session)) } else { Ok(()) }
    }

    /// Asks for a run's end. Its owner sees it within seconds, or at its commit.
    ///
    /// # Errors
    /// `Conflict` with the code `already_done`; `NotFound`; `Store`.
    pub async fn cancel(&self, session: &SessionRef, run: RunId) -> Result<Snapshot> {
        self.alter(session, |head| head.cancel(run)).await
    }

    /// Deletes a session: its head becomes a tombstone.
    ///
    /// # Errors
    /// `Conflict` with the code `session_busy`; `NotFound`; `Store`.
    pub async fn delete(&self, session: &SessionRef) -> Result<Snapshot> {
        let at = self.store.clock().now();
        self.alter(session, |head| head.delete(at)).await
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
                Wrote::Changed(Some(found)) => snapshot = found,
                Wrote::Changed(None) => return Err(vanished(session)),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }

    /// Reads a run's record and checks it against the head.
    ///
    /// # Errors
    /// `NotFound` with the code `run_missing`, or `run_not_done` when it hasn't ended (the message names the checkpoint before it); `Damaged`
    /// (`record_damaged`) when its digest isn't the head's; `Store`.
    pub async fn record(&self, session: &SessionRef, run: RunId) -> Result<RunRecord> {
        let head = self.get(session).await?.head;
        if let Some(recent) = head.ended(run) {
            return self.record_of(&head, &recent).await;
        }
        let not_done = |why: &str| {
            let before = head.checkpoint.as_ref().map_or_else(|| String::from("none"), |checkpoint| checkpoint.id.to_string());
            Error::not_found(format!("run {run} of session {session} is not done: {why}; the checkpoint before it is {before}"))
                .code("run_not_done")
                .hint("wait for it, or open the checkpoint before it")
        };
        if head.lease.as_ref().is_some_and(|lease| lease.run == run) {
            return Err(not_done("it is running"));
        }
        match self.store.load::<RunRecord>(&Key::Run(session.clone(), run)).await? {
            Some(found) if found.value.is_official(&head) => {
                belongs(&found.value, &head.session, run)?;
                Ok(found.value)
            }
            Some(found) if found.value.incarnation == head.incarnation => Err(not_done("it was interrupted")),
            _ if self.store.size(&queue_key(session, run)).await?.is_some() => Err(not_done("it is waiting")),
            _ => Err(Error::not_found(format!("session {session} has no run {run}"))
                .code("run_missing")
                .hint("`landfall session log` lists the runs of a session")),
        }
    }

    /// Returns the record of a run if it has ended.
    ///
    /// # Errors
    /// `Damaged` (`record_damaged`, `record_missing`), `Store`.
    pub async fn ended(&self, session: &SessionRef, run: RunId) -> Result<Option<RunRecord>> {
        let Some(Snapshot { head, .. }) = self.load(session).await?.filter(|snapshot| snapshot.head.is_open()) else { return Ok(None) };
        if let Some(recent) = head.ended(run) {
            return self.record_of(&head, &recent).await.map(Some);
        }
        let found = self.store.load::<RunRecord>(&Key::Run(session.clone(), run)).await?;
        let Some(found) = found.filter(|found| found.value.is_official(&head)) else { return Ok(None) };
        belongs(&found.value, session, run)?;
        Ok(Some(found.value))
    }

    /// Returns the records of a session's ended runs, newest first, at most `limit`, each checked against the digest that the one after it names.
    ///
    /// # Errors
    /// `Damaged` (`record_damaged`, `record_missing`), `Store`.
    pub async fn records(&self, head: &Head, limit: usize) -> Result<Vec<RunRecord>> {
        let mut records = Vec::new();
        let mut next = head.recent.first().map(|recent| Previous { run: recent.run, seq: recent.seq, record: recent.record });
        while let Some(previous) = next {
            if records.len() >= limit {
                break;
            }
            let record = self.checked(&head.session, head, &previous).await?;
            next = record.previous;
            records.push(record);
        }
        Ok(records)
    }

    async fn record_of(&self, head: &Head, recent: &Recent) -> Result<RunRecord> {
        self.checked(&head.session, head, &Previous { run: recent.run, seq: recent.seq, record: recent.record }).await
    }

    async fn checked(&self, session: &SessionRef, head: &Head, expected: &Previous) -> Result<RunRecord> {
        let key = Key::Run(session.clone(), expected.run);
        let found = self.store.load::<RunRecord>(&key).await?;
        let found = found.ok_or_else(|| Error::damaged(format!("{key} is missing")).code("record_missing").hint(crate::store::RESTORE))?;
        belongs(&found.value, session, expected.run)?;
        if found.version.digest() != expected.record || found.value.seq != expected.seq || found.value.incarnation != head.incarnation {
            return Err(Error::damaged(format!("{key} is damaged: it isn't the record that the session's head names"))
                .code("record_damaged")
                .hint(crate::store::RESTORE));
        }
        Ok(found.value)
    }

    /// Stores a text or file that is too long for its entry, as `inputs/<sha256>`.
    ///
    /// # Errors
    /// As [`Store::put_pack`].
    pub async fn put_input(&self, session: &SessionRef, bytes: bytes::Bytes) -> Result<crate::id::Digest> {
        let digest = crate::id::sha256(&bytes);
        self.store.put_pack(&Key::Input(session.clone(), digest), bytes).await?;
        Ok(digest)
    }

    /// Reads a run's input text.
    ///
    /// # Errors
    /// `NotFound`, `Damaged` (`input_damaged`), `Store`.
    pub async fn input(&self, session: &SessionRef, input: &Input) -> Result<String> {
        if let Some(text) = &input.inline {
            return Ok(text.clone());
        }
        let key = Key::Input(session.clone(), input.digest);
        let object = self.store.get(&key, input.size).await?;
        String::from_utf8(object.bytes.to_vec())
            .map_err(|error| Error::damaged(format!("{key} isn't text")).code("input_damaged").source(error))
    }

    /// Deletes the queue entries of a session that nobody waits for: of ended runs, and of commands that are gone and never began.
    ///
    /// # Errors
    /// `Store`, `Damaged`.
    pub async fn sweep(&self, session: &SessionRef) -> Result<usize> {
        let head = self.load(session).await?.map(|snapshot| snapshot.head);
        let mut swept = 0;
        for queued in self.queue(session).await? {
            let run = queued.entry.run;
            let leased = |head: &Head| {
                head.lease.as_ref().is_some_and(|lease| lease.run == run)
                    || matches!(head.pending, Some(Pending { run: pending, .. }) if pending == run)
            };
            let ended = match &head {
                Some(head) => {
                    head.ended(run).is_some()
                        || self
                            .store
                            .load::<RunRecord>(&Key::Run(session.clone(), run))
                            .await?
                            .is_some_and(|found| found.value.is_official(head))
                }
                None => false,
            };
            let orphaned =
                queued.entry.origin == Origin::Command && !head.as_ref().is_some_and(leased) && self.is_gone(&queued.entry.owner).await?;
            if ended || orphaned {
                self.dequeue(session, run).await?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    fn fresh(&self, make: impl FnOnce(Nonce, UnixNanos) -> Result<Head, Refusal>, session: &SessionRef) -> Result<Head> {
        make(Nonce::draw(&**self.store.random()), self.store.clock().now()).map_err(|refusal| refusal.into_error(session))
    }

    fn forget_settled(&self, session: &SessionRef, noted: &[RunId]) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runs) = settled.get_mut(session) {
            runs.retain(|run| !noted.contains(run));
            if runs.is_empty() {
                settled.remove(session);
            }
        }
    }

    async fn write(&self, session: &SessionRef, expected: Option<&Version>, next: &Head) -> Result<Wrote> {
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
        Ok(Wrote::Changed(Some(snapshot(session, *found)?)))
    }

    /// Makes a change that stands on a lease, on whatever head is there.
    async fn change(
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

    async fn update(&self, held: &mut Held, change: impl Fn(&Head, &Proof) -> Result<Head, Refusal> + Send + Sync) -> Result<()> {
        let session = held.session().clone();
        self.change(held, change).await?.map_err(|refusal| refusal.into_error(&session))
    }

    /// Lets the others go on: longer after every lost round, and never two in step.
    async fn pause(&self, round: u32) {
        let [jitter] = crate::random::bytes::<1>(&**self.store.random());
        let most = 10_u64 << round.min(6);
        self.store.clock().sleep(Duration::from_millis(most * u64::from(jitter) / 256)).await;
    }
}

#[expect(clippy::large_enum_variant, reason = "it is returned once and taken apart at once")]
enum Wrote {
    Done(Version),
    /// It isn't what it was: this is there.
    Changed(Option<Snapshot>),
}

fn snapshot(session: &SessionRef, loaded: Loaded<Head>) -> Result<Snapshot> {
    if loaded.value.session != *session {
        return Err(Error::damaged(format!("the head of session {session} is damaged: it is that of {}", loaded.value.session))
            .code("head_damaged")
            .hint(crate::store::RESTORE));
    }
    Ok(Snapshot { head: loaded.value, version: loaded.version })
}

fn belongs(record: &RunRecord, session: &SessionRef, run: RunId) -> Result<()> {
    if record.session == *session && record.run == run {
        return Ok(());
    }
    Err(Error::damaged(format!("the record of run {run} is damaged: it is that of run {} of session {}", record.run, record.session))
        .code("record_damaged")
        .hint(crate::store::RESTORE))
}

fn queue_key(session: &SessionRef, run: RunId) -> Key {
    Key::Queue(SessionHash::of(session), run)
}

fn contended(session: &SessionRef) -> Error {
    Error::conflict(format!("the head of session {session} is changed by others all the time")).code("contended").hint("repeat later")
}

fn vanished(session: &SessionRef) -> Error {
    Error::damaged(format!("the head of session {session} has vanished")).code("head_missing").hint(crate::store::RESTORE)
}
