use super::super::path::display;
use super::super::{Follow, FsError, Kind, NewTime, OpenHow};
use super::*;

/// `d/` with `d/f`, an empty `e/`, `f`, `g`, and links: `to-f`, `to-d`, `dangling`, `out` (above the top), `loop`.
async fn tree(ground: &Ground) -> Filesystem {
    let fs = ground.empty();
    for directory in ["d", "d/sub", "e"] {
        mkdir(&fs, directory).await;
    }
    for file in ["d/f", "f", "g"] {
        write(&fs, file, file.as_bytes()).await;
    }
    for (target, name) in [("f", "to-f"), ("d", "to-d"), ("nothing", "dangling"), ("../f", "out"), ("loop", "loop"), ("../f", "d/up")] {
        fs.root().symlink_at(target.as_bytes(), name.as_bytes()).await.unwrap();
    }
    fs
}

/// The same tree as edits, as a stored base, and as a base that was captured and gone on from.
async fn trees(ground: &Ground) -> Vec<Filesystem> {
    let edited = tree(ground).await;
    let stored = ground.reopen(&tree(ground).await).await;
    let rebased = tree(ground).await;
    let root = ground.capture(&rebased).await;
    rebased.rebase(&root).await.unwrap();
    vec![edited, stored, rebased]
}

#[tokio::test]
async fn paths_lead_where_posix_says() {
    let ground = Ground::new();
    for fs in trees(&ground).await {
        for (path, follow, answer) in [
            ("f", Follow::No, "File"),
            ("./d/../f", Follow::No, "File"),
            ("d/./sub/..", Follow::No, "Directory"),
            (".", Follow::No, "Directory"),
            ("d/", Follow::No, "Directory"),
            ("f/", Follow::No, "NotDirectory"),
            ("f/x", Follow::No, "NotDirectory"),
            ("missing", Follow::No, "NoEntry"),
            ("missing/x", Follow::No, "NoEntry"),
            ("", Follow::No, "NoEntry"),
            ("/f", Follow::No, "NotPermitted"),
            ("..", Follow::No, "NotPermitted"),
            ("d/../../f", Follow::No, "NotPermitted"),
            ("a\0b", Follow::No, "Invalid"),
            ("to-f", Follow::Yes, "File"),
            ("to-f", Follow::No, "Symlink"),
            ("to-f/", Follow::No, "NotDirectory"),
            ("to-d", Follow::Yes, "Directory"),
            ("to-d/", Follow::No, "Directory"),
            ("to-d/f", Follow::No, "File"),
            ("d/up", Follow::Yes, "File"),
            ("to-d/up", Follow::Yes, "File"),
            ("dangling", Follow::Yes, "NoEntry"),
            ("dangling", Follow::No, "Symlink"),
            ("out", Follow::Yes, "NotPermitted"),
            ("loop", Follow::Yes, "Loop"),
            ("loop/x", Follow::No, "Loop"),
        ] {
            let answered = match fs.root().stat_at(path.as_bytes(), follow).await {
                Ok(stat) => format!("{:?}", stat.kind),
                other => code(other),
            };
            assert_eq!(answered, answer, "{path:?} {follow:?}");
        }
        // A directory handle is the top for what is opened from it.
        let d = open(&fs, "d", READ).await.unwrap();
        assert_eq!(code(d.stat_at(b"up", Follow::Yes).await), "NotPermitted");
        assert_eq!(code(d.stat_at(b"../f", Follow::Yes).await), "NotPermitted");
        assert_eq!(code(open(&fs, "f", READ).await.unwrap().stat_at(b"x", Follow::Yes).await), "NotDirectory");
    }
}

