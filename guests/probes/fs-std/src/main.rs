//! What `std::fs` sees of `/workspace`, `/state` and `/tmp`. Without arguments it tries everything and prints one line for each
//! step; `transcript.txt` beside this crate holds the lines that a correct host gives. With arguments it does one job:
//! `walk DIR` reads every file below DIR, `fill DIR` writes until the host refuses, `hold N` opens N files at once,
//! `many DIR N BYTES` makes N files, `read FILE` prints a file, `append FILE TEXT` adds to one.

use std::fmt::Debug;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] | ["transcript"] => transcript(),
        ["walk", dir] => {
            let (mut files, mut bytes) = (0, 0);
            walk(Path::new(dir), &mut files, &mut bytes).expect("walk");
            println!("{files} files, {bytes} bytes");
        }
        ["fill", dir] => fill(Path::new(dir)),
        ["hold", count] => hold(count.parse().expect("a number")),
        ["many", dir, count, size] => many(Path::new(dir), count.parse().expect("a number"), size.parse().expect("a number")),
        ["read", file] => io::stdout().write_all(&fs::read(file).expect("read")).expect("stdout"),
        ["append", file, text] => {
            OpenOptions::new().append(true).create(true).open(file).and_then(|mut file| file.write_all(text.as_bytes())).expect("append");
        }
        _ => panic!("unknown arguments {args:?}"),
    }
}

/// Prints a step and what came of it. Of an error that is its kind, or its number where the standard library has no name for it:
/// texts depend on the C library.
fn show<T: Debug>(step: &str, result: io::Result<T>) {
    match result {
        Ok(value) => println!("{step}: {value:?}"),
        Err(error) => match (format!("{:?}", error.kind()), error.raw_os_error()) {
            (kind, Some(number)) if kind == "Uncategorized" => println!("{step}: error {number}"),
            (kind, _) => println!("{step}: error {kind}"),
        },
    }
}

fn text(path: &str) -> io::Result<String> {
    fs::read_to_string(path)
}

fn names(path: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mark = if kind.is_dir() {
            "/"
        } else if kind.is_symlink() {
            "@"
        } else {
            ""
        };
        names.push(format!("{}{mark}", entry.file_name().to_string_lossy()));
    }
    names.sort();
    Ok(names)
}

fn kind(metadata: &fs::Metadata) -> String {
    let what = if metadata.is_dir() {
        "directory"
    } else if metadata.is_symlink() {
        "symlink"
    } else {
        "file"
    };
    if metadata.is_dir() { what.to_owned() } else { format!("{what} of {}", metadata.len()) }
}

#[expect(deprecated, reason = "the only stable way to make a symbolic link on this target")]
fn symlink(target: &str, link: &str) -> io::Result<()> {
    fs::soft_link(target, link)
}

fn transcript() {
    for root in ["/workspace", "/state", "/tmp"] {
        println!("== {root}");
        whole_files(root);
        positions(root);
        directories(root);
        links(root);
        renames(root);
        times(root);
        removed_while_open(root);
        refusals(root);
        show("left at the end", names(root));
    }
    println!("== between roots");
    show("write /tmp/t", fs::write("/tmp/t", "t"));
    show("rename /tmp/t /state/t", fs::rename("/tmp/t", "/state/t"));
    show("hard_link /tmp/t /state/t", fs::hard_link("/tmp/t", "/state/t"));
    show("copy /tmp/t /state/t", fs::copy("/tmp/t", "/state/t"));
    show("read /state/t", text("/state/t"));
    show("remove_file /state/t", fs::remove_file("/state/t"));
    show("remove_file /tmp/t", fs::remove_file("/tmp/t"));
    println!("== relative paths");
    show("write here", fs::write("here", "relative"));
    show("read /workspace/here", text("/workspace/here"));
    show("read ./here", text("./here"));
    show("create_dir d", fs::create_dir("d"));
    show("read_dir .", names("."));
    show("remove_dir d", fs::remove_dir("d"));
    show("remove_file here", fs::remove_file("here"));
}

