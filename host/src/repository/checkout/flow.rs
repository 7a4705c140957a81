//! How many decoded bytes are on their way from the walk to the importer.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Decoded bytes on their way to the importer; a larger blob travels alone.
const FLOW_BYTES: u64 = 16 << 20;

/// Bounds the decoded bytes between the walk and the importer.
#[derive(Debug, Default)]
pub(super) struct Flow {
    taken: Mutex<u64>,
    freed: Condvar,
}

impl Flow {
    pub(super) fn take(self: &Arc<Self>, size: u64) -> Weight {
        let amount = size.clamp(1, FLOW_BYTES);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken + amount > FLOW_BYTES {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += amount;
        Weight { flow: Arc::clone(self), amount }
    }
}

/// A part of the flow, given back on drop.
#[derive(Debug)]
pub(super) struct Weight {
    flow: Arc<Flow>,
    amount: u64,
}

impl Drop for Weight {
    fn drop(&mut self) {
        *self.flow.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.amount;
        self.flow.freed.notify_all();
    }
}
