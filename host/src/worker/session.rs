//! One session's task: drives the runs of its queue in their order, until there is none that this process can drive.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::due::Outlook;
use crate::cancel::Canceller;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunId, SessionRef};
use crate::session::queue::QueuePlace;
use crate::session::{Origin, Snapshot};
use crate::store::SessionHash;
use crate::turn::event::NoWatch;
use crate::turn::{Driven, Work};

/// What is done about the first run of a queue.
enum Step {
    /// It is over: the next one's turn.
    Next,
    /// It can't be read, and stays: the next one's turn.
    Skip,
    /// The session can't be worked at now.
    Leave(Outlook),
}

pub(super) async fn task(inner: Arc<Inner>, session: SessionRef) {
    let hash = SessionHash::of(&session);
    loop {
        let outlook = pass(&inner, &session, hash).await;
        let mut state = inner.state();
        state.looks.note(hash, outlook, inner.host.store().clock().boot());
        let again = match state.sessions.get_mut(&hash) {
            Some(tasked) if tasked.again && !inner.is_stopping() => true,
            _ => {
                // What it was handed and didn't drive, others may; whoever waits asks the store from now on.
                if let Some(tasked) = state.sessions.remove(&hash) {
                    for run in tasked.handed.keys() {
                        state.local.remove(run);
                    }
                }
                false
            }
        };
        drop(state);
        inner.tick();
        if !again {
            return;
        }
    }
}

/// Drives runs until the queue has none for this process.
async fn pass(inner: &Arc<Inner>, session: &SessionRef, hash: SessionHash) -> Outlook {
    loop {
        let mut handed = take_handed(inner, hash);
        let places = match inner.host.inner.sessions.places(session).await {
            Ok(places) => places,
            Err(error) => return put_back(inner, &handed, failed(session, &error)),
        };
        let mut left = places.len();
        for at in &places {
            // A place for each run, so that a long queue doesn't hold up other sessions.
            let Ok(_place) = inner.places.acquire().await else { return put_back(inner, &handed, Outlook::Empty) };
            if inner.is_stopping() {
                return put_back(inner, &handed, Outlook::Empty);
            }
            match first(inner, session, at, &mut handed).await {
                Ok(Step::Next) => left -= 1,
                Ok(Step::Skip) => {}
                Ok(Step::Leave(outlook)) => return put_back(inner, &handed, outlook),
                Err(error) => return put_back(inner, &handed, failed(session, &error)),
            }
        }
        // What is handed and not in the listing has ended elsewhere, or comes in the next one.
        forget(inner, handed.keys());
        let again = inner.state().sessions.get(&hash).is_some_and(|tasked| tasked.again);
        if left == 0 && !again {
            return Outlook::Empty;
        }
        if left > 0 {
            return Outlook::Later(Duration::from_secs(30));
        }
    }
}

/// Deals with the run that is first in the queue.
async fn first(inner: &Arc<Inner>, session: &SessionRef, at: &QueuePlace, handed: &mut HashMap<RunId, (Work, Snapshot)>) -> Result<Step> {
    let (mut work, mut known) = match handed.remove(&at.run) {
        Some((work, known)) => (Some(work), Some(known)),
        None => (None, None),
    };
    // A run that was cut off may have to be settled first; a bound, because each time costs an attempt of that one.
    for _ in 0..8 {
        let now = match work.take() {
            Some(work) => work,
            None => match found(inner, session, at, &mut known).await? {
                Found::Work(work) => *work,
                Found::Over => return Ok(Step::Next),
                Found::Unreadable => return Ok(Step::Skip),
                Found::Leave(outlook) => return Ok(Step::Leave(outlook)),
            },
        };
        let canceller = Arc::new(Canceller::new().0);
        inner.state().running.insert(at.run, Arc::clone(&canceller));
        inner.state().local.insert(at.run);
        let driven = crate::turn::drive(&inner.host.inner, now, known.take(), Arc::new(NoWatch), canceller.token()).await;
        {
            let mut state = inner.state();
            state.running.remove(&at.run);
            state.local.remove(&at.run);
            if let Ok(Driven::Ended(record)) = &driven {
                state.ended.put(at.run, Arc::new((**record).clone()));
            }
        }
        inner.tick();
        match driven {
            Ok(Driven::Ended(_)) => return Ok(Step::Next),
            Ok(Driven::Busy(lease)) => return Ok(Step::Leave(Outlook::Busy(lease.owner))),
            Ok(Driven::Settled) => {}
            Err(error) if error.stable_code() == "session_deleted" => {
                tracing::warn!(run = %at.run, error = %error.chain(), "an accepted run was dropped");
                return Ok(Step::Next);
            }
            Err(error) => return Err(error),
        }
        if inner.is_stopping() {
            return Ok(Step::Leave(Outlook::Empty));
        }
    }
    Ok(Step::Leave(Outlook::Later(Duration::from_secs(5))))
}

