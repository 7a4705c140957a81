//! Counting what a guest holds open, so that it is refused in words before a table of the engine overflows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::bindings::wasi::filesystem::types::ErrorCode;
use super::errors::Fault;

/// How many things may be open at once, and how many are.
#[derive(Debug)]
pub(super) struct Seats {
    taken: AtomicUsize,
    limit: usize,
}

/// One open thing; dropping it frees the place.
#[derive(Debug)]
pub(super) struct Seat(Arc<Seats>);

impl Seats {
    pub(super) fn new(limit: usize) -> Self {
        Self { taken: AtomicUsize::new(0), limit }
    }

    /// Takes a place. The interface has no code for "too many open files" (`EMFILE`); `insufficient-memory` is the nearest.
    pub(super) fn take(self: &Arc<Self>) -> Result<Seat, Fault> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(Seat(Arc::clone(self)));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        Err(ErrorCode::InsufficientMemory.into())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
