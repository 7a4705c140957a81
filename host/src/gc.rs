//! Collection: what no checkpoint needs any more is put on its session's trash list, and is deleted when a grace is over.
//!
//! Why nothing that is needed is ever deleted, however clocks are set and whoever falls asleep in the middle:
//! - A pack that nothing kept refers to is never referred to again. A commit refers to its base, which its lease kept in the head, to its own packs, and
//!   to checkpoints that it restored, which the commit's own compare-and-swap checks ([`crate::session::Head::end`]). A fork's pin is checked in the same way.
//! - What a running turn has uploaded looks like garbage until its commit. So packs go on the trash list only by a compare-and-swap of a head that
//!   names no lease: whoever uploaded them before that is fenced by it. Compaction works without a lease, and its own compare-and-swap
//!   expects the very head that it began with.
//! - Packs have a salt, so none is ever stored again under the name of a deleted one: a deletion that comes late hits nothing new.
//! - Heads are never deleted, since no store deletes conditionally. A tombstone stays, without the content.
//! - Any error while marking ends the collection of that session before anything was changed.
//!
//! So the grace isn't what safety rests on: it is for readers who still have an older checkpoint open. It is measured by the store's own dates only.

mod compact;
mod imports;
mod mark;
mod pins;
mod scrub;
mod session;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

pub use self::compact::{Compacted, SMALL_MAX, compact};
pub use self::imports::ImportsCollected;
pub use self::scrub::{Harm, Scrubbed, scrub};
use self::session::Collector;
use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{PackId, SessionRef};
use crate::session::Sessions;
use crate::store::{Key, Nonce, Store};

/// How much of a session's history is kept. What is named, what forks stand on and the head's own checkpoint always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Checkpoints of at least so many last completed turns.
    pub keep_last: u64,
    /// Checkpoints of all runs of so many last days, by the store's dates.
    pub keep_days: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { keep_last: 50, keep_days: 30 }
    }
}

/// How a collection works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What is kept.
    pub retention: Retention,
    /// How long packs stay on the trash list, by the store's dates.
    pub grace: Duration,
    /// Changes nothing, and only says what would be done.
    pub dry_run: bool,
}

/// The shortest grace: twice the longest turn that there can be.
pub const GRACE: Duration = Duration::from_secs(48 * 60 * 60);

impl Default for Options {
    fn default() -> Self {
        Self { retention: Retention::default(), grace: GRACE, dry_run: false }
    }
}

/// What became, or would become, of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Collected {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// Whether a run goes on: then only packs that were on the trash list before are looked at.
    pub busy: bool,
    /// Checkpoints that are kept: the head's, the named, those of forks, and those of runs.
    pub kept: u64,
    /// Checkpoints that retention drops now.
    pub dropped: u64,
    /// Packs that something kept needs.
    pub live_packs: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Packs put on the trash list now, and why.
    pub discarded: Vec<Why>,
    /// Packs that wait on the trash list for the grace to end.
    pub waiting: u64,
    /// Packs deleted now.
    pub deleted_packs: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Other objects of a deleted session that were deleted now.
    pub deleted_objects: u64,
    /// Queue entries that nobody waits for, deleted now.
    pub swept: u64,
    /// Pins of forks that are gone.
    pub unpinned: u64,
}

/// A pack that nothing kept needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Why {
    /// The pack.
    pub pack: PackId,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was written, by the store's clock.
    pub written: UnixNanos,
}

/// What a collection did, or would do.
#[derive(Debug, Default)]
pub struct Report {
    /// The sessions.
    pub sessions: BTreeMap<SessionRef, Collected>,
    /// Sessions that were left alone, and why: a damaged head, a missing page, a newer version. Nothing of these was changed.
    pub left_alone: BTreeMap<SessionRef, Error>,
    /// The imported commits; none when they were left alone, since a session was.
    pub imports: Option<ImportsCollected>,
}

/// Collects all sessions of a store.
///
/// # Errors
/// `Store` when the store can't be listed. What is wrong with one session is in the report.
pub async fn collect(sessions: &Sessions, options: &Options) -> Result<Report> {
    let now = store_now(sessions.store()).await?;
    let mut report = Report::default();
    for session in sessions.all().await? {
        let collector = Collector { sessions, options, now, session: &session };
        match collector.collect().await {
            Ok(collected) => drop(report.sessions.insert(session, collected)),
            Err(error) => drop(report.left_alone.insert(session, error)),
        }
    }
    // Whether a session that can't be read pins an import can't be told.
    if report.left_alone.is_empty() {
        report.imports = Some(imports::collect(sessions, options, now).await?);
    }
    Ok(report)
}

/// Asks the store for its time: the date of an object that is written for that and deleted again.
async fn store_now(store: &Store) -> Result<UnixNanos> {
    let key = Key::Probe(Nonce::draw(&**store.random()));
    store.put_immutable(&key, bytes::Bytes::from_static(b"time")).await?;
    let found = store.stat(&key).await?;
    store.delete(&key).await?;
    found.map(|found| found.modified).ok_or_else(|| Error::store("an object that was just written isn't there").code("store_forgets"))
}