#[tokio::test]
async fn opening_is_as_posix_says() {
    let ground = Ground::new();
    let exclusive = OpenHow { exclusive: true, ..CREATE };
    let directory = OpenHow { directory: true, ..READ };
    let writing = OpenHow { write: true, ..READ };
    let truncate = OpenHow { truncate: true, write: true, ..READ };
    for fs in trees(&ground).await {
        for (path, follow, how, answer) in [
            ("new", Follow::Yes, READ, "NoEntry"),
            ("new", Follow::Yes, CREATE, "ok"),
            ("new", Follow::Yes, exclusive, "Exist"),
            ("new2", Follow::Yes, exclusive, "ok"),
            ("d", Follow::Yes, exclusive, "Exist"),
            (".", Follow::Yes, exclusive, "Exist"),
            ("dangling", Follow::Yes, exclusive, "Exist"),
            ("missing/new", Follow::Yes, CREATE, "NoEntry"),
            ("f/new", Follow::Yes, CREATE, "NotDirectory"),
            ("slash/", Follow::Yes, CREATE, "IsDirectory"),
            ("d", Follow::Yes, CREATE, "IsDirectory"),
            ("d", Follow::Yes, writing, "IsDirectory"),
            ("d", Follow::Yes, truncate, "IsDirectory"),
            ("d", Follow::Yes, directory, "ok"),
            ("f", Follow::Yes, directory, "NotDirectory"),
            ("to-d", Follow::Yes, directory, "ok"),
            ("to-f", Follow::No, READ, "Loop"),
            ("d", Follow::Yes, OpenHow { directory: true, ..CREATE }, "Invalid"),
            // Making a file through a dangling link makes its target.
            ("dangling", Follow::Yes, CREATE, "ok"),
            ("nothing", Follow::Yes, READ, "ok"),
            (".git", Follow::Yes, CREATE, "NotPermitted"),
            ("d/.GIT ", Follow::Yes, CREATE, "NotPermitted"),
        ] {
            assert_eq!(code(fs.root().open_at(path.as_bytes(), follow, how).await), answer, "{path:?} {how:?}");
        }
        open(&fs, "f", truncate).await.unwrap();
        assert_eq!(read(&fs, "f").await, b"");
        assert_eq!(read(&fs, "g").await, b"g");
    }
}

#[tokio::test]
async fn names_are_made_and_removed_as_posix_says() {
    let ground = Ground::new();
    for fs in trees(&ground).await {
        let root = fs.root();
        for (path, answer) in [
            ("n", "ok"),
            ("n", "Exist"),
            ("m/", "ok"),
            ("f", "Exist"),
            ("to-f", "Exist"),
            ("dangling", "Exist"),
            ("x/y", "NoEntry"),
            ("f/y", "NotDirectory"),
            (".", "Exist"),
            ("d/..", "Exist"),
            ("..", "NotPermitted"),
            ("d/.git", "NotPermitted"),
            ("git~1", "NotPermitted"),
        ] {
            assert_eq!(code(root.create_directory_at(path.as_bytes()).await), answer, "mkdir {path:?}");
        }
        for (path, answer) in [
            ("d", "NotEmpty"),
            ("f", "NotDirectory"),
            ("to-d", "NotDirectory"),
            ("missing", "NoEntry"),
            (".", "Busy"),
            ("d/.", "Invalid"),
            ("n/", "ok"),
            ("n", "NoEntry"),
            ("m", "ok"),
            ("e", "ok"),
        ] {
            assert_eq!(code(root.remove_directory_at(path.as_bytes()).await), answer, "rmdir {path:?}");
        }
        for (path, answer) in [
            ("d", "IsDirectory"),
            ("f/", "NotDirectory"),
            ("missing", "NoEntry"),
            ("to-f", "ok"),
            ("to-f", "NoEntry"),
            ("f", "ok"),
            ("f", "NoEntry"),
            (".", "IsDirectory"),
            ("d/f", "ok"),
            ("d/up", "ok"),
        ] {
            assert_eq!(code(root.unlink_file_at(path.as_bytes()).await), answer, "unlink {path:?}");
        }
        assert_eq!(code(root.remove_directory_at(b"d").await), "NotEmpty");
        root.remove_directory_at(b"d/sub").await.unwrap();
        root.remove_directory_at(b"d").await.unwrap();
        assert_eq!(names(&fs, ".").await, ["dangling", "g", "loop", "out", "to-d"]);
        for (target, path, answer) in [
            ("x", "l", "ok"),
            ("x", "l", "Exist"),
            ("/x", "m", "NotPermitted"),
            ("", "m", "NoEntry"),
            ("x", "m/", "NoEntry"),
            ("x\0", "m", "Invalid"),
            ("x", ".git", "NotPermitted"),
        ] {
            assert_eq!(code(root.symlink_at(target.as_bytes(), path.as_bytes()).await), answer, "symlink {target:?} {path:?}");
        }
        assert_eq!(&root.readlink_at(b"l").await.unwrap()[..], b"x");
        assert_eq!(code(root.readlink_at(b"g").await), "Invalid");
        assert_eq!(code(root.readlink_at(b"zz").await), "NoEntry");
    }
}

