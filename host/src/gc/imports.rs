//! Collection of imported commits. An import is dropped when no session pins it, no run that is going on can have taken it up, and its date is older than
//! the grace.
//!
//! Its record isn't deleted but marked as dropped, by a compare-and-swap of the version that was looked at: a first turn that took it up meanwhile
//! has touched it, and so wins. A run that touched it before that was looked at is still in the queue, or has committed, and the queue is
//! listed before the heads are read. Its packs go after it, and have names that nothing else will ever have.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::Options;
use super::mark::Marker;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{CommitId, Digest};
use crate::repository::imported::Imported;
use crate::repository::url::RepositoryUrl;
use crate::session::Sessions;
use crate::session::head::Head;
use crate::store::cas::{Loaded, Replaced};
use crate::store::{Key, Listed, Prefix};
use crate::workspace::page::Home;

/// What became, or would become, of the imported commits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ImportsCollected {
    /// Imports that are kept.
    pub kept: u64,
    /// Imports dropped now: URL and commit.
    pub dropped: Vec<String>,
    /// Packs deleted now.
    pub deleted_packs: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
}

type Pinned = HashSet<(Digest, CommitId)>;

/// Collects imported commits and their packs.
///
/// # Errors
/// `Store`, `Damaged`: then nothing more is dropped or deleted.
pub(super) async fn collect(sessions: &Sessions, options: &Options, now: UnixNanos) -> Result<ImportsCollected> {
    let store = sessions.store();
    let mut packs: Vec<(Digest, Listed)> = Vec::new();
    let mut imports: BTreeMap<(Digest, CommitId), Loaded<Imported>> = BTreeMap::new();
    for listed in store.list(&Prefix::Repositories).await?.objects {
        match listed.key {
            Key::RepositoryPack(repository, _) => packs.push((repository, listed)),
            Key::Import(repository, commit) => {
                if let Some(found) = store.load::<Imported>(&listed.key).await? {
                    imports.insert((repository, commit), found);
                }
            }
            _ => {}
        }
    }
    let mut report = ImportsCollected::default();
    if packs.is_empty() && imports.is_empty() {
        return Ok(report);
    }
    // What was accepted before all of these dates can't be going on any more.
    let mut oldest = store.list(&Prefix::Queue).await?.objects.iter().map(|listed| listed.modified).min().unwrap_or(UnixNanos::MAX);
    let mut pinned = Pinned::new();
    for session in sessions.all().await? {
        if let Some(found) = sessions.load(&session).await? {
            pins(&found.head, &mut pinned)?;
            // A first turn whose queue entry was swept, since its process was taken for dead, may be asleep.
            if found.head.lease.is_some() && found.head.checkpoint.is_none() {
                oldest = UnixNanos::MIN;
            }
        }
    }
    let grace = i64::try_from(options.grace.as_nanos()).unwrap_or(i64::MAX);
    let is_old = |date: UnixNanos| date < oldest && now.saturating_sub(date) >= grace;
    let mut live = Marker::new(store);
    for (key, found) in imports {
        if found.value.dropped {
            continue;
        }
        if !pinned.contains(&key) && is_old(found.modified) {
            let dropped = Imported { dropped: true, ..found.value.clone() };
            let key = Key::Import(key.0, key.1);
            if options.dry_run || matches!(store.replace(&key, &found.version, &dropped).await?, Replaced::Done(_)) {
                report.dropped.push(format!("{} {}", found.value.url, found.value.commit));
                continue;
            }
        }
        report.kept += 1;
        for root in [&found.value.workspace, &found.value.blobs, &found.value.git] {
            live.root(root).await?;
        }
    }
    for (repository, pack) in packs {
        let Key::RepositoryPack(_, id) = pack.key else { continue };
        if live.is_used(&Arc::new(Home::Repository(repository)), id) || !is_old(pack.modified) {
            continue;
        }
        if !options.dry_run {
            store.delete(&pack.key).await?;
        }
        report.deleted_packs += 1;
        report.deleted_bytes += pack.size;
    }
    Ok(report)
}

/// Notes the commits that a session stands on, or that its forks do.
fn pins(head: &Head, pinned: &mut Pinned) -> Result<()> {
    let saved = head.saves.iter().map(|save| &save.checkpoint);
    let forks = head.pins.iter().map(|pin| &pin.checkpoint);
    for pin in head.checkpoint.iter().chain(saved).chain(forks).filter_map(|checkpoint| checkpoint.root.pin.as_ref()) {
        let url = RepositoryUrl::parse(&pin.url)
            .map_err(|error| Error::damaged(format!("session {} has a pin that isn't one", head.session)).source(error))?;
        pinned.insert((url.digest(), pin.commit));
    }
    Ok(())
}
