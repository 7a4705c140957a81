//! The project's tasks: `cargo xtask setup | guests | test | demo | sim | bench`.
//!
//! It has few dependencies, so that it builds in seconds on a machine that has nothing yet.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for people at a terminal")]

mod bench;
mod command;
mod demo;
mod guests;
mod places;
mod scripted;
mod setup;
mod sim;
mod test;
mod toolchain;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  setup    installs what the build and the tests need beside Rust; quiet when nothing is missing
  guests   builds the guests, or those named after it, into <target>/components
  test     everything that CI runs
  demo     the main job, on an embedded store
  bench    `bench checkpoint`: checkpoints beside restic, borg, git, tar and agno; see bench.rs for its flags
  sim      many replicas on one store, simulated: --seeds N [--from S] runs many seeds, --seed S shows one";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let done = match task.as_str() {
        "setup" => setup::all(),
        "guests" => guests::task(&rest),
        "test" => test::run(&rest),
        "demo" => demo::run(&rest),
        "bench" => bench::run(&rest),
        "sim" => sim::run(&rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
