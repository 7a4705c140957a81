//! The crates that the project stands on are direct dependencies, and really used.

use std::path::Path;

/// Whether a source file below a folder mentions a crate by its path.
fn used(folder: &Path, name: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return used(&path, name);
        }
        path.extension().is_some_and(|extension| extension == "rs")
            && std::fs::read_to_string(&path).unwrap().contains(&format!("{name}::"))
    })
}

#[test]
fn the_named_crates_are_dependencies_in_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (package, crates) in [
        ("host", &["wasmtime", "wasmtime-wasi", "tokio", "object_store", "gix", "sha2", "serde"][..]),
        // `cron` comes with schedules, `ipnet` with the gate for what leaves.
        ("guests/sdk", &["wit-bindgen"][..]),
    ] {
        let manifest = std::fs::read_to_string(root.join(package).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
        let dependencies = dependencies.split("\n[").next().unwrap();
        for name in crates {
            let declared = dependencies.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(name));
            assert!(declared, "{name} is no direct dependency of {package}");
            assert!(used(&root.join(package).join("src"), &name.replace('-', "_")), "{name} isn't used in {package}");
        }
    }
}

/// Drills are for tests: the command's own manifest never asks for them, and without debug assertions nothing of them is compiled.
#[test]
fn a_release_build_has_no_drills() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for manifest in ["Cargo.toml", "host/cli/Cargo.toml", "guests/xtask/Cargo.toml"] {
        let text = std::fs::read_to_string(root.join(manifest)).unwrap();
        assert!(!text.contains("drills") && !text.contains("\"fuzzing\""), "{manifest} asks for drills or for what fuzzing calls");
    }
    let text = std::fs::read_to_string(root.join("host/src/drill.rs")).unwrap();
    for line in text.lines().filter(|line| line.contains("feature = \"drills\"")) {
        assert!(line.contains("debug_assertions"), "{line}");
    }
}
