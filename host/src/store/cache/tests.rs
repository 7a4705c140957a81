#![expect(clippy::cast_possible_truncation, reason = "the numbers of tests are small")]

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use super::*;

#[derive(Debug, Default)]
struct HandClock(AtomicI64);

#[async_trait::async_trait]
impl crate::clock::Clock for HandClock {
    fn now(&self) -> UnixNanos {
        self.0.load(Ordering::Relaxed)
    }

    fn boot(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _span: Duration) {}
}

fn hour(n: i64) -> i64 {
    1_700_000_000_000_000_000 + n * 3_600_000_000_000
}

fn pack(n: u8) -> PackId {
    PackId::from_bytes([n; 32])
}

fn on_disk(dir: &Path) -> u64 {
    let mut total = 0;
    for shard in 0..SHARDS {
        for entry in std::fs::read_dir(dir.join(format!("{shard:02x}"))).into_iter().flatten() {
            total += entry.unwrap().metadata().map_or(0, |meta| meta.len());
        }
    }
    total
}

#[test]
fn any_part_of_a_range_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let clock: SharedClock = Arc::new(HandClock::default());
    let cache = DiskCache::open(&dir.path().join("c"), 1 << 20, Arc::clone(&clock)).unwrap();
    cache.put(pack(1), 100, b"0123456789");
    let other = DiskCache::open(&dir.path().join("c"), 1 << 20, clock).unwrap();
    for cache in [&cache, &other] {
        assert_eq!(cache.get(pack(1), 100, 10).unwrap(), "0123456789");
        assert_eq!(cache.get(pack(1), 103, 4).unwrap(), "3456");
        assert_eq!(cache.get(pack(1), 99, 4), None);
        assert_eq!(cache.get(pack(1), 105, 6), None);
        assert_eq!(cache.get(pack(1), u32::MAX, u32::MAX), None);
        assert_eq!(cache.get(pack(2), 100, 10), None);
    }
    // A longer range takes the place of those within it.
    cache.put(pack(1), 90, &[7; 40]);
    assert_eq!(cache.get(pack(1), 100, 10).unwrap(), [7; 10][..]);
    assert_eq!(on_disk(&dir.path().join("c")), 40);
    // The other process finds that its file has gone.
    assert_eq!(other.get(pack(1), 100, 10), None);
    cache.forget(pack(1));
    assert_eq!(cache.get(pack(1), 100, 10), None);
    assert_eq!(on_disk(&dir.path().join("c")), 0);
}

#[test]
fn the_least_recently_used_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock(AtomicI64::new(hour(0))));
    let cache = DiskCache::open(dir.path(), 10_000, clock.clone()).unwrap();
    for n in 0..9 {
        clock.0.store(hour(i64::from(n)), Ordering::Relaxed);
        cache.put(pack(n), 0, &[n; 1000]);
    }
    clock.0.store(hour(20), Ordering::Relaxed);
    assert!(cache.get(pack(0), 0, 1000).is_some());
    cache.put(pack(20), 0, &[20; 2000]);
    assert!(on_disk(dir.path()) <= 10_000);
    assert!(cache.get(pack(0), 0, 1000).is_some(), "it was used last");
    assert!(cache.get(pack(20), 0, 2000).is_some());
    assert_eq!(cache.get(pack(1), 0, 1000), None);
    // With a smaller budget the first write trims.
    let small = DiskCache::open(dir.path(), 3_000, clock).unwrap();
    small.put(pack(21), 0, &[21; 100]);
    assert!(on_disk(dir.path()) <= 3_000);
    assert!(small.used() <= 3_000);
}

#[test]
fn a_range_that_is_too_large_for_the_budget_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(dir.path(), 1000, Arc::new(HandClock::default())).unwrap();
    cache.put(pack(1), 0, &[1; 251]);
    cache.put(pack(1), 0, &[]);
    assert_eq!(on_disk(dir.path()), 0);
}

#[test]
fn caches_that_trim_at_once_stay_sound_and_bounded() {
    const BUDGET: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let open = || DiskCache::open(dir.path(), BUDGET, Arc::new(crate::clock::SystemClock)).unwrap();
    let content = |n: u16| vec![n as u8; 1500];
    let name = |n: u16| PackId::from_bytes(*crate::id::sha256(&n.to_le_bytes()).as_bytes());
    std::thread::scope(|scope| {
        for thread in 0..4_u16 {
            scope.spawn(move || {
                // Each has its own index and counters, as another process has.
                let cache = open();
                for n in 0..150_u16 {
                    let number = (n * 7 + thread * 13) % 200;
                    cache.put(name(number), 8, &content(number));
                    for back in 0..5 {
                        let number = number.saturating_sub(back);
                        if let Some(found) = cache.get(name(number), 8, 1500) {
                            assert_eq!(found, content(number));
                        }
                    }
                }
            });
        }
    });
    // Each process may add an eighth of the budget before it looks, and again when another one is just looking.
    assert!(on_disk(dir.path()) <= BUDGET + 4 * 2 * BUDGET / 8, "{}", on_disk(dir.path()));
    open().trim();
    assert!(on_disk(dir.path()) <= BUDGET);
    assert_eq!(std::fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn damage_on_disk_is_a_miss_or_other_bytes_and_never_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let clock: SharedClock = Arc::new(HandClock::default());
    let cache = DiskCache::open(dir.path(), 1 << 20, clock).unwrap();
    let file = |n: u8| dir.path().join(format!("{n:02x}")).join(format!("{}-0-100", pack(n)));
    for n in 1..5 {
        cache.put(pack(n), 0, &[n; 100]);
    }
    std::fs::write(file(1), [1; 50]).unwrap();
    std::fs::write(file(2), [2; 150]).unwrap();
    std::fs::remove_file(file(3)).unwrap();
    std::fs::create_dir(file(3)).unwrap();
    std::fs::remove_file(file(4)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", file(4)).unwrap();
    for n in 1..5 {
        assert_eq!(cache.get(pack(n), 0, 100), None, "{n}");
    }
    std::fs::create_dir_all(dir.path().join("05")).unwrap();
    // Files that aren't ours are left out.
    for odd in ["x", "-0-100", "0-100", &format!("{}-0", pack(5)), &format!("{}-0-100-1", pack(5)), &format!("{}--1-100", pack(5))] {
        std::fs::write(dir.path().join("05").join(odd), [5; 100]).unwrap();
    }
    assert_eq!(cache.get(pack(5), 0, 100), None);
}

#[test]
fn temporary_files_of_dead_processes_are_removed_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock(AtomicI64::new(hour(0))));
    let cache = DiskCache::open(dir.path(), 1 << 20, clock.clone()).unwrap();
    let temp = dir.path().join("tmp/1-1");
    std::fs::write(&temp, b"half").unwrap();
    File::open(&temp).unwrap().set_modified(std::time::UNIX_EPOCH + Duration::from_nanos(hour(0) as u64)).unwrap();
    cache.trim();
    assert!(temp.exists());
    clock.0.store(hour(2), Ordering::Relaxed);
    cache.trim();
    assert!(!temp.exists());
}

#[test]
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    DiskCache::open(dir.path(), 1 << 20, Arc::new(HandClock::default())).unwrap();
    assert_eq!(dir.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::write(dir.path().join("file"), b"").unwrap();
    assert_eq!(DiskCache::open(&dir.path().join("file"), 1 << 20, Arc::new(HandClock::default())).unwrap_err().stable_code(), "local");
}
