//! The lease: taking it for a run, taking it over from a process that is gone, and giving it back.

use std::sync::PoisonError;
use std::time::Duration;

use super::at_work::Mark;
use super::head::{Claim, Head, Kept, Lease, Proof, Refusal};
use super::queue::QueueEntry;
use super::record::{Origin, RunRecord, Trigger};
use super::sessions::{ROUNDS, Sessions, Snapshot, Wrote, contended};
use crate::checkpoint::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::drill::{self, Point, Safeguard};
use crate::error::{Error, Result};
use crate::id::{RunId, SessionRef};
use crate::store::cas::{Created, Replaced, Version};
use crate::store::{Key, Nonce};

/// Time between two looks at a busy session.
const LOOK: Duration = Duration::from_millis(500);

/// A lease that this process holds.
#[derive(Debug)]
pub struct Held {
    /// The head with the lease in it.
    pub head: Head,
    /// Which attempt of the run this is, from 1.
    pub attempt: u32,
    pub(super) version: Version,
    pub(super) proof: Proof,
    /// What an earlier attempt left in the run's record, claimed by this one.
    pub(super) claimed: Option<Version>,
    pub(super) started: UnixNanos,
    /// Older checkpoints that the run has gone back to: its commit needs them to be kept still.
    pub(super) restored: Vec<Kept>,
    /// What a session's first run stands on; none where the session has a checkpoint.
    pub(super) began_with: Option<Checkpoint>,
    /// Says to this process that the lease isn't lost.
    pub(super) _mark: Mark,
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

    /// Notes that the run goes on from an older checkpoint: it is committed only if the session keeps that one still.
    pub fn restores(&mut self, kept: Kept) {
        self.restored.push(kept);
    }

    /// Notes what a session's first run stands on, once it is stored: that is what it leaves when a cancel comes before its commit.
    pub fn began_with(&mut self, checkpoint: Option<Checkpoint>) {
        self.began_with = checkpoint;
    }

    /// Whether a cancel of the run was in the head when it was last seen here.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.head.is_cancelled(self.run())
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

impl Sessions {
    /// Takes the lease for a run; makes the session when there is none. `known` is a head seen before, which saves a read when it still is the one.
    ///
    /// A run whose id isn't fresh (found in the queue, or made from an idempotency key) is to be looked for with [`Sessions::ended`] before: the head
    /// names only the last ended runs. If that is left out, the commit refuses to end the run twice, but its guest has run.
    ///
    /// # Errors
    /// `Conflict` after too many changes by others; as [`Sessions::load`].
    pub async fn acquire(&self, session: &SessionRef, run: RunId, known: Option<Snapshot>) -> Result<Acquired> {
        self.acquire_of(session, run, None, known).await
    }

    /// Takes the lease for an accepted run, as [`Sessions::acquire`]. A run that was accepted for a session that has been deleted since never runs,
    /// whatever has its name now.
    ///
    /// # Errors
    /// As [`Sessions::acquire`]; `NotFound` with the code `session_deleted`.
    pub async fn acquire_for(&self, entry: &QueueEntry, known: Option<Snapshot>) -> Result<Acquired> {
        self.acquire_of(&entry.session, entry.run, entry.incarnation, known).await
    }

