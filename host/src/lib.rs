//! Landfall runs agents as WebAssembly components, in turns, on a repository pinned to a commit, with a filesystem that outlives the machine.
//!
//! See `ARCHITECTURE.md` for the way of a turn through the modules. This library never prints, reads the environment or parses flags.

mod base64;
pub mod cancel;
pub mod capability;
pub mod checkpoint;
pub mod clock;
pub mod component;
pub mod config;
mod context;
pub mod drill;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gc;
#[cfg(test)]
mod golden;
pub mod host;
pub mod id;
mod nearest;
pub mod outbound;
pub mod pin;
pub mod policy;
pub mod random;
pub mod repository;
pub mod schedule;
pub mod secret;
pub mod session;
pub mod store;
pub mod tick;
pub mod trigger;
pub mod turn;
pub mod worker;
pub mod workspace;

pub use error::{Error, ErrorKind, Result};
