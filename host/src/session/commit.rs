//! The end of a run: its record, then the head, then its queue entry.
//!
//! The packs were stored before. A crash between any two of these leaves garbage, or something that the next taker of the lease settles, never a lie.

use super::head::{End, Refusal};
use super::lease::Held;
use super::queue::QueueEntry;
use super::record::{Failure, Origin, Previous, RunRecord, Status, Trigger, Usage};
use super::sessions::{ROUNDS, Sessions, Snapshot, contended};
use crate::checkpoint::root::Checkpoint;
use crate::drill::{self, Point, Safeguard};
use crate::error::{Error, Result};
use crate::id::PackId;
use crate::store::Key;
use crate::store::cas::{Created, Replaced, Version};

/// How a run ended, after its commit.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The head after it.
    pub snapshot: Snapshot,
    /// The record as it was stored: cancelled, when a cancel came before the commit.
    pub record: RunRecord,
}

impl Sessions {
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
            request: None,
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
    /// the trash list). A cancel that came first turns a completed run into a cancelled one, which leaves what the run began with.
    ///
    /// # Errors
    /// `Conflict` with the code `fenced` when the lease is lost, or `checkpoint_dropped`: nothing was committed. `Store` with the code `outcome_unknown`: the run is to be
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
            drill::pass(Point::RecordBefore);
            let written = self.write_record(held, &record).await?;
            drill::pass(Point::RecordAfter);
            let checkpoint = record.after.clone();
            let restored = held.restored.clone();
            let end = End { status: record.status, record: written.digest(), checkpoint, packs: packs.to_vec(), restored };
            held.claimed = Some(written);
            drill::pass(Point::CommitBefore);
            match self.change(held, |head, proof| head.end(proof, &end)).await? {
                Ok(()) => break,
                Err(Refusal::Ended(recent)) if recent.epoch == held.epoch() && recent.record == end.record => {
                    // Our own write, whose answer was lost and whose nonce has been pushed out since.
                    break;
                }
                Err(Refusal::Cancelled) => record.cancel(held.began_with.as_ref()),
                Err(refusal) => return Err(refusal.into_error(&session)),
            }
        }
        drill::pass(Point::CommitAfter);
        if let Err(error) = self.dequeue(&session, record.run).await {
            tracing::warn!(run = %record.run, error = %error.chain(), "a queue entry was left over; the next sweep deletes it");
        }
        drill::pass(Point::CleanAfter);
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
        record.request = entry.map(QueueEntry::request).transpose()?;
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
            if drill::disabled(Safeguard::RecordFence) {
                expected = Some(found.version);
                continue;
            }
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
}
