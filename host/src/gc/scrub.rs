//! A scrub: reads some packs whole and compares them with their names, so that damage is found while a copy of the store may still have them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::pack::{self, PACK_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::id::SessionRef;
use crate::session::Sessions;
use crate::store::{Key, Prefix};

/// What a scrub found.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// Packs that were there.
    pub packs: u64,
    /// Packs that were read.
    pub read: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged, by key. `landfall checkpoint verify` names the files that it touches.
    pub damaged: BTreeMap<String, Harm>,
}

/// A damaged pack.
#[derive(Debug)]
pub struct Harm {
    /// What is wrong.
    pub error: Error,
    /// The sessions whose current checkpoint needs it. Those of a repository's pack aren't looked for.
    pub sessions: Vec<SessionRef>,
}

impl Serialize for Harm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("Harm", 2)?;
        out.serialize_field("why", &self.error.chain())?;
        out.serialize_field("sessions", &self.sessions.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        out.end()
    }
}

/// Reads a random sample of all packs of a store: `percent` of them, at least one.
///
/// # Errors
/// `Store` when the store can't be read, `TooNew` when a newer version wrote what it holds. Damage is in the report.
pub async fn scrub(sessions: &Sessions, percent: u8) -> Result<Scrubbed> {
    let store = sessions.store();
    let mut keys = Vec::new();
    for prefix in [Prefix::Sessions, Prefix::Repositories] {
        let listing = store.list(&prefix).await?;
        keys.extend(
            listing
                .objects
                .into_iter()
                .map(|listed| listed.key)
                .filter(|key| matches!(key, Key::SessionPack(..) | Key::RepositoryPack(..))),
        );
    }
    let mut found = Scrubbed { packs: keys.len() as u64, ..Scrubbed::default() };
    let mut wanted = (keys.len() * usize::from(percent.min(100))).div_ceil(100);
    while wanted > 0 && !keys.is_empty() {
        wanted -= 1;
        let at = usize::try_from(u64::from_le_bytes(crate::random::bytes(&**store.random())) % keys.len() as u64).unwrap_or(0);
        let key = keys.swap_remove(at);
        let (Key::SessionPack(_, id) | Key::RepositoryPack(_, id)) = &key else { continue };
        let id = *id;
        let checked = match store.get_if_present(&key, PACK_MAX as u64).await {
            // Collected since it was listed.
            Ok(None) => continue,
            Ok(Some(object)) => {
                found.read += 1;
                found.bytes += object.bytes.len() as u64;
                tokio::task::spawn_blocking(move || pack::check(id, &object.bytes))
                    .await
                    .map_err(|error| Error::internal("a pack could not be checked").source(error))?
                    .map(drop)
            }
            Err(error) => Err(error),
        };
        match checked {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Damaged => {
                let touched = users(sessions, &key).await?;
                found.damaged.insert(key.to_string(), Harm { error, sessions: touched });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns the sessions that may need a session's pack: itself, and its forks.
async fn users(sessions: &Sessions, key: &Key) -> Result<Vec<SessionRef>> {
    let Key::SessionPack(session, _) = key else { return Ok(Vec::new()) };
    let mut users = vec![session.clone()];
    if let Ok(Some(found)) = sessions.load(session).await {
        users.extend(found.head.pins.iter().map(|pin| pin.child.clone()));
    }
    Ok(users)
}
