//! An import is what `git checkout` gives on Linux, the same on every replica, and a hostile tree is none.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use landfall::ErrorKind;
use landfall::repository::checkout::{GitMode, TreeLimits};
use landfall::repository::import::WarningKind;
use landfall::repository::imported::{Repositories, read_at_pin};
use landfall::repository::remote::Revision;
use landfall::workspace::source::Source;
use landfall_tests::git_server::{TestRepository, git_command, run};

use super::support::{Seen, World, in_root, memory_store, noise, on_disk};

/// Checks the repository's `main` out with the real git.
fn checked_out(repository: &TestRepository, folder: &Path) -> super::support::Tree {
    run(folder.parent().unwrap(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), folder.to_str().unwrap()]).unwrap();
    on_disk(folder)
}

/// A commit with one of everything.
fn zoo(repository: &TestRepository) -> String {
    repository.write("README", "hello\n").unwrap();
    repository.write("empty", "").unwrap();
    repository.write("a/b/c/deep", "x").unwrap();
    repository.write("a-b", "sorts between a and a/").unwrap();
    repository.write("bin/tool", "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(repository.work().join("bin/tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    repository.write("with space/ü/\t\"quoted\\name\"", "odd").unwrap();
    repository.write("Case", "1").unwrap();
    repository.write("case", "2").unwrap();
    repository.write("noise", noise(3 << 20)).unwrap();
    repository.write("zeros", vec![0; 2 << 20]).unwrap();
    repository.write(Path::new(OsStr::from_bytes(b"latin/\xe9t\xe9")), "not UTF-8").unwrap();
    for (name, target) in
        [("link", "README"), ("loop", "loop"), ("up", "../../etc/passwd"), ("abs", "/etc/passwd"), ("a/to-dir", "b"), ("gone", "nowhere")]
    {
        std::os::unix::fs::symlink(target, repository.work().join(name)).unwrap();
    }
    for number in 0..300 {
        repository.write(format!("many/file-{number:04}.txt"), format!("{number}\n").repeat(number % 9)).unwrap();
    }
    repository.write("big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n").unwrap();
    // Attributes: at the top, below, by pattern, unset, and a filter that nothing here can run.
    repository
        .write(
            ".gitattributes",
            "*.crlf text eol=crlf\n*.auto text=auto\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n*.b16 text working-tree-encoding=UTF-16\n*.m16 text working-tree-encoding=utf-16LE-BOM eol=crlf\n*.u32 working-tree-encoding=UTF-32\n*.lat text working-tree-encoding=ISO-8859-1\n*.sjis text working-tree-encoding=SHIFT-JIS\n*.bin filter=lfs diff=lfs\n*.bad text working-tree-encoding=no-such\n[attr]win text eol=crlf\n*.macro win\n",
        )
        .unwrap();
    repository.write("sub/.gitattributes", "raw.crlf -text\n*.txt eol=crlf\n").unwrap();
    repository.write("x.crlf", "one\ntwo\n").unwrap();
    repository.write("x.auto", "one\ntwo\n").unwrap();
    repository.write("x.macro", "one\ntwo\n").unwrap();
    repository.write("x.id", "at $Id$ and $Id: old $\n").unwrap();
    repository.write("sub/raw.crlf", "one\ntwo\n").unwrap();
    repository.write("sub/y.txt", "one\ntwo\n").unwrap();
    repository.write("sub/deeper/z.txt", "one\r\ntwo\r\n").unwrap();
    repository.write("x.u16", "o\0n\0e\0\n\0").unwrap();
    for name in ["x.b16", "x.m16", "x.u32", "x.sjis"] {
        repository.write("utf8", "one\ntwo 漢\n").unwrap();
        let blob = repository.git(&["hash-object", "-w", "--no-filters", "utf8"]).unwrap();
        std::fs::remove_file(repository.work().join("utf8")).unwrap();
        repository.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{name}")]).unwrap();
    }
    // Encoded by hand: what can't be in Latin-1 is checked out as it is.
    repository.write("utf8", "€\n").unwrap();
    let blob = repository.git(&["hash-object", "-w", "--no-filters", "utf8"]).unwrap();
    std::fs::remove_file(repository.work().join("utf8")).unwrap();
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},euro.lat")]).unwrap();
    repository.write("x.lat", b"caf\xe9\n").unwrap();
    repository.git(&["add", "--ignore-removal", "-f", "."]).unwrap();
    // Git can't add a file in an encoding it doesn't know, and checks one out as it is.
    repository.write("plain", "as it is\n").unwrap();
    let blob = repository.git(&["hash-object", "-w", "plain"]).unwrap();
    std::fs::remove_file(repository.work().join("plain")).unwrap();
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},x.bad")]).unwrap();
    repository.git(&["update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,vendor/module"]).unwrap();
    repository.commit_index("zoo").unwrap()
}

