//! `cargo xtask test`: everything that CI runs. The integration tests come last, so that the output ends with their summary.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::{command, guests, places, setup};

/// Runs every step in order and stops at the first that fails. Further arguments go to the last `cargo nextest run`.
pub(crate) fn run(rest: &[String]) -> Result<()> {
    step("set-up", setup::all)?;
    step("guests", || guests::task(&[]))?;
    step("formatting", || {
        cargo(&["fmt", "--all", "--check"], Workspace::Host)?;
        cargo(&["fmt", "--all", "--check"], Workspace::Guests)
    })?;
    step("lints", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        cargo(&arguments, Workspace::Host)?;
        cargo(&arguments, Workspace::Guests)
    })?;
    step("documentation", || {
        let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
        cargo(&arguments, Workspace::Host)?;
        cargo(&arguments, Workspace::Guests)
    })?;
    step("documentation tests", || {
        cargo(&["test", "--doc", "--locked", "--workspace"], Workspace::Host)?;
        cargo(&["test", "--doc", "--locked", "--package", "landfall-guest"], Workspace::Guests)
    })?;
    step("tests of the guests' own logic", || cargo(&["nextest", "run", "--workspace", "--locked"], Workspace::Guests))?;
    // Tests start the real binaries. All targets at once, so that dependencies are built with one set of features.
    step("binaries", || cargo(&["build", "--workspace", "--all-targets", "--locked"], Workspace::Host))?;
    step("tests", || {
        let mut arguments = vec!["nextest", "run", "--workspace", "--locked"];
        arguments.extend(rest.iter().map(String::as_str));
        cargo(&arguments, Workspace::Host)
    })
}

/// Which workspace a cargo command is for. Both are built for this machine here, with the Rust in use.
#[derive(Clone, Copy)]
enum Workspace {
    Host,
    Guests,
}

fn cargo(arguments: &[&str], workspace: Workspace) -> Result<()> {
    let (directory, target): (PathBuf, PathBuf) = match workspace {
        Workspace::Host => (places::root(), places::target()),
        Workspace::Guests => (places::root().join("guests"), places::target().join("guests-host")),
    };
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(directory).env("CARGO_TARGET_DIR", target);
    if arguments.first() == Some(&"doc") {
        cargo.env("RUSTDOCFLAGS", "-D warnings");
    }
    command::run(&mut cargo)
}

fn step(name: &str, task: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    task()?;
    // The last lines of a run belong to its test runner.
    if name != "tests" {
        eprintln!("== {name}: {} s", start.elapsed().as_secs());
    }
    Ok(())
}