#[tokio::test]
async fn renaming_is_as_posix_says() {
    let ground = Ground::new();
    for (from, to, answer) in [
        ("f", "n", "ok"),
        ("f", "f", "ok"),
        ("f", "g", "ok"),
        ("f", "d", "IsDirectory"),
        ("f", "e", "IsDirectory"),
        ("f", "n/", "NotDirectory"),
        ("f/", "n", "NotDirectory"),
        ("f", "d/f", "ok"),
        ("f", "to-d/new", "ok"),
        ("f", "to-f", "ok"),
        ("f", "dangling", "ok"),
        ("f", ".git", "NotPermitted"),
        ("f", "x/y", "NoEntry"),
        ("missing", "n", "NoEntry"),
        ("missing", "g", "NoEntry"),
        ("to-f", "n", "ok"),
        ("d", "n", "ok"),
        ("d", "n/", "ok"),
        ("d", "e", "ok"),
        ("d", "e/", "ok"),
        ("d", "e/d", "ok"),
        ("e", "d", "NotEmpty"),
        ("d", "f", "NotDirectory"),
        ("d", "to-d", "NotDirectory"),
        ("d", "d", "ok"),
        ("d", "d/n", "Invalid"),
        ("d", "d/sub", "Invalid"),
        ("d", "d/sub/n", "Invalid"),
        ("d/sub", "d", "NotEmpty"),
        (".", "n", "Busy"),
        ("d/.", "n", "Busy"),
        ("f", ".", "Busy"),
        ("f", "d/..", "Busy"),
        ("../f", "n", "NotPermitted"),
    ] {
        for fs in trees(&ground).await {
            let before = names(&fs, ".").await;
            let kind = fs.root().stat_at(from.trim_end_matches('/').as_bytes(), Follow::No).await.map(|stat| (stat.kind, stat.inode));
            let result = fs.root().rename_at(from.as_bytes(), &fs.root(), to.as_bytes()).await;
            assert_eq!(code(result), answer, "{from:?} -> {to:?}");
            if answer != "ok" {
                assert_eq!(names(&fs, ".").await, before);
                continue;
            }
            let after = fs.root().stat_at(to.trim_end_matches('/').as_bytes(), Follow::No).await.unwrap();
            assert_eq!(kind.unwrap(), (after.kind, after.inode), "{from:?} -> {to:?}");
            if from != to {
                assert_eq!(code(fs.root().stat_at(from.as_bytes(), Follow::No).await), "NoEntry", "{from:?} -> {to:?}");
            }
            let again = ground.reopen(&fs).await;
            assert_eq!(names(&again, ".").await, names(&fs, ".").await);
            assert_eq!(again.usage(), fs.usage());
        }
    }
}

#[tokio::test]
async fn hard_links_are_one_file() {
    let ground = Ground::new();
    for fs in trees(&ground).await {
        let root = fs.root();
        for (from, to, answer) in [
            ("f", "h", "ok"),
            ("f", "g", "Exist"),
            ("d", "h2", "NotPermitted"),
            ("to-f", "h2", "NotPermitted"),
            ("missing", "h2", "NoEntry"),
            ("f", "x/h", "NoEntry"),
            ("f", "h2/", "NoEntry"),
            ("f", ".git", "NotPermitted"),
            (".", "h2", "NotPermitted"),
            ("h", "d/h", "ok"),
        ] {
            assert_eq!(code(root.link_at(from.as_bytes(), Follow::No, &root, to.as_bytes()).await), answer, "{from:?} {to:?}");
        }
        assert_eq!(fs.usage().bytes, 5, "a file counts once");
        let a = open(&fs, "f", READ).await.unwrap();
        let b = open(&fs, "d/h", READ).await.unwrap();
        assert!(a.is_same(&b));
        assert_eq!(a.stat().unwrap().links, 3);
        b.write_at(0, b"both").unwrap();
        // Two names of one file: nothing happens.
        root.rename_at(b"f", &root, b"h").await.unwrap();
        for fs in [ground.reopen(&fs).await, fs.clone()] {
            let root = fs.root();
            for name in ["f", "h", "d/h"] {
                assert_eq!(read(&fs, name).await, b"both");
                assert_eq!(root.stat_at(name.as_bytes(), Follow::No).await.unwrap().links, 3);
            }
            root.unlink_file_at(b"f").await.unwrap();
            root.rename_at(b"h", &root, b"moved").await.unwrap();
            write(&fs, "moved", b"changed").await;
            let again = ground.reopen(&fs).await;
            assert_eq!(read(&again, "d/h").await, b"changed");
            assert_eq!(again.usage(), fs.usage());
            again.root().unlink_file_at(b"moved").await.unwrap();
            let last = open(&again, "d/h", READ).await.unwrap();
            again.root().unlink_file_at(b"d/h").await.unwrap();
            assert_eq!(again.usage().bytes, 4, "g and d/f");
            assert_eq!(again.usage().unlinked, 7);
            assert_eq!(read_all(&last).await, b"changed");
            drop(last);
            assert_eq!(again.usage().unlinked, 0);
            assert_eq!(ground.capture(&again).await.links, None, "the table is empty again");
        }
    }
}

