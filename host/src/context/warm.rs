//! The heads of sessions that were at work here a moment ago.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::id::SessionRef;
use crate::session::Snapshot;

/// How long a session's head is remembered between turns, which saves a request.
const WARM: Duration = Duration::from_secs(300);
/// Most sessions whose head is remembered.
const WARM_MAX: usize = 1024;

/// Heads as they were last seen here. None is trusted: the lease's compare-and-swap says whether it was still right.
#[derive(Debug)]
pub(crate) struct WarmHeads {
    clock: Arc<dyn Clock>,
    seen: Mutex<HashMap<SessionRef, (Snapshot, Duration)>>,
}

impl WarmHeads {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    /// Takes the session's head as it was last seen here, when that isn't long ago.
    pub(crate) fn take(&self, session: &SessionRef) -> Option<Snapshot> {
        let (snapshot, seen) = self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(session)?;
        (self.clock.boot().saturating_sub(seen) < WARM).then_some(snapshot)
    }

    pub(crate) fn keep(&self, session: SessionRef, snapshot: Snapshot) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= WARM_MAX {
            seen.clear();
        }
        seen.insert(session, (snapshot, self.clock.boot()));
    }
}
