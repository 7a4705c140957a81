//! What a head keeps, and the changes of it that move or drop checkpoints without a guest: retention, compaction and forks.

use super::{ForkPin, ForkedFrom, Head, PINS_MAX, Refusal, State, Trashed};
use crate::checkpoint::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::id::{PackId, SessionRef};
use crate::store::Nonce;

/// A checkpoint of a session, and what keeps it: as long as the head does, the packs that it needs are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The session.
    pub session: SessionRef,
    /// The incarnation that it is of.
    pub incarnation: Nonce,
    /// The checkpoint, with the places that were read.
    pub checkpoint: Checkpoint,
    /// The seq of the run that left it; none for a named checkpoint or the head's own.
    pub seq: Option<u64>,
}

impl Head {
    /// Returns the head's own checkpoint as something to stand on; none before the first turn.
    #[must_use]
    pub fn current(&self) -> Option<Kept> {
        let checkpoint = self.checkpoint.clone()?;
        Some(Kept { session: self.session.clone(), incarnation: self.incarnation, checkpoint, seq: None })
    }

    /// Whether the head keeps a checkpoint. The same content at other places isn't the same here: its packs may be gone.
    #[must_use]
    pub fn keeps(&self, kept: &Kept) -> bool {
        let named = || self.saves.iter().map(|save| &save.checkpoint).chain(self.pins.iter().map(|pin| &pin.checkpoint));
        self.is_open()
            && self.incarnation == kept.incarnation
            && (self.checkpoint.as_ref() == Some(&kept.checkpoint)
                || named().any(|checkpoint| *checkpoint == kept.checkpoint)
                || kept.seq.is_some_and(|seq| seq >= self.kept_from && seq <= self.seq))
    }

    /// Keeps a checkpoint for a fork.
    ///
    /// # Errors
    /// [`Refusal::Deleted`], [`Refusal::Dropped`] when it isn't kept any more, [`Refusal::Full`].
    pub fn pin(&self, of: &Kept, child: &SessionRef, incarnation: Nonce, at: UnixNanos) -> Result<Self, Refusal> {
        let mut next = self.open()?;
        if !self.keeps(of) {
            return Err(Refusal::Dropped(of.checkpoint.id));
        }
        next.pins.retain(|other| other.incarnation != incarnation);
        if next.pins.len() >= PINS_MAX {
            return Err(Refusal::Full("forks", PINS_MAX));
        }
        next.pins.push(ForkPin { child: child.clone(), incarnation, checkpoint: of.checkpoint.clone(), at, settled: false });
        next.within_budget()
    }

    /// Notes that a fork's head is there.
    ///
    /// # Errors
    /// [`Refusal::NotThere`] when the pin was dropped meanwhile.
    pub fn settle_pin(&self, incarnation: Nonce) -> Result<Self, Refusal> {
        let mut next = self.clone();
        let pin = next.pins.iter_mut().find(|pin| pin.incarnation == incarnation).ok_or(Refusal::NotThere)?;
        pin.settled = true;
        Ok(next)
    }

    /// Makes the head of a fork: a session that begins with another's checkpoint. `over` is the tombstone under its name, when there is one.
    ///
    /// # Errors
    /// [`Refusal::Fenced`] when there is a session of that name.
    pub fn forked(of: &Kept, child: &SessionRef, over: Option<&Self>, incarnation: Nonce, at: UnixNanos) -> Result<Self, Refusal> {
        let mut head = match over {
            Some(head) => head.renewed(incarnation, at)?,
            None => Self::new(child.clone(), incarnation, at),
        };
        head.checkpoint = Some(of.checkpoint.clone());
        let (session, parent) = (of.session.clone(), of.incarnation);
        head.forked_from = Some(ForkedFrom { session, incarnation: parent, checkpoint: of.checkpoint.id });
        Ok(head)
    }

    /// Drops the checkpoints of runs with a smaller seq. Never the other way round: what was dropped once stays dropped.
    #[must_use]
    pub fn retain_from(&self, seq: u64) -> Self {
        Self { kept_from: self.kept_from.max(seq.min(self.seq)), ..self.clone() }
    }

    /// Moves the head to the same checkpoint at other places, when nobody works on the session.
    ///
    /// # Errors
    /// [`Refusal::Busy`]; [`Refusal::Dropped`] when the head has another checkpoint, or the new one has another id; [`Refusal::Deleted`].
    pub fn relocate(&self, from: &Checkpoint, to: &Checkpoint) -> Result<Self, Refusal> {
        let next = self.open()?;
        if let Some(lease) = &self.lease {
            return Err(Refusal::Busy(lease.clone()));
        }
        if self.checkpoint.as_ref() != Some(from) || from.id != to.id {
            return Err(Refusal::Dropped(from.id));
        }
        Ok(Self { checkpoint: Some(to.clone()), ..next })
    }

    /// Drops a fork's pin. Also on a tombstone, whose packs wait for it.
    ///
    /// # Errors
    /// [`Refusal::NotThere`].
    pub fn unpin(&self, incarnation: Nonce) -> Result<Self, Refusal> {
        let mut next = self.clone();
        next.pins.retain(|pin| pin.incarnation != incarnation);
        if next.pins.len() == self.pins.len() { Err(Refusal::NotThere) } else { Ok(next) }
    }

    /// Puts packs on the trash list, as many as there is room for, and returns how many that were.
    #[must_use]
    pub fn discard(&self, packs: &[Trashed]) -> (Self, usize) {
        let mut next = self.clone();
        let mut taken = 0;
        for trashed in packs {
            if !next.trash.iter().any(|other| other.pack == trashed.pack) {
                next.trash.push(*trashed);
                if next.trash.len() > super::TRASH_MAX || next.clone().within_budget().is_err() {
                    next.trash.pop();
                    break;
                }
            }
            taken += 1;
        }
        (next, taken)
    }

    /// Takes packs off the trash list.
    #[must_use]
    pub fn undiscard(&self, packs: &[PackId]) -> Self {
        let mut next = self.clone();
        next.trash.retain(|trashed| !packs.contains(&trashed.pack));
        next
    }

    /// Makes the head a tombstone: the checkpoints go, what forks stand on stays.
    ///
    /// # Errors
    /// [`Refusal::Busy`] while a run has the lease, [`Refusal::Deleted`].
    pub fn delete(&self, at: UnixNanos) -> Result<Self, Refusal> {
        let next = self.open()?;
        if let Some(lease) = &self.lease {
            return Err(Refusal::Busy(lease.clone()));
        }
        Ok(Self {
            state: State::Deleted(at),
            epoch: next.epoch + 1,
            checkpoint: None,
            pending: None,
            cancels: Vec::new(),
            saves: Vec::new(),
            ..next
        })
    }
}
