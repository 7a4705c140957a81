//! Making and listing directories.

use crate::bindings::wasi::filesystem::types::{DescriptorType, ErrorCode};
use crate::check::*;

pub(crate) fn listing(c: &mut Checks) {
    let dir = scratch("listing");
    c.is("an empty directory", names(&dir), Vec::<String>::new());
    for i in 0..300 {
        drop(make(&dir, &format!("f{i:03}"), b""));
    }
    dir.create_directory_at("d").unwrap();
    dir.symlink_at("d", "s").unwrap();
    let stream = dir.read_directory().unwrap();
    let mut kinds = std::collections::BTreeMap::new();
    while let Some(entry) = stream.read_directory_entry().unwrap() {
        c.is("named once", kinds.insert(entry.name, entry.type_), None);
    }
    c.is("how many", kinds.len(), 302);
    c.is("no dots", kinds.contains_key(".") || kinds.contains_key(".."), false);
    c.is("a file", kinds.get("f000"), Some(&DescriptorType::RegularFile));
    c.is("a directory", kinds.get("d"), Some(&DescriptorType::Directory));
    c.is("a symbolic link", kinds.get("s"), Some(&DescriptorType::SymbolicLink));
    c.is("after the end", stream.read_directory_entry().map(|entry| entry.is_none()), Ok(true));
    let one = dir.read_directory().unwrap();
    let two = dir.read_directory().unwrap();
    let first = one.read_directory_entry().unwrap().map(|entry| entry.name);
    c.is("two streams don't interfere", two.read_directory_entry().unwrap().map(|entry| entry.name), first);
    let mut seen = 1;
    for i in 0..300 {
        dir.unlink_file_at(&format!("f{i:03}")).unwrap();
        drop(make(&dir, &format!("g{i:03}"), b""));
    }
    while let Some(entry) = one.read_directory_entry().unwrap() {
        seen += u32::from(!entry.name.starts_with('g'));
    }
    c.is("entries that were there at the start come at most once", seen <= 302, true);
    c.is("a new stream sees the new names", names(&dir).len(), 302);
}

pub(crate) fn directories(c: &mut Checks) {
    let dir = scratch("directories");
    drop(make(&dir, "a", b""));
    c.is("mkdir", dir.create_directory_at("d"), Ok(()));
    c.is("mkdir with a slash", dir.create_directory_at("e/"), Ok(()));
    c.is("mkdir with slashes", dir.create_directory_at("e/f///"), Ok(()));
    c.refused("mkdir again", dir.create_directory_at("d"), ErrorCode::Exist);
    c.refused("mkdir dot", dir.create_directory_at("."), ErrorCode::Exist);
    c.refused("mkdir over a file", dir.create_directory_at("a"), ErrorCode::Exist);
    c.refused("mkdir without parent", dir.create_directory_at("no/d"), ErrorCode::NoEntry);
    c.refused("mkdir below a file", dir.create_directory_at("a/d"), ErrorCode::NotDirectory);
    dir.symlink_at("nothing", "s").unwrap();
    c.refused("mkdir over a dangling link", dir.create_directory_at("s"), ErrorCode::Exist);
    let mut path = String::from("d");
    let mut depth = 1;
    let end = loop {
        path.push_str("/x");
        match dir.create_directory_at(&path) {
            Ok(()) => depth += 1,
            Err(error) => break error,
        }
        if depth > 300 {
            break ErrorCode::Io;
        }
    };
    c.is("depth is bounded", (depth > 200, depth < 257), (true, true));
    c.is("by a clear error", matches!(end, ErrorCode::NameTooLong | ErrorCode::InsufficientSpace), true);
}
