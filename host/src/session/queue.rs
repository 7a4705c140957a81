//! Queue entries: accepted runs that haven't ended. An entry is made before anything else and deleted after the run's end was committed.

use serde::{Deserialize, Serialize};

use super::head::Owner;
use super::record::{INPUT_INLINE, Input, Origin, Trigger};
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{CommitId, Digest, RunId, SessionRef};
use crate::store::Nonce;
use crate::store::document::Document;

/// Most attachments of a run.
pub const ATTACHMENTS_MAX: usize = 16;
/// Longest attachment name or media type in bytes.
pub const ATTACHMENT_NAME_MAX: usize = 255;
/// Attempts of a run with [`OnCrash::Retry`] where nothing else is said.
pub const ATTEMPTS_DEFAULT: u32 = 3;

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
