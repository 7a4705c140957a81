//! Disks without room: where the cache lies, where a turn's edits overflow to, and where a folder is to be made.

use std::path::Path;

use landfall::checkpoint::import::{From, ImportOptions};
use landfall::config::Agent;
use landfall::host::Host;
use landfall::id::SessionRef;
use landfall_tests::small_disk::SmallDisk;
use landfall_tests::turns::{Turns, agent, run};

fn name(text: &str) -> SessionRef {
    landfall::session::selector::parse_session(text).unwrap()
}

fn bot(args: &[&str]) -> Agent {
    Agent { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..agent("fs-std") }
}

/// A host whose cache lies there: an absolute path takes the place of the test's own folder.
fn host(turns: &Turns, cache: &Path, agents: &[(&str, Agent)]) -> Host {
    turns.host(cache.to_str().unwrap(), agents).unwrap()
}

/// Brings a session with a file of so many bytes that don't compress.
async fn bring(host: &Host, session: &str, bytes: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(bytes);
    std::fs::write(dir.path().join("file"), &content).unwrap();
    std::fs::write(dir.path().join("small"), "small").unwrap();
    host.import(&name(session), From::Folder(dir.path().to_owned()), &ImportOptions::default()).await.unwrap();
    content
}

fn left(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_on_a_full_disk_costs_time_and_nothing_else() {
    let Some(disk) = SmallDisk::mount("size=256k") else { return };
    let turns = Turns::new().unwrap();
    let agents = [("bot", bot(&["append", "/workspace/log", "a line\n"]))];
    let content = bring(&turns.host("good", &agents).unwrap(), "bot/s", 1 << 20).await;
    // Full before anything is cached, and full from the first pack on.
    for filled in [true, false] {
        if filled {
            disk.fill();
        } else {
            std::fs::remove_file(disk.path().join("filler")).unwrap();
        }
        let small = host(&turns, &disk.path().join("cache"), &agents);
        let record = run(&small, "bot", "s", "").await.unwrap();
        assert!(record.is_completed(), "{record:?}");
        let open = small.open(&"bot/s".parse().unwrap()).await.unwrap();
        assert!(open.read("/workspace/file", 0, 1 << 20).await.unwrap() == content);
        assert!(small.verify(&open, true).await.unwrap().is_ok());
        let log = open.read("/workspace/log", 0, 1 << 10).await.unwrap();
        assert_eq!(log, "a line\n".repeat(if filled { 1 } else { 2 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_edits_find_no_room_on_the_disk_gets_insufficient_space_and_the_next_one_works() {
    let Some(disk) = SmallDisk::mount("size=8m") else { return };
    let turns = Turns::new().unwrap();
    // Zeros would take no room; these blocks do, above the 32 MiB that are kept in memory.
    let agents = [("filler", bot(&["fill", "/workspace"])), ("bot", bot(&["append", "/workspace/log", "a line\n"]))];
    let small = host(&turns, &disk.path().join("cache"), &agents);
    bring(&small, "filler/s", 1000).await;
    let record = run(&small, "filler", "s", "").await.unwrap();
    assert!(record.is_completed(), "the guest was told and went on: {record:?}");
    let output = String::from_utf8(small.output(&record).await.unwrap().to_vec()).unwrap();
    assert!(output.contains("error StorageFull"), "{output}");
    let written: u64 = output.rsplit("after ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((32 << 20..64 << 20).contains(&written), "{output}");
    // What fitted is in the checkpoint, and the disk is free again.
    let open = small.open(&"filler/s".parse().unwrap()).await.unwrap();
    assert!(small.verify(&open, true).await.unwrap().is_ok());
    bring(&small, "bot/t", 1000).await;
    assert!(run(&small, "bot", "t", "").await.unwrap().is_completed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_does_not_fit_the_disk_is_not_made_at_all() {
    let Some(disk) = SmallDisk::mount("size=2m") else { return };
    let turns = Turns::new().unwrap();
    let host = turns.host("one", &[("bot", bot(&["append", "/workspace/log", "x"]))]).unwrap();
    let content = bring(&host, "bot/s", 5 << 20).await;
    let open = host.open(&"bot/s".parse().unwrap()).await.unwrap();
    let target = disk.path().join("out");
    let error = host.materialise(&open, &target, &Default::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.stable_code()), (landfall::ErrorKind::Local, "disk_full"), "{error:?}");
    assert!(error.next_step().is_some() && error.chain().contains(disk.path().to_str().unwrap()), "{error:?}");
    assert_eq!(left(disk.path()), Vec::<String>::new(), "nothing is left");
    disk.remount("size=16m");
    host.materialise(&open, &target, &Default::default()).await.unwrap();
    assert!(std::fs::read(target.join("file")).unwrap() == content);
    assert_eq!(left(disk.path()), ["out"]);
}
