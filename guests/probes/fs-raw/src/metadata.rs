//! Stat, times, identity.

use crate::bindings::wasi::clocks::wall_clock::Datetime;
use crate::bindings::wasi::filesystem::types::{DescriptorFlags, DescriptorType, ErrorCode, NewTimestamp, OpenFlags};
use crate::check::*;

fn at(seconds: u64, nanoseconds: u32) -> Datetime {
    Datetime { seconds, nanoseconds }
}

fn time(datetime: Datetime) -> (u64, u32) {
    (datetime.seconds, datetime.nanoseconds)
}

pub(crate) fn times(c: &mut Checks) {
    let dir = scratch("times");
    let f = make(&dir, "f", b"x");
    let mtime = |path: &str| dir.stat_at(NOFOLLOW, path).map(|s| s.data_modification_timestamp.map(time));
    c.is("set-times", f.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(69, 123_456_789))), Ok(()));
    c.is("is seen", mtime("f"), Ok(Some((69, 123_456_789))));
    c.is("set-times-at", dir.set_times_at(NOFOLLOW, "f", NewTimestamp::NoChange, NewTimestamp::Timestamp(at(70, 0))), Ok(()));
    c.is("is seen too", f.stat().map(|s| s.data_modification_timestamp.map(time)), Ok(Some((70, 0))));
    c.is("no change", f.set_times(NewTimestamp::Timestamp(at(1, 0)), NewTimestamp::NoChange), Ok(()));
    c.is("changes nothing", mtime("f"), Ok(Some((70, 0))));
    c.is("now", f.set_times(NewTimestamp::Now, NewTimestamp::Now), Ok(()));
    c.is("is later", mtime("f").map(|time| time.is_some_and(|(seconds, _)| seconds > 1_600_000_000)), Ok(true));
    f.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(5, 0))).unwrap();
    f.write(b"y", 0).unwrap();
    c.is("a write changes it", mtime("f").map(|time| time.is_some_and(|(seconds, _)| seconds > 5)), Ok(true));
    let r = open(&dir, "f", READ).unwrap();
    c.is("set-times on a reader", r.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(9, 0))), Ok(()));
    dir.symlink_at("f", "s").unwrap();
    c.is("of the link itself", dir.set_times_at(NOFOLLOW, "s", NewTimestamp::NoChange, NewTimestamp::Timestamp(at(11, 0))), Ok(()));
    c.is("the link has it", mtime("s"), Ok(Some((11, 0))));
    c.is("the file hasn't", mtime("f"), Ok(Some((9, 0))));
    c.is("through the link", dir.set_times_at(FOLLOW, "s", NewTimestamp::NoChange, NewTimestamp::Timestamp(at(12, 0))), Ok(()));
    c.is("the file has it", mtime("f"), Ok(Some((12, 0))));
    c.is("of a directory", dir.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(13, 0))), Ok(()));
    c.is("the directory has it", mtime("."), Ok(Some((13, 0))));
    drop(make(&dir, "new", b""));
    c.is("a new entry changes it", mtime(".").map(|time| time.is_some_and(|(seconds, _)| seconds > 13)), Ok(true));
    c.is("nanoseconds over a second carry", f.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(1, 2_000_000_000))), Ok(()));
    c.is("are carried", mtime("f"), Ok(Some((3, 0))));
    c.refused(
        "a time that can't be held",
        f.set_times(NewTimestamp::NoChange, NewTimestamp::Timestamp(at(u64::MAX, 0))),
        ErrorCode::Overflow,
    );
    let set = |flags, path: &str| dir.set_times_at(flags, path, NewTimestamp::NoChange, NewTimestamp::Now);
    c.refused("of nothing", set(NOFOLLOW, "z"), ErrorCode::NoEntry);
    c.refused("of an empty path", set(FOLLOW, ""), ErrorCode::NoEntry);
    c.refused("of the root", set(NOFOLLOW, "/"), ErrorCode::NotPermitted);
    c.refused("of the parent", set(NOFOLLOW, ".."), ErrorCode::NotPermitted);
}

pub(crate) fn identity(c: &mut Checks) {
    let dir = scratch("identity");
    let a = make(&dir, "a", b"same");
    let b = make(&dir, "b", b"same");
    let again = open(&dir, "a", READ).unwrap();
    c.is("the same file", a.is_same_object(&again), true);
    c.is("another file of the same content", a.is_same_object(&b), false);
    c.is("a file and its directory", a.is_same_object(&dir), false);
    c.is("a directory", dir.is_same_object(&open(&dir, ".", READ).unwrap()), true);
    let hash = |path: &str| dir.metadata_hash_at(NOFOLLOW, path).map(|h| (h.lower, h.upper));
    let own = a.metadata_hash().map(|h| (h.lower, h.upper));
    c.is("hash by path and by descriptor", hash("a"), own);
    c.is("hash of another file", hash("b") == own, false);
    c.is("hash doesn't change by itself", hash("a"), own);
    dir.rename_at("a", &dir, "c").unwrap();
    c.is("hash after a rename", hash("c"), own);
    drop(make(&dir, "a", b"same"));
    c.is("a new file of the old name", hash("a") == own, false);
    dir.symlink_at("b", "s").unwrap();
    c.is("hash of a link", hash("s") == hash("b"), false);
    c.is("hash through a link", dir.metadata_hash_at(FOLLOW, "s").map(|h| (h.lower, h.upper)), hash("b"));
    c.is("hash of the directory", hash("."), dir.metadata_hash().map(|h| (h.lower, h.upper)));
    c.refused("hash of nothing", dir.metadata_hash_at(NOFOLLOW, "z"), ErrorCode::NoEntry);
    let up = open(&preopen("/workspace"), "identity", READ).unwrap();
    c.is("one directory by two ways", up.is_same_object(&dir), true);
}

pub(crate) fn stats(c: &mut Checks) {
    let dir = scratch("stats");
    let f = make(&dir, "f", b"12345");
    let stat = f.stat().unwrap();
    c.is("type", stat.type_, DescriptorType::RegularFile);
    c.is("size", stat.size, 5);
    c.is("links", stat.link_count, 1);
    c.is("a modification time", stat.data_modification_timestamp.is_some_and(|time| time.nanoseconds < 1_000_000_000), true);
    c.is("by path", dir.stat_at(NOFOLLOW, "f").map(|s| (s.type_, s.size, s.link_count)), Ok((DescriptorType::RegularFile, 5, 1)));
    c.is("of a directory", dir.stat().map(|s| s.type_), Ok(DescriptorType::Directory));
    c.is("of dot", dir.stat_at(NOFOLLOW, ".").map(|s| s.type_), Ok(DescriptorType::Directory));
    c.is("type of a file", f.get_type(), Ok(DescriptorType::RegularFile));
    c.is("type of a directory", dir.get_type(), Ok(DescriptorType::Directory));
    c.refused("of nothing", dir.stat_at(NOFOLLOW, "z"), ErrorCode::NoEntry);
    let sub = dir.open_at(NOFOLLOW, ".", OpenFlags::DIRECTORY, READ | DescriptorFlags::MUTATE_DIRECTORY).unwrap();
    c.is("of a descriptor opened again", sub.stat().map(|s| s.type_), Ok(DescriptorType::Directory));
}
