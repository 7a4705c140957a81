//! Requests over HTTP as documents: from the body of a `POST .../turns` to a [`TurnRequest`], and back from a run to what is answered.
//!
//! Nothing here speaks HTTP: the server is the binary's.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Attachment, Busy, Origin, PinChoice, Trigger, TurnRequest};
use crate::base64;
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::id::{RunId, SessionRef};
use crate::session::RunState;
use crate::session::view::RunView;

/// Longest idempotency key in bytes.
pub const KEY_MAX: usize = 255;
/// Largest body of a request for a turn in bytes: 8 MiB of attachments in base64, the input with every byte escaped, and the rest.
pub const BODY_MAX: usize = 20 << 20;

/// The body of a request for a turn. Every field may be left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnBody {
    /// The input text.
    pub input: String,
    /// Files that go with it.
    pub attachments: Vec<AttachmentBody>,
    /// The first turn's own commit, 40 hex digits.
    pub commit: Option<String>,
    /// The first turn's own branch.
    pub branch: Option<String>,
    /// Arguments of a command component, instead of the configured ones.
    pub args: Option<Vec<String>>,
    /// Names and values for this run alone.
    pub params: std::collections::BTreeMap<String, String>,
    /// What to do when another run of the session goes on.
    pub busy: BusyBody,
}

/// A file in a request's body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachmentBody {
    /// Its name, without a path.
    pub name: String,
    /// Its media type; `application/octet-stream` when left out.
    pub media_type: Option<String>,
    /// Its text, for a text file.
    pub text: Option<String>,
    /// Its bytes in base64 (RFC 4648 section 4, with padding), for any other.
    pub base64: Option<String>,
}

/// What a request does when its session is busy.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusyBody {
    /// It waits for its place in the order of the queue.
    #[default]
    Wait,
    /// It is refused with a conflict that names the run that goes on.
    Refuse,
}

impl TurnBody {
    /// Makes the request. `key` is the `Idempotency-Key` header's text.
    ///
    /// # Errors
    /// `Usage` for a commit or an attachment that isn't one, for both a commit and a branch, and for a key that is empty or too long.
    pub fn into_request(self, session: SessionRef, key: Option<String>) -> Result<TurnRequest> {
        if let Some(key) = &key
            && (key.is_empty() || key.len() > KEY_MAX || !key.bytes().all(|byte| (0x20..0x7f).contains(&byte)))
        {
            return Err(Error::usage(format!("an Idempotency-Key has 1 to {KEY_MAX} printable ASCII characters")));
        }
        let choice = match (self.commit, self.branch) {
            (Some(_), Some(_)) => return Err(Error::usage("`commit` and `branch` exclude each other")),
            (Some(commit), None) => Some(PinChoice::Commit(commit.parse()?)),
            (None, Some(branch)) => Some(PinChoice::Branch(branch)),
            (None, None) => None,
        };
        Ok(TurnRequest {
            agent: session.agent,
            session: session.session,
            input: self.input,
            attachments: self.attachments.into_iter().map(AttachmentBody::into_attachment).collect::<Result<_>>()?,
            choice,
            args: self.args,
            params: self.params.into_iter().collect(),
            trigger: Trigger::Manual,
            key,
            busy: match self.busy {
                BusyBody::Wait => Busy::Wait,
                BusyBody::Refuse => Busy::Refuse,
            },
            origin: Origin::Server,
            run: None,
        })
    }
}

impl AttachmentBody {
    fn into_attachment(self) -> Result<Attachment> {
        let bytes = match (self.text, self.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => base64::decode_padded(&encoded)
                .ok_or_else(|| Error::usage(format!("the attachment {:?} isn't in base64 with padding", self.name)))?,
            _ => return Err(Error::usage(format!("the attachment {:?} needs either `text` or `base64`", self.name))),
        };
        let media_type = self.media_type.unwrap_or_else(|| String::from("application/octet-stream"));
        Ok(Attachment { name: self.name, media_type, bytes: bytes.into() })
    }
}

/// Returns the document of a run: its `status` is `queued`, `running`, or how it ended.
#[must_use]
pub fn run_document(session: &SessionRef, run: RunId, state: &RunState) -> Value {
    match state {
        RunState::Waiting { queued, cancelling } => json!({
            "run": run,
            "session": session.to_string(),
            "status": "queued",
            "accepted": rfc3339(queued.accepted),
            "cancelling": cancelling,
        }),
        RunState::Running { lease, cancelling } => json!({
            "run": run,
            "session": session.to_string(),
            "status": "running",
            "replica": lease.owner.replica,
            "attempt": lease.attempt,
            "cancelling": cancelling,
        }),
        RunState::Ended(record) => json!(RunView::of(record)),
    }
}

/// Returns the document of an error.
#[must_use]
pub fn error_document(error: &Error) -> Value {
    json!({ "error": { "code": error.stable_code(), "message": error.chain(), "hint": error.next_step() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str, key: Option<&str>) -> Result<TurnRequest> {
        let session = SessionRef { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let body: TurnBody = serde_json::from_str(body).map_err(|error| Error::usage(error.to_string()))?;
        body.into_request(session, key.map(str::to_owned))
    }

    #[test]
    fn a_body_becomes_a_server_s_request() {
        let made = request(
            r#"{"input":"hi","params":{"a":"b"},"busy":"refuse","attachments":[{"name":"f","text":"x"},{"name":"g","base64":"AAE="}]}"#,
            Some("k"),
        )
        .unwrap();
        assert_eq!((made.input.as_str(), made.busy, made.origin, made.key.as_deref()), ("hi", Busy::Refuse, Origin::Server, Some("k")));
        assert_eq!(made.params, [("a".to_owned(), "b".to_owned())]);
        assert_eq!((&made.attachments[0].bytes[..], &made.attachments[1].bytes[..]), (&b"x"[..], &[0_u8, 1][..]));
        assert_eq!(request("{}", None).unwrap().input, "");
    }

    #[test]
    fn what_isn_t_a_request_is_refused() {
        for (body, key) in [
            (r#"{"inptu":"x"}"#, None),
            (r#"{"commit":"abc"}"#, None),
            (r#"{"commit":"0000000000000000000000000000000000000000","branch":"b"}"#, None),
            (r#"{"attachments":[{"name":"f"}]}"#, None),
            (r#"{"attachments":[{"name":"f","text":"x","base64":"AA=="}]}"#, None),
            (r#"{"attachments":[{"name":"f","base64":"A"}]}"#, None),
            ("{}", Some("")),
            ("{}", Some("a\nb")),
            ("{}", Some("é")),
        ] {
            let error = request(body, key).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Usage, "{body} {key:?}");
        }
        assert!(request("{}", Some(&"k".repeat(KEY_MAX + 1))).is_err());
    }
}
