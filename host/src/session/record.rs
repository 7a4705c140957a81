//! The record of a run: what it got, what it did, what it left. One object of at most 64 KiB; longer texts are content in the turn's pack.
//!
//! A record is *official* if and only if its incarnation is the head's and its seq is at most the head's. It names the record before it by digest,
//! and the head names the last ones, so that a changed record is noticed and the history of a session is read without a listing.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::head::{Head, Owner};
use crate::checkpoint::root::Checkpoint;
use crate::clock::UnixNanos;
use crate::drill::{self, Safeguard};
use crate::error::{Error, Result};
use crate::id::{ChunkId, Digest, PackId, RunId, SessionRef};
use crate::outbound::EgressUsage;
use crate::pin::Pin;
use crate::store::document::Document;
use crate::store::{Counts, Nonce};
use crate::workspace::page::{CHUNK_MAX, ChunkLink, Home, Location, Place};

/// Longest input that a record holds itself, in bytes of its JSON text.
pub const INPUT_INLINE: usize = 8 << 10;
/// Longest output that a record holds itself, in bytes of its JSON text.
pub const OUTPUT_INLINE: usize = 16 << 10;
/// Longest log, and longest list of events, that a record holds itself, in bytes of its JSON text.
pub const LOG_INLINE: usize = 6 << 10;
/// Most warnings in a record.
pub const WARNINGS_MAX: usize = 16;
/// Longest warning in bytes of its JSON text: longer ones are cut.
pub const WARNING_MAX: usize = 256;
/// Longest message of a failure in bytes of its JSON text: longer ones are cut.
pub const MESSAGE_MAX: usize = 2 << 10;

/// How a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It goes on, or it isn't known whether it still does.
    Running,
    /// It committed its checkpoint.
    Completed,
    /// It failed; the workspace is as before.
    Failed,
    /// It was cancelled; the workspace is as before.
    Cancelled,
    /// It ran out of time; the workspace is as before.
    TimedOut,
}

impl Status {
    /// Returns the name as JSON has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What started a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Trigger {
    /// A person or a program asked for it.
    Manual,
    /// A schedule's tick: the instant in nanoseconds since 1970, or none when the schedule was triggered by hand.
    Schedule {
        /// The schedule's id.
        schedule: String,
        /// The due instant.
        tick: Option<i64>,
    },
}

/// Who waits for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A command in the foreground.
    Command,
    /// A server.
    Server,
}

/// A text of a run: in the record itself, or a chunk of the turn's pack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Text {
    /// The text.
    Inline(String),
    /// Where it lies.
    Stored(StoredText),
}

impl Text {
    /// Whether a text fits into `limit` bytes of JSON, quotes and escapes included.
    #[must_use]
    pub fn fits(text: &str, limit: usize) -> bool {
        text.len() < limit && json_len(text) <= limit
    }
}

/// A text that lies in a pack as one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredText {
    /// The chunk: SHA-256 of the text's bytes.
    pub id: ChunkId,
    /// Where it lies. Its `len` is the text's length in bytes.
    pub at: Location,
}

impl StoredText {
    /// Returns the link by which a [`crate::workspace::source::Source`] reads it.
    #[must_use]
    pub fn link(&self) -> ChunkLink {
        ChunkLink { id: self.id, place: Place::At(self.at.clone()) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredForm {
    id: ChunkId,
    home: HomeForm,
    pack: PackId,
    frame: u32,
    stored: u32,
    start: u32,
    len: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HomeForm {
    Session(SessionRef),
    Repository(Digest),
}

impl Serialize for StoredText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Location { pack, frame, stored, start, len, .. } = self.at;
        let home = match &*self.at.home {
            Home::Session(session) => HomeForm::Session(session.clone()),
            Home::Repository(repository) => HomeForm::Repository(*repository),
        };
        StoredForm { id: self.id, home, pack, frame, stored, start, len }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let StoredForm { id, home, pack, frame, stored, start, len } = StoredForm::deserialize(deserializer)?;
        let home = Arc::new(match home {
            HomeForm::Session(session) => Home::Session(session),
            HomeForm::Repository(repository) => Home::Repository(repository),
        });
        let at = Location { home, pack, frame, stored, start, len };
        crate::checkpoint::root_codec::check_location(&at).map_err(serde::de::Error::custom)?;
        if len as usize > CHUNK_MAX {
            return Err(serde::de::Error::custom("a stored text is larger than a chunk"));
        }
        Ok(Self { id, at })
    }
}

/// What a run got.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// SHA-256 of the text's bytes: also its name in the session's `inputs/` when it isn't inline.
    pub digest: Digest,
    /// Length of the text in bytes.
    pub size: u64,
    /// The text, when it is short ([`INPUT_INLINE`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
}

impl Input {
    /// Makes the input of a text; a long one has to be stored in `inputs/` by the caller.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self {
            digest: crate::id::sha256(text.as_bytes()),
            size: text.len() as u64,
            inline: Text::fits(text, INPUT_INLINE).then(|| text.to_owned()),
        }
    }
}

