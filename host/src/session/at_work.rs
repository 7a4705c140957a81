//! The runs that this process is at. A lease of this very process whose run isn't among them was dropped (the store failed when it was to be
//! given back, say), and may be taken over at once: nobody else would ever take a living process for dead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::{RunId, SessionRef};

type Counts = HashMap<(SessionRef, RunId), usize>;

/// The runs of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWork(Arc<Mutex<Counts>>);

/// Says that a run is being worked at, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mark {
    all: AtWork,
    at: (SessionRef, RunId),
}

impl AtWork {
    /// Marks a run. Marks add up: the run is at work until all are dropped.
    pub(super) fn mark(&self, session: &SessionRef, run: RunId) -> Mark {
        let at = (session.clone(), run);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(at.clone()).or_default() += 1;
        Mark { all: self.clone(), at }
    }

    pub(super) fn contains(&self, session: &SessionRef, run: RunId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&(session.clone(), run))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_at_work_until_its_last_mark_is_dropped() {
        let all = AtWork::default();
        let session = SessionRef { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let run = RunId::new_v7(1, [0; 10]);
        let (first, second) = (all.mark(&session, run), all.clone().mark(&session, run));
        drop(first);
        assert!(all.contains(&session, run) && !all.contains(&session, RunId::new_v7(2, [0; 10])));
        drop(second);
        assert!(!all.contains(&session, run));
    }
}
