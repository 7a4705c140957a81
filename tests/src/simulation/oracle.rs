//! What must hold, checked from outside: on each write that takes effect in the store, and at the end of a run.
//!
//! The oracle reads the stored documents itself and keeps its own account. It knows the library's types, but asks none of its code what is right.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use landfall::id::{CheckpointId, Digest, PackId, RunId, SessionRef};
use landfall::session::head::{Head, Save, State};
use landfall::session::queue::QueueEntry;
use landfall::session::record::{Origin, RunRecord, Status, Trigger};
use landfall::store::{Key, Nonce};
use landfall::workspace::page::{Home, Place, Root};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::World;
use super::guest::line;
use super::ticks::Ticks;

/// A run that has ended: it counts, for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Official {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub status: Status,
    /// Its attempt.
    pub attempt: u32,
    /// SHA-256 of its record's stored bytes.
    pub digest: Digest,
    /// Its record.
    pub record: RunRecord,
}

/// One incarnation of a session.
#[derive(Clone, Default, Debug)]
pub struct Life {
    /// Its ended runs in order: the first has seq 1.
    pub runs: Vec<Official>,
    /// Whether it has been deleted.
    pub deleted: bool,
}

/// What a client was told of its request.
#[derive(Clone, Debug)]
pub enum Told {
    /// The run has ended like this.
    Ended(Box<RunRecord>),
    /// The run is accepted: it will end, whatever happens.
    Accepted,
    /// An error of this code.
    Error(&'static str, String),
}

/// A request for a turn, and what became of it as far as its client knows.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The session.
    pub session: SessionRef,
    /// The idempotency key.
    pub key: Option<String>,
    /// The run, once it was accepted.
    pub run: Option<RunId>,
    /// The answer; none when the process died before.
    pub told: Option<Told>,
}

/// The account of a simulated world.
#[derive(Default)]
pub struct Oracle {
    heads: BTreeMap<SessionRef, Head>,
    /// Every incarnation that there was.
    pub lives: BTreeMap<(SessionRef, Nonce), Life>,
    official: BTreeMap<(SessionRef, RunId), (Nonce, Digest)>,
    /// Runs that any worker may drive, with the incarnations of their sessions: each has to end, unless its session is deleted.
    accepted: BTreeMap<(SessionRef, RunId), Nonce>,
    /// The account of schedules.
    pub ticks: Ticks,
    /// What the log in a checkpoint's `/state` has to say.
    logs: BTreeMap<CheckpointId, String>,
    /// Names of saves that somebody has asked to be forgotten.
    pub unsaved: BTreeSet<(SessionRef, String)>,
    /// How often the body of a run began.
    pub begun: BTreeMap<RunId, u32>,
    /// What the clients asked for, by number.
    pub asked: BTreeMap<u64, Asked>,
    /// The first thing that was wrong.
    pub violation: Option<String>,
    /// Writes of heads that took effect.
    pub head_writes: u64,
}

#[derive(Deserialize)]
struct Envelope<T> {
    body: T,
}

pub(super) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice::<Envelope<T>>(bytes).map(|envelope| envelope.body).map_err(|error| error.to_string())
}

