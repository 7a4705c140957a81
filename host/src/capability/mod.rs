//! What guests can ask of the host: one folder per interface of `landfall:agent`. A folder's `host.rs` has only the implementation
//! of the generated trait; what the capability does lies behind a service that the turn hands in.

pub mod checkpoints;
pub mod config;
pub mod fetch;
pub(crate) mod http;
pub mod progress;
pub mod refusal;
pub mod repository;
pub mod schedules;
pub mod types;

/// The bindings of the WIT world `landfall:agent/agent`, made from `wit/`.
pub(crate) mod bindings {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "made by a macro from documented WIT")]

    wasmtime::component::bindgen!({
        path: "../wit",
        world: "landfall:agent/agent",
        imports: { default: async | trappable },
        exports: { default: async },
        trappable_error_type: { "landfall:agent/types.error" => super::refusal::Refusal },
        require_store_data_send: true,
    });
}
