//! The time by the store's clock: what decides whether a tick is due, so that a replica with a fast clock can't fire early and one with a
//! slow clock isn't late.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::clock::UnixNanos;
use crate::drill::{self, Safeguard};
use crate::error::Result;
use crate::store::{Key, Nonce, Store};

/// How coarse a store's dates may be: HTTP dates are whole seconds (RFC 9110 5.6.7). Nanoseconds.
const COARSE: i64 = 1_000_000_000;
/// How long a measurement is good for: what clocks drift within it doesn't matter.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// What the store's clock was ahead of this process's boot clock, at least and at most.
#[derive(Clone, Copy, Debug)]
struct Measured {
    least: i64,
    most: i64,
    at: Duration,
}

/// The store's clock, measured by the date of a scratch object now and then.
#[derive(Debug)]
pub struct StoreTime {
    store: Store,
    scratch: Key,
    measured: Mutex<Option<Measured>>,
}

impl StoreTime {
    /// Makes one that hasn't measured yet.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let scratch = Key::Probe(Nonce::draw(&**store.random()));
        Self { store, scratch, measured: Mutex::default() }
    }

    /// Returns the time: this machine's, as far as the store's clock allows it.
    ///
    /// # Errors
    /// `Store`.
    pub async fn now(&self) -> Result<UnixNanos> {
        if drill::disabled(Safeguard::StoreTime) {
            return Ok(self.store.clock().now());
        }
        let measured = self.measure().await?;
        let boot = nanos(self.store.clock().boot());
        let (least, most) = (boot.saturating_add(measured.least), boot.saturating_add(measured.most));
        Ok(self.store.clock().now().clamp(least, most))
    }

    /// Returns a time that the store's clock has reached for certain.
    ///
    /// # Errors
    /// `Store`.
    pub async fn reached(&self) -> Result<UnixNanos> {
        if drill::disabled(Safeguard::StoreTime) {
            return Ok(self.store.clock().now());
        }
        let measured = self.measure().await?;
        Ok(nanos(self.store.clock().boot()).saturating_add(measured.least))
    }

    /// Returns how far this machine's clock is ahead of the store's, as far as can be told. Nanoseconds; zero for one that may be right.
    ///
    /// # Errors
    /// `Store`.
    pub async fn skew(&self) -> Result<i64> {
        Ok(self.store.clock().now().saturating_sub(self.now().await?))
    }

    /// Deletes the scratch object.
    ///
    /// # Errors
    /// `Store`.
    pub async fn close(&self) -> Result<()> {
        let had = self.measured.lock().unwrap_or_else(PoisonError::into_inner).take();
        if had.is_some() { self.store.delete(&self.scratch).await } else { Ok(()) }
    }

    async fn measure(&self) -> Result<Measured> {
        let before = self.store.clock().boot();
        let known = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known
            && before.saturating_sub(known.at) < GOOD_FOR
        {
            return Ok(known);
        }
        self.store.put_immutable(&self.scratch, Bytes::from_static(b"time\n")).await?;
        let after = self.store.clock().boot();
        let written = self.store.get(&self.scratch, 64).await?.modified;
        let measured = Measured {
            least: written.saturating_sub(nanos(after)),
            most: written.saturating_add(COARSE).saturating_sub(nanos(before)),
            at: before,
        };
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Some(measured);
        Ok(measured)
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