#[tokio::test]
async fn an_import_is_what_git_checks_out() {
    let world = World::new().await;
    let repository = world.repository("zoo.git");
    let commit = zoo(&repository);
    let (access, imported) = world.import("zoo.git").await.unwrap();
    assert_eq!(imported.commit.to_string(), commit);
    assert_eq!(access.pin().commit, imported.commit);
    assert_eq!(imported.tree, repository.git(&["rev-parse", "HEAD^{tree}"]).unwrap());
    assert_eq!(imported.time, 1_700_000_000);
    assert!(imported.attributes);

    let expected = checked_out(&repository, &world.folder.path().join("checkout"));
    let reader = world.reader();
    let found = in_root(&reader, &imported.workspace).await;
    for (path, seen) in &expected {
        assert_eq!(found.get(path), Some(seen), "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(found.len(), expected.len());

    let warned =
        |kind| imported.warnings.first.iter().filter(|warning| warning.kind == kind).map(|warning| &*warning.path).collect::<Vec<_>>();
    assert_eq!(warned(WarningKind::Submodule), ["vendor/module"]);
    assert_eq!(warned(WarningKind::LfsPointer), ["big.bin"]);
    assert_eq!(warned(WarningKind::NotUtf8), ["latin/\\xe9t\\xe9"]);
    assert_eq!(imported.warnings.total, 3);

    // The table of blobs says what `git ls-tree` says.
    let listing = git_command(repository.work()).args(["ls-tree", "-r", "-z", "HEAD"]).output().unwrap().stdout;
    let mut files = 0;
    for line in listing.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap();
        let fields: Vec<&str> = std::str::from_utf8(&line[..tab]).unwrap().split(' ').collect();
        let (mode, id) = imported.blob_of(&reader, &line[tab + 1..]).await.unwrap().unwrap();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((mode.as_octal(), &*hex), (fields[0], fields[2]));
        files += 1;
    }
    assert!(files > 300);
    assert_eq!(imported.blob_of(&reader, b"a/b").await.unwrap(), None);
    assert_eq!(imported.blob_of(&reader, b"vendor/module").await.unwrap().unwrap().0, GitMode::Submodule);

    let part = read_at_pin(&reader, &imported, b"README", 1, 3).await.unwrap();
    assert_eq!(part.as_deref(), Some(&b"ell"[..]));
    assert_eq!(read_at_pin(&reader, &imported, b"link", 0, 99).await.unwrap().as_deref(), Some(&b"README"[..]));
    assert_eq!(read_at_pin(&reader, &imported, b"README", 99, 3).await.unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(read_at_pin(&reader, &imported, b"a", 0, 3).await.unwrap(), None);
    assert_eq!(read_at_pin(&reader, &imported, b"README/x", 0, 3).await.unwrap(), None);
}

#[tokio::test]
async fn two_replicas_get_one_root() {
    let world = World::new().await;
    let repository = world.repository("zoo.git");
    zoo(&repository);
    let (access, first) = world.import("zoo.git").await.unwrap();
    let other = Repositories::new(world.git(), memory_store(), world.folder.path().join("other"), TreeLimits::default());
    let second = other.ensure_imported(&access, None).await.unwrap();
    assert_eq!(first.workspace.page.id, second.workspace.page.id);
    assert_eq!(first.blobs.page.id, second.blobs.page.id);
    assert_eq!((first.workspace.entries, first.workspace.bytes), (second.workspace.entries, second.workspace.bytes));
    // And both at once, on one store: one record stands and both use it.
    let store = memory_store();
    let (one, two) = (
        Repositories::new(world.git(), store.clone(), world.folder.path().join("one"), TreeLimits::default()),
        Repositories::new(world.git(), store, world.folder.path().join("two"), TreeLimits::default()),
    );
    let (a, b) = tokio::join!(one.ensure_imported(&access, None), two.ensure_imported(&access, None));
    assert_eq!(a.unwrap(), b.unwrap());
}

#[tokio::test]
async fn an_empty_tree_is_an_empty_workspace() {
    let world = World::new().await;
    let repository = world.repository("empty.git");
    repository.commit("nothing").unwrap();
    let (_, imported) = world.import("empty.git").await.unwrap();
    assert!(in_root(&world.reader(), &imported.workspace).await.is_empty());
}

#[tokio::test]
async fn a_local_repository_gives_the_same_root() {
    let world = World::new().await;
    let repository = world.repository("zoo.git");
    zoo(&repository);
    let (_, remote) = world.import("zoo.git").await.unwrap();
    let options = landfall::repository::remote::RemoteOptions { allow_file: true, ..world.options() };
    let git = landfall::repository::remote::Git::new(options, std::sync::Arc::new(landfall::clock::SystemClock));
    let repositories = Repositories::new(git, world.store.clone(), world.scratch(), TreeLimits::default());
    // Both a bare repository and a work tree with its own pack and loose objects.
    for path in [repository.bare(), repository.work()] {
        let url = landfall::repository::url::RepositoryUrl::from_path(path).unwrap();
        let access = repositories.git().resolve(&url, None, &Revision::Default).await.unwrap();
        let local = repositories.ensure_imported(&access, None).await.unwrap();
        assert_eq!(local.workspace.page.id, remote.workspace.page.id);
        assert_eq!(local.blobs.page.id, remote.blobs.page.id);
    }
}

/// Writes a tree object of any bytes and a commit of it.
fn commit_of_tree(repository: &TestRepository, entries: &[(&str, &[u8], &str)]) -> String {
    let mut tree = Vec::new();
    for (mode, name, id) in entries {
        tree.extend_from_slice(mode.as_bytes());
        tree.push(b' ');
        tree.extend_from_slice(name);
        tree.push(0);
        for at in (0..40).step_by(2) {
            tree.push(u8::from_str_radix(&id[at..at + 2], 16).unwrap());
        }
    }
    // In the bare repository itself: no push or fetch would take such a tree.
    let path = repository.bare().join("tree.raw");
    std::fs::write(&path, tree).unwrap();
    let id = run(repository.bare(), &["hash-object", "-t", "tree", "-w", "--literally", "tree.raw"]).unwrap();
    std::fs::remove_file(path).unwrap();
    let commit = run(repository.bare(), &["commit-tree", "-m", "hostile", &id]).unwrap();
    run(repository.bare(), &["update-ref", "refs/heads/hostile", &commit]).unwrap();
    commit
}

#[tokio::test]
async fn hostile_trees_are_refused_whole() {
    let world = World::new().await;
    let repository = world.repository("hostile.git");
    repository.write("blob", "x").unwrap();
    repository.commit("base").unwrap();
    let blob = repository.git(&["rev-parse", "HEAD:blob"]).unwrap();
    let tree = repository.git(&["rev-parse", "HEAD^{tree}"]).unwrap();
    let long = vec![b'n'; 300];
    let cases: Vec<(&str, Vec<(&str, &[u8], &str)>)> = vec![
        ("hostile_tree", vec![("100644", b"..", &blob)]),
        ("hostile_tree", vec![("40000", b"..", &tree)]),
        ("hostile_tree", vec![("100644", b".", &blob)]),
        ("hostile_tree", vec![("100644", b"a/b", &blob)]),
        ("hostile_tree", vec![("40000", b".git", &tree)]),
        ("hostile_tree", vec![("100644", b".GIT", &blob)]),
        ("hostile_tree", vec![("40000", b"git~1", &tree)]),
        ("hostile_tree", vec![("40000", ".g\u{200c}it".as_bytes(), &tree)]),
        ("hostile_tree", vec![("40000", b".git ", &tree)]),
        ("hostile_tree", vec![("120000", b".gitmodules", &blob)]),
        ("hostile_tree", vec![("100644", b"twice", &blob), ("100644", b"twice", &blob)]),
        ("hostile_tree", vec![("100644", b"twin", &blob), ("40000", b"twin", &tree)]),
        ("tree_too_large", vec![("100644", &long, &blob)]),
        ("bad_objects", vec![("40000", b"blob-as-tree", &blob)]),
        ("bad_objects", vec![("100644", b"tree-as-blob", &tree)]),
    ];
    for (code, entries) in cases {
        let shown = format!("{:?}", entries.iter().map(|(mode, name, _)| (*mode, String::from_utf8_lossy(name))).collect::<Vec<_>>());
        let commit = commit_of_tree(&repository, &entries);
        let repositories = Repositories::new(world.git(), memory_store(), world.scratch(), TreeLimits::default());
        let access =
            repositories.git().resolve(&world.url("hostile.git"), None, &Revision::Commit(commit.parse().unwrap(), None)).await.unwrap();
        let error = repositories.ensure_imported(&access, None).await.unwrap_err();
        // A server may refuse to send what is broken: then there is no pack at all.
        assert!(error.stable_code() == code || code == "bad_objects" && error.kind() == ErrorKind::Remote, "{shown}: {error:?}");
    }
    assert_eq!(std::fs::read_dir(world.scratch()).unwrap().count(), 0);
}

#[tokio::test]
async fn entries_out_of_order_and_old_modes_are_taken_as_git_takes_them() {
    let world = World::new().await;
    let repository = world.repository("old.git");
    repository.write("blob", "x").unwrap();
    repository.commit("base").unwrap();
    let blob = repository.git(&["rev-parse", "HEAD:blob"]).unwrap();
    // 100664 was written by early gits; trees with zero-filled modes exist too.
    let commit = commit_of_tree(&repository, &[("100664", b"group", &blob), ("100644", b"plain", &blob)]);
    let repositories = world.repositories();
    let access = repositories.git().resolve(&world.url("old.git"), None, &Revision::Commit(commit.parse().unwrap(), None)).await.unwrap();
    let imported = repositories.ensure_imported(&access, None).await.unwrap();
    let found = in_root(&world.reader(), &imported.workspace).await;
    assert_eq!(found.get(&b"group"[..]), Some(&Seen::File { executable: false, bytes: b"x".to_vec() }));
}

#[tokio::test]
async fn a_large_file_comes_whole() {
    let world = World::new().await;
    let repository = world.repository("large.git");
    let bytes = noise(100 << 20);
    repository.write("large", &bytes).unwrap();
    repository.commit("large").unwrap();
    let (_, imported) = world.import("large.git").await.unwrap();
    let reader = world.reader();
    let found = in_root(&reader, &imported.workspace).await;
    assert!(found.get(&b"large"[..]) == Some(&Seen::File { executable: false, bytes }));
    let _: &dyn Source = &reader;
}