macro_rules! must {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

impl Oracle {
    /// Notes the first thing that is wrong.
    pub fn blame(&mut self, wrong: String) {
        self.violation.get_or_insert(wrong);
    }

    /// Looks at a write that has just taken effect.
    pub fn wrote(&mut self, world: &World, path: &str, before: Option<&Bytes>, bytes: &Bytes) {
        let judged = match path.parse::<Key>() {
            Ok(Key::Head(session)) => self.wrote_head(world, &session, bytes),
            Ok(Key::Run(session, run)) => self.wrote_record(&session, run, bytes),
            Ok(Key::Queue(..)) => self.wrote_entry(world, bytes),
            Ok(Key::Plan(id)) => self.ticks.wrote_plan(&id, bytes, world.store_time()),
            Ok(Key::ScheduleState(id)) => self.ticks.wrote_state(&id, bytes),
            Ok(Key::Claim(id, tick)) => self.ticks.wrote_claim(&id, tick, bytes),
            Ok(Key::SessionPack(..)) if before.is_some_and(|before| before != bytes) => {
                Err(String::from("an immutable object was changed"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(format!("it isn't a key of a store: {error}")),
        };
        if let Err(wrong) = judged {
            self.blame(format!("{path}: {wrong}"));
        }
    }

    /// Looks at a deletion that has just taken effect, of an object with these bytes.
    pub fn deleted(&mut self, path: &str, bytes: &Bytes) {
        let judged = match path.parse::<Key>() {
            Ok(Key::Head(_)) => Err(String::from("it must never be")),
            Ok(Key::Run(session, _)) => self.deleted_record(&session, bytes),
            Ok(Key::Queue(..)) => self.deleted_entry(bytes),
            Ok(Key::SessionPack(session, pack)) => self.deleted_pack(&session, pack),
            _ => Ok(()),
        };
        if let Err(wrong) = judged {
            self.blame(format!("{path} was deleted: {wrong}"));
        }
    }

    fn is_deleted(&self, session: &SessionRef, incarnation: Nonce) -> bool {
        self.lives.get(&(session.clone(), incarnation)).is_some_and(|life| life.deleted)
    }

    fn deleted_record(&self, session: &SessionRef, bytes: &Bytes) -> Result<(), String> {
        let record: RunRecord = body(bytes)?;
        must!(self.is_deleted(session, record.incarnation), "its session is there");
        Ok(())
    }

    fn wrote_entry(&mut self, world: &World, bytes: &Bytes) -> Result<(), String> {
        let entry: QueueEntry = body(bytes)?;
        if let Trigger::Schedule { schedule, tick } = &entry.trigger {
            self.ticks.queued(schedule, *tick, &entry, world.store_time())?;
        }
        if let (Origin::Server, Some(incarnation)) = (entry.origin, entry.incarnation) {
            let first = *self.accepted.entry((entry.session.clone(), entry.run)).or_insert(incarnation);
            must!(first == incarnation, "run {} was accepted for two incarnations", entry.run);
        }
        Ok(())
    }

    /// An accepted run is forgotten only when it has ended, or can't any more.
    fn deleted_entry(&self, bytes: &Bytes) -> Result<(), String> {
        let entry: QueueEntry = body(bytes)?;
        if let (Origin::Server, Some(incarnation)) = (entry.origin, entry.incarnation) {
            let ended = self.official.contains_key(&(entry.session.clone(), entry.run));
            must!(ended || self.is_deleted(&entry.session, incarnation), "run {} was accepted, and hasn't ended", entry.run);
        }
        Ok(())
    }

    /// What a collection deletes nobody needs. The roots are looked at here; what is below them is opened at the end.
    fn deleted_pack(&self, session: &SessionRef, pack: PackId) -> Result<(), String> {
        for head in self.heads.values() {
            let open = head.state == State::Open;
            let own = head.checkpoint.iter().chain(head.saves.iter().map(|save| &save.checkpoint)).filter(|_| open);
            for checkpoint in own.chain(head.pins.iter().map(|pin| &pin.checkpoint)) {
                for root in [&checkpoint.root.workspace, &checkpoint.root.state] {
                    must!(!lies_in(root, session, pack), "checkpoint {} in the head of {} needs it", checkpoint.id, head.session);
                }
            }
        }
        Ok(())
    }

    fn wrote_record(&self, session: &SessionRef, run: RunId, bytes: &Bytes) -> Result<(), String> {
        if let Some((_, digest)) = self.official.get(&(session.clone(), run)) {
            must!(*digest == sha256(bytes), "the record of a run that had ended was written over");
        }
        Ok(())
    }

    fn wrote_head(&mut self, world: &World, session: &SessionRef, bytes: &Bytes) -> Result<(), String> {
        let next: Head = body(bytes)?;
        self.head_writes += 1;
        must!(next.session == *session, "it is the head of {}", next.session);
        let before = self.heads.insert(session.clone(), next.clone());
        let life = (session.clone(), next.incarnation);
        match &before {
            Some(before) if before.incarnation == next.incarnation => self.follows(world, before, &next)?,
            Some(before) => {
                must!(before.state != State::Open, "an incarnation was written over that wasn't deleted");
                must!(!self.lives.contains_key(&life), "an incarnation came back");
                must!(next.epoch >= before.epoch, "epoch {} of a new incarnation is below {}", next.epoch, before.epoch);
                self.begins(&next)?;
            }
            None => self.begins(&next)?,
        }
        self.lives.entry(life).or_default().deleted = next.state != State::Open;
        Ok(())
    }

    fn begins(&self, next: &Head) -> Result<(), String> {
        must!(next.state == State::Open && next.seq == 0 && next.turn == 0, "a new session begins in the middle: {next:?}");
        // A fork begins with what it was forked from.
        must!(next.checkpoint.is_none() || next.forked_from.is_some(), "a new session begins with a checkpoint");
        if let Some(checkpoint) = &next.checkpoint {
            must!(self.logs.contains_key(&checkpoint.id), "a fork begins with a checkpoint that nobody made");
        }
        Ok(())
    }

    /// Whether a head may come after another of the same incarnation.
    fn follows(&mut self, world: &World, before: &Head, next: &Head) -> Result<(), String> {
        if before.state != State::Open {
            must!(next.state != State::Open, "a deleted session came back");
            must!(next.lease.is_none() && next.seq == before.seq, "a deleted session went on");
            return Ok(());
        }
        must!(next.epoch >= before.epoch && next.epoch <= before.epoch + 1, "the epoch went from {} to {}", before.epoch, next.epoch);
        if next.lease != before.lease
            && let Some(lease) = &next.lease
        {
            must!(lease.epoch == next.epoch && next.epoch == before.epoch + 1, "a lease was given without a new epoch: {lease:?}");
            must!(!self.official.contains_key(&(next.session.clone(), lease.run)), "run {} got a lease after it had ended", lease.run);
        }
        let ended = next.seq == before.seq + 1;
        must!(ended || next.seq == before.seq, "the seq went from {} to {}", before.seq, next.seq);
        if ended {
            self.ended(world, before, next)?;
        } else if next.state == State::Open {
            must!(next.turn == before.turn, "the turn went from {} to {} without a run's end", before.turn, next.turn);
            must!(next.checkpoint == before.checkpoint || same_content(before, next), "the checkpoint changed without a run's end");
        }
        if next.state == State::Open {
            self.saves(world, before, next)?;
        }
        for recent in &before.recent {
            let kept = next.recent.iter().find(|other| other.run == recent.run);
            must!(
                kept.map_or(recent.settled || next.recent.len() >= 32, |kept| kept.record == recent.record && kept.seq == recent.seq),
                "the head forgot or changed what it said of run {}",
                recent.run
            );
        }
        Ok(())
    }

    /// A run's end: exactly the one that had the lease, with its record in the store.
    fn ended(&mut self, world: &World, before: &Head, next: &Head) -> Result<(), String> {
        let Some(lease) = &before.lease else { return Err(String::from("a run ended that had no lease")) };
        must!(next.lease.is_none(), "a run ended and the lease is still given");
        let Some(recent) = next.recent.first() else { return Err(String::from("a run ended and the head doesn't name it")) };
        must!(
            recent.run == lease.run && recent.epoch == lease.epoch && recent.seq == next.seq,
            "the lease was {lease:?}, and what ended is {recent:?}"
        );
        let id = (next.session.clone(), recent.run);
        must!(!self.official.contains_key(&id), "run {} ended twice", recent.run);
        let key = Key::Run(next.session.clone(), recent.run).to_string();
        let Some(stored) = world.objects().get(&key).cloned() else { return Err(format!("{key} isn't there at its commit")) };
        let digest = sha256(&stored);
        must!(digest == recent.record, "{key} isn't the record that the head names");
        let record: RunRecord = body(&stored)?;
        must!(
            record.run == recent.run
                && record.incarnation == next.incarnation
                && record.seq == next.seq
                && record.epoch == recent.epoch
                && record.status == recent.status
                && record.status != Status::Running,
            "{key} doesn't say what the head says: {record:?}"
        );
        let last = self.lives.get(&(next.session.clone(), next.incarnation)).and_then(|life| life.runs.last());
        must!(
            record.previous.map(|previous| (previous.run, previous.record)) == last.map(|last| (last.run, last.digest)),
            "{key} doesn't follow the record before it"
        );
        let completed = record.status == Status::Completed;
        must!(!completed || !before.is_cancelled(record.run), "run {} completed, and had been cancelled before", record.run);
        must!(next.turn == before.turn + u64::from(completed), "the turn went from {} to {}", before.turn, next.turn);
        must!(record.before == before.checkpoint, "{key} began with another checkpoint than the session's");
        if completed || before.checkpoint.is_none() {
            must!(next.checkpoint == record.after, "the head's checkpoint isn't that of {key}");
        } else {
            must!(next.checkpoint == before.checkpoint, "a run that didn't complete moved the checkpoint");
        }
        if let Some(checkpoint) = &next.checkpoint {
            packs_are_there(world, [&checkpoint.root.workspace, &checkpoint.root.state])?;
        }
        if let (true, Some(after)) = (completed, &record.after) {
            if self.begun.contains_key(&record.run) {
                self.logged(before, after.id, record.run)?;
            } else {
                // Nobody ran: the session was taken back to what it was.
                must!(self.logs.contains_key(&after.id), "{key} leaves a checkpoint that nobody made");
            }
        }
        if let (None, false, Some(begun)) = (&before.checkpoint, completed, &next.checkpoint) {
            // A first run that failed leaves what it began with.
            self.logs.entry(begun.id).or_default();
        }
        self.official.insert(id, (next.incarnation, digest));
        let official = Official { run: record.run, status: record.status, attempt: record.attempt, digest, record };
        self.lives.entry((next.session.clone(), next.incarnation)).or_default().runs.push(official);
        Ok(())
    }

    /// Notes what the log in a new checkpoint says: what the one before said, and the run's own line.
    fn logged(&mut self, before: &Head, after: CheckpointId, run: RunId) -> Result<(), String> {
        let mut log = match &before.checkpoint {
            None => String::new(),
            Some(before) => self.logs.get(&before.id).cloned().ok_or("the session stands on a checkpoint that nobody made")?,
        };
        log.push_str(&line(run));
        let known = self.logs.entry(after).or_insert_with(|| log.clone());
        must!(*known == log, "checkpoint {after} stands for two logs, {known:?} and {log:?}");
        Ok(())
    }

    /// Returns what the log in a checkpoint has to say.
    #[must_use]
    pub fn log(&self, checkpoint: CheckpointId) -> Option<&str> {
        self.logs.get(&checkpoint).map(String::as_str)
    }

    /// Checks that each accepted run has ended, unless its session was deleted.
    ///
    /// # Errors
    /// A run that hasn't.
    pub fn accepted_ended(&self) -> Result<(), String> {
        for ((session, run), incarnation) in &self.accepted {
            let ended = self.official.contains_key(&(session.clone(), *run));
            let at_work = self.ticks.is_one(*run);
            must!(
                ended || at_work || self.is_deleted(session, *incarnation),
                "run {run} of session {session} was accepted, and never ended"
            );
        }
        for (number, asked) in &self.asked {
            let Some(run) = asked.run.filter(|_| matches!(asked.told, Some(Told::Accepted))) else { continue };
            let id = (asked.session.clone(), run);
            must!(
                self.accepted.contains_key(&id) || self.official.contains_key(&id),
                "request {number} was told that it is accepted as run {run}, and it isn't"
            );
        }
        Ok(())
    }

    /// Whether all accepted runs have left the queue. Where there are schedules, the next tick may just be at work: its run may be there.
    #[must_use]
    pub fn is_drained(&self, world: &World) -> bool {
        let run = |key: &str| key.rsplit('/').next().and_then(|name| name.parse().ok());
        world.objects().below("queue/").all(|key| run(key).is_some_and(|run| self.ticks.is_one(run)))
    }

    fn saves(&mut self, world: &World, before: &Head, next: &Head) -> Result<(), String> {
        let find = |saves: &'_ [Save], name: &str| saves.iter().find(|save| save.name == name).cloned();
        for save in &before.saves {
            match find(&next.saves, &save.name) {
                Some(found) if found == *save => {}
                Some(found) => must!(
                    found.run == save.run && found.epoch >= save.epoch,
                    "save {:?} of run {} was replaced by {found:?}",
                    save.name,
                    save.run
                ),
                None => must!(
                    self.unsaved.contains(&(next.session.clone(), save.name.clone())),
                    "save {:?} of run {} has vanished",
                    save.name,
                    save.run
                ),
            }
        }
        for save in &next.saves {
            if find(&before.saves, &save.name).as_ref() != Some(save) {
                let lease = before.lease.as_ref().map(|lease| (lease.run, lease.epoch));
                must!(lease == Some((save.run, save.epoch)), "{save:?} was saved under the lease {lease:?}");
                self.logged(before, save.checkpoint.id, save.run)?;
                packs_are_there(world, [&save.checkpoint.root.workspace, &save.checkpoint.root.state])?;
            }
        }
        Ok(())
    }

    /// Checks what the clients were told against what has happened.
    ///
    /// # Errors
    /// What they were told that isn't so.
    pub fn answers(&self) -> Result<(), String> {
        for (number, asked) in &self.asked {
            let Some(run) = asked.run else { continue };
            let official = self.official.get(&(asked.session.clone(), run)).and_then(|(incarnation, _)| {
                self.lives.get(&(asked.session.clone(), *incarnation))?.runs.iter().find(|official| official.run == run)
            });
            match (&asked.told, official) {
                (Some(Told::Ended(record)), Some(official)) => must!(
                    **record == official.record,
                    "request {number} was told that its run {run} ended as {record:?}, and it ended as {:?}",
                    official.record
                ),
                (Some(Told::Ended(record)), None) => {
                    return Err(format!("request {number} was told that its run {run} has {}, and it hasn't ended", record.status));
                }
                // What isn't known may have happened; who lost the lease or gave it back isn't asked any more.
                (Some(Told::Error("outcome_unknown" | "fenced" | "drained" | "session_deleted" | "key_reused", _)), _) => {}
                // The same run may have been asked for again.
                (Some(Told::Error(..)), _) if asked.key.is_some() => {}
                (Some(Told::Error(code, text)), Some(official)) => must!(
                    official.status != Status::Completed,
                    "request {number} was told that its run {run} failed ({code}: {text}), and it has completed"
                ),
                _ => {}
            }
        }
        let mut keyed: BTreeMap<(&SessionRef, Nonce, &str), RunId> = BTreeMap::new();
        for asked in self.asked.values() {
            let (Some(key), Some(run)) = (&asked.key, asked.run) else { continue };
            let Some((incarnation, _)) = self.official.get(&(asked.session.clone(), run)) else { continue };
            let first = *keyed.entry((&asked.session, *incarnation, key)).or_insert(run);
            must!(first == run, "key {key:?} of session {} made two runs, {first} and {run}", asked.session);
        }
        Ok(())
    }

    /// Checks that no record counts that wasn't committed: one whose seq the head has reached would pass for the end of its run.
    ///
    /// # Errors
    /// The record that does.
    pub fn only_committed_count(&self, world: &World) -> Result<(), String> {
        for head in self.heads.values() {
            let prefix = Key::Head(head.session.clone()).to_string().replace("/head", "/runs/");
            let objects = world.objects();
            for path in objects.below(&prefix) {
                let Some(bytes) = objects.get(path) else { continue };
                let record: RunRecord = body(bytes)?;
                let counts = record.incarnation == head.incarnation && record.seq <= head.seq && record.status != Status::Running;
                let committed = self.official.get(&(head.session.clone(), record.run)).map(|(_, digest)| *digest);
                must!(!counts || committed == Some(sha256(bytes)), "{path} counts, and was never committed: {record:?}");
            }
        }
        Ok(())
    }

    /// Returns the present head of each session.
    #[must_use]
    pub fn heads(&self) -> Vec<Head> {
        self.heads.values().cloned().collect()
    }
}

/// Compaction moves content without changing it.
fn same_content(before: &Head, next: &Head) -> bool {
    before.checkpoint.as_ref().map(|checkpoint| checkpoint.id) == next.checkpoint.as_ref().map(|checkpoint| checkpoint.id)
}

fn lies_in(root: &Root, session: &SessionRef, pack: PackId) -> bool {
    let mut links = std::iter::once(&root.page).chain(&root.links);
    links.any(|link| matches!(&link.place, Place::At(at) if at.pack == pack && *at.home == Home::Session(session.clone())))
}

fn packs_are_there(world: &World, roots: [&Root; 2]) -> Result<(), String> {
    for link in roots.into_iter().flat_map(|root| std::iter::once(&root.page).chain(&root.links)) {
        if let Place::At(at) = &link.place
            && let Home::Session(session) = &*at.home
        {
            let key = Key::SessionPack(session.clone(), at.pack).to_string();
            must!(world.objects().get(&key).is_some(), "{key} is needed by what was committed, and isn't there");
        }
    }
    Ok(())
}

fn sha256(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    Digest::from_bytes(sha2::Sha256::digest(bytes).into())
}
