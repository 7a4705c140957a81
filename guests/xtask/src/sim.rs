//! `cargo xtask sim`: seeds of the simulation of many replicas on one store. `--seeds N [--from S]` runs many, `--seed S` shows one.

use std::process::Command;

use anyhow::Result;

use crate::{command, places};

/// Our own code is optimised here, as it isn't in other development builds: a seed takes a fraction of the time.
const OPTIMISED: [&str; 2] = ["profile.dev.package.landfall.opt-level=2", "profile.dev.package.landfall-tests.opt-level=2"];

/// Builds the simulation and runs it with the given arguments.
pub(crate) fn run(rest: &[String]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    // The whole workspace, so that dependencies have the features that all other builds give them; and something with dev-dependencies, whose features
    // cargo leaves out otherwise: all dependencies would be built a second time.
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--bin", "simulate", "--bench", "checkpoint"]);
    for setting in OPTIMISED {
        cargo.args(["--config", setting]);
    }
    command::run(cargo.current_dir(places::root()))?;
    let default = ["--seeds".to_owned(), "1000".to_owned()];
    command::run(Command::new(places::target().join("debug/simulate")).args(if rest.is_empty() { &default } else { rest }))
}
