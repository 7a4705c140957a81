//! Writes Landfall agents in Rust.
//!
//! An agent is a type that implements [`Agent`], exported once by [`export!`]. Its files are plain files: `std::fs` on `/workspace`
//! (the repository's files, when the agent has a repository), on `/state` (the agent's own memory) and on `/tmp`. What a turn leaves
//! in the first two is the next turn's start, on whichever machine that runs. A turn that fails leaves nothing.
//!
//! ```
//! use landfall_guest::{Agent, Failure, Request, Response};
//!
//! struct Counter;
//!
//! impl Agent for Counter {
//!     fn run(request: Request) -> Result<Response, Failure> {
//!         let seen = std::fs::read_to_string("/state/seen").unwrap_or_default();
//!         std::fs::write("/state/seen", format!("{seen}{}\n", request.input))?;
//!         Ok(Response::from(format!("{} inputs before this one", seen.lines().count())))
//!     }
//! }
//!
//! landfall_guest::export!(Counter);
//! ```
//!
//! `Cargo.toml` needs `crate-type = ["cdylib"]` under `[lib]`, and the crate is built with `--target wasm32-wasip2`.
//!
//! Beside files there are [`repository`], [`checkpoints`], [`fetch`], [`schedules`], [`progress`] and [`config`]. All of them need a host: in a test on one's own
//! machine they panic, so keep an agent's logic in functions that take a directory and give a value, and call those from `run`.

mod agent;
#[allow(missing_docs, clippy::all, unreachable_pub, unused_qualifications, reason = "generated from the WIT")]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "agent",
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "landfall_guest::bindings",
    });
}
pub mod checkpoints;
pub mod config;
mod error;
pub mod fetch;
pub mod progress;
pub mod repository;
pub mod schedules;

pub use agent::{Agent, Attachment, Failure, Request, Response, Tick, Trigger};
pub use bindings::landfall::agent::types::{Change, ChangeKind, FileInfo, FileKind, Instant};
pub use error::{Denial, Error, Limit};
