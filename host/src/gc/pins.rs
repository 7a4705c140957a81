//! The pins of forks: which of them nobody stands on any more.

use std::time::Duration;

use crate::clock::UnixNanos;
use crate::error::Result;
use crate::session::Sessions;
use crate::session::head::{ForkPin, Head};
use crate::store::Nonce;

/// How old a pin is whose fork was never made. A maker that comes back later finds its pin gone, and gives up.
const UNMADE: Duration = Duration::from_secs(72 * 60 * 60);

/// Returns the incarnations of the forks whose pins can go.
///
/// # Errors
/// As [`Sessions::load`]: a fork whose head can't be read keeps its pin, by ending the collection.
pub(super) async fn loose(sessions: &Sessions, head: &Head, now: UnixNanos) -> Result<Vec<Nonce>> {
    let mut loose = Vec::new();
    for pin in &head.pins {
        if is_loose(sessions, pin, now).await? {
            loose.push(pin.incarnation);
        }
    }
    Ok(loose)
}

async fn is_loose(sessions: &Sessions, pin: &ForkPin, now: UnixNanos) -> Result<bool> {
    let Some(child) = sessions.load(&pin.child).await?.map(|found| found.head) else {
        return Ok(is_old(pin, now));
    };
    let is_it = child.incarnation == pin.incarnation;
    if is_it && child.is_open() {
        return Ok(false);
    }
    // A deleted fork may have forks of its own, which stand on this session's packs too.
    if !child.pins.is_empty() {
        return Ok(false);
    }
    Ok(is_it || pin.settled || is_old(pin, now))
}

fn is_old(pin: &ForkPin, now: UnixNanos) -> bool {
    now.saturating_sub(pin.at) > i64::try_from(UNMADE.as_nanos()).unwrap_or(i64::MAX)
}