fn whole_files(root: &str) {
    let path = format!("{root}/f");
    show("read missing", text(&path));
    show("write", fs::write(&path, "hello"));
    show("read", text(&path));
    show("metadata", fs::metadata(&path).map(|m| kind(&m)));
    show("write again", fs::write(&path, "hi"));
    show("read again", text(&path));
    show("write empty", fs::write(&path, ""));
    show("read empty", text(&path));
    let long: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    show("write 3 MB", fs::write(&path, &long));
    show("read 3 MB back", fs::read(&path).map(|read| read == long));
    show("copy", fs::copy(&path, format!("{root}/g")));
    show("compare copy", fs::read(format!("{root}/g")).map(|read| read == long));
    show("create_new on existing", OpenOptions::new().write(true).create_new(true).open(&path).map(drop));
    show("append", OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(b"end")));
    show("tail", fs::read(&path).map(|read| (read.len(), read[2_999_999..].to_vec())));
    show("set_len", OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(4)));
    show("after set_len", fs::read(&path));
    show("grow", OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(6)));
    show("after grow", fs::read(&path));
    show("remove f", fs::remove_file(&path));
    show("remove g", fs::remove_file(format!("{root}/g")));
    show("remove missing", fs::remove_file(&path));
}

fn positions(root: &str) {
    let path = format!("{root}/p");
    let job = || -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all(b"0123456789")?;
        show("position after write", file.stream_position());
        show("seek 3", file.seek(SeekFrom::Start(3)));
        let mut three = [0; 3];
        file.read_exact(&mut three)?;
        show("read 3", Ok(std::str::from_utf8(&three).map(str::to_owned).ok()));
        file.write_all(b"XY")?;
        show("seek end -1", file.seek(SeekFrom::End(-1)));
        let mut rest = String::new();
        file.read_to_string(&mut rest)?;
        show("rest", Ok(rest));
        show("seek before start", file.seek(SeekFrom::Start(0)).and_then(|_| file.seek(SeekFrom::Current(-1))));
        show("seek past end", file.seek(SeekFrom::Start(20)));
        let mut one = [0; 1];
        show("read past end", file.read(&mut one));
        file.write_all(b"!")?;
        show("sync_all", file.sync_all());
        show("sync_data", file.sync_data());
        show("length", file.metadata().map(|m| m.len()));
        Ok(())
    };
    show("positions", job());
    show("content", text(&path).map(|text| text.replace('\0', ".")));
    let appended = || -> io::Result<u64> {
        let mut one = OpenOptions::new().append(true).open(&path)?;
        let mut two = OpenOptions::new().append(true).open(&path)?;
        one.write_all(b"a")?;
        two.write_all(b"b")?;
        one.write_all(b"c")?;
        one.metadata().map(|m| m.len())
    };
    show("two appenders", appended());
    show("content", text(&path).map(|text| text[21..].to_owned()));
    show("write on a reader", File::open(&path).and_then(|mut f| f.write(b"x")));
    show("read on a writer", OpenOptions::new().write(true).open(&path).and_then(|mut f| f.read(&mut [0; 1])));
    show("set_len on a reader", File::open(&path).and_then(|f| f.set_len(0)).map_err(|_| io::Error::other("refused")));
    show("remove p", fs::remove_file(&path));
}

fn directories(root: &str) {
    show("create_dir", fs::create_dir(format!("{root}/d")));
    show("create_dir again", fs::create_dir(format!("{root}/d")));
    show("create_dir without parent", fs::create_dir(format!("{root}/x/y")));
    show("create_dir_all", fs::create_dir_all(format!("{root}/d/e/f")));
    show("write deep", fs::write(format!("{root}/d/e/f/file"), "deep"));
    show("read deep", text(&format!("{root}/d/e/../e/./f//file")));
    show("read_dir", names(&format!("{root}/d")));
    show("metadata of a directory", fs::metadata(format!("{root}/d/")).map(|m| kind(&m)));
    show("read a directory", text(&format!("{root}/d")));
    show("read_dir of a file", names(&format!("{root}/d/e/f/file")));
    show("path through a file", text(&format!("{root}/d/e/f/file/x")));
    show("file with a slash", text(&format!("{root}/d/e/f/file/")));
    show("remove_dir not empty", fs::remove_dir(format!("{root}/d")));
    show("remove_dir of a file", fs::remove_dir(format!("{root}/d/e/f/file")));
    show("remove_file of a directory", fs::remove_file(format!("{root}/d")).map_err(|_| io::Error::other("refused")));
    let many = || -> io::Result<(usize, bool)> {
        for i in 0..1000 {
            File::create(format!("{root}/d/n{i:04}"))?;
        }
        let mut seen: Vec<String> = names(&format!("{root}/d"))?;
        seen.retain(|name| name != "e/");
        let right = seen.iter().enumerate().all(|(i, name)| *name == format!("n{i:04}"));
        Ok((seen.len(), right))
    };
    show("a thousand entries", many());
    let while_listing = || -> io::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(format!("{root}/d"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
                count += 1;
            }
        }
        Ok(count)
    };
    show("remove while listing", while_listing());
    show("remove_dir_all", fs::remove_dir_all(format!("{root}/d")));
    show("gone", fs::metadata(format!("{root}/d")).map(drop));
}