#[tokio::test]
async fn open_files_outlive_their_names() {
    let ground = Ground::new();
    for fs in trees(&ground).await {
        let f = open(&fs, "f", READ).await.unwrap();
        fs.root().unlink_file_at(b"f").await.unwrap();
        assert_eq!(f.stat().unwrap().links, 0);
        f.write_at(1, b"oo").unwrap();
        assert_eq!(read_all(&f).await, b"foo");
        assert_eq!(fs.usage().unlinked, 3);
        write(&fs, "f", b"another").await;
        assert_eq!(read_all(&f).await, b"foo");
        let moved = open(&fs, "d/f", READ).await.unwrap();
        fs.root().rename_at(b"d", &fs.root(), b"e").await.unwrap();
        moved.write_at(0, b"D").unwrap();
        assert_eq!(read(&fs, "e/f").await, b"D/f");
        // Across a rebase, handles stay.
        let root = ground.capture(&fs).await;
        fs.rebase(&root).await.unwrap();
        assert_eq!(read_all(&f).await, b"foo");
        moved.write_at(0, b"d").unwrap();
        assert_eq!(read(&fs, "e/f").await, b"d/f");
        assert_eq!(read(&ground.reopen(&fs).await, "e/f").await, b"d/f");
        // A directory that was removed is empty for ever.
        let e = open(&fs, "e/sub", READ).await.unwrap();
        fs.root().remove_directory_at(b"e/sub").await.unwrap();
        assert_eq!(code(e.create_directory_at(b"x").await), "NoEntry");
        assert_eq!(code(e.open_at(b"x", Follow::No, CREATE).await), "NoEntry");
        assert!(e.read_directory().unwrap().next().await.unwrap().is_none());
        drop(f);
        assert_eq!(fs.usage().unlinked, 0);
    }
}

#[tokio::test]
async fn a_reset_ends_every_handle() {
    let ground = Ground::new();
    let fs = tree(&ground).await;
    let root = ground.capture(&fs).await;
    let (top, f) = (fs.root(), open(&fs, "f", READ).await.unwrap());
    let mut stream = top.read_directory().unwrap();
    write(&fs, "late", b"late").await;
    fs.reset(Some(root)).unwrap();
    assert_eq!(code(f.stat()), "BadDescriptor");
    assert_eq!(code(f.read_at(0, 1).await), "BadDescriptor");
    assert_eq!(code(f.write_at(0, b"x")), "BadDescriptor");
    assert_eq!(code(top.stat_at(b"f", Follow::No).await), "BadDescriptor");
    assert_eq!(code(stream.next().await), "BadDescriptor");
    assert_eq!(code(top.rename_at(b"f", &fs.root(), b"x").await), "BadDescriptor");
    assert_eq!(code(fs.root().stat_at(b"late", Follow::No).await), "NoEntry");
    assert_eq!(read(&fs, "f").await, b"f");
    // Closing what is of before must not close what has its place now.
    let now = open(&fs, "f", READ).await.unwrap();
    drop((f, top));
    assert_eq!(read_all(&now).await, b"f");
    assert_eq!(ground.spool.used(), (0, 0));
}

