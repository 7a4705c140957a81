//! Every object key is made and parsed here. Names that people choose are encoded, so that nothing from a request forms a raw key.
//!
//! A name becomes one path segment: the bytes `A-Z a-z 0-9 - _ .` stand for themselves, every other byte is `%XX` (RFC 3986, upper-case hex),
//! and a first `.` is always encoded. Where that would be longer than [`SEGMENT_MAX`] bytes (a file system's limit is near), the segment is
//! `~` and the name in base64url without padding (RFC 4648, section 5). Each name has exactly one segment, and parsing refuses every other.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::base64::{self, Alphabet};
use crate::error::{Error, Result};
use crate::id::{AgentName, CommitId, Digest, PackId, ReplicaName, RunId, ScheduleId, SessionName, SessionRef};
use crate::tick::TickName;

/// Longest percent-encoded segment in bytes.
pub const SEGMENT_MAX: usize = 200;

/// An object's key below the store's prefix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// `landfall-store`: marks a prefix as a store and names its format version.
    Marker,
    /// `sessions/<agent>/<session>/head`: the session's one mutable object.
    Head(SessionRef),
    /// `sessions/<agent>/<session>/packs/<sha256>`: a pack of the session.
    SessionPack(SessionRef, PackId),
    /// `sessions/<agent>/<session>/inputs/<sha256>`: an input or attachment too large for its queue entry.
    Input(SessionRef, Digest),
    /// `sessions/<agent>/<session>/runs/<run id>`: a run's record.
    Run(SessionRef, RunId),
    /// `repos/<sha256 of url>/<commit>`: an imported commit.
    Import(Digest, CommitId),
    /// `repos/<sha256 of url>/packs/<sha256>`: a pack of an imported repository.
    RepositoryPack(Digest, PackId),
    /// `queue/<session hash>/<run id>`: an accepted and unfinished run.
    Queue(SessionHash, RunId),
    /// `schedules/plan/<id>`: what people and agents want of a schedule.
    Plan(ScheduleId),
    /// `schedules/state/<id>`: how far a schedule has come.
    ScheduleState(ScheduleId),
    /// `schedules/claims/<id>/<tick>`: which run a due instant became. Written once.
    Claim(ScheduleId, TickName),
    /// `replicas/<name>-<boot nonce>`: a living process.
    Replica(ReplicaName, BootNonce),
    /// `probe/<nonce>`: a scratch object of the start-up self-test, or its remembered result.
    Probe(BootNonce),
}

/// The SHA-256 of a session's agent and name, as the queue's keys hold it: fixed length, and no names in a shared listing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionHash(Digest);

impl SessionHash {
    /// Returns the hash of a session: SHA-256 of `landfall:session:1`, NUL, the agent, NUL, the session.
    #[must_use]
    pub fn of(session: &SessionRef) -> Self {
        let mut hash = Sha256::new();
        for part in ["landfall:session:1", "\0", session.agent.as_str(), "\0", session.session.as_str()] {
            hash.update(part.as_bytes());
        }
        Self(Digest::from_bytes(hash.finalize().into()))
    }
}

impl fmt::Display for SessionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Sixteen random bytes as 32 lower-case hex digits: a process's boot nonce, a write's nonce, a session's incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; 16]);

/// The nonce that a process draws when it starts: two processes of one name differ in it.
pub type BootNonce = Nonce;

impl Nonce {
    /// Wraps 16 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Draws a fresh one.
    #[must_use]
    pub fn draw(random: &dyn crate::random::Random) -> Self {
        Self(crate::random::bytes(random))
    }

    /// Returns the 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

impl FromStr for Nonce {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = [0; 16];
        if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
            return Err(Error::damaged(format!("{text:?} is not a nonce: expected 32 lower-case hex digits")));
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Nonce {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Nonce {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = |s: &SessionRef| format!("sessions/{}/{}", segment(s.agent.as_str()), segment(s.session.as_str()));
        match self {
            Self::Marker => f.write_str(MARKER),
            Self::Head(s) => write!(f, "{}/head", session(s)),
            Self::SessionPack(s, id) => write!(f, "{}/packs/{id}", session(s)),
            Self::Input(s, id) => write!(f, "{}/inputs/{id}", session(s)),
            Self::Run(s, id) => write!(f, "{}/runs/{id}", session(s)),
            Self::Import(repository, commit) => write!(f, "repos/{repository}/{commit}"),
            Self::RepositoryPack(repository, id) => write!(f, "repos/{repository}/packs/{id}"),
            Self::Queue(session, run) => write!(f, "queue/{session}/{run}"),
            Self::Plan(id) => write!(f, "schedules/plan/{}", segment(&id.to_string())),
            Self::ScheduleState(id) => write!(f, "schedules/state/{}", segment(&id.to_string())),
            Self::Claim(id, tick) => write!(f, "schedules/claims/{}/{tick}", segment(&id.to_string())),
            Self::Replica(name, boot) => write!(f, "replicas/{}-{boot}", segment(name.as_str())),
            Self::Probe(nonce) => write!(f, "probe/{nonce}"),
        }
    }
}

const MARKER: &str = "landfall-store";

impl FromStr for Key {
    type Err = Error;

