//! Tries every way that the author knows to reach something outside of a directory that it was given, or to make the host's own
//! files misbehave later. Prints `ESCAPED` and the way for each that worked, and the number of tries at the end.

mod bindings {
    wit_bindgen::generate!({
        inline: r"
            package landfall:fs-attack;
            world probe {
                import wasi:filesystem/types@0.2.12;
                import wasi:filesystem/preopens@0.2.12;
            }
        ",
        path: "../../../wit",
        generate_all,
    });
}

use bindings::wasi::filesystem::preopens::get_directories;
use bindings::wasi::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

const READ: DescriptorFlags = DescriptorFlags::READ;
const BOTH: DescriptorFlags = READ.union(DescriptorFlags::WRITE);
const FOLLOWING: [PathFlags; 2] = [PathFlags::empty(), PathFlags::SYMLINK_FOLLOW];

/// Paths that lead out of any directory.
const OUT: &[&str] = &[
    "/",
    "//",
    "/etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/workspace",
    "/state",
    "/dev/null",
    "..",
    "../",
    "../..",
    "../etc/passwd",
    "../../../../../../../../etc/passwd",
    "./..",
    "./../x",
    "d/../..",
    "d/../../x",
    "d/./../../x",
    "d//..//..//x",
    "d/../d/../..",
    "file/..",
    "file/../..",
    "file/../../x",
    "link/..",
    "link/../..",
    "no/..",
    "no/../..",
];

#[derive(Default)]
struct Tries {
    done: u32,
    escaped: u32,
}

impl Tries {
    /// Counts a try that must fail.
    fn refused<T>(&mut self, what: &str, result: Result<T, ErrorCode>) {
        self.done += 1;
        if result.is_ok() {
            self.escaped += 1;
            println!("ESCAPED {what}");
        }
    }

    /// Counts something that must hold.
    fn holds(&mut self, what: &str, condition: bool) {
        self.done += 1;
        if !condition {
            self.escaped += 1;
            println!("ESCAPED {what}");
        }
    }
}

fn main() {
    let mut tries = Tries::default();
    for (root, name) in get_directories() {
        let Ok(cell) = make_cell(&root) else {
            tries.holds(&format!("{name}: no cell"), false);
            continue;
        };
        out_of_directory(&mut tries, &name, &cell);
        by_links(&mut tries, &name, &cell);
        by_moving(&mut tries, &name, &root, &cell);
        out_of_directory(&mut tries, &format!("{name} itself"), &root);
        dot_git(&mut tries, &name, &cell);
        odd_names(&mut tries, &name, &cell);
        clear(&root);
    }
    println!("{} tries, {} escaped", tries.done, tries.escaped);
    if tries.escaped > 0 {
        std::process::exit(1);
    }
}

/// Makes `cell` with a directory, a file, a link and, beside it, things to steal.
fn make_cell(root: &Descriptor) -> Result<Descriptor, ErrorCode> {
    root.create_directory_at("cell")?;
    root.create_directory_at("d")?;
    root.open_at(PathFlags::empty(), "file", OpenFlags::CREATE, BOTH)?.write(b"outside", 0)?;
    root.symlink_at("d", "link")?;
    root.open_at(PathFlags::empty(), "treasure", OpenFlags::CREATE, BOTH)?.write(b"secret", 0)?;
    let cell = root.open_at(PathFlags::empty(), "cell", OpenFlags::DIRECTORY, READ | DescriptorFlags::MUTATE_DIRECTORY)?;
    cell.create_directory_at("d")?;
    cell.open_at(PathFlags::empty(), "file", OpenFlags::CREATE, BOTH)?.write(b"inside", 0)?;
    cell.symlink_at("d", "link")?;
    Ok(cell)
}

fn clear(root: &Descriptor) {
    fn empty(dir: &Descriptor) {
        let Ok(names) = dir.read_directory() else { return };
        while let Ok(Some(entry)) = names.read_directory_entry() {
            if let Ok(below) = dir.open_at(PathFlags::empty(), &entry.name, OpenFlags::DIRECTORY, READ) {
                empty(&below);
                let _ = dir.remove_directory_at(&entry.name);
            } else {
                let _ = dir.unlink_file_at(&entry.name);
            }
        }
    }
    empty(root);
}

