//! The head: a session's one mutable object, as a value, and every change that it can undergo.
//!
//! Nothing here does I/O: a transition takes the head as it was read and returns the next one or says why not. [`super::sessions`] writes the result by
//! compare-and-swap and, when that is refused, asks again with the head that is there now. So a transition judges only the head it is given.
//!
//! The head stays below [`crate::store::document::DOCUMENT_MAX`] bytes by construction: its lists are bounded, and what people add (saves, fork pins)
//! and the trash share a budget of [`EXTRAS_MAX`] encoded bytes, so that a commit always finds room.

use serde::{Deserialize, Serialize};

mod keeping;
mod refusal;
mod rules;

pub use self::keeping::Kept;
pub use self::refusal::Refusal;
use super::record::Status;
use crate::checkpoint::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::drill::{self, Safeguard};
use crate::id::{CheckpointId, Digest, PackId, ReplicaName, RunId, SessionRef};
use crate::store::{BootNonce, Nonce};

/// The newest head that this program understands: a head with a larger `min_reader` is left alone.
pub const READER: u32 = 1;
/// How many ended runs a head names when their queue entries are known to be gone.
pub const RECENT_KEPT: usize = 32;
/// How many ended runs a head names at most; above that no lease is given until queue entries have been swept.
pub const RECENT_MAX: usize = 64;
/// Most named checkpoints.
pub const SAVES_MAX: usize = 64;
/// Longest name of a saved checkpoint in bytes.
pub const SAVE_NAME_MAX: usize = 128;
/// Most fork pins.
pub const PINS_MAX: usize = 64;
/// Most packs on the trash list.
pub const TRASH_MAX: usize = 200;
/// Most runs that wait with a cancel against them.
pub const CANCELS_MAX: usize = 16;
/// Bytes that saves, fork pins and trash together may take in the encoded head.
pub const EXTRAS_MAX: usize = 30 << 10;
/// Largest epoch, seq or turn: no session counts that far, and counting on from there stays in bounds.
pub const COUNT_MAX: u64 = i64::MAX as u64;
/// Bytes that the current checkpoint may take in the encoded head.
pub const CHECKPOINT_MAX: usize = 10 << 10;

/// A session's head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The oldest reader that may touch this session: programs with a smaller [`READER`] leave it alone.
    pub min_reader: u32,
    /// The session that it is the head of, so that an object copied to another key is noticed.
    pub session: SessionRef,
    /// Drawn when the session is made; a deleted name that is used again gets another one.
    pub incarnation: Nonce,
    /// When this incarnation was made, by its maker's clock.
    pub created: UnixNanos,
    /// Whether it is in use.
    pub state: State,
    /// Raised by every lease; a writer with a smaller one is fenced.
    pub epoch: u64,
    /// Number of ended runs.
    pub seq: u64,
    /// Number of committed (completed) turns.
    pub turn: u64,
    /// What the last committed turn left; none before the first.
    pub checkpoint: Option<Checkpoint>,
    /// Who may run the next turn, and which.
    pub lease: Option<Lease>,
    /// A run that gave its lease back and is to go on, with the attempts that count.
    pub pending: Option<Pending>,
    /// Runs to be cancelled, waiting or going on.
    pub cancels: Vec<RunId>,
    /// The last ended runs, newest first.
    pub recent: Vec<Recent>,
    /// Named checkpoints, in the order of their making.
    pub saves: Vec<Save>,
    /// Checkpoints that forks stand on.
    pub pins: Vec<ForkPin>,
    /// Packs that no kept checkpoint needs, waiting for their grace to end.
    pub trash: Vec<Trashed>,
    /// Runs with a smaller seq have no kept checkpoint any more.
    pub kept_from: u64,
    /// Where this session was forked from.
    pub forked_from: Option<ForkedFrom>,
}

/// Whether a session is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum State {
    /// It is.
    Open,
    /// It was deleted at this time, by the deleter's clock; the head is a tombstone.
    Deleted(UnixNanos),
}

/// A process, as leases and queue entries name it: together the key of its object in `replicas/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// The replica's name.
    pub replica: ReplicaName,
    /// What tells this process from others of that name.
    pub boot: BootNonce,
}

/// The right to run one turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The process that has it.
    pub owner: Owner,
    /// The head's epoch since it was given.
    pub epoch: u64,
    /// The run that it is for.
    pub run: RunId,
    /// Which attempt of the run this is, from 1.
    pub attempt: u32,
}