enum Found {
    Work(Box<Work>),
    /// It has ended, or nobody waits for it.
    Over,
    Unreadable,
    Leave(Outlook),
}

/// Reads an entry that this process didn't accept itself, and looks whether it is to be driven at all.
async fn found(inner: &Arc<Inner>, session: &SessionRef, at: &QueuePlace, known: &mut Option<Snapshot>) -> Result<Found> {
    let sessions = &inner.host.inner.sessions;
    let snapshot = sessions.load(session).await?;
    if let Some(snapshot) = &snapshot {
        if let Some(lease) = snapshot.head.lease.as_ref().filter(|lease| lease.run != at.run)
            && !sessions.is_lost(session, lease).await?
        {
            return Ok(Found::Leave(Outlook::Busy(lease.owner.clone())));
        }
        // An ended run is never run again, however long ago it left the head's list.
        if let Some(record) = sessions.ended_by(&snapshot.head, at.run).await? {
            sessions.dequeue(session, at.run).await?;
            let mut state = inner.state();
            state.local.remove(&at.run);
            state.ended.put(at.run, Arc::new(record));
            return Ok(Found::Over);
        }
    }
    let entry = match sessions.queued(session, at.run).await {
        Ok(Some(queued)) => queued.entry,
        Ok(None) => return Ok(Found::Over),
        Err(error) if error.kind() == ErrorKind::Store => return Err(error),
        Err(error) => {
            tracing::error!(run = %at.run, error = %error.chain(), "a queue entry can't be read; the others go on");
            return Ok(Found::Unreadable);
        }
    };
    if entry.origin == Origin::Command {
        let leased = snapshot.as_ref().is_some_and(|snapshot| {
            let head = &snapshot.head;
            head.lease.as_ref().is_some_and(|lease| lease.run == at.run) || head.pending.is_some_and(|pending| pending.run == at.run)
        });
        if leased || !sessions.is_gone(&entry.owner).await? {
            return Ok(if leased { Found::Over } else { Found::Leave(Outlook::Busy(entry.owner)) });
        }
        sessions.dequeue(session, at.run).await?;
        return Ok(Found::Over);
    }
    *known = snapshot;
    Ok(Found::Work(Box::new(Work::load(sessions, entry).await?)))
}

fn take_handed(inner: &Inner, hash: SessionHash) -> HashMap<RunId, (Work, Snapshot)> {
    match inner.state().sessions.get_mut(&hash) {
        Some(tasked) => {
            tasked.again = false;
            std::mem::take(&mut tasked.handed)
        }
        None => HashMap::new(),
    }
}

/// The task ends: nobody of this process has these runs any more.
fn put_back(inner: &Inner, handed: &HashMap<RunId, (Work, Snapshot)>, outlook: Outlook) -> Outlook {
    forget(inner, handed.keys());
    outlook
}

fn forget<'r>(inner: &Inner, runs: impl Iterator<Item = &'r RunId>) {
    let mut state = inner.state();
    for run in runs {
        state.local.remove(run);
    }
}

fn failed(session: &SessionRef, error: &Error) -> Outlook {
    match error.stable_code() {
        "drained" => Outlook::Empty,
        "fenced" => {
            tracing::warn!(%session, error = %error.chain(), "another replica goes on with a run");
            Outlook::Later(Duration::from_secs(2))
        }
        _ => {
            tracing::warn!(%session, error = %error.chain(), "a run could not be driven; it stays accepted");
            Outlook::Failed
        }
    }
}
