//! Programs that the tests start, as `cargo xtask setup` installed them.

use std::path::PathBuf;

/// Returns the path of SeaweedFS's program, `<cache>/seaweedfs-<version>/bin/weed`.
///
/// # Panics
/// When it isn't installed: a test that needs it can't go on without it.
#[must_use]
pub fn weed() -> PathBuf {
    let path = cache().join("seaweedfs-4.48/bin/weed");
    assert!(path.is_file(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// Returns the directory of what is kept over all clones of the project: `LANDFALL_CACHE`, else `landfall` in the user's cache directory.
fn cache() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("LANDFALL_CACHE").unwrap_or_else(|| {
        let user = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")));
        user.unwrap_or_default().join("landfall")
    })
}