/// A run that gave its lease back without an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// The run.
    pub run: RunId,
    /// Attempts so far that count against its limit.
    pub attempts: u32,
}

/// An ended run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recent {
    /// The run.
    pub run: RunId,
    /// Its place among the session's ended runs, from 1.
    pub seq: u64,
    /// The epoch under which it ended.
    pub epoch: u64,
    /// How it ended.
    pub status: Status,
    /// SHA-256 of the record's stored bytes.
    pub record: Digest,
    /// Whether its queue entry was seen gone.
    pub settled: bool,
}

/// A named checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Save {
    /// Its name, unique in the session.
    pub name: String,
    /// What was saved.
    pub checkpoint: Checkpoint,
    /// The run that saved it; a later attempt of that run replaces it, another run may not.
    pub run: RunId,
    /// The epoch under which it was saved.
    pub epoch: u64,
    /// When, by the saver's clock.
    pub at: UnixNanos,
}

/// A checkpoint that a fork stands on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkPin {
    /// The fork.
    pub child: SessionRef,
    /// The incarnation that the fork has, or will have when it is made.
    pub incarnation: Nonce,
    /// What it stands on.
    pub checkpoint: Checkpoint,
    /// When, by the forker's clock.
    pub at: UnixNanos,
    /// Whether the fork's head is known to be there. A pin that isn't settled and whose fork isn't there is dropped when it is old.
    pub settled: bool,
}

/// Where a session was forked from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkedFrom {
    /// The parent.
    pub session: SessionRef,
    /// The parent's incarnation.
    pub incarnation: Nonce,
    /// The checkpoint that it was forked at.
    pub checkpoint: CheckpointId,
}

/// A pack without live content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trashed {
    /// The pack.
    pub pack: PackId,
    /// Since when, by the store's clock.
    pub since: UnixNanos,
}

/// What asks for a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The process.
    pub owner: Owner,
    /// The run.
    pub run: RunId,
    /// The epoch of a lease whose owner is known to be gone.
    pub over: Option<u64>,
}

/// What proves a lease: a change that stands on it is made only while the head agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The incarnation that the lease is of.
    pub incarnation: Nonce,
    /// Its epoch: unique within the incarnation.
    pub epoch: u64,
    /// Its run.
    pub run: RunId,
}

/// How a run ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Its status, not [`Status::Running`].
    pub status: Status,
    /// SHA-256 of the record's stored bytes.
    pub record: Digest,
    /// The checkpoint it leaves. Only a completed run moves the head to it, or a failed one where there is none yet (so that its pin stays).
    pub checkpoint: Option<Checkpoint>,
    /// Packs that the checkpoint needs: they leave the trash list.
    pub packs: Vec<PackId>,
    /// Older checkpoints that it was made from: they have to be kept still, else their packs may be gone.
    pub restored: Vec<Kept>,
}

impl Head {
    /// Makes the head of a new session.
    #[must_use]
    pub fn new(session: SessionRef, incarnation: Nonce, created: UnixNanos) -> Self {
        Self {
            min_reader: READER,
            session,
            incarnation,
            created,
            state: State::Open,
            epoch: 0,
            seq: 0,
            turn: 0,
            checkpoint: None,
            lease: None,
            pending: None,
            cancels: Vec::new(),
            recent: Vec::new(),
            saves: Vec::new(),
            pins: Vec::new(),
            trash: Vec::new(),
            kept_from: 0,
            forked_from: None,
        }
    }

    /// Makes a deleted session's name usable again. The epoch goes on, and so does what forks of the deleted one stand on.
    ///
    /// # Errors
    /// [`Refusal::Fenced`] when it isn't deleted.
    pub fn renewed(&self, incarnation: Nonce, created: UnixNanos) -> Result<Self, Refusal> {
        match self.state {
            State::Open => Err(Refusal::Fenced(self.epoch)),
            State::Deleted(_) => Ok(Self {
                epoch: self.epoch,
                pins: self.pins.clone(),
                trash: self.trash.clone(),
                ..Self::new(self.session.clone(), incarnation, created)
            }),
        }
    }

    /// Whether the session is in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns what the head says of an ended run, when it still names it.
    #[must_use]
    pub fn ended(&self, run: RunId) -> Option<Recent> {
        self.recent.iter().find(|recent| recent.run == run).copied()
    }

