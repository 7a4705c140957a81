//! The queue: accepted runs that haven't ended. An entry is made before anything else and deleted after the run's end was committed.

use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::head::{Head, Owner, Pending};
use super::record::{INPUT_INLINE, Input, Origin, RunRecord, Trigger};
use super::sessions::Sessions;
use crate::clock::UnixNanos;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CommitId, Digest, RunId, SessionRef};
use crate::store::cas::Created;
use crate::store::document::Document;
use crate::store::{Key, Nonce, Prefix, SessionHash};

/// Most attachments of a run.
pub const ATTACHMENTS_MAX: usize = 16;
/// Longest attachment name or media type in bytes.
pub const ATTACHMENT_NAME_MAX: usize = 255;
/// Attempts of a run with [`OnCrash::Retry`] where nothing else is said.
pub const ATTEMPTS_DEFAULT: u32 = 3;

/// Most sessions whose last head is remembered.
const REMEMBERED_MAX: usize = 1024;

/// What happens to a run whose process died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OnCrash {
    /// It runs again from its start, up to so many attempts in all.
    Retry(u32),
    /// It fails.
    Fail,
}

/// A file given with the input; its bytes are the object `inputs/<digest>` of the session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachmentRef {
    /// Its name.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
}

/// What the first turn is to pin instead of the configured branch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// A commit.
    Commit(CommitId),
    /// A branch.
    Branch(String),
}

/// An accepted run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueEntry {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionRef,
    /// The incarnation that it was accepted for; none when there was no session yet.
    pub incarnation: Option<Nonce>,
    /// The input.
    pub input: Input,
    /// The files with it.
    pub attachments: Vec<AttachmentRef>,
    /// What started it.
    pub trigger: Trigger,
    /// The first turn's own choice.
    pub choice: Option<Choice>,
    /// Arguments in place of the configured ones.
    pub args: Option<Vec<String>>,
    /// Names and values given for this run alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
    /// What happens when its process dies.
    pub on_crash: OnCrash,
    /// Attempts that were made before this entry, by a run that it goes on with.
    pub attempts: u32,
    /// Who waits for it. A command's entry is run by no server.
    pub origin: Origin,
    /// The process that accepted it.
    pub owner: Owner,
    /// When, by that process's clock. The order of a session's entries is by the store's clock, then by run id.
    pub created: UnixNanos,
}

impl QueueEntry {
    /// Returns what tells one request from another under the same key: SHA-256 of the JSON of the input's digest, the files, the choice, the
    /// arguments and the params.
    ///
    /// # Errors
    /// None that can happen: these values have JSON forms.
    pub fn request(&self) -> Result<Digest> {
        serde_json::to_vec(&(self.input.digest, &self.attachments, &self.choice, &self.args, &self.params))
            .map(|bytes| crate::id::sha256(&bytes))
            .map_err(|error| Error::internal("a request can't be encoded").source(error))
    }

    /// How many attempts the run may make in all.
    #[must_use]
    pub fn attempts_allowed(&self) -> u32 {
        match self.on_crash {
            OnCrash::Retry(attempts) => attempts.max(1),
            OnCrash::Fail => 1,
        }
    }
}

impl Document for QueueEntry {
    const KIND: &'static str = "queued";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "queue_entry_damaged";

    fn check(&self) -> Result<()> {
        if self.attachments.len() > ATTACHMENTS_MAX {
            return Err(Error::damaged(format!("it has {} attachments, over the limit of {ATTACHMENTS_MAX}", self.attachments.len())));
        }
        if self.attachments.iter().any(|file| file.name.len() > ATTACHMENT_NAME_MAX || file.media_type.len() > ATTACHMENT_NAME_MAX) {
            return Err(Error::damaged("an attachment's name or media type is too long"));
        }
        match &self.input.inline {
            Some(text) if text.len() > INPUT_INLINE => Err(Error::damaged("its input is too long to be inline")),
            Some(text) if crate::id::sha256(text.as_bytes()) != self.input.digest => {
                Err(Error::damaged("its input doesn't match its digest"))
            }
            _ => Ok(()),
        }
    }
}

/// An entry of a queue, with what orders it.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The entry.
    pub entry: QueueEntry,
    /// When it was written, by the store's clock.
    pub accepted: UnixNanos,
}

/// A place in a queue, as a listing shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlace {
    /// The session, by its hash: only the entry itself tells its name.
    pub session: SessionHash,
    /// The run.
    pub run: RunId,
    /// When it was accepted, by the store's clock.
    pub accepted: UnixNanos,
}

impl Sessions {
    /// Accepts a run: makes its queue entry. The same entry made twice is one; returns whether this call made it.
    ///
    /// # Errors
    /// `Conflict` with the code `key_reused` when the run id was accepted with another input; `Store`.
    pub async fn enqueue(&self, entry: &QueueEntry) -> Result<bool> {
        let key = queue_key(&entry.session, entry.run);
        match self.store.create(&key, entry).await? {
            Created::Done(_) => Ok(true),
            Created::Exists(found) if found.value.request()? == entry.request()? => Ok(false),
            Created::Exists(_) => Err(Error::conflict(format!("run {} was accepted before, with another input", entry.run))
                .code("key_reused")
                .hint("use another key for another input")),
        }
    }

