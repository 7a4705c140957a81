//! The queue: accepted runs that haven't ended. An entry is made before anything else and deleted after the run's end was committed.

use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::head::{Head, Owner, Pending};
use super::record::{INPUT_INLINE, Input, Origin, RunRecord, Trigger};
use super::sessions::Sessions;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
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

impl Sessions {
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

    /// Whether no run that somebody still waits for was accepted before this one.
    pub(super) async fn is_first(&self, session: &SessionRef, run: RunId) -> Result<bool> {
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
}

pub(super) fn queue_key(session: &SessionRef, run: RunId) -> Key {
    Key::Queue(SessionHash::of(session), run)
}
