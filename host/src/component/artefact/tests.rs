use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::random::SystemRandom;

fn open(folder: &Path) -> ArtefactCache {
    ArtefactCache::open(&CacheOptions::new(folder), Arc::new(SystemRandom)).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("components");
    (parent, folder)
}

fn name(text: &str) -> Digest {
    crate::id::sha256(text.as_bytes())
}

#[test]
fn hmac_matches_rfc_4231() {
    // Test case 1: a key of 20 bytes is padded with zeros to the block, as are the 32 bytes here.
    let mut key = [0; KEY_LEN];
    key[..20].fill(0x0b);
    let mac = hmac_sha256(&key, &[b"Hi ", b"There"]);
    assert_eq!(hex::encode(mac), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

#[test]
fn an_artefact_is_found_again_by_another_process() {
    let (_parent, folder) = folder();
    let code = vec![7; 3 * LEAF + 5];
    open(&folder).put(&name("a"), &code);
    let artefact = open(&folder).get(&name("a")).unwrap();
    assert_eq!(std::fs::read(artefact.path()).unwrap(), code);
    assert!(open(&folder).get(&name("b")).is_none());
}

#[test]
fn folder_and_files_are_private() {
    let (_parent, folder) = folder();
    open(&folder).put(&name("a"), b"code");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let entries: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 3, "{entries:?}");
    for entry in entries {
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
}

#[test]
fn whatever_was_tampered_with_counts_as_missing() {
    let (_parent, folder) = folder();
    let code = vec![7; 2 * LEAF];
    let cache = open(&folder);
    let (code_path, mac_path) = (folder.join(code_name(&name("a"))), folder.join(mac_name(&name("a"))));
    let fresh = || {
        cache.put(&name("a"), &code);
        assert!(cache.get(&name("a")).is_some());
    };

    fresh();
    let mut damaged = code.clone();
    damaged[LEAF + 3] ^= 1;
    std::fs::write(&code_path, &damaged).unwrap();
    assert!(cache.get(&name("a")).is_none(), "one bit");

    fresh();
    std::fs::write(&code_path, &code[..LEAF]).unwrap();
    assert!(cache.get(&name("a")).is_none(), "truncated to a whole leaf");

    fresh();
    std::fs::write(&mac_path, [0; 32]).unwrap();
    assert!(cache.get(&name("a")).is_none(), "foreign MAC");

    fresh();
    std::fs::remove_file(&mac_path).unwrap();
    assert!(cache.get(&name("a")).is_none(), "no MAC");

    fresh();
    std::fs::set_permissions(&code_path, std::fs::Permissions::from_mode(0o620)).unwrap();
    assert!(cache.get(&name("a")).is_none(), "writable by the group");
    std::fs::set_permissions(&code_path, std::fs::Permissions::from_mode(0o600)).unwrap();

    fresh();
    let elsewhere = folder.join("elsewhere");
    std::fs::rename(&code_path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &code_path).unwrap();
    assert!(cache.get(&name("a")).is_none(), "symbolic link");
    std::fs::remove_file(&code_path).unwrap();

    // A right artefact under another component's name.
    fresh();
    cache.put(&name("b"), b"other");
    std::fs::copy(folder.join(code_name(&name("b"))), &code_path).unwrap();
    std::fs::copy(folder.join(mac_name(&name("b"))), &mac_path).unwrap();
    assert!(cache.get(&name("a")).is_none(), "swapped");
    assert!(cache.get(&name("b")).is_some());
}

#[test]
fn a_key_that_others_could_read_is_replaced_and_nothing_under_it_is_trusted() {
    let (_parent, folder) = folder();
    open(&folder).put(&name("a"), b"code");
    let before = std::fs::read(folder.join(KEY)).unwrap();
    std::fs::set_permissions(folder.join(KEY), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(open(&folder).get(&name("a")).is_none());
    let after = std::fs::read(folder.join(KEY)).unwrap();
    assert_ne!(before, after);
    assert_eq!(after.len(), KEY_LEN);
}

#[test]
fn a_folder_that_others_can_enter_is_refused() {
    let (_parent, folder) = folder();
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = ArtefactCache::open(&CacheOptions::new(&folder), Arc::new(SystemRandom)).unwrap_err();
    assert_eq!(error.stable_code(), "cache_not_private");
    assert!(error.next_step().unwrap().contains("chmod 700"));
}

#[test]
fn the_longest_unused_go_first() {
    let (_parent, folder) = folder();
    let cache = ArtefactCache::open(&CacheOptions { folder: folder.clone(), bytes: 2500 }, Arc::new(SystemRandom)).unwrap();
    let age = |text: &str, seconds: i64| {
        for file in [code_name(&name(text)), mac_name(&name(text))] {
            let file = File::options().write(true).open(folder.join(file)).unwrap();
            let at = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
            rustix::fs::futimens(&file, &rustix::fs::Timestamps { last_access: at, last_modification: at }).unwrap();
        }
    };
    cache.put(&name("a"), &[1; 1000]);
    cache.put(&name("b"), &[1; 1000]);
    age("a", 1000);
    age("b", 2000);
    assert!(cache.get(&name("a")).is_some(), "a use makes it young again");
    cache.put(&name("c"), &[1; 1000]);
    assert!(cache.get(&name("b")).is_none());
    assert!(cache.get(&name("a")).is_some());
    assert!(cache.get(&name("c")).is_some());
}