/// What a run used.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// Time from the lease to the end of the guest, in milliseconds.
    pub wall_ms: u64,
    /// Time the guest was running, in milliseconds, counted in epoch ticks.
    pub cpu_ms: u64,
    /// Largest sum of the guest's memories, in bytes.
    pub memory_peak: u64,
    /// Requests to the store and their bytes, up to the writing of this record.
    pub store: Counts,
    /// Requests of the guest to other hosts and their bytes.
    pub egress: EgressUsage,
}

/// Why a run didn't complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A stable code such as `trap`, `timeout`, `out_of_memory`, `exit_code`, `guest`, `cancelled`, `abandoned`.
    pub code: String,
    /// What a person reads; secrets are masked.
    pub message: String,
    /// What the person does next, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    /// Makes a reason; a long message is cut.
    #[must_use]
    pub fn new(code: impl Into<String>, message: &str) -> Self {
        Self { code: code.into(), message: cut(message, MESSAGE_MAX), hint: None }
    }

    /// Adds what the reader does next; a long text is cut.
    #[must_use]
    pub fn hint(mut self, hint: Option<&str>) -> Self {
        self.hint = hint.map(|hint| cut(hint, WARNING_MAX));
        self
    }
}

/// The record before this one in the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// Its run.
    pub run: RunId,
    /// Its seq.
    pub seq: u64,
    /// SHA-256 of its stored bytes.
    pub record: Digest,
}

/// The record of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionRef,
    /// The session's incarnation.
    pub incarnation: Nonce,
    /// The run's place among the session's ended runs, from 1. While it runs: the place it will have.
    pub seq: u64,
    /// The epoch under which this was written.
    pub epoch: u64,
    /// The number of the turn, from 1; a run that didn't complete has the number that the next one will have too.
    pub turn: u64,
    /// Which attempt this was, from 1.
    pub attempt: u32,
    /// How it stands.
    pub status: Status,
    /// What started it.
    pub trigger: Trigger,
    /// Who waits for it.
    pub origin: Origin,
    /// What it got.
    pub input: Option<Input>,
    /// What tells its request from others under the same key ([`super::queue::QueueEntry::request`]); none where its entry is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Digest>,
    /// The guest's answer.
    pub output: Option<Text>,
    /// The checkpoint it began with; none for a session's first.
    pub before: Option<Checkpoint>,
    /// The session's checkpoint after it: the same as before it unless it completed.
    pub after: Option<Checkpoint>,
    /// The session's pin.
    pub pin: Option<Pin>,
    /// SHA-256 of the component.
    pub component: Option<Digest>,
    /// What it used.
    pub usage: Usage,
    /// Why it didn't complete.
    pub failure: Option<Failure>,
    /// Whether edits of the guest were dropped.
    pub workspace_rolled_back: bool,
    /// When its first attempt began, by the replica's clock.
    pub started: UnixNanos,
    /// When it ended, by the replica's clock.
    pub ended: Option<UnixNanos>,
    /// The process that ran it.
    pub owner: Owner,
    /// What the guest wrote to stdout and stderr: JSON lines `{"stream", "line"}`.
    pub log: Option<Text>,
    /// What the guest and the host reported: JSON lines.
    pub events: Option<Text>,
    /// What a person should know.
    pub warnings: Vec<String>,
    /// The record before this one; none for the first.
    pub previous: Option<Previous>,
}

impl RunRecord {
    /// Whether the record stands, by the head: same incarnation, and a seq that the head has reached.
    #[must_use]
    pub fn is_official(&self, head: &Head) -> bool {
        let reached = self.seq <= head.seq || drill::disabled(Safeguard::OfficialRecords);
        self.incarnation == head.incarnation && reached && self.status != Status::Running
    }

