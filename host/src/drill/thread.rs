//! A safeguard that is taken away in one thread only: a simulation is all in one, and many of them run side by side.

use super::Safeguard;
use crate::error::Result;

#[cfg(all(feature = "drills", debug_assertions))]
thread_local! {
    static AWAY: std::cell::Cell<Option<Safeguard>> = const { std::cell::Cell::new(None) };
}

/// A safeguard is taken away in this thread until this is dropped.
#[derive(Debug)]
pub struct TakenAway(
    #[cfg_attr(not(all(feature = "drills", debug_assertions)), expect(dead_code, reason = "it is always none"))] Option<Safeguard>,
);

/// Takes a safeguard away in this thread, or none.
///
/// # Errors
/// `Usage` for any safeguard where this build has no drills.
pub fn take_away(safeguard: Option<Safeguard>) -> Result<TakenAway> {
    #[cfg(all(feature = "drills", debug_assertions))]
    return Ok(TakenAway(AWAY.replace(safeguard)));
    #[cfg(not(all(feature = "drills", debug_assertions)))]
    match safeguard {
        None => Ok(TakenAway(None)),
        Some(_) => super::arm("").map(|()| TakenAway(None)),
    }
}

#[cfg(all(feature = "drills", debug_assertions))]
impl Drop for TakenAway {
    fn drop(&mut self) {
        AWAY.set(self.0);
    }
}

#[cfg(all(feature = "drills", debug_assertions))]
pub(super) fn is_away(safeguard: Safeguard) -> bool {
    AWAY.get() == Some(safeguard)
}
