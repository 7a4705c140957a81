//! The identifiers of the system. Each parses from and displays as the text that people and object keys carry.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// Longest pack in bytes: the object that a [`PackId`] names.
pub const PACK_MAX: usize = 32 << 20;

/// Length in bytes of a SHA-256 digest (FIPS 180-4).
pub const DIGEST_LEN: usize = 32;

macro_rules! digest_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; DIGEST_LEN]);

        impl $name {
            /// Wraps the 32 bytes of a digest.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; DIGEST_LEN]) -> Self {
                Self(bytes)
            }

            /// Returns the digest's 32 bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; DIGEST_LEN] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), &hex::encode(&self.0[..6]))
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let mut bytes = [0; DIGEST_LEN];
                // Upper case is refused so that one id has one spelling in keys and on the command line.
                if text.bytes().any(|b| b.is_ascii_uppercase()) || hex::decode_to_slice(text, &mut bytes).is_err() {
                    return Err(Error::usage(format!(concat!("{:?} is not ", $what, ": expected 64 lower-case hex digits"), text)));
                }
                Ok(Self(bytes))
            }
        }

        text_serde!($name);
    };
}

macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

digest_id!(
    /// The SHA-256 of some bytes.
    Digest, "a SHA-256 digest"
);
digest_id!(
    /// The SHA-256 of a chunk's plain bytes.
    ChunkId, "a chunk id"
);
digest_id!(
    /// The SHA-256 of a domain tag and a page's canonical body.
    PageId, "a page id"
);
digest_id!(
    /// The SHA-256 of a pack's stored bytes: also the last part of its key.
    PackId, "a pack id"
);
digest_id!(
    /// The SHA-256 of a root record's canonical form: same content, same id.
    CheckpointId, "a checkpoint id"
);

/// Returns the SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

impl ChunkId {
    /// Returns the id of a chunk with these plain bytes.
    #[must_use]
    pub fn of(plain: &[u8]) -> Self {
        Self(sha256(plain).0)
    }
}

impl PackId {
    /// Returns the id of a pack with these stored bytes.
    #[must_use]
    pub fn of(stored: &[u8]) -> Self {
        Self(sha256(stored).0)
    }
}

/// A git commit id (SHA-1, 20 bytes): a full one; abbreviations aren't accepted anywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId([u8; 20]);

impl CommitId {
    /// Wraps the 20 bytes of an id.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Returns the id's 20 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitId({self})")
    }
}

impl FromStr for CommitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut bytes = [0; 20];
        if hex::decode_to_slice(text, &mut bytes).is_err() {
            return Err(Error::usage(format!("{text:?} is not a commit id: expected all 40 hex digits"))
                .hint("abbreviated ids and SHA-256 repositories aren't supported; `git rev-parse` prints the full id"));
        }
        Ok(Self(bytes))
    }
}

text_serde!(CommitId);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Longest accepted name in bytes.
            pub const MAX_LEN: usize = $max;

            /// Returns the name's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let valid: fn(&str) -> bool = $valid;
                if text.is_empty() || text.len() > Self::MAX_LEN || !valid(text) {
                    return Err(Error::usage(format!(concat!("{:?} is not ", $what, ": expected 1 to {} ", $rule), text, Self::MAX_LEN)));
                }
                Ok(Self(text.into()))
            }
        }

        text_serde!($name);
    };
}

/// A name that needs no quoting anywhere: in a key, a URL, a shell, `AGENT/SESSION@TURN`.
fn plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn printable(text: &str) -> bool {
    text.trim() == text && !text.chars().any(char::is_control)
}

name!(
    /// An agent's name: a key of `[agents]` in the config.
    AgentName, "an agent name", 64, "letters, digits, dots, hyphens and underscores, the first a letter or a digit", plain
);
name!(
    /// A session's name: chosen by the user, unique for one agent.
    SessionName, "a session name", 128, "bytes without control characters or blanks at the ends", printable
);
name!(
    /// A replica's name: the operator's, or the host's name.
    ReplicaName, "a replica name", 64, "letters, digits, dots, hyphens and underscores, the first a letter or a digit", plain
);
name!(
    /// A schedule's name: a key of `[schedules]` in the config, or what an agent calls one of its own.
    ScheduleName, "a schedule name", 64, "letters, digits, dots, hyphens and underscores, the first a letter or a digit", plain
);

/// A schedule within one store: the operator's, by its name, or one that an agent made, by the agent and a name. So agents can't take
/// names from each other or from the operator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ScheduleId {
    /// The agent that made it; none for the operator's.
    pub agent: Option<AgentName>,
    /// The name.
    pub name: ScheduleName,
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.agent {
            Some(agent) => write!(f, "{agent}/{}", self.name),
            None => self.name.fmt(f),
        }
    }
}

impl FromStr for ScheduleId {
    type Err = Error;

    /// Reads `NAME` or `AGENT/NAME`.
    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(match text.split_once('/') {
            Some((agent, name)) => Self { agent: Some(agent.parse()?), name: name.parse()? },
            None => Self { agent: None, name: text.parse()? },
        })
    }
}

text_serde!(ScheduleId);

/// A session within one store: an agent and a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRef {
    /// The agent whose session it is.
    pub agent: AgentName,
    /// The session's name.
    pub session: SessionName,
}

impl fmt::Display for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.agent, self.session)
    }
}

/// A run's id: a UUIDv7, or a UUIDv8 derived from an idempotency key or a schedule's tick (RFC 9562).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(uuid::Uuid);

impl RunId {
    /// Makes a time-ordered id (UUIDv7) from milliseconds since 1970 and ten random bytes.
    #[must_use]
    pub fn new_v7(unix_millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_millis, &random).into_uuid())
    }

    /// Makes a derived id (UUIDv8) from a digest of what identifies the request.
    #[must_use]
    pub fn derived(from: Digest) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&from.as_bytes()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match uuid::Uuid::try_parse(text) {
            Ok(id) if id.as_hyphenated().to_string() == text => Ok(Self(id)),
            _ => Err(Error::usage(format!("{text:?} is not a run id: expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"))
                .hint("`landfall session log` lists the runs of a session")),
        }
    }
}

text_serde!(RunId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_text() {
        let id = ChunkId::of(b"hello");
        assert_eq!(id.to_string(), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(id.to_string().parse::<ChunkId>().ok(), Some(id));
        assert!(id.to_string().to_uppercase().parse::<ChunkId>().is_err());
        assert!("abc".parse::<CommitId>().is_err());
    }

    #[test]
    fn derived_run_ids_are_version_8_and_stable() {
        let id = RunId::derived(sha256(b"key"));
        assert_eq!(id, RunId::derived(sha256(b"key")));
        assert_eq!(id.to_string().as_bytes()[14], b'8');
        assert_eq!(id.to_string().parse::<RunId>().ok(), Some(id));
    }

    #[test]
    fn names_refuse_control_characters_and_blank_ends() {
        for bad in ["", " a", "a\n", "a\u{7f}", "\u{85}"] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad:?}");
        }
        assert!("fix-42 / größer".parse::<SessionName>().is_ok());
        for bad in ["", "a/b", "a@1", ".hidden", "größe", "a b"] {
            assert!(bad.parse::<AgentName>().is_err(), "{bad:?}");
        }
        assert!("todo-report_2.x".parse::<AgentName>().is_ok());
    }
}
