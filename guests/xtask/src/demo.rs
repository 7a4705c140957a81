//! `cargo xtask demo`: the main job, on an embedded store.

use std::process::Command;

use anyhow::Result;

use crate::{command, guests, places};

/// Builds what the demo needs, says what it does, and does it.
pub(crate) fn run(_rest: &[String]) -> Result<()> {
    println!("Building the guests and the binary. The first time this takes some minutes.");
    guests::build(&[])?;
    command::run(Command::new("cargo").args(["build", "--locked", "--package", "landfall-cli"]).current_dir(places::root()))?;
    println!("Built: {}", places::target().join("debug/landfall").display());
    Ok(())
}