    /// Whether the run is to be cancelled.
    #[must_use]
    pub fn is_cancelled(&self, run: RunId) -> bool {
        self.cancels.contains(&run)
    }

    fn open(&self) -> Result<Self, Refusal> {
        if self.is_open() { Ok(self.clone()) } else { Err(Refusal::Deleted) }
    }

    /// Copies the head for a change that stands on a lease.
    fn held(&self, proof: &Proof) -> Result<(Self, Lease), Refusal> {
        if self.incarnation == proof.incarnation
            && let Some(ended) = self.ended(proof.run)
        {
            return Err(Refusal::Ended(ended));
        }
        match &self.lease {
            Some(lease)
                if self.incarnation == proof.incarnation
                    && (lease.epoch == proof.epoch || drill::disabled(Safeguard::Epochs))
                    && lease.run == proof.run =>
            {
                Ok((self.open()?, lease.clone()))
            }
            _ if self.incarnation == proof.incarnation && !self.is_open() => Err(Refusal::Deleted),
            _ => Err(Refusal::Fenced(self.epoch)),
        }
    }

    /// Gives the lease to a run. The epoch rises, and so fences every lease before.
    ///
    /// # Errors
    /// [`Refusal::Deleted`], [`Refusal::Ended`], [`Refusal::Busy`] unless the lease's owner is known to be gone, [`Refusal::Unsettled`],
    /// [`Refusal::Full`] when nothing can be counted any more.
    pub fn acquire(&self, claim: &Claim) -> Result<Self, Refusal> {
        let mut next = self.open()?;
        if let Some(ended) = self.ended(claim.run) {
            return Err(Refusal::Ended(ended));
        }
        let mut attempts = self.pending.filter(|pending| pending.run == claim.run).map_or(0, |pending| pending.attempts);
        if let Some(lease) = &self.lease {
            // The run of a lost lease goes first, so that its record is settled before the next one's seq is given out.
            if claim.over != Some(lease.epoch) || lease.run != claim.run {
                return Err(Refusal::Busy(lease.clone()));
            }
            attempts = lease.attempt;
        }
        if self.recent.len() >= RECENT_MAX {
            return Err(Refusal::Unsettled(self.recent.iter().filter(|recent| !recent.settled).map(|recent| recent.run).collect()));
        }
        if next.epoch >= COUNT_MAX || next.seq >= COUNT_MAX {
            return Err(Refusal::Full("leases and runs", usize::try_from(COUNT_MAX).unwrap_or(usize::MAX)));
        }
        next.epoch += 1;
        next.lease = Some(Lease { owner: claim.owner.clone(), epoch: next.epoch, run: claim.run, attempt: attempts.saturating_add(1) });
        if next.pending.is_some_and(|pending| pending.run == claim.run) {
            next.pending = None;
        }
        Ok(next)
    }

    /// Ends a run and gives its lease back.
    ///
    /// # Errors
    /// [`Refusal::Ended`] when it has ended (also by this very change, when its answer was lost: the epoch tells), [`Refusal::Fenced`],
    /// [`Refusal::Deleted`], [`Refusal::Cancelled`] for a completed run with a cancel against it, [`Refusal::Dropped`] when it was made from a
    /// checkpoint that isn't kept any more, [`Refusal::Full`] for a checkpoint that is too large.
    pub fn end(&self, proof: &Proof, end: &End) -> Result<Self, Refusal> {
        let (mut next, lease) = self.held(proof)?;
        let completed = end.status == Status::Completed;
        if completed && self.is_cancelled(proof.run) {
            return Err(Refusal::Cancelled);
        }
        if completed && let Some(dropped) = end.restored.iter().find(|restored| !self.keeps(restored)) {
            return Err(Refusal::Dropped(dropped.checkpoint.id));
        }
        if let Some(checkpoint) = &end.checkpoint
            && (completed || next.checkpoint.is_none())
        {
            if encoded_len(checkpoint) > CHECKPOINT_MAX {
                return Err(Refusal::Full("bytes of a checkpoint", CHECKPOINT_MAX));
            }
            next.checkpoint = Some(checkpoint.clone());
        }
        next.seq += 1;
        next.turn += u64::from(completed);
        next.lease = None;
        next.pending = self.pending.filter(|pending| pending.run != proof.run);
        next.cancels.retain(|run| *run != proof.run);
        next.trash.retain(|trashed| !end.packs.contains(&trashed.pack));
        let recent = Recent { run: proof.run, seq: next.seq, epoch: lease.epoch, status: end.status, record: end.record, settled: false };
        next.recent.insert(0, recent);
        next.drop_settled();
        Ok(next)
    }

