//! Which sessions are worth a look: the whole queue is listed now and then, and what was seen before decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use crate::error::Result;
use crate::id::RunId;
use crate::session::QueuePlace;
use crate::session::head::Owner;
use crate::store::SessionHash;

/// Time until a session that another process is at is looked at again although nothing seems to have changed.
const BUSY: Duration = Duration::from_secs(5);
/// Longest time until a session where something failed is looked at again.
const FAILED_MAX: Duration = Duration::from_secs(30);

/// Time between two looks for what dead replicas left of themselves.
const SWEEP: Duration = Duration::from_secs(60);

/// What a task left a session with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outlook {
    /// Nothing is left for this process.
    Empty,
    /// This process is at it, or waits there.
    Busy(Owner),
    /// Something failed that may pass.
    Failed,
    /// There is something, and it has time.
    Later(Duration),
}

/// What is known of the sessions in the queue.
#[derive(Debug, Default)]
pub(super) struct Looks(BTreeMap<SessionHash, Look>);

#[derive(Debug, Default)]
struct Look {
    /// The queue as it was when it was last thought worth a look.
    places: Vec<RunId>,
    /// Not before this, on the boot clock, unless the queue or the owner changes.
    due: Duration,
    owner: Option<Owner>,
    failures: u32,
}

impl Looks {
    /// Notes how a task left a session.
    pub(super) fn note(&mut self, session: SessionHash, outlook: Outlook, now: Duration) {
        let look = self.0.entry(session).or_default();
        look.owner = None;
        match outlook {
            Outlook::Empty => {
                self.0.remove(&session);
            }
            Outlook::Busy(owner) => (look.owner, look.due, look.failures) = (Some(owner), now + BUSY, 0),
            Outlook::Later(span) => (look.due, look.failures) = (now + span, 0),
            Outlook::Failed => {
                look.failures = look.failures.saturating_add(1);
                look.due = now + FAILED_MAX.min(Duration::from_secs(1 << look.failures.min(5)));
            }
        }
    }

    /// Compares a listing of the queue with what is known, and returns the sessions that are due. `gone` are the processes known to be dead.
    ///
    /// A run that is seen for the first time is left to the process that accepted it, until the next listing.
    pub(super) fn due(&mut self, listing: &BTreeMap<SessionHash, Vec<RunId>>, gone: &BTreeSet<Owner>, now: Duration) -> Vec<SessionHash> {
        self.0.retain(|session, _| listing.contains_key(session));
        let mut due = Vec::new();
        for (session, places) in listing {
            let Some(look) = self.0.get_mut(session) else {
                self.0.insert(*session, Look { places: places.clone(), due: now, ..Look::default() });
                continue;
            };
            let changed = look.places.first() != places.first();
            let freed = look.owner.as_ref().is_some_and(|owner| gone.contains(owner));
            if now >= look.due || (changed && look.failures == 0) || freed {
                due.push(*session);
            }
            look.places.clone_from(places);
        }
        due
    }

    /// Returns the processes that hold others up.
    fn owners(&self) -> BTreeSet<Owner> {
        self.0.values().filter_map(|look| look.owner.clone()).collect()
    }
}

/// Lists the queue again and again, until the worker is stopped or dropped.
pub(super) async fn poll(inner: Arc<Inner>) {
    let (clock, random) = (Arc::clone(inner.host.store().clock()), Arc::clone(inner.host.store().random()));
    let span = inner.options.poll;
    let mut sweep = clock.boot() + SWEEP;
    let inner = {
        let weak = Arc::downgrade(&inner);
        drop(inner);
        weak
    };
    loop {
        let [more] = crate::random::bytes::<1>(&*random);
        clock.sleep(span + span * u32::from(more) / 1024).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.is_stopping() {
            return;
        }
        if let Err(error) = look(&inner).await {
            tracing::warn!(error = %error.chain(), "the queue could not be looked through");
        }
        let now = clock.boot();
        if now >= sweep {
            sweep = now + SWEEP;
            if let Err(error) = inner.host.inner.sessions.sweep_replicas().await {
                tracing::warn!(error = %error.chain(), "what dead replicas left could not be deleted");
            }
        }
    }
}

