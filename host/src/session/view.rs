//! Sessions and ended runs as documents: what the command line prints with `--json` and what a server answers.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::head::{Head, State};
use super::record::{Failure, RunRecord, Text, Usage};
use crate::clock::{UnixNanos, rfc3339};
use crate::id::{CheckpointId, ReplicaName, RunId, SessionRef};
use crate::pin::Pin;

/// A session, seen from outside.
#[derive(Clone, Debug, Serialize)]
pub struct SessionView<'h> {
    /// `AGENT/SESSION`.
    #[serde(serialize_with = "text")]
    pub session: &'h SessionRef,
    /// `idle`, `running` or `deleted`.
    pub state: &'static str,
    /// Number of turns that were committed.
    pub turns: u64,
    /// Number of runs that have ended, failed ones included.
    pub runs: u64,
    /// Number of leases that were given.
    pub epoch: u64,
    /// When it was made.
    #[serde(serialize_with = "instant")]
    pub created: UnixNanos,
    /// Its checkpoint; none before its first turn.
    pub checkpoint: Option<CheckpointId>,
    /// The commit that it stands on; none without a repository.
    pub pin: Option<&'h Pin>,
    /// The run that goes on.
    pub lease: Option<LeaseView<'h>>,
    /// What it was forked from.
    pub forked_from: Option<OriginView<'h>>,
    /// The sessions that were forked from it.
    #[serde(serialize_with = "texts")]
    pub forks: Vec<&'h SessionRef>,
    /// Its named checkpoints.
    pub saves: Vec<SaveView<'h>>,
}

/// A run that goes on.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseView<'h> {
    /// The run.
    pub run: RunId,
    /// The replica that is at it.
    pub replica: &'h ReplicaName,
    /// The lease's epoch.
    pub epoch: u64,
    /// The attempt, from 1.
    pub attempt: u32,
}

/// What a session was forked from.
#[derive(Clone, Debug, Serialize)]
pub struct OriginView<'h> {
    /// The parent.
    #[serde(serialize_with = "text")]
    pub session: &'h SessionRef,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
}

/// A named checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct SaveView<'h> {
    /// Its name.
    pub name: &'h str,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The run that saved it.
    pub run: RunId,
    /// When.
    #[serde(serialize_with = "instant")]
    pub at: UnixNanos,
}

impl<'h> SessionView<'h> {
    /// Returns the view of a session with this head.
    #[must_use]
    pub fn of(head: &'h Head) -> Self {
        let lease = head.lease.as_ref();
        let saves = head.saves.iter();
        Self {
            session: &head.session,
            state: match (&head.state, lease) {
                (State::Deleted(_), _) => "deleted",
                (State::Open, Some(_)) => "running",
                (State::Open, None) => "idle",
            },
            turns: head.turn,
            runs: head.seq,
            epoch: head.epoch,
            created: head.created,
            checkpoint: head.checkpoint.as_ref().map(|checkpoint| checkpoint.id),
            pin: head.checkpoint.as_ref().and_then(|checkpoint| checkpoint.root.pin.as_ref()),
            lease: lease.map(|lease| LeaseView {
                run: lease.run,
                replica: &lease.owner.replica,
                epoch: lease.epoch,
                attempt: lease.attempt,
            }),
            forked_from: head.forked_from.as_ref().map(|from| OriginView { session: &from.session, checkpoint: from.checkpoint }),
            forks: head.pins.iter().map(|pin| &pin.child).collect(),
            saves: saves.map(|save| SaveView { name: &save.name, checkpoint: save.checkpoint.id, run: save.run, at: save.at }).collect(),
        }
    }
}

/// An ended run, seen from outside.
#[derive(Clone, Debug, Serialize)]
pub struct RunView<'r> {
    /// Its id.
    pub run: RunId,
    /// `AGENT/SESSION`.
    #[serde(serialize_with = "text")]
    pub session: &'r SessionRef,
    /// Its turn; for one that didn't complete, the number that the next one has again.
    pub turn: u64,
    /// How it ended.
    pub status: String,
    /// The attempt that ended it, from 1.
    pub attempt: u32,
    /// The replica that it ended on.
    pub replica: &'r ReplicaName,
    /// When it ended.
    #[serde(serialize_with = "instant_if_any")]
    pub at: Option<UnixNanos>,
    /// When it began.
    #[serde(serialize_with = "instant")]
    pub started: UnixNanos,
    /// Its output, where that is short enough for the record, or was read ([`RunView::with_output`]).
    pub output: Option<Cow<'r, str>>,
    /// The checkpoint that it left.
    pub checkpoint: Option<CheckpointId>,
    /// The commit that it stood on.
    pub pin: Option<&'r Pin>,
    /// Why it didn't complete.
    pub failure: Option<&'r Failure>,
    /// Whether its edits were dropped.
    pub workspace_rolled_back: bool,
    /// What a person should know.
    pub warnings: &'r [String],
    /// What it used.
    pub usage: &'r Usage,
}