    /// Reads a run's queue entry.
    ///
    /// # Errors
    /// `Damaged` (`queue_entry_damaged`), `Store`.
    pub async fn queued(&self, session: &SessionRef, run: RunId) -> Result<Option<Queued>> {
        self.queued_at(SessionHash::of(session), run).await
    }

    /// Reads a queue entry by its key.
    ///
    /// # Errors
    /// As [`Sessions::queued`].
    pub async fn queued_at(&self, session: SessionHash, run: RunId) -> Result<Option<Queued>> {
        let key = Key::Queue(session, run);
        let Some(found) = self.store.load::<QueueEntry>(&key).await? else { return Ok(None) };
        if found.value.run != run || SessionHash::of(&found.value.session) != session {
            return Err(Error::damaged(format!("{key} is damaged: it is the entry of run {} of {}", found.value.run, found.value.session))
                .code("queue_entry_damaged")
                .hint(crate::store::RESTORE));
        }
        Ok(Some(Queued { entry: found.value, accepted: found.modified }))
    }

    /// Lists a session's queue in the order in which its runs are due. A damaged entry is a warning in the log and holds nobody up.
    ///
    /// # Errors
    /// `Store`.
    pub async fn queue(&self, session: &SessionRef) -> Result<Vec<Queued>> {
        let mut found = Vec::new();
        for place in self.places(session).await? {
            match self.queued(session, place.run).await {
                Ok(queued) => found.extend(queued),
                Err(error) if error.kind() == ErrorKind::Store => return Err(error),
                Err(error) => tracing::warn!(error = %error.chain(), "a queue entry can't be read; the others go on"),
            }
        }
        found.sort_by_key(|queued| (queued.accepted, queued.entry.run));
        Ok(found)
    }

    /// Lists the places in a session's queue in the order in which they are due, without reading the entries.
    ///
    /// # Errors
    /// `Store`.
    pub async fn places(&self, session: &SessionRef) -> Result<Vec<QueuePlace>> {
        self.places_below(&Prefix::SessionQueue(SessionHash::of(session))).await
    }

    /// Lists the places in all queues: by session, and in the order in which they are due.
    ///
    /// # Errors
    /// `Store`.
    pub async fn all_places(&self) -> Result<Vec<QueuePlace>> {
        self.places_below(&Prefix::Queue).await
    }

    async fn places_below(&self, prefix: &Prefix) -> Result<Vec<QueuePlace>> {
        let listing = self.store.list(prefix).await?;
        let mut places: Vec<QueuePlace> = listing
            .objects
            .into_iter()
            .filter_map(|listed| match listed.key {
                Key::Queue(session, run) => Some(QueuePlace { session, run, accepted: listed.modified }),
                _ => None,
            })
            .collect();
        places.sort_by_key(|place| (place.session, place.accepted, place.run));
        Ok(places)
    }

    /// Deletes the queue entry of a run that has ended or is given up.
    ///
    /// # Errors
    /// `Store`.
    pub async fn dequeue(&self, session: &SessionRef, run: RunId) -> Result<()> {
        self.store.delete(&queue_key(session, run)).await?;
        self.note_settled(session, run);
        Ok(())
    }

    /// Remembers that a run's entry is gone, for the next lease to note.
    pub(super) fn note_settled(&self, session: &SessionRef, run: RunId) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= REMEMBERED_MAX {
            // Not noted by us, then: the sweep finds these entries gone.
            settled.clear();
        }
        settled.entry(session.clone()).or_default().push(run);
    }

    /// Stores a text or file that is too long for its entry, as `inputs/<sha256>`.
    ///
    /// # Errors
    /// As [`crate::store::Store::put_pack`].
    pub async fn put_input(&self, session: &SessionRef, bytes: bytes::Bytes) -> Result<Digest> {
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

    /// Whether no run that somebody still waits for was accepted before this one. Entries that ended runs left behind are swept on the way.
    ///
    /// What a process that is gone had accepted holds nobody up: a server's run goes on when another server finds it.
    pub(crate) async fn is_first(&self, session: &SessionRef, run: RunId) -> Result<bool> {
        if self.places(session).await?.first().is_none_or(|first| first.run == run) {
            return Ok(true);
        }
        let head = self.load(session).await?.map(|snapshot| snapshot.head);
        for queued in self.queue(session).await? {
            if queued.entry.run == run {
                return Ok(true);
            }
            let ended = match &head {
                Some(head) => self.ended_by(head, queued.entry.run).await?.is_some(),
                None => false,
            };
            // What a task of this very process had accepted for itself is over when the task is.
            let dropped = queued.entry.origin == Origin::Command
                && queued.entry.owner == *self.owner()
                && !self.waited.contains(session, queued.entry.run);
            if ended {
                self.dequeue(session, queued.entry.run).await?;
            } else if !dropped && !self.is_gone(&queued.entry.owner).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub(super) fn queue_key(session: &SessionRef, run: RunId) -> Key {
    Key::Queue(SessionHash::of(session), run)
}
