//! Running guests: one engine, components loaded by digest, one call after another, each in a fresh instance within its limits.

mod artefact;
pub mod body;
pub mod engine;
pub mod failure;
pub mod imports;
pub mod invoke;
pub mod limits;
pub mod load;
mod output;
mod state;

pub use crate::cancel::{self, Cancel, CancelReason, Canceller};
pub use artefact::CacheOptions;
pub use body::Body;
pub use engine::{Engine, EngineOptions};
pub use failure::{Frame, GuestFailure, TrapKind};
pub use invoke::{Attachment, Call, GuestRequest, GuestResponse, Invoked, Trigger, Usage, instantiate, invoke};
pub use limits::GuestLimits;
pub use load::{Loaded, World};
