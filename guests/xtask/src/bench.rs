//! `cargo xtask bench checkpoint`: what checkpoints cost, beside the tools of others. Arguments go on to the benchmark:
//!
//! - `--dataset source|flat|mixed|odd` (20,000 source-like files; one directory of 50,000; 1 GiB with large files; deep paths and odd names)
//! - `--files N`, `--rounds N` (3), `--out PATH` (for PATH.json, .md and .svg), `--work DIR` (where files and local repositories lie)
//!
//! restic, borg and curl are taken from the system, and left out when they aren't installed; agno comes from PyPI into the cache.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{command, places, setup};

/// The Python system, with the client that it uses.
const AGNO: [&str; 2] = ["agno==3.1.5", "boto3"];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some(("checkpoint", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
        bail!("name what is measured: `cargo xtask bench checkpoint`");
    };
    setup::seaweedfs()?;
    let mut cargo = Command::new("cargo");
    cargo.args(["bench", "--workspace", "--locked", "--bench", "peers", "--"]).args(rest);
    cargo.current_dir(places::root()).env("CARGO_TARGET_DIR", places::target());
    match agno() {
        Ok(python) => drop(cargo.env("BENCH_AGNO_PYTHON", python)),
        Err(error) => eprintln!("agno can't be installed, and is left out: {error:#}"),
    }
    command::run(&mut cargo)
}

/// Makes a Python with agno in the cache, and returns its path.
fn agno() -> Result<PathBuf> {
    let home = places::cache()?.join("agno-3.1.5");
    let python = home.join("bin/python");
    if !home.join("ready").is_file() {
        command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        command::run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(AGNO))?;
        std::fs::write(home.join("ready"), "")?;
    }
    Ok(python)
}
