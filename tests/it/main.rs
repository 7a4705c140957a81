//! The integration tests: one binary, one file per subject. A file that isn't listed here fails [`every_file_is_listed`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on ends by panicking")]
#![allow(unreachable_pub, missing_debug_implementations, clippy::type_complexity, reason = "nothing here is used from outside")]

mod capability_schedules;
mod checkpoint_faults;
mod command;
mod component;
mod dependencies;
mod filesystem_guest;
mod format;
mod full_disk;
mod fuzz;
mod gc;
mod http_faults;
mod outbound;
mod outbound_guest;
mod policy_command;
mod policy_vectors;
mod queue_worker;
mod repository;
mod restart_matrix;
mod rooms;
mod schedule_command;
mod schedule_expressions;
mod schedule_server;
mod schedule_soak;
mod schedules;
mod server;
mod session_crash;
mod session_lease;
mod session_lines;
mod session_safeguards;
mod simulation;
mod soak;
mod store_conformance;
mod store_faults;
mod turn;
mod turn_stops;

#[test]
fn every_file_is_listed() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("it");
    let main = std::fs::read_to_string(here.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(&here).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let subject = name.trim_end_matches(".rs");
        assert!(subject == "main" || main.contains(&format!("\nmod {subject};")), "tests/it/{name} isn't listed in tests/it/main.rs");
    }
}