async fn look(inner: &Arc<Inner>) -> Result<()> {
    let sessions = &inner.host.inner.sessions;
    let places = sessions.all_places().await?;
    let owners = inner.state().looks.owners();
    let mut gone = BTreeSet::new();
    for owner in owners {
        if sessions.is_gone(&owner).await? {
            gone.insert(owner);
        }
    }
    let mut listing: BTreeMap<SessionHash, Vec<RunId>> = BTreeMap::new();
    for QueuePlace { session, run, .. } in &places {
        listing.entry(*session).or_default().push(*run);
    }
    let due = {
        let mut state = inner.state();
        // What a task is at needs no look.
        listing.retain(|session, _| !state.sessions.contains_key(session));
        let now = inner.host.store().clock().boot();
        state.looks.due(&listing, &gone, now)
    };
    for session in due {
        // A full process leaves the rest to others.
        if inner.places.available_permits() == 0 {
            return Ok(());
        }
        // Only an entry tells the session's name; a damaged one is passed over.
        for run in listing.get(&session).into_iter().flatten() {
            match sessions.queued_at(session, *run).await {
                Ok(Some(queued)) if inner.host.inner.agent(&queued.entry.session.agent).is_ok() => {
                    inner.take_up(&queued.entry.session, *run, None);
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == crate::ErrorKind::Store => return Err(error),
                Err(error) => tracing::error!(error = %error.chain(), "a queue entry can't be read; the others go on"),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Nonce;

    const SECOND: Duration = Duration::from_secs(1);

    fn listing(runs: &[u64]) -> (SessionHash, BTreeMap<SessionHash, Vec<RunId>>) {
        let session = SessionHash::of(&crate::id::SessionRef { agent: "a".parse().unwrap(), session: "s".parse().unwrap() });
        let runs: Vec<RunId> = runs.iter().map(|n| RunId::new_v7(*n, [0; 10])).collect();
        (session, BTreeMap::from([(session, runs)]))
    }

    fn owner() -> Owner {
        Owner { replica: "r".parse().unwrap(), boot: Nonce::from_bytes([1; 16]) }
    }

    #[test]
    fn a_new_run_is_left_to_its_acceptor_for_one_listing() {
        let (session, queue) = listing(&[1]);
        let mut looks = Looks::default();
        assert_eq!(looks.due(&queue, &BTreeSet::new(), SECOND), []);
        assert_eq!(looks.due(&queue, &BTreeSet::new(), SECOND * 2), [session]);
    }

    #[test]
    fn a_busy_session_is_looked_at_when_its_owner_dies_its_queue_moves_or_time_passes() {
        let (session, queue) = listing(&[1, 2]);
        let mut looks = Looks::default();
        looks.due(&queue, &BTreeSet::new(), SECOND);
        looks.note(session, Outlook::Busy(owner()), SECOND);
        assert_eq!(looks.owners(), BTreeSet::from([owner()]));
        assert_eq!(looks.due(&queue, &BTreeSet::new(), SECOND * 2), []);
        assert_eq!(looks.due(&queue, &BTreeSet::from([owner()]), SECOND * 2), [session]);
        assert_eq!(looks.due(&listing(&[2]).1, &BTreeSet::new(), SECOND * 3), [session], "the first one has ended");
        assert_eq!(looks.due(&listing(&[2]).1, &BTreeSet::new(), SECOND * 3), []);
        assert_eq!(looks.due(&listing(&[2]).1, &BTreeSet::new(), SECOND + BUSY), [session]);
    }

    #[test]
    fn failures_are_looked_at_ever_later_and_an_empty_queue_is_forgotten() {
        let (session, queue) = listing(&[1]);
        let mut looks = Looks::default();
        looks.due(&queue, &BTreeSet::new(), Duration::ZERO);
        for _ in 0..10 {
            looks.note(session, Outlook::Failed, Duration::ZERO);
        }
        assert_eq!(looks.due(&queue, &BTreeSet::new(), FAILED_MAX - SECOND), []);
        assert_eq!(looks.due(&queue, &BTreeSet::new(), FAILED_MAX), [session]);
        looks.due(&BTreeMap::new(), &BTreeSet::new(), FAILED_MAX);
        assert!(looks.0.is_empty());
    }
}