    /// Whether it committed a turn.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status == Status::Completed
    }

    /// Returns the id of the checkpoint that it left.
    #[must_use]
    pub fn checkpoint_id(&self) -> Option<crate::id::CheckpointId> {
        self.after.as_ref().map(|checkpoint| checkpoint.id)
    }

    /// Adds a warning; long ones are cut, and the last place says that there were more.
    pub fn warn(&mut self, warning: &str) {
        match self.warnings.len() {
            0..15 => self.warnings.push(cut(warning, WARNING_MAX)),
            15 => self.warnings.push(String::from("more warnings are in the events")),
            _ => {}
        }
    }

    /// Turns a completed run's record into that of the same run cancelled at its commit. `began_with` is what a session's first run stood on.
    pub(crate) fn cancel(&mut self, began_with: Option<&Checkpoint>) {
        self.status = Status::Cancelled;
        self.after = self.before.clone().or_else(|| began_with.cloned());
        self.workspace_rolled_back = true;
        self.output = None;
        self.failure = Some(Failure::new("cancelled", "the run was cancelled before it was committed"));
    }
}

impl Document for RunRecord {
    const KIND: &'static str = "run";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "record_damaged";

    fn check(&self) -> Result<()> {
        let inline = |text: &Option<Text>| match text {
            Some(Text::Inline(text)) => json_len(text),
            _ => 0,
        };
        let texts = [
            ("input", self.input.as_ref().and_then(|input| input.inline.as_deref()).map_or(0, json_len), INPUT_INLINE),
            ("output", inline(&self.output), OUTPUT_INLINE),
            ("log", inline(&self.log), LOG_INLINE),
            ("list of events", inline(&self.events), LOG_INLINE),
            ("failure", self.failure.as_ref().map_or(0, |failure| json_len(&failure.message)), MESSAGE_MAX),
            ("hint", self.failure.as_ref().and_then(|failure| failure.hint.as_deref()).map_or(0, json_len), WARNING_MAX),
            ("list of warnings", self.warnings.iter().map(|text| json_len(text)).sum(), WARNINGS_MAX * WARNING_MAX),
        ];
        for (what, len, max) in texts {
            if len > max {
                return Err(Error::damaged(format!("its {what} has {len} bytes, over the limit of {max}")));
            }
        }
        if self.input.as_ref().and_then(|input| Some(crate::id::sha256(input.inline.as_ref()?.as_bytes()) != input.digest)) == Some(true) {
            return Err(Error::damaged("its input doesn't match its digest"));
        }
        if self.seq == 0 || self.previous.is_some_and(|previous| previous.seq >= self.seq) {
            return Err(Error::damaged("its seq doesn't follow that of the record before it"));
        }
        Ok(())
    }
}

/// Length of a text as JSON, with its quotes and escapes.
fn json_len(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}

/// Cuts a text so that its JSON has at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if Text::fits(text, max) {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut room = max.saturating_sub("\"…\"".len());
    for c in text.chars() {
        let len = json_len(c.encode_utf8(&mut [0; 4])) - 2;
        if len > room {
            break;
        }
        room -= len;
        kept.push(c);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_measured_as_json_and_cut_at_characters() {
        assert!(Text::fits("abc", 5) && !Text::fits("abc", 4));
        assert!(!Text::fits(&"\u{1}".repeat(10), 30));
        for text in ["plain text that is too long", "größer als erlaubt: größer", "\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}"] {
            let short = cut(text, 20);
            assert!(json_len(&short) <= 20 && short.ends_with('…'), "{short:?}");
        }
        assert_eq!(cut("short", 20), "short");
    }

    #[test]
    fn stored_texts_name_a_place_that_can_exist() {
        let at = Location {
            home: Arc::new(Home::Repository(crate::id::sha256(b"u"))),
            pack: PackId::of(b"p"),
            frame: 8,
            stored: 40,
            start: 0,
            len: 30,
        };
        let text = Text::Stored(StoredText { id: ChunkId::of(b"x"), at });
        let json = serde_json::to_value(&text).unwrap();
        assert_eq!(serde_json::from_value::<Text>(json.clone()).unwrap(), text);
        let mut bad = json;
        *bad.pointer_mut("/stored/len").unwrap() = serde_json::json!(CHUNK_MAX + 1);
        assert!(serde_json::from_value::<Text>(bad).is_err());
    }
}