    async fn acquire_of(&self, session: &SessionRef, run: RunId, of: Option<Nonce>, known: Option<Snapshot>) -> Result<Acquired> {
        let mut current = match known {
            Some(snapshot) => Some(snapshot),
            None => self.load(session).await?,
        };
        let mut claim = Claim { owner: self.owner().clone(), run, over: None };
        for round in 0..ROUNDS {
            let (base, version) = match &current {
                Some(Snapshot { head, .. }) if of.is_some_and(|of| of != head.incarnation) || (of.is_some() && !head.is_open()) => {
                    return Err(Refusal::Deleted.into_error(session).context(format!("run {run} was accepted for a session that is gone")));
                }
                None if of.is_some() => return Err(Refusal::Deleted.into_error(session)),
                Some(Snapshot { head, version }) if head.is_open() => (head.clone(), Some(version)),
                Some(Snapshot { head, version }) => {
                    (self.fresh(|incarnation, now| head.renewed(incarnation, now), session)?, Some(version))
                }
                None => (self.fresh(|incarnation, now| Ok(Head::new(session.clone(), incarnation, now)), session)?, None),
            };
            let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned().unwrap_or_default();
            match base.settle(&settled).acquire(&claim) {
                Ok(next) => {
                    let mark = self.at_work.mark(session, claim.run);
                    drill::pass(Point::LeaseBefore);
                    match self.write(session, version, &next).await? {
                        Wrote::Done(version) => {
                            drill::pass(Point::LeaseAfter);
                            self.forget_settled(session, &settled);
                            return self.taken(Snapshot { head: next, version }, &claim, run, of, mark).await;
                        }
                        Wrote::Changed(found) => current = found.map(|found| *found),
                    }
                }
                Err(Refusal::Ended(recent)) if recent.run == run => {
                    return Ok(Acquired::Ended(Box::new(self.record_of(&base, &recent).await?)));
                }
                // The lease that was to be taken over has been settled by somebody else meanwhile.
                Err(Refusal::Ended(_)) => claim = Claim { run, over: None, ..claim },
                Err(Refusal::Busy(lease)) => {
                    if !self.is_lost(session, &lease).await? {
                        return Ok(Acquired::Busy(lease));
                    }
                    // The run of the lost lease goes first.
                    claim = Claim { run: lease.run, over: Some(lease.epoch), ..claim };
                    // A warm head may be an old one, so who holds the lease is looked up before it is taken away.
                    current = self.load(session).await?;
                }
                Err(Refusal::Unsettled(runs)) => {
                    // One listing tells which entries are there at all; the rest are known to be gone.
                    let there: Vec<RunId> = self.places(session).await?.into_iter().map(|place| place.run).collect();
                    for run in runs {
                        if there.contains(&run) {
                            self.dequeue(session, run).await?;
                        } else {
                            self.note_settled(session, run);
                        }
                    }
                }
                Err(refusal) => return Err(refusal.into_error(session)),
            }
            self.pause(round).await;
        }
        Err(contended(session))
    }

    /// Takes the lease as [`Sessions::acquire`] and waits while somebody else has it, behind the runs that were accepted before.
    /// `waiting` is told once who has it. Returns [`Acquired::Busy`] only when `deadline` (on the boot clock) has passed. A run that is `of` an
    /// incarnation runs in no other.
    ///
    /// # Errors
    /// As [`Sessions::acquire_for`].
    pub async fn acquire_in_order(
        &self,
        session: &SessionRef,
        run: RunId,
        of: Option<Nonce>,
        deadline: Option<Duration>,
        waiting: impl Fn(&Lease) + Send + Sync,
    ) -> Result<Acquired> {
        let mut told = false;
        loop {
            // Nobody overtakes those who came before.
            while !self.is_first(session, run).await? {
                if deadline.is_some_and(|deadline| self.store.clock().boot() >= deadline) {
                    break;
                }
                self.store.clock().sleep(LOOK).await;
            }
            let answer = self.acquire_of(session, run, of, None).await?;
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
                    Some(Head { lease: Some(lease), .. }) => self.is_lost(session, &lease).await?,
                    _ => true,
                };
                if free && self.is_first(session, run).await? {
                    break;
                }
            }
        }
    }

    /// After the head was written with the lease: claims what an earlier attempt left.
    async fn taken(&self, at: Snapshot, claim: &Claim, wanted: RunId, of: Option<Nonce>, mark: Mark) -> Result<Acquired> {
        let Snapshot { head, version } = at;
        let session = head.session.clone();
        let proof = Proof { incarnation: head.incarnation, epoch: head.epoch, run: claim.run };
        let attempt = head.lease.as_ref().map_or(1, |lease| lease.attempt);
        let started = self.store.clock().now();
        let mut held = Held { head, attempt, version, proof, claimed: None, started, restored: Vec::new(), began_with: None, _mark: mark };
        if (attempt > 1 || claim.over.is_some())
            && !drill::disabled(Safeguard::RecordFence)
            && let Some(record) = self.claim_record(&mut held).await?
        {
            // It ended long ago and had left the head's list: nothing may run.
            self.update(&mut held, |head, proof| head.forget(proof)).await?;
            self.dequeue(&session, claim.run).await?;
            if claim.run == wanted {
                return Ok(Acquired::Ended(Box::new(record)));
            }
            return Box::pin(self.acquire_of(&session, wanted, of, Some(Snapshot { head: held.head, version: held.version }))).await;
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
            record.request = found.value.request;
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

    fn forget_settled(&self, session: &SessionRef, noted: &[RunId]) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runs) = settled.get_mut(session) {
            runs.retain(|run| !noted.contains(run));
            if runs.is_empty() {
                settled.remove(session);
            }
        }
    }
}