fn links(root: &str) {
    let at = |name: &str| format!("{root}/{name}");
    show("write a", fs::write(at("a"), "one"));
    // Names of one file are tried in `fs-raw`: the C library of Debian 12 keeps both paths of `linkat` in one buffer, so that std's
    // `hard_link` looks for the new name.
    show("write b", fs::write(at("b"), "two"));
    show("read a", text(&at("a")));
    show("remove a", fs::remove_file(at("a")));
    show("read b", text(&at("b")));
    show("create_dir k", fs::create_dir(at("k")));
    show("hard_link of a directory", fs::hard_link(at("k"), at("l")).map_err(|_| io::Error::other("refused")));
    show("symlink b s", symlink("b", &at("s")));
    show("read s", text(&at("s")));
    show("read_link s", fs::read_link(at("s")));
    show("read_link of a file", fs::read_link(at("b")));
    show("symlink_metadata s", fs::symlink_metadata(at("s")).map(|m| kind(&m)));
    show("metadata s", fs::metadata(at("s")).map(|m| kind(&m)));
    show("symlink onto existing", symlink("b", &at("s")));
    show("symlink to nothing", symlink("nothing", &at("n")));
    show("read n", text(&at("n")));
    show("exists n", fs::exists(at("n")));
    show("create_new through n", OpenOptions::new().write(true).create_new(true).open(at("n")).map(drop));
    show("write through n", fs::write(at("n"), "made"));
    show("read nothing", text(&at("nothing")));
    show("symlink to a directory", symlink("k", &at("t")));
    show("write t/x", fs::write(at("t/x"), "x"));
    show("read k/x", text(&at("k/x")));
    show("symlink with ..", symlink("../b", &at("k/up")));
    show("read k/up", text(&at("k/up")));
    show("symlink to itself", symlink("loop", &at("loop")));
    show("read loop", text(&at("loop")).map_err(|error| io::Error::other(error.kind().to_string())));
    show("symlink absolute", symlink("/etc/passwd", &at("abs")));
    show("symlink out", symlink("../../etc/passwd", &at("out")));
    show("read out", text(&at("out")));
    show("read_dir", names(root));
    show("remove_dir_all t", fs::remove_dir_all(at("t")).map_err(|_| io::Error::other("refused")));
    for name in ["b", "s", "n", "nothing", "t", "loop", "out", "k/x", "k/up"] {
        let _ = fs::remove_file(at(name));
    }
    show("remove_dir k", fs::remove_dir(at("k")));
    show("read_dir", names(root));
}

fn renames(root: &str) {
    let at = |name: &str| format!("{root}/{name}");
    show("write a", fs::write(at("a"), "a"));
    show("rename a b", fs::rename(at("a"), at("b")));
    show("read b", text(&at("b")));
    show("write c", fs::write(at("c"), "c"));
    show("rename over a file", fs::rename(at("c"), at("b")));
    show("read b", text(&at("b")));
    show("create d/e", fs::create_dir_all(at("d/e")));
    show("rename into own subtree", fs::rename(at("d"), at("d/e/d")));
    show("rename a file over a directory", fs::rename(at("b"), at("d")));
    show("rename a directory over a file", fs::rename(at("d"), at("b")));
    show("create_dir empty", fs::create_dir(at("empty")));
    show("rename over an empty directory", fs::rename(at("d"), at("empty")));
    show("create_dir full", fs::create_dir_all(at("full/x")));
    show("rename over a full directory", fs::rename(at("empty"), at("full")));
    show("rename missing", fs::rename(at("missing"), at("x")));
    show("rename onto itself", fs::rename(at("b"), at("b")));
    show("rename into a missing directory", fs::rename(at("b"), at("no/b")));
    show("move into a directory", fs::rename(at("b"), at("full/x/b")));
    show("read moved", text(&at("full/x/b")));
    show("read_dir", names(root));
    show("remove full", fs::remove_dir_all(at("full")));
    show("remove empty", fs::remove_dir_all(at("empty")));
}