    /// Parses a key. Exactly what [`fmt::Display`] writes is accepted.
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let key = (|| -> Result<Option<Self>> {
            Ok(Some(match parts[..] {
                [MARKER] => Self::Marker,
                ["sessions", agent, session, "head"] => Self::Head(session_ref(agent, session)?),
                ["sessions", agent, session, "packs", id] => Self::SessionPack(session_ref(agent, session)?, id.parse()?),
                ["sessions", agent, session, "inputs", id] => Self::Input(session_ref(agent, session)?, id.parse()?),
                ["sessions", agent, session, "runs", id] => Self::Run(session_ref(agent, session)?, id.parse()?),
                ["repos", repository, "packs", id] => Self::RepositoryPack(repository.parse()?, id.parse()?),
                ["repos", repository, commit] => Self::Import(repository.parse()?, commit.parse()?),
                ["queue", session, run] => Self::Queue(SessionHash(session.parse()?), run.parse()?),
                ["schedules", "plan", id] => Self::Plan(name_of(id)?.parse()?),
                ["schedules", "state", id] => Self::ScheduleState(name_of(id)?.parse()?),
                ["schedules", "claims", id, tick] => Self::Claim(name_of(id)?.parse()?, tick.parse()?),
                ["replicas", replica] => match replica.rsplit_once('-') {
                    Some((name, boot)) => Self::Replica(name_of(name)?.parse()?, boot.parse()?),
                    None => return Ok(None),
                },
                ["probe", nonce] => Self::Probe(nonce.parse()?),
                _ => return Ok(None),
            }))
        })();
        match key {
            // One object, one spelling: an upper-case commit or a needlessly encoded name is some other program's object.
            Ok(Some(key)) if key.to_string() == text => Ok(key),
            Ok(_) => Err(Error::damaged(format!("{text:?} is not a key of this store")).code("key_unknown")),
            Err(error) => Err(Error::damaged(format!("{text:?} is not a key of this store")).code("key_unknown").source(error)),
        }
    }
}

fn session_ref(agent: &str, session: &str) -> Result<SessionRef> {
    Ok(SessionRef { agent: name_of(agent)?.parse()?, session: name_of(session)?.parse()? })
}

/// What a listing covers: every key that starts with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefix {
    /// The whole store.
    All,
    /// `sessions/`: below it one name per agent.
    Sessions,
    /// `sessions/<agent>/`: below it one name per session.
    Agent(AgentName),
    /// All objects of a session.
    Session(SessionRef),
    /// A session's packs.
    SessionPacks(SessionRef),
    /// A session's run records.
    Runs(SessionRef),
    /// `repos/<sha256 of url>/`.
    Repository(Digest),
    /// `repos/`.
    Repositories,
    /// The whole queue.
    Queue,
    /// A session's queue.
    SessionQueue(SessionHash),
    /// What is wanted of the schedules.
    Plans,
    /// How far the schedules have come.
    ScheduleStates,
    /// The claims of a schedule.
    Claims(ScheduleId),
    /// Living processes.
    Replicas,
    /// Scratch objects of the self-test.
    Probes,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = |s: &SessionRef| format!("sessions/{}/{}", segment(s.agent.as_str()), segment(s.session.as_str()));
        match self {
            Self::All => Ok(()),
            Self::Sessions => f.write_str("sessions"),
            Self::Agent(agent) => write!(f, "sessions/{}", segment(agent.as_str())),
            Self::Session(s) => f.write_str(&session(s)),
            Self::SessionPacks(s) => write!(f, "{}/packs", session(s)),
            Self::Runs(s) => write!(f, "{}/runs", session(s)),
            Self::Repository(repository) => write!(f, "repos/{repository}"),
            Self::Repositories => f.write_str("repos"),
            Self::Queue => f.write_str("queue"),
            Self::SessionQueue(session) => write!(f, "queue/{session}"),
            Self::Plans => f.write_str("schedules/plan"),
            Self::ScheduleStates => f.write_str("schedules/state"),
            Self::Claims(id) => write!(f, "schedules/claims/{}", segment(&id.to_string())),
            Self::Replicas => f.write_str("replicas"),
            Self::Probes => f.write_str("probe"),
        }
    }
}

/// Reads an agent's name from a segment of a listing below [`Prefix::Sessions`].
///
/// # Errors
/// `Damaged` when the segment isn't one that this module writes.
pub fn agent_of(segment: &str) -> Result<AgentName> {
    name_of(segment)?.parse()
}

/// Reads a session's name from a segment of a listing below [`Prefix::Agent`].
///
/// # Errors
/// `Damaged` when the segment isn't one that this module writes.
pub fn session_of(segment: &str) -> Result<SessionName> {
    name_of(segment)?.parse()
}

/// Returns an object's path in the backend: the store's prefix (empty, or segments joined by `/`) and the key.
///
/// # Errors
/// `Internal` when the path isn't one that `object_store` accepts: keys made here always are.
pub(crate) fn object_path(prefix: &str, below: &str) -> Result<object_store::path::Path> {
    let text = match (prefix.is_empty(), below.is_empty()) {
        (true, _) => below.to_owned(),
        (false, true) => prefix.to_owned(),
        (false, false) => format!("{prefix}/{below}"),
    };
    // `parse` takes the text as it is; `from` would encode our percent signs again.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that makes object paths")]
    object_store::path::Path::parse(&text).map_err(|error| Error::internal(format!("{text:?} is not an object path")).source(error))
}

/// Encodes a name as one path segment.
fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        if plain {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push_str(&hex::encode_upper([byte]));
        }
    }
    if text.len() > SEGMENT_MAX { format!("~{}", base64::encode(name.as_bytes(), Alphabet::Url)) } else { text }
}

/// Decodes a path segment; refuses every spelling but the one that [`segment`] writes.
fn name_of(text: &str) -> Result<String> {
    let bytes = match text.strip_prefix('~') {
        Some(rest) => base64::decode(rest, Alphabet::Url),
        None => percent_decode(text),
    };
    match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(name) if segment(&name) == text => Ok(name),
        _ => Err(Error::damaged(format!("{text:?} is not an encoded name"))),
    }
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, after @ ..] = tail else { return None };
            let mut byte = [0];
            hex::decode_to_slice([*high, *low], &mut byte).ok()?;
            bytes.push(byte[0]);
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
