use std::sync::Arc;

use super::super::EngineOptions;
use super::*;
use crate::clock::SystemClock;
use crate::error::ErrorKind;
use crate::random::SystemRandom;

fn engine(cache: Option<&Path>) -> Engine {
    let options = EngineOptions { guests: 2, pooling: false, cache: cache.map(CacheOptions::new) };
    Engine::new(&options, Arc::new(SystemClock), Arc::new(SystemRandom)).unwrap()
}

/// A command that returns well.
fn command() -> String {
    exporting("wasi:cli/run@0.2.3", "")
}

/// A component that exports an interface with one function `run`.
fn exporting(interface: &str, imports: &str) -> String {
    format!(
        r#"(component
            {imports}
            (core module $m (func (export "run") (result i32) (i32.const 0)))
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $exported (export "run" (func $run)))
            (export "{interface}" (instance $exported)))"#
    )
}

async fn load(engine: &Engine, text: &str) -> Result<Arc<Loaded>> {
    engine.load_bytes("test.wasm", wat::parse_str(text).unwrap().into()).await
}

#[tokio::test]
async fn a_command_is_known_by_its_export() {
    let loaded = load(&engine(None), &command()).await.unwrap();
    assert_eq!(loaded.world(), World::Command);
    assert_eq!(loaded.program(), "test");
    assert!(loaded.imports().is_empty());
}

#[tokio::test]
async fn what_is_no_component_is_refused_with_the_way_to_make_one() {
    let engine = engine(None);
    for (bytes, says) in [
        (&b""[..], "is empty"),
        (b"hello", "is not WebAssembly"),
        (b" (component)", "is WebAssembly text"),
        (b"\x7fELF\x02", "is native code"),
        (b"\0asm\x01\0\0\0", "is a core WebAssembly module"),
        (b"\0asm\x0e\0\x01\0", "another version"),
    ] {
        let error = engine.load_bytes("x.wasm", Bytes::from_static(bytes)).await.unwrap_err();
        assert_eq!((error.kind(), error.stable_code()), (ErrorKind::Component, "not_a_component"));
        assert!(error.message().contains("x.wasm") && error.message().contains(says), "{error}");
        assert!(error.next_step().unwrap().contains("wasm-tools component new"));
    }
}

#[tokio::test]
async fn a_broken_component_is_refused() {
    let mut bytes = wat::parse_str(command()).unwrap();
    bytes.truncate(bytes.len() / 2);
    let error = engine(None).load_bytes("x.wasm", bytes.into()).await.unwrap_err();
    assert_eq!(error.stable_code(), "invalid_component");
}

#[tokio::test]
async fn features_that_guests_do_not_get_are_refused() {
    let engine = engine(None);
    for module in
        ["(core module (memory i64 1))", "(core module (memory 1 1 shared))", "(core module (type (struct)))", "(core module (tag))"]
    {
        let error = load(&engine, &format!("(component {module})")).await.unwrap_err();
        assert_eq!(error.stable_code(), "invalid_component", "{module}");
    }
}

#[tokio::test]
async fn missing_files_and_folders_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(None);
    let error = engine.load(folder.path().join("none.wasm")).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (ErrorKind::NotFound, "component_missing"));
    assert!(error.message().contains("none.wasm"));
    let error = engine.load(folder.path()).await.unwrap_err();
    assert!(error.message().contains("is not a file"), "{error}");
}

#[tokio::test]
async fn other_worlds_and_versions_are_named() {
    let engine = engine(None);
    for (export, code, says) in [
        ("wasi:http/incoming-handler@0.2.3", "unknown_world", "it exports wasi:http/incoming-handler@0.2.3"),
        ("wasi:cli/run@0.3.0", "version_skew", "wasi:cli/run@0.3.0"),
        ("landfall:agent/turn@0.2.0", "version_skew", "and this host runs 0.1.0"),
    ] {
        let error = load(&engine, &exporting(export, "")).await.unwrap_err();
        assert_eq!(error.stable_code(), code);
        assert!(error.message().contains(says), "{error}");
    }
    let error = load(&engine, "(component)").await.unwrap_err();
    assert!(error.message().contains("it exports nothing"), "{error}");
}

#[tokio::test]
async fn imports_are_checked_before_anything_runs() {
    let engine = engine(None);
    let error = load(&engine, &exporting("wasi:cli/run@0.2.3", r#"(import "acme:db/query@1.0.0" (instance))"#)).await.unwrap_err();
    assert_eq!(error.stable_code(), "missing_import");
    assert!(error.message().contains("acme:db/query@1.0.0"), "{error}");
}

#[tokio::test]
async fn an_interface_that_differs_says_which_versions_met() {
    let import = r#"(import "landfall:agent/progress@0.1.9" (instance (export "later" (func))))"#;
    let error = load(&engine(None), &exporting("wasi:cli/run@0.2.3", import)).await.unwrap_err();
    assert_eq!(error.stable_code(), "import_mismatch");
    assert!(error.message().contains("built against landfall:agent@0.1.9, and this host has 0.1.0"), "{error:?}");
    assert!(error.chain().contains("later"), "{error:?}");
}

#[tokio::test]
async fn equal_components_are_loaded_once() {
    let engine = engine(None);
    let first = load(&engine, &command()).await.unwrap();
    let second = load(&engine, &command()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
}

#[tokio::test]
async fn a_file_that_changed_is_loaded_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.wasm");
    let engine = engine(None);
    std::fs::write(&path, wat::parse_str(command()).unwrap()).unwrap();
    let first = engine.load(&path).await.unwrap();
    std::fs::write(&path, wat::parse_str(exporting("wasi:cli/run@0.2.4", "")).unwrap()).unwrap();
    let second = engine.load(&path).await.unwrap();
    assert_ne!(first.digest(), second.digest());
    // As if long ago: then the file isn't even read again.
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let third = engine.load(&path).await.unwrap();
    assert_eq!(second.digest(), third.digest());
}

/// How many artefacts are in a folder.
fn artefacts(folder: &Path) -> usize {
    let is_code = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "cwasm");
    std::fs::read_dir(folder).unwrap().filter(|entry| is_code(entry.as_ref().unwrap())).count()
}

#[tokio::test]
async fn the_compiled_form_is_kept_and_a_tampered_one_is_never_run() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("components");
    load(&engine(Some(&cache)), &command()).await.unwrap();
    assert_eq!(artefacts(&cache), 1);
    let code = std::fs::read_dir(&cache)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "cwasm"))
        .unwrap();
    let good = std::fs::read(&code).unwrap();

    // Another engine loads it; had it compiled, the file would be another one.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&code);
    load(&engine(Some(&cache)), &command()).await.unwrap();
    assert_eq!(inode(&code), before);

    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    std::fs::write(&code, &bad).unwrap();
    let loaded = load(&engine(Some(&cache)), &command()).await.unwrap();
    assert_eq!(loaded.world(), World::Command);
    assert_ne!(inode(&code), before, "compiled again");
    assert_ne!(std::fs::read(&code).unwrap(), bad);
}

#[tokio::test]
async fn a_pooled_engine_and_one_without_a_pool_share_artefacts() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("components");
    load(&engine(Some(&cache)), &command()).await.unwrap();
    let options = EngineOptions { guests: 2, pooling: true, cache: Some(CacheOptions::new(&cache)) };
    let pooled = Engine::new(&options, Arc::new(SystemClock), Arc::new(SystemRandom)).unwrap();
    assert_eq!(load(&pooled, &command()).await.unwrap().world(), World::Command);
    assert_eq!(artefacts(&cache), 1);
}
