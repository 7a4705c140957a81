//! Builds the guests into `<target>/components/<name>.wasm`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::toolchain::Toolchain;
use crate::{places, scripted};

/// `cargo xtask guests [NAME...]`: all of them, or the packages of these names.
pub(crate) fn task(only: &[String]) -> Result<()> {
    let names = build(only)?;
    println!("{} components in {}: {}", names.len(), places::components().display(), names.join(", "));
    Ok(())
}

/// Builds all guests, or only some, in one call of cargo, and returns their names. A component that didn't change keeps its file as it is.
pub(crate) fn build(only: &[String]) -> Result<Vec<String>> {
    let (scripted, compiled): (Vec<String>, Vec<String>) = only.iter().cloned().partition(|name| scripted::has(name));
    let mut built = BTreeMap::new();
    if only.is_empty() || !compiled.is_empty() {
        built = compile(&Toolchain::find_or_install()?, &compiled)?;
    }
    if only.is_empty() || !scripted.is_empty() {
        built.extend(scripted::build(&scripted)?);
    }
    let components = places::components();
    fs::create_dir_all(&components).with_context(|| format!("can't create {}", components.display()))?;
    for (name, from) in &built {
        place(from, &components.join(format!("{name}.wasm"))).with_context(|| format!("can't place the component {name}"))?;
    }
    Ok(built.into_keys().collect())
}

/// Runs cargo and returns each component's name and file.
fn compile(toolchain: &Toolchain, only: &[String]) -> Result<BTreeMap<String, PathBuf>> {
    let mut cargo = toolchain.cargo()?;
    cargo
        .current_dir(places::root().join("guests"))
        .env("CARGO_TARGET_DIR", places::target().join("guests"))
        // The standard library takes minutes to build, and is the same for every clone of the project.
        .env("CARGO_BUILD_BUILD_DIR", places::cache()?.join("guests-build"))
        .args(["build", "--release", "--locked", "--message-format=json-render-diagnostics"])
        .args(toolchain.build_arguments())
        .stdout(Stdio::piped());
    if only.is_empty() {
        cargo.arg("--workspace");
    }
    for name in only {
        cargo.args(["--package", name]);
    }
    let mut child = cargo.spawn().context("can't start cargo for the guests")?;
    let stdout = child.stdout.take().context("cargo has no stdout")?;
    let mut built = BTreeMap::new();
    for line in BufReader::new(stdout).lines() {
        if let Some((name, file)) = component(&line?) {
            built.insert(name, file);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("building the guests failed: {status}");
    }
    Ok(built)
}

/// Reads one message of cargo: the name and file of a component that it built. A library goes by its package's name, a command by its own.
fn component(message: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let target = message.get("target")?;
    let wasm = message.get("filenames")?.as_array()?.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm"))?;
    // rustc knows a library by a name without hyphens; none of ours has an underscore.
    let name = target.get("name")?.as_str()?.replace('_', "-");
    Some((name, wasm.into()))
}

fn place(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from)?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fresh = to.with_extension(format!("{}.new", std::process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(fresh, to)?;
    Ok(())
}