fn times(root: &str) {
    let path = format!("{root}/t");
    let at = UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    let job = || -> io::Result<bool> {
        let file = File::create(&path)?;
        let before = file.metadata()?.modified()?;
        file.set_times(FileTimes::new().set_modified(at))?;
        Ok(before > at && file.metadata()?.modified()? == at)
    };
    show("set_times", job());
    show("kept", fs::metadata(&path).and_then(|m| m.modified()).map(|time| time == at));
    show("write", fs::write(&path, "x"));
    show("changed by a write", fs::metadata(&path).and_then(|m| m.modified()).map(|time| time > at));
    show("remove t", fs::remove_file(&path));
}

fn removed_while_open(root: &str) {
    let path = format!("{root}/u");
    let job = || -> io::Result<(String, u64, bool)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all(b"before ")?;
        fs::remove_file(&path)?;
        file.write_all(b"after")?;
        file.seek(SeekFrom::Start(0))?;
        let mut all = String::new();
        file.read_to_string(&mut all)?;
        Ok((all, file.metadata()?.len(), fs::exists(&path)?))
    };
    show("unlinked while open", job());
}

fn refusals(root: &str) {
    let at = |name: &str| format!("{root}/{name}");
    show("empty path", text(""));
    show("above the root", text(&at("../x")));
    show("far above the root", text(&at("../../../../etc/passwd")));
    show("outside", text("/etc/passwd"));
    show("name of 255", fs::write(at(&"n".repeat(255)), "").and_then(|()| fs::remove_file(at(&"n".repeat(255)))));
    show("name of 256", fs::write(at(&"n".repeat(256)), "").map_err(|_| io::Error::other("refused")));
    show("NUL in a name", fs::write(at("a\0b"), ""));
    show("remove the root", fs::remove_dir(root).map_err(|_| io::Error::other("refused")));
    show("remove dot", fs::remove_dir(at(".")).map_err(|_| io::Error::other("refused")));
    show(".git", fs::create_dir(at(".git")).map_err(|_| io::Error::other("refused")));
    show(".GIT", fs::write(at(".GIT"), "").map_err(|_| io::Error::other("refused")));
    show("git~1", fs::write(at("git~1"), "").map_err(|_| io::Error::other("refused")));
    show(".gitignore", fs::write(at(".gitignore"), "x").and_then(|()| fs::remove_file(at(".gitignore"))));
    show("umlaut", fs::write(at("größe"), "x").and_then(|()| names(root)));
    show("remove umlaut", fs::remove_file(at("größe")));
}

fn walk(dir: &Path, files: &mut u64, bytes: &mut u64) -> io::Result<()> {
    let mut entries: Vec<(PathBuf, bool, bool)> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        entries.push((entry.path(), kind.is_dir(), kind.is_file()));
    }
    for (path, is_dir, is_file) in entries {
        if is_dir {
            walk(&path, files, bytes)?;
        } else if is_file {
            *files += 1;
            *bytes += fs::read(&path)?.len() as u64;
        }
    }
    Ok(())
}

fn fill(dir: &Path) {
    let block = vec![b'x'; 64 << 10];
    let mut written = 0_u64;
    for number in 0.. {
        let path = dir.join(format!("fill{number}"));
        let mut file = match File::create(&path) {
            Ok(file) => file,
            Err(error) => return println!("create {number}: error {:?} after {written} bytes", error.kind()),
        };
        for _ in 0..16 {
            match file.write(&block) {
                Ok(count) => written += count as u64,
                Err(error) => return println!("write {number}: error {:?} after {written} bytes", error.kind()),
            }
        }
    }
}

fn hold(count: u64) {
    fs::write("/tmp/held", "x").expect("write");
    let mut held = Vec::new();
    for number in 0..count {
        match File::open("/tmp/held") {
            Ok(file) => held.push(file),
            Err(error) => return println!("open {number}: error {:?}", error.kind()),
        }
    }
    println!("{} held", held.len());
}

fn many(dir: &Path, count: u64, size: usize) {
    let body = vec![b'm'; size];
    for number in 0..count {
        let folder = dir.join(format!("{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder).expect("create_dir_all");
        }
        fs::write(folder.join(format!("{number:06}")), &body).expect("write");
    }
    println!("{count} made");
}
