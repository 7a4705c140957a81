//! Claims: which run a tick became. Written once, never changed.

use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::error::{Error, Result};
use crate::id::{RunId, ScheduleId, SessionRef};
use crate::session::Owner;
use crate::session::record::{INPUT_INLINE, Input, Text};
use crate::store::document::Document;
use crate::tick::TickName;

/// A claim. Whoever wants to run a tick creates it; whoever finds it there runs what it says, and nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The schedule.
    pub id: ScheduleId,
    /// The tick.
    pub tick: TickName,
    /// The run that it became.
    pub run: RunId,
    /// The session that the run works in.
    pub session: SessionRef,
    /// What the run gets.
    pub input: Input,
    /// The plan's generation at the time.
    pub generation: u64,
    /// The process that made the claim.
    pub owner: Owner,
    /// When, by that process's clock. What counts is the store's date of the object.
    pub created: UnixNanos,
}

impl Document for Claim {
    const KIND: &'static str = "claim";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "claim_damaged";

    fn check(&self) -> Result<()> {
        match &self.input.inline {
            Some(text) if !Text::fits(text, INPUT_INLINE) => Err(Error::damaged("its input is too long to be inline")),
            Some(text) if crate::id::sha256(text.as_bytes()) != self.input.digest => {
                Err(Error::damaged("its input doesn't match its digest"))
            }
            _ => Ok(()),
        }
    }
}