    /// Gives a lease back without an end: the run is to go on elsewhere. `counts` says whether this attempt counts against the run's limit.
    ///
    /// # Errors
    /// As [`Head::end`].
    pub fn release(&self, proof: &Proof, counts: bool) -> Result<Self, Refusal> {
        let (mut next, lease) = self.held(proof)?;
        next.lease = None;
        next.pending = Some(Pending { run: proof.run, attempts: if counts { lease.attempt } else { lease.attempt.saturating_sub(1) } });
        Ok(next)
    }

    /// Gives a lease back as if the run had never been: for a run whose entry is deleted too.
    ///
    /// # Errors
    /// As [`Head::end`].
    pub fn forget(&self, proof: &Proof) -> Result<Self, Refusal> {
        let (mut next, _) = self.held(proof)?;
        next.lease = None;
        next.cancels.retain(|run| *run != proof.run);
        Ok(next)
    }

    /// Notes that a run is to be cancelled.
    ///
    /// # Errors
    /// [`Refusal::Ended`], [`Refusal::Deleted`], [`Refusal::Full`].
    pub fn cancel(&self, run: RunId) -> Result<Self, Refusal> {
        let mut next = self.open()?;
        if let Some(ended) = self.ended(run) {
            return Err(Refusal::Ended(ended));
        }
        if !next.cancels.contains(&run) {
            if next.cancels.len() >= CANCELS_MAX {
                return Err(Refusal::Full("cancelled runs", CANCELS_MAX));
            }
            next.cancels.push(run);
        }
        Ok(next)
    }

    /// Notes that the queue entries of ended runs are gone.
    #[must_use]
    pub fn settle(&self, runs: &[RunId]) -> Self {
        let mut next = self.clone();
        for recent in next.recent.iter_mut().filter(|recent| runs.contains(&recent.run)) {
            recent.settled = true;
        }
        next.drop_settled();
        next
    }

    /// Forgets the oldest ended runs above [`RECENT_KEPT`] whose queue entries are gone.
    fn drop_settled(&mut self) {
        while self.recent.len() > RECENT_KEPT {
            // The newest stays whatever its state: the next record names it.
            match self.recent.iter().rposition(|recent| recent.settled) {
                None | Some(0) => return,
                Some(oldest) => self.recent.remove(oldest),
            };
        }
    }

    /// Saves a checkpoint under a name, in the middle of a run.
    ///
    /// # Errors
    /// As [`Head::end`]; [`Refusal::SaveTaken`] when another run saved the name; [`Refusal::Full`].
    pub fn save(&self, proof: &Proof, name: &str, checkpoint: &Checkpoint, at: UnixNanos) -> Result<Self, Refusal> {
        let (mut next, lease) = self.held(proof)?;
        if self.is_cancelled(proof.run) {
            return Err(Refusal::Cancelled);
        }
        match self.saves.iter().find(|save| save.name == name) {
            Some(save) if save.run != proof.run => return Err(Refusal::SaveTaken(save.run)),
            _ => next.saves.retain(|save| save.name != name),
        }
        if next.saves.len() >= SAVES_MAX {
            return Err(Refusal::Full("named checkpoints", SAVES_MAX));
        }
        next.saves.push(Save { name: name.to_owned(), checkpoint: checkpoint.clone(), run: proof.run, epoch: lease.epoch, at });
        next.within_budget()
    }

    /// Forgets a saved checkpoint.
    ///
    /// # Errors
    /// [`Refusal::NotThere`], [`Refusal::Deleted`].
    pub fn unsave(&self, name: &str) -> Result<Self, Refusal> {
        let mut next = self.open()?;
        next.saves.retain(|save| save.name != name);
        if next.saves.len() == self.saves.len() { Err(Refusal::NotThere) } else { Ok(next) }
    }

    fn within_budget(self) -> Result<Self, Refusal> {
        if encoded_len(&(&self.saves, &self.pins, &self.trash)) > EXTRAS_MAX {
            return Err(Refusal::Full("named checkpoints, forks and trash (bytes)", EXTRAS_MAX));
        }
        Ok(self)
    }
}

/// Length of a value's JSON in bytes; more than any limit when it has none.
fn encoded_len(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

#[cfg(test)]
mod tests;