/// Gives every path that leads out to every call that takes one.
fn out_of_directory(t: &mut Tries, name: &str, dir: &Descriptor) {
    for out in OUT {
        // These only lead out where the parts before `..` exist, and then to the directory itself.
        if ["link/..", "no/..", "file/.."].contains(out) {
            continue;
        }
        for flags in FOLLOWING {
            for open in [OpenFlags::empty(), OpenFlags::DIRECTORY, OpenFlags::CREATE, OpenFlags::CREATE | OpenFlags::TRUNCATE] {
                t.refused(
                    &format!("{name}: open {out}"),
                    dir.open_at(flags, out, open, if open.contains(OpenFlags::CREATE) { BOTH } else { READ }),
                );
            }
            t.refused(&format!("{name}: stat {out}"), dir.stat_at(flags, out));
            t.refused(&format!("{name}: hash {out}"), dir.metadata_hash_at(flags, out));
            t.refused(&format!("{name}: link from {out}"), dir.link_at(flags, out, dir, "stolen"));
        }
        t.refused(&format!("{name}: mkdir {out}"), dir.create_directory_at(out));
        t.refused(&format!("{name}: rmdir {out}"), dir.remove_directory_at(out));
        t.refused(&format!("{name}: unlink {out}"), dir.unlink_file_at(out));
        t.refused(&format!("{name}: readlink {out}"), dir.readlink_at(out));
        t.refused(&format!("{name}: symlink at {out}"), dir.symlink_at("file", out));
        t.refused(&format!("{name}: link to {out}"), dir.link_at(PathFlags::empty(), "file", dir, out));
        t.refused(&format!("{name}: rename from {out}"), dir.rename_at(out, dir, "stolen"));
        t.refused(&format!("{name}: rename to {out}"), dir.rename_at("file", dir, out));
    }
}

/// Makes links that lead out, directly and in steps, and goes through them.
fn by_links(t: &mut Tries, name: &str, dir: &Descriptor) {
    for target in ["/", "/etc", "/etc/passwd", "//etc", "/workspace/treasure", "/proc/self/fd/0"] {
        t.refused(&format!("{name}: absolute symlink {target}"), dir.symlink_at(target, "absolute"));
    }
    let chains: &[(&str, &[(&str, &str)], &str)] = &[
        ("one step", &[("..", "up")], "up/treasure"),
        ("one step to a file", &[("../treasure", "up")], "up"),
        ("two steps", &[("..", "up"), ("up/..", "upper")], "upper/etc/passwd"),
        ("link to link", &[("..", "up"), ("up", "again")], "again/treasure"),
        ("through a directory", &[("d/../..", "up")], "up/treasure"),
        ("through a link", &[("link/../..", "up")], "up/treasure"),
        ("from below", &[("../..", "d/up")], "d/up/treasure"),
        ("dots and slashes", &[(".//.././/", "up")], "up/treasure"),
        ("into itself", &[("../cell/../treasure", "up")], "up"),
        ("out and in again", &[("../cell/file", "up")], "up"),
    ];
    for (how, links, path) in chains {
        for (target, link) in *links {
            if dir.symlink_at(target, link).is_err() {
                continue;
            }
        }
        for flags in FOLLOWING {
            let what = format!("{name}: {how} ({path})");
            // Without following, only a link before the last part leads anywhere.
            if path.contains('/') || flags.contains(PathFlags::SYMLINK_FOLLOW) {
                t.refused(&what, dir.open_at(flags, path, OpenFlags::empty(), READ));
                t.refused(&what, dir.open_at(flags, path, OpenFlags::CREATE | OpenFlags::TRUNCATE, BOTH));
                t.refused(&what, dir.stat_at(flags, path));
                t.refused(&what, dir.metadata_hash_at(flags, path));
            }
            if path.contains('/') {
                t.refused(&what, dir.unlink_file_at(path));
                t.refused(&what, dir.create_directory_at(path));
                t.refused(&what, dir.symlink_at("file", path));
                t.refused(&what, dir.rename_at(path, dir, "stolen"));
                t.refused(&what, dir.rename_at("file", dir, path));
                t.refused(&what, dir.link_at(PathFlags::empty(), path, dir, "stolen"));
                t.refused(&what, dir.link_at(PathFlags::empty(), "file", dir, path));
            }
        }
        for (_, link) in *links {
            let _ = dir.unlink_file_at(link);
        }
    }
    t.holds(&format!("{name}: the file is still inside"), dir.stat_at(PathFlags::empty(), "file").is_ok_and(|stat| stat.size == 6));
}

