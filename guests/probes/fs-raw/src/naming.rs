//! Paths: where they lead, what they may not name, and the calls that change names.

use crate::bindings::wasi::filesystem::preopens::get_directories;
use crate::bindings::wasi::filesystem::types::{DescriptorFlags, DescriptorType, ErrorCode, OpenFlags};
use crate::check::*;

pub(crate) fn preopens(c: &mut Checks) {
    let names: Vec<String> = get_directories().into_iter().map(|(_, name)| name).collect();
    c.is("the preopens", names, ["/workspace", "/state", "/tmp", "."].map(str::to_owned).to_vec());
    for (dir, name) in get_directories() {
        c.is(&format!("type of {name}"), dir.get_type(), Ok(DescriptorType::Directory));
        c.is(&format!("flags of {name}"), dir.get_flags(), Ok(READ | DescriptorFlags::MUTATE_DIRECTORY));
    }
    c.is(". is /workspace", preopen(".").is_same_object(&preopen("/workspace")), true);
    c.is("/state isn't /workspace", preopen("/state").is_same_object(&preopen("/workspace")), false);
}

pub(crate) fn paths(c: &mut Checks) {
    let dir = scratch("paths");
    dir.create_directory_at("dir").unwrap();
    dir.create_directory_at("dir/nested").unwrap();
    drop(make(&dir, "dir/nested/file", b"x"));
    for good in ["dir/nested/file", "./dir/nested/file", "dir/.//nested/../../dir/nested/../nested///./file", "dir//nested//file"] {
        c.is(good, open(&dir, good, READ).map(|_| ()), Ok(()));
    }
    for good in ["dir/nested/", "dir/nested///", "dir/nested/.", "dir/nested/..", "dir/nested/../.", "."] {
        c.is(good, dir.stat_at(NOFOLLOW, good).map(|s| s.type_), Ok(DescriptorType::Directory));
    }
    for bad in ["dir/nested/file/", "dir/nested/file///", "dir/nested/file/.", "dir/nested/file/..", "dir/nested/file/x"] {
        c.refused(bad, open(&dir, bad, READ), ErrorCode::NotDirectory);
        c.refused(bad, dir.stat_at(NOFOLLOW, bad), ErrorCode::NotDirectory);
    }
    for bad in [
        "/",
        "//",
        "/dir",
        "/workspace/paths/dir",
        "/etc/passwd",
        "..",
        "../",
        "../paths",
        "dir/../..",
        "dir/../../paths/dir",
        "./../x",
        "dir/nested/../../../x",
    ] {
        c.refused(bad, open(&dir, bad, READ), ErrorCode::NotPermitted);
        c.refused(bad, dir.stat_at(NOFOLLOW, bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.stat_at(FOLLOW, bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.metadata_hash_at(NOFOLLOW, bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.readlink_at(bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.create_directory_at(bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.symlink_at("x", bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.link_at(NOFOLLOW, "dir/nested/file", &dir, bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.rename_at("dir", &dir, bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.rename_at(bad, &dir, "q"), ErrorCode::NotPermitted);
        c.refused(bad, dir.remove_directory_at(bad), ErrorCode::NotPermitted);
        c.refused(bad, dir.unlink_file_at(bad), ErrorCode::NotPermitted);
    }
    c.refused("empty: open", open(&dir, "", READ), ErrorCode::NoEntry);
    c.refused("empty: stat", dir.stat_at(NOFOLLOW, ""), ErrorCode::NoEntry);
    c.refused("empty: mkdir", dir.create_directory_at(""), ErrorCode::NoEntry);
    c.refused("empty: rmdir", dir.remove_directory_at(""), ErrorCode::NoEntry);
    c.refused("empty: unlink", dir.unlink_file_at(""), ErrorCode::NoEntry);
    c.refused("empty: readlink", dir.readlink_at(""), ErrorCode::NoEntry);
    c.refused("empty: symlink", dir.symlink_at("x", ""), ErrorCode::NoEntry);
    c.refused("empty: symlink target", dir.symlink_at("", "x"), ErrorCode::NoEntry);
    c.refused("empty: rename", dir.rename_at("", &dir, "x"), ErrorCode::NoEntry);
    c.refused("empty: rename to", dir.rename_at("dir", &dir, ""), ErrorCode::NoEntry);
    c.refused("empty: link", dir.link_at(NOFOLLOW, "", &dir, "x"), ErrorCode::NoEntry);
    c.refused("empty: link to", dir.link_at(NOFOLLOW, "dir/nested/file", &dir, ""), ErrorCode::NoEntry);
    c.refused("empty: hash", dir.metadata_hash_at(NOFOLLOW, ""), ErrorCode::NoEntry);
    for bad in ["a\0b", "\0", "dir/nested/file\0"] {
        c.refused_as("NUL: open", open(&dir, bad, READ), &[ErrorCode::Invalid, ErrorCode::IllegalByteSequence]);
        c.refused_as("NUL: mkdir", dir.create_directory_at(bad), &[ErrorCode::Invalid, ErrorCode::IllegalByteSequence]);
    }
    let long = "n".repeat(256);
    c.refused("long name: open", open(&dir, &long, READ), ErrorCode::NameTooLong);
    c.refused("long name: mkdir", dir.create_directory_at(&long), ErrorCode::NameTooLong);
    c.refused("long name: stat", dir.stat_at(NOFOLLOW, &long), ErrorCode::NameTooLong);
    c.is("name of 255", dir.create_directory_at(&long[1..]), Ok(()));
    c.is("name of 255 again", dir.remove_directory_at(&long[1..]), Ok(()));
    c.refused("long path", open(&dir, &"./".repeat(2100), READ), ErrorCode::NameTooLong);
    let file = open(&dir, "dir/nested/file", READ).unwrap();
    c.refused("a file as base", file.open_at(NOFOLLOW, ".", OpenFlags::empty(), READ), ErrorCode::NotDirectory);
    c.refused("a file as base: stat", file.stat_at(NOFOLLOW, "x"), ErrorCode::NotDirectory);
    c.refused("a file as base: mkdir", file.create_directory_at("x"), ErrorCode::NotDirectory);
    c.refused("a file as base: readlink", file.readlink_at("."), ErrorCode::NotDirectory);
    c.refused("a file as base: unlink", file.unlink_file_at("x"), ErrorCode::NotDirectory);
    c.refused("a file as base: rename", file.rename_at("x", &dir, "y"), ErrorCode::NotDirectory);
    c.refused("a file as target base", dir.rename_at("dir", &file, "y"), ErrorCode::NotDirectory);
    let nested = open(&dir, "dir/nested", READ).unwrap();
    c.refused("a nested descriptor can't go up", open(&nested, "../nested/file", READ), ErrorCode::NotPermitted);
    dir.rename_at("dir/nested", &dir, "moved").unwrap();
    c.is("a descriptor follows its directory", open(&nested, "file", READ).map(|_| ()), Ok(()));
    c.refused("and still can't go up", open(&nested, "../moved/file", READ), ErrorCode::NotPermitted);
}

pub(crate) fn symlinks(c: &mut Checks) {
    let dir = scratch("symlinks");
    drop(make(&dir, "a", b"a"));
    dir.create_directory_at("d").unwrap();
    c.is("symlink", dir.symlink_at("a", "s"), Ok(()));
    c.is("readlink", dir.readlink_at("s"), Ok("a".to_owned()));
    c.refused("readlink of a file", dir.readlink_at("a"), ErrorCode::Invalid);
    c.refused("readlink of a directory", dir.readlink_at("."), ErrorCode::Invalid);
    c.refused("readlink of nothing", dir.readlink_at("z"), ErrorCode::NoEntry);
    c.refused("open without follow", open(&dir, "s", READ), ErrorCode::Loop);
    c.is("open with follow", dir.open_at(FOLLOW, "s", OpenFlags::empty(), READ).map(|_| ()), Ok(()));
    c.is("stat without follow", dir.stat_at(NOFOLLOW, "s").map(|s| (s.type_, s.size)), Ok((DescriptorType::SymbolicLink, 1)));
    c.is("stat with follow", dir.stat_at(FOLLOW, "s").map(|s| s.type_), Ok(DescriptorType::RegularFile));
    c.refused("exclusive create onto a link", dir.open_at(FOLLOW, "s", NEW, WRITE), ErrorCode::Exist);
    dir.symlink_at("..", "parent").unwrap();
    dir.symlink_at("parent", "parent2").unwrap();
    dir.symlink_at("../../../../x", "far").unwrap();
    dir.symlink_at("d/../..", "round").unwrap();
    for out in ["parent", "parent2", "far", "round"] {
        c.refused(out, dir.open_at(FOLLOW, out, OpenFlags::empty(), READ), ErrorCode::NotPermitted);
        c.refused(out, dir.stat_at(FOLLOW, out), ErrorCode::NotPermitted);
        c.refused(out, dir.metadata_hash_at(FOLLOW, out), ErrorCode::NotPermitted);
        c.is(out, dir.stat_at(NOFOLLOW, out).map(|s| s.type_), Ok(DescriptorType::SymbolicLink));
        let below = format!("{out}/x");
        c.refused(&below, open(&dir, &below, READ), ErrorCode::NotPermitted);
        c.refused(&below, dir.create_directory_at(&below), ErrorCode::NotPermitted);
        c.refused(&below, dir.unlink_file_at(&below), ErrorCode::NotPermitted);
        c.refused(&below, dir.remove_directory_at(&below), ErrorCode::NotPermitted);
        c.refused(&below, dir.symlink_at("a", &below), ErrorCode::NotPermitted);
        c.refused(&below, dir.rename_at("a", &dir, &below), ErrorCode::NotPermitted);
        c.refused(&below, dir.rename_at(&below, &dir, "q"), ErrorCode::NotPermitted);
        c.refused(&below, dir.link_at(NOFOLLOW, "a", &dir, &below), ErrorCode::NotPermitted);
        c.refused(&below, dir.open_at(NOFOLLOW, &below, OpenFlags::CREATE, WRITE), ErrorCode::NotPermitted);
    }
    c.refused("absolute target", dir.symlink_at("/etc/passwd", "abs"), ErrorCode::NotPermitted);
    c.refused("absolute target to a preopen", dir.symlink_at("/workspace/x", "abs"), ErrorCode::NotPermitted);
    dir.symlink_at("self", "self").unwrap();
    dir.symlink_at("two", "one").unwrap();
    dir.symlink_at("one", "two").unwrap();
    for endless in ["self", "one", "one/x"] {
        c.refused(endless, dir.open_at(FOLLOW, endless, OpenFlags::empty(), READ), ErrorCode::Loop);
        c.refused(endless, dir.stat_at(FOLLOW, endless), ErrorCode::Loop);
    }
    for i in 0..45 {
        dir.symlink_at(&format!("c{}", i + 1), &format!("c{i}")).unwrap();
    }
    drop(make(&dir, "c45", b""));
    c.refused("a chain of 45", dir.stat_at(FOLLOW, "c0"), ErrorCode::Loop);
    c.is("a chain of 20", dir.stat_at(FOLLOW, "c25").map(|s| s.type_), Ok(DescriptorType::RegularFile));
    dir.symlink_at("d", "t").unwrap();
    c.refused_as(
        "directory flag on a link without follow",
        dir.open_at(NOFOLLOW, "t", OpenFlags::DIRECTORY, READ),
        &[ErrorCode::Loop, ErrorCode::NotDirectory],
    );
    c.is("directory flag with follow", dir.open_at(FOLLOW, "t", OpenFlags::DIRECTORY, READ).map(|_| ()), Ok(()));
    c.is("a trailing slash follows", dir.stat_at(NOFOLLOW, "t/").map(|s| s.type_), Ok(DescriptorType::Directory));
    c.refused("a trailing slash on a link to a file", dir.stat_at(NOFOLLOW, "s/"), ErrorCode::NotDirectory);
    c.refused("rmdir of a link to a directory", dir.remove_directory_at("t"), ErrorCode::NotDirectory);
    c.is("unlink of a link to a directory", dir.unlink_file_at("t"), Ok(()));
    c.is("the directory is still there", dir.stat_at(NOFOLLOW, "d").map(|s| s.type_), Ok(DescriptorType::Directory));
    c.refused("symlink onto a file", dir.symlink_at("x", "a"), ErrorCode::Exist);
    c.refused("symlink onto a directory", dir.symlink_at("x", "d"), ErrorCode::Exist);
    c.refused("symlink onto a link", dir.symlink_at("x", "s"), ErrorCode::Exist);
    c.refused_as("symlink with a trailing slash", dir.symlink_at("x", "new/"), &[ErrorCode::NoEntry, ErrorCode::NotDirectory]);
    c.refused_as("symlink onto a directory with a slash", dir.symlink_at("x", "d/"), &[ErrorCode::Exist]);
    c.refused("symlink in a missing directory", dir.symlink_at("x", "no/s"), ErrorCode::NoEntry);
    c.refused_as("a target over 4,095 bytes", dir.symlink_at(&"t".repeat(4096), "long"), &[ErrorCode::NameTooLong]);
    c.is("a target of 4,095 bytes", dir.symlink_at(&"t/".repeat(2047), "long"), Ok(()));
    c.is(
        "create through a dangling link",
        {
            dir.symlink_at("made", "dangling").unwrap();
            dir.open_at(FOLLOW, "dangling", OpenFlags::CREATE, WRITE).map(|_| dir.stat_at(NOFOLLOW, "made").map(|s| s.type_))
        },
        Ok(Ok(DescriptorType::RegularFile)),
    );
}

pub(crate) fn links(c: &mut Checks) {
    let dir = scratch("links");
    let a = make(&dir, "a", b"one");
    dir.create_directory_at("d").unwrap();
    let ln = |from: &str, to: &str| dir.link_at(NOFOLLOW, from, &dir, to);
    c.is("link", ln("a", "b"), Ok(()));
    c.is("count", a.stat().map(|s| s.link_count), Ok(2));
    c.is("link into a directory", ln("a", "d/c"), Ok(()));
    c.is("count again", dir.stat_at(NOFOLLOW, "b").map(|s| s.link_count), Ok(3));
    let b = open(&dir, "b", BOTH).unwrap();
    c.is("the same object", a.is_same_object(&b), true);
    c.is("the same hash", a.metadata_hash().map(|h| h.lower), b.metadata_hash().map(|h| h.lower));
    b.write(b"TWO", 0).unwrap();
    c.is("content is shared", drain(&a, 0), Ok(b"TWO".to_vec()));
    c.refused("link onto an entry", ln("a", "b"), ErrorCode::Exist);
    c.refused("link onto itself", ln("a", "a"), ErrorCode::Exist);
    c.refused("link of nothing", ln("z", "y"), ErrorCode::NoEntry);
    c.refused_as("link of a directory", ln("d", "e"), &[ErrorCode::NotPermitted, ErrorCode::Access]);
    c.refused_as("link of dot", ln(".", "e"), &[ErrorCode::NotPermitted, ErrorCode::Access]);
    c.refused("link into nothing", ln("a", "no/a"), ErrorCode::NoEntry);
    c.refused("link with a trailing slash", ln("a", "x/"), ErrorCode::NoEntry);
    c.refused("link from a trailing slash", ln("a/", "x"), ErrorCode::NotDirectory);
    c.refused("link following links", dir.link_at(FOLLOW, "a", &dir, "x"), ErrorCode::Invalid);
    c.refused_as("link into another root", dir.link_at(NOFOLLOW, "a", &preopen("/state"), "x"), &[ErrorCode::CrossDevice]);
    dir.symlink_at("a", "s").unwrap();
    c.is("link of a symbolic link", ln("s", "s2"), Ok(()));
    c.is("is the link, not its target", dir.readlink_at("s2"), Ok("a".to_owned()));
    dir.unlink_file_at("a").unwrap();
    c.is("count after unlink", b.stat().map(|s| s.link_count), Ok(2));
    dir.unlink_file_at("d/c").unwrap();
    dir.unlink_file_at("b").unwrap();
    c.is("count of an unlinked file", b.stat().map(|s| s.link_count), Ok(0));
    c.is("an unlinked file can be read", drain(&b, 0), Ok(b"TWO".to_vec()));
}

pub(crate) fn renames(c: &mut Checks) {
    let dir = scratch("renames");
    drop(make(&dir, "a", b"a"));
    let mv = |from: &str, to: &str| dir.rename_at(from, &dir, to);
    c.is("onto itself", mv("a", "a"), Ok(()));
    c.is("to a new name", mv("a", "b"), Ok(()));
    c.refused("of nothing", mv("a", "a"), ErrorCode::NoEntry);
    dir.symlink_at("b", "s").unwrap();
    c.is("over a symbolic link", mv("b", "s"), Ok(()));
    c.is("replaces the link itself", dir.stat_at(NOFOLLOW, "s").map(|s| s.type_), Ok(DescriptorType::RegularFile));
    c.is("back", mv("s", "a"), Ok(()));
    c.refused_as("of dot", mv(".", "q"), &[ErrorCode::Busy, ErrorCode::Invalid, ErrorCode::Access]);
    c.refused_as("onto dot", mv("a", "."), &[ErrorCode::Busy, ErrorCode::Invalid, ErrorCode::Exist, ErrorCode::IsDirectory]);
    dir.create_directory_at("d").unwrap();
    dir.create_directory_at("d/e").unwrap();
    c.refused("into its own subtree", mv("d", "d/e/f"), ErrorCode::Invalid);
    c.refused("into itself", mv("d", "d/x"), ErrorCode::Invalid);
    c.refused("a file over a directory", mv("a", "d"), ErrorCode::IsDirectory);
    c.refused("a directory over a file", mv("d", "a"), ErrorCode::NotDirectory);
    dir.create_directory_at("empty").unwrap();
    c.refused("a directory over a full one", mv("empty", "d"), ErrorCode::NotEmpty);
    c.is("a directory over an empty one", mv("d", "empty"), Ok(()));
    c.is("a directory with slashes", mv("empty/", "g/"), Ok(()));
    c.is("contents came along", dir.stat_at(NOFOLLOW, "g/e").map(|s| s.type_), Ok(DescriptorType::Directory));
    c.refused("a file with a slash", mv("a/", "x"), ErrorCode::NotDirectory);
    c.refused("a file to a slash", mv("a", "x/"), ErrorCode::NotDirectory);
    c.refused("into a missing directory", mv("a", "no/a"), ErrorCode::NoEntry);
    c.is(
        "a link and its other name",
        {
            dir.link_at(NOFOLLOW, "a", &dir, "a2").unwrap();
            mv("a", "a2").map(|()| (dir.stat_at(NOFOLLOW, "a").is_ok(), dir.stat_at(NOFOLLOW, "a2").is_ok()))
        },
        Ok((true, true)),
    );
    let g = open(&dir, "g", READ).unwrap();
    c.is("through another descriptor", dir.rename_at("a", &g, "in"), Ok(()));
    c.is("and out again", g.rename_at("in", &dir, "a"), Ok(()));
    c.refused("into another root", dir.rename_at("a", &preopen("/tmp"), "a"), ErrorCode::CrossDevice);
    let held = open(&dir, "a", READ).unwrap();
    drop(make(&dir, "over", b"new"));
    mv("over", "a").unwrap();
    c.is("a replaced file that is open goes on", drain(&held, 0), Ok(b"a".to_vec()));
    c.is("the name has the new one", drain(&open(&dir, "a", READ).unwrap(), 0), Ok(b"new".to_vec()));
}

pub(crate) fn removal(c: &mut Checks) {
    let dir = scratch("removal");
    drop(make(&dir, "a", b"a"));
    dir.create_directory_at("d").unwrap();
    dir.create_directory_at("d/e").unwrap();
    c.refused("unlink nothing", dir.unlink_file_at("z"), ErrorCode::NoEntry);
    c.refused_as("unlink a directory", dir.unlink_file_at("d"), &[ErrorCode::IsDirectory]);
    c.refused_as("unlink a directory with a slash", dir.unlink_file_at("d/"), &[ErrorCode::IsDirectory]);
    c.refused_as("unlink dot", dir.unlink_file_at("."), &[ErrorCode::IsDirectory, ErrorCode::NotPermitted, ErrorCode::Access]);
    c.refused("unlink a file with a slash", dir.unlink_file_at("a/"), ErrorCode::NotDirectory);
    c.refused("rmdir a file", dir.remove_directory_at("a"), ErrorCode::NotDirectory);
    c.refused("rmdir a file with a slash", dir.remove_directory_at("a/"), ErrorCode::NotDirectory);
    c.refused("rmdir nothing", dir.remove_directory_at("z"), ErrorCode::NoEntry);
    c.refused("rmdir a full directory", dir.remove_directory_at("d"), ErrorCode::NotEmpty);
    c.refused_as("rmdir dot", dir.remove_directory_at("."), &[ErrorCode::Invalid, ErrorCode::Access, ErrorCode::Busy]);
    c.is("rmdir with slashes", dir.remove_directory_at("d/e///"), Ok(()));
    let d = open(&dir, "d", READ).unwrap();
    c.is("rmdir of an open directory", dir.remove_directory_at("d"), Ok(()));
    c.refused("create in a removed directory", d.open_at(NOFOLLOW, "x", NEW, WRITE), ErrorCode::NoEntry);
    c.refused("mkdir in a removed directory", d.create_directory_at("x"), ErrorCode::NoEntry);
    c.is("list a removed directory", names(&d), Vec::<String>::new());
    c.is("type of a removed directory", d.stat().map(|s| s.type_), Ok(DescriptorType::Directory));
    c.is("unlink", dir.unlink_file_at("a"), Ok(()));
    c.refused_as(
        "rmdir of a root",
        preopen("/workspace").remove_directory_at("."),
        &[ErrorCode::Invalid, ErrorCode::Access, ErrorCode::Busy],
    );
}
