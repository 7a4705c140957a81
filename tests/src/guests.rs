//! The guests that the tests run, as `cargo xtask guests` built them.

use std::path::{Path, PathBuf};

/// Returns the path of a built component: `<target>/components/<name>.wasm`.
///
/// # Panics
/// When it isn't there: a test that needs a guest can't go on without it.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let path = target().join("components").join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing: run `cargo xtask guests`", path.display());
    path
}

/// Returns the names of all built components, sorted.
///
/// # Panics
/// When none was built.
#[must_use]
pub fn names() -> Vec<String> {
    let components = target().join("components");
    let Ok(entries) = std::fs::read_dir(&components) else {
        panic!("{} is missing: run `cargo xtask guests`", components.display());
    };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".wasm").map(str::to_owned)).collect();
    names.sort();
    names
}

/// Returns the target directory: `CARGO_TARGET_DIR`, else `target` in the project.
#[must_use]
pub fn target() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().unwrap_or(tests);
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) if !directory.is_empty() => root.join(directory),
        _ => root.join("target"),
    }
}
