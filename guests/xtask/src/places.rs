//! Where things lie: the project, the target directory, the cache that outlives both.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Returns the project's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns the target directory, as the tests look for it too: `CARGO_TARGET_DIR`, else `target` in the project.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) if !directory.is_empty() => root().join(directory),
        _ => root().join("target"),
    }
}

/// Returns where the built guests go: `<target>/components/<name>.wasm`.
pub(crate) fn components() -> PathBuf {
    target().join("components")
}

/// Returns the directory for what is worth keeping over all clones of the project: `LANDFALL_CACHE`, else `landfall` in the user's
/// cache directory.
pub(crate) fn cache() -> Result<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = var("LANDFALL_CACHE") {
        return Ok(cache);
    }
    let user = match var("XDG_CACHE_HOME") {
        Some(cache) => cache,
        None => var("HOME").context("neither LANDFALL_CACHE, XDG_CACHE_HOME nor HOME is set")?.join(".cache"),
    };
    Ok(user.join("landfall"))
}