#[tokio::test]
async fn other_filesystems_are_other_devices() {
    let ground = Ground::new();
    let (a, b) = (tree(&ground).await, ground.empty());
    assert_eq!(code(a.root().rename_at(b"f", &b.root(), b"f").await), "CrossDevice");
    assert_eq!(code(a.root().link_at(b"f", Follow::No, &b.root(), b"f").await), "CrossDevice");
    assert!(!a.root().is_same(&b.root()));
}

#[tokio::test]
async fn times_are_the_clocks_or_as_they_are_set() {
    let ground = Ground::new();
    let fs = ground.reopen(&tree(&ground).await).await;
    let modified = async |path: &str| fs.root().stat_at(path.as_bytes(), Follow::No).await.unwrap().modified;
    ground.clock.set(5_000);
    assert_eq!(modified("d").await, 1_000);
    let f = open(&fs, "d/f", READ).await.unwrap();
    f.write_at(0, b"").unwrap();
    assert_eq!(modified("d/f").await, 1_000, "writing nothing is no change");
    f.write_at(0, b"x").unwrap();
    assert_eq!((modified("d/f").await, modified("d").await), (5_000, 1_000));
    fs.root().unlink_file_at(b"d/up").await.unwrap();
    assert_eq!(modified("d").await, 5_000);
    ground.clock.set(6_000);
    fs.root().set_times_at(b"to-d", Follow::Yes, NewTime::At(-7)).await.unwrap();
    fs.root().set_times_at(b"to-f", Follow::No, NewTime::Now).await.unwrap();
    f.set_times(NewTime::Keep).unwrap();
    assert_eq!((modified("d").await, modified("to-f").await, modified("f").await), (-7, 6_000, 1_000));
    f.set_size(0).unwrap();
    assert_eq!(modified("d/f").await, 6_000);
    let again = ground.reopen(&fs).await;
    assert_eq!(again.root().stat_at(b"d", Follow::No).await.unwrap().modified, -7);
}

#[tokio::test]
async fn names_that_are_not_utf8_can_be_used_by_their_shown_form() {
    let ground = Ground::new();
    let fs = ground.empty();
    fs.root().open_at(b"a\xff", Follow::No, CREATE).await.unwrap().write_at(0, b"raw").unwrap();
    let fs = ground.reopen(&fs).await;
    let shown = names(&fs, ".").await;
    assert_eq!(shown, [display(b"a\xff")]);
    assert_eq!(read(&fs, &shown[0]).await, b"raw");
    fs.root().rename_at(shown[0].as_bytes(), &fs.root(), b"b").await.unwrap();
    assert_eq!(names(&fs, ".").await, ["b"]);
    // A name that is there as it is given comes first.
    write(&fs, "c\\xff", b"literal").await;
    fs.root().open_at(b"c\xff", Follow::No, CREATE).await.unwrap().write_at(0, b"raw").unwrap();
    assert_eq!(read(&fs, "c\\xff").await, b"literal");
}

#[tokio::test]
async fn inodes_tell_objects_apart_and_stay() {
    let ground = Ground::new();
    for fs in trees(&ground).await {
        let inode = async |path: &str| fs.root().stat_at(path.as_bytes(), Follow::No).await.unwrap().inode;
        let (f, g) = (inode("f").await, inode("g").await);
        assert_ne!(f, g);
        let open_f = open(&fs, "f", READ).await.unwrap();
        assert_eq!(open_f.stat().unwrap().inode, f);
        open_f.write_at(0, b"new").unwrap();
        assert_eq!(inode("f").await, f);
        fs.root().rename_at(b"f", &fs.root(), b"d/moved").await.unwrap();
        assert_eq!(inode("d/moved").await, f);
        write(&fs, "f", b"other").await;
        assert_ne!(inode("f").await, f);
    }
}

#[tokio::test]
async fn lost_pages_and_chunks_are_host_errors_and_can_come_back() {
    let ground = Ground::new();
    let big: Vec<u8> = (0..200_u8).collect();
    let fs = tree(&ground).await;
    write(&fs, "d/big", &big).await;
    let root = ground.capture(&fs).await;
    let lost = MemoryObjects::new();
    let ground = Ground { objects: lost, ..ground };
    let fs = ground.open(Limits::default(), Some(root));
    assert!(matches!(fs.root().stat_at(b"f", Follow::No).await, Err(FsError::Host(_))));
    assert_eq!(fs.root().kind().unwrap(), Kind::Directory);
}