impl<'r> RunView<'r> {
    /// Returns the view of an ended run.
    #[must_use]
    pub fn of(record: &'r RunRecord) -> Self {
        Self {
            run: record.run,
            session: &record.session,
            turn: record.turn,
            status: record.status.to_string(),
            attempt: record.attempt,
            replica: &record.owner.replica,
            at: record.ended,
            started: record.started,
            output: match &record.output {
                Some(Text::Inline(text)) => Some(Cow::Borrowed(text)),
                _ => None,
            },
            checkpoint: record.checkpoint_id(),
            pin: record.pin.as_ref(),
            failure: record.failure.as_ref(),
            workspace_rolled_back: record.workspace_rolled_back,
            warnings: &record.warnings,
            usage: &record.usage,
        }
    }

    /// Puts the whole output in, however long. What isn't UTF-8 in it is replaced.
    #[must_use]
    pub fn with_output(mut self, output: &'r [u8]) -> Self {
        self.output = Some(String::from_utf8_lossy(output));
        self
    }
}

fn text<S: Serializer>(session: &SessionRef, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(session)
}

fn texts<S: Serializer>(sessions: &[&SessionRef], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(sessions.iter().map(ToString::to_string))
}

fn instant<S: Serializer>(at: &UnixNanos, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*at))
}

fn instant_if_any<S: Serializer>(at: &Option<UnixNanos>, to: S) -> Result<S::Ok, S::Error> {
    at.map(rfc3339).serialize(to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Nonce;
    use crate::store::document::decode;

    const PLAIN: &str = "c4aad28e053c804bf9695721d49b9e6739950355216a8faa71563c8b17924b6a";
    const FULL: &str = "aead3c2b3945e33b8a4ca43b276a5002652ec11c051a8756fbfd1f5a737c526a";

    fn pin() -> serde_json::Value {
        let commit = "c0".repeat(20);
        json!({ "url": "https://example.org/acme/app", "branch": "main", "commit": commit, "on_branch": "yes" })
    }

    #[test]
    fn a_new_session_is_idle_and_has_every_field() {
        let session = SessionRef { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let head = Head::new(session, Nonce::from_bytes([1; 16]), 0);
        let shown = json!(SessionView::of(&head));
        let expected = json!({
            "session": "a/s", "state": "idle", "turns": 0, "runs": 0, "epoch": 0, "created": "1970-01-01T00:00:00.000Z", "checkpoint": null,
            "pin": null, "lease": null, "forked_from": null, "forks": [], "saves": [],
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_session_with_everything_shows_its_run_its_relatives_and_its_saves() {
        let head = decode::<Head>("head.json", include_bytes!("../../../tests/golden/documents/head.json")).unwrap().value;
        let expected = json!({
            "session": "reviewer/fix 42 / größer", "state": "running", "turns": 4, "runs": 5, "epoch": 9, "created": "2026-03-08T07:00:00.000Z",
            "checkpoint": FULL, "pin": pin(),
            "lease": { "run": "019ccc3e-e586-7606-8606-060606060606", "replica": "host-1", "epoch": 9, "attempt": 2 },
            "forked_from": { "session": "reviewer/fix 42 / größer", "checkpoint": PLAIN },
            "forks": ["reviewer/fork"],
            "saves": [{
                "name": "before the \"rewrite\"", "checkpoint": PLAIN, "run": "019ccc3e-e584-7404-8404-040404040404",
                "at": "2026-03-08T07:00:00.000Z",
            }],
        });
        assert_eq!(json!(SessionView::of(&head)), expected);
        let deleted =
            decode::<Head>("head-deleted.json", include_bytes!("../../../tests/golden/documents/head-deleted.json")).unwrap().value;
        assert_eq!(SessionView::of(&deleted).state, "deleted");
    }

    #[test]
    fn an_ended_run_says_where_it_ended_and_what_it_left() {
        let completed = decode::<RunRecord>("run.json", include_bytes!("../../../tests/golden/documents/run.json")).unwrap().value;
        let mut expected = json!({
            "run": "019ccc3e-e585-7505-8505-050505050505", "session": "reviewer/fix 42 / größer", "turn": 4, "status": "completed",
            "attempt": 1, "replica": "host-1", "at": "2026-03-08T07:00:01.234Z", "started": "2026-03-08T07:00:00.000Z", "output": "done\n",
            "checkpoint": FULL, "pin": pin(), "failure": null, "workspace_rolled_back": false, "warnings": ["something to know"],
            "usage": {
                "wall_ms": 1234, "cpu_ms": 567, "memory_peak": 8_388_608,
                "store": { "puts": 3, "gets": 2, "heads": 1, "lists": 1, "deletes": 1, "put_bytes": 32_000, "get_bytes": 4_000 },
                "egress": { "requests": 2, "denied": 1, "sent": 10, "received": 2_000 },
            },
        });
        assert_eq!(json!(RunView::of(&completed)), expected);
        expected["output"] = json!("read \u{fffd}");
        assert_eq!(json!(RunView::of(&completed).with_output(b"read \xff")), expected);

        let failed =
            decode::<RunRecord>("run-failed.json", include_bytes!("../../../tests/golden/documents/run-failed.json")).unwrap().value;
        let shown = json!(RunView::of(&failed));
        let failure = json!({ "code": "trap", "message": "the guest trapped: unreachable", "hint": "look at the log" });
        assert_eq!((&shown["failure"], &shown["status"], &shown["workspace_rolled_back"]), (&failure, &json!("failed"), &json!(true)));
        assert_eq!((&shown["output"], &shown["checkpoint"], &shown["pin"]), (&json!(null), &json!(null), &json!(null)));
    }
}