/// Moves directories about so that a path that led inside leads outside.
fn by_moving(t: &mut Tries, name: &str, root: &Descriptor, dir: &Descriptor) {
    let made = dir.create_directory_at("m").and_then(|()| dir.create_directory_at("m/n")).and_then(|()| dir.symlink_at("../..", "m/n/up"));
    t.holds(&format!("{name}: setting up"), made.is_ok());
    // Inside `cell` the link leads to `cell`; moved up by a level it leads out of it.
    t.holds(
        &format!("{name}: a link that stays inside works"),
        dir.stat_at(PathFlags::SYMLINK_FOLLOW, "m/n/up/file").is_ok_and(|stat| stat.size == 6),
    );
    t.holds(&format!("{name}: moving"), dir.rename_at("m/n", dir, "n").is_ok());
    t.refused(&format!("{name}: a moved link"), dir.stat_at(PathFlags::SYMLINK_FOLLOW, "n/up/treasure"));
    t.refused(&format!("{name}: a moved link"), dir.open_at(PathFlags::SYMLINK_FOLLOW, "n/up/file", OpenFlags::empty(), BOTH));
    // A descriptor of a directory that moves away isn't a way to where it went.
    let Ok(held) = dir.open_at(PathFlags::empty(), "n", OpenFlags::DIRECTORY, READ) else {
        return t.holds(&format!("{name}: opening n"), false);
    };
    t.holds(&format!("{name}: moving out"), dir.rename_at("n", root, "n").is_ok());
    t.refused(&format!("{name}: up from a moved directory"), held.open_at(PathFlags::empty(), "../treasure", OpenFlags::empty(), READ));
    t.refused(
        &format!("{name}: up from a moved directory by a link"),
        held.open_at(PathFlags::SYMLINK_FOLLOW, "up/treasure", OpenFlags::empty(), READ),
    );
    t.refused(&format!("{name}: a directory into itself"), root.rename_at("cell", dir, "cell"));
    t.refused(&format!("{name}: a directory below itself"), root.rename_at("cell", dir, "d/cell"));
    t.holds(&format!("{name}: the outside is as it was"), root.stat_at(PathFlags::empty(), "treasure").is_ok_and(|stat| stat.size == 6));
}

/// A directory that git would take for its own must not come to be where a person opens the workspace.
fn dot_git(t: &mut Tries, name: &str, dir: &Descriptor) {
    if name == "/tmp" {
        return;
    }
    let names = [
        ".git",
        ".GIT",
        ".Git",
        ".giT",
        "git~1",
        "GIT~1",
        ".git ",
        ".git.",
        ".git...",
        ".git::$INDEX_ALLOCATION",
        ".g\u{200c}it",
        ".gi\u{200d}t",
        "\u{feff}.git",
        ".git\\x",
        "d\\.git",
    ];
    for git in names {
        for path in [git.to_owned(), format!("d/{git}"), format!("./d//{git}/")] {
            t.refused(&format!("{name}: mkdir {path:?}"), dir.create_directory_at(&path));
            t.refused(&format!("{name}: create {path:?}"), dir.open_at(PathFlags::empty(), &path, OpenFlags::CREATE, BOTH));
            t.refused(&format!("{name}: symlink {path:?}"), dir.symlink_at("d", &path));
            t.refused(&format!("{name}: rename {path:?}"), dir.rename_at("file", dir, &path));
            t.refused(&format!("{name}: rename a directory {path:?}"), dir.rename_at("d", dir, git));
            t.refused(&format!("{name}: link {path:?}"), dir.link_at(PathFlags::empty(), "file", dir, &path));
        }
    }
    let made = dir.symlink_at(".git/config", "config");
    t.holds(&format!("{name}: a link that names .git may exist"), made.is_ok());
    t.refused(&format!("{name}: create through it"), dir.open_at(PathFlags::SYMLINK_FOLLOW, "config", OpenFlags::CREATE, BOTH));
    let _ = dir.symlink_at(".git", "hidden");
    t.refused(&format!("{name}: create .git through a link"), dir.open_at(PathFlags::SYMLINK_FOLLOW, "hidden", OpenFlags::CREATE, BOTH));
}

/// Names that are special somewhere else are plain names here, and names that can't be are refused.
fn odd_names(t: &mut Tries, name: &str, dir: &Descriptor) {
    for odd in [
        "...",
        "....",
        ". ",
        " ",
        "C:",
        "C:\\x",
        "\\\\host\\share",
        "a\\..\\b",
        "-rf",
        "\u{202e}txt",
        "con",
        "a\nb",
        "\u{7f}",
        "*",
        "~",
        "$HOME",
        "%2e%2e",
    ] {
        let made = dir.create_directory_at(odd);
        t.holds(&format!("{name}: {odd:?} is a plain name"), made.is_ok() && dir.remove_directory_at(odd).is_ok());
    }
    for bad in ["a\0", "\0", "a\0/../..", "d/\0/../../x"] {
        t.refused(&format!("{name}: {bad:?}"), dir.create_directory_at(bad));
        t.refused(&format!("{name}: {bad:?}"), dir.symlink_at("file", bad));
        t.refused(&format!("{name}: {bad:?}"), dir.open_at(PathFlags::empty(), bad, OpenFlags::CREATE, BOTH));
    }
    t.refused(&format!("{name}: NUL in a target"), dir.symlink_at("a\0b", "nul"));
    for reserved in [".", "..", "d/.", "d/.."] {
        t.refused(&format!("{name}: mkdir {reserved}"), dir.create_directory_at(reserved));
        t.refused(&format!("{name}: rename to {reserved}"), dir.rename_at("d", dir, reserved));
    }
}
