//! What a session hands back: a status that git agrees with, a patch that `git apply` takes, and a folder that git works in.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use landfall::repository::base::Base;
use landfall::repository::diff::{DiffOptions, diff};
use landfall::repository::export::write_git_dir;
use landfall::repository::imported::Imported;
use landfall::repository::status::{StatusKind, StatusOptions, status};
use landfall::workspace::page::Root;
use landfall_tests::git_server::{TestRepository, git_command, run};

use super::support::{Edits, Seen, World, edit, file, lay_out, noise, on_disk};

/// Applies a patch to a checkout of the pin with the real git and compares the result with the workspace.
async fn applies(world: &World, repository: &TestRepository, imported: &Imported, current: &Root, name: &str) {
    let reader = world.reader();
    let patch = diff(&reader, &Base::pin(imported), current, &DiffOptions::default()).await.unwrap();
    let checkout = world.folder.path().join(format!("{name}.checkout"));
    run(world.folder.path(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), checkout.to_str().unwrap()]).unwrap();
    let file = world.folder.path().join(format!("{name}.patch"));
    std::fs::write(&file, &patch).unwrap();
    if !patch.is_empty() {
        run(&checkout, &["apply", "--check", "--whitespace=nowarn", file.to_str().unwrap()]).unwrap();
        run(&checkout, &["apply", "--index", "--whitespace=nowarn", file.to_str().unwrap()]).unwrap();
    }
    let laid_out = world.folder.path().join(format!("{name}.laid"));
    lay_out(&reader, current, &laid_out).await;
    // Git keeps no empty directories.
    let files = |folder: &Path| on_disk(folder).into_iter().filter(|(_, seen)| *seen != Seen::Directory).collect::<Vec<_>>();
    let (expected, found) = (files(&laid_out), files(&checkout));
    for ((path, seen), (found_path, found)) in expected.iter().zip(&found) {
        assert_eq!(String::from_utf8_lossy(path), String::from_utf8_lossy(found_path), "{name}");
        assert!(seen == found, "{name}: {}", String::from_utf8_lossy(path));
    }
    assert_eq!(expected.len(), found.len(), "{name}");
}

fn base(repository: &TestRepository) {
    repository.write("text", (1..=100).map(|n| format!("line {n}\n")).collect::<String>()).unwrap();
    repository.write("no-newline", "a\nb\nc").unwrap();
    repository.write("binary", noise(5_000)).unwrap();
    repository.write("empty", "").unwrap();
    repository.write("tool", "#!/bin/sh\n").unwrap();
    repository.write("to-delete", "gone\n").unwrap();
    repository.write("to-rename", "the same content under another name\n").unwrap();
    repository.write("dir/a", "1\n").unwrap();
    repository.write("dir/b", "2\n").unwrap();
    repository.write("sp ace/t\tab", "x\n").unwrap();
    repository.write("ünï", "x\n").unwrap();
    repository.write("quo\"te\\back", "x\n").unwrap();
    std::os::unix::fs::symlink("text", repository.work().join("link")).unwrap();
    std::os::unix::fs::symlink("text", repository.work().join("link-to-file")).unwrap();
    repository.write("file-to-link", "plain\n").unwrap();
    repository.write("dir-to-file/x", "x\n").unwrap();
    repository.write("file-to-dir", "x\n").unwrap();
    repository.commit("base").unwrap();
}

fn lines(change: impl Fn(u32) -> Option<String>) -> String {
    (1..=100).filter_map(change).collect()
}

fn cases() -> Vec<(&'static str, Edits)> {
    let one = |path: &str, to: Option<Seen>| Edits::from([(path.as_bytes().to_vec(), to)]);
    let link = |target: &str| Some(Seen::Link(target.as_bytes().to_vec()));
    let executable = |bytes: &[u8]| Some(Seen::File { executable: true, bytes: bytes.to_vec() });
    vec![
        ("nothing", Edits::new()),
        ("first-line", one("text", file(lines(|n| Some(if n == 1 { "new\n".into() } else { format!("line {n}\n") }))))),
        ("last-line", one("text", file(lines(|n| Some(if n == 100 { "new".into() } else { format!("line {n}\n") }))))),
        (
            "near-and-far",
            one(
                "text",
                file(lines(|n| Some(if [10, 16, 17, 24, 90].contains(&n) { format!("new {n}\n") } else { format!("line {n}\n") }))),
            ),
        ),
        ("lines-gone", one("text", file(lines(|n| (n % 7 != 0).then(|| format!("line {n}\n")))))),
        ("all-lines-gone", one("text", file(""))),
        ("newline-added", one("no-newline", file("a\nb\nc\n"))),
        ("newline-still-missing", one("no-newline", file("a\nB\nc"))),
        ("newline-lost", one("dir/a", file("1"))),
        ("carriage-returns", one("text", file(lines(|n| Some(format!("line {n}\r\n")))))),
        ("empty-filled", one("empty", file("now\n"))),
        ("binary-changed", one("binary", file(noise(6_000)))),
        ("binary-to-text", one("binary", file("text\n"))),
        ("text-to-binary", one("text", file([0, 1, 2, 255]))),
        ("binary-added", one("new/binary", file(noise(100_000)))),
        ("added", one("new/deep/file", file("x\ny"))),
        ("empty-added", one("new-empty", file(""))),
        ("deleted", one("to-delete", None)),
        ("empty-deleted", one("empty", None)),
        ("binary-deleted", one("binary", None)),
        ("directory-deleted", one("dir", None)),
        ("mode", one("tool", executable(b"#!/bin/sh\n"))),
        ("mode-and-content", one("tool", executable(b"#!/bin/bash\n"))),
        ("executable-added", one("run", executable(b"x"))),
        (
            "renamed",
            Edits::from([
                (b"to-rename".to_vec(), None),
                (b"new/name with \xc3\xbc".to_vec(), file("the same content under another name\n")),
            ]),
        ),
        (
            "renamed-with-mode",
            Edits::from([(b"to-rename".to_vec(), None), (b"renamed".to_vec(), executable(b"the same content under another name\n"))]),
        ),
        ("copied", one("copy", file("the same content under another name\n"))),
        ("link-changed", one("link", link("dir/a"))),
        ("link-added", one("new-link", link("/absolute/\u{fc}"))),
        ("link-deleted", one("link", None)),
        ("link-to-file", one("link-to-file", file("now a file\n"))),
        ("file-to-link", one("file-to-link", link("text"))),
        (
            "file-to-directory",
            Edits::from([(b"file-to-dir".to_vec(), Some(Seen::Directory)), (b"file-to-dir/inside".to_vec(), file("y\n"))]),
        ),
        ("directory-to-file", one("dir-to-file", file("now a file\n"))),
        (
            "odd-names",
            Edits::from([
                (b"sp ace/t\tab".to_vec(), file("y\n")),
                ("ünï".as_bytes().to_vec(), file("y\n")),
                (b"quo\"te\\back".to_vec(), file("y\n")),
                (b"new\nline".to_vec(), file("y\n")),
                (b"latin-\xe9".to_vec(), file("y\n")),
                (b"trailing ".to_vec(), file("y\n")),
            ]),
        ),
        ("empty-directory", one("nothing-in-it", Some(Seen::Directory))),
    ]
}

#[tokio::test]
async fn git_apply_makes_the_workspace_of_every_patch() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    base(&repository);
    let (_, imported) = world.import("app.git").await.unwrap();
    let reader = world.reader();
    let mut all = Edits::new();
    for (name, edits) in cases() {
        // The directory-shaped ones need an order of their own; alone each is enough.
        let current = match name {
            "file-to-directory" => {
                let gone = edit(&world.store, &reader, &imported.workspace, &Edits::from([(b"file-to-dir".to_vec(), None)])).await;
                edit(&world.store, &reader, &gone, &Edits::from([(b"file-to-dir/inside".to_vec(), file("y\n"))])).await
            }
            _ => edit(&world.store, &reader, &imported.workspace, &edits).await,
        };
        applies(&world, &repository, &imported, &current, name).await;
        if !name.contains("directory") {
            all.extend(edits);
        }
    }
    let current = edit(&world.store, &reader, &imported.workspace, &all).await;
    applies(&world, &repository, &imported, &current, "all").await;
}

#[tokio::test]
async fn a_status_says_what_changed_and_nothing_else() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    base(&repository);
    let (_, imported) = world.import("app.git").await.unwrap();
    let reader = world.reader();
    let edits = Edits::from([
        (b"text".to_vec(), file("other\n")),
        (b"tool".to_vec(), Some(Seen::File { executable: true, bytes: b"#!/bin/sh\n".to_vec() })),
        (b"to-delete".to_vec(), None),
        (b"to-rename".to_vec(), None),
        (b"dir/renamed".to_vec(), file("the same content under another name\n")),
        (b"dir/new".to_vec(), file("new\n")),
        (b"file-to-link".to_vec(), Some(Seen::Link(b"text".to_vec()))),
        // Written again with the same bytes: another time, and no change.
        (b"dir/a".to_vec(), file("1\n")),
        (b"hollow".to_vec(), Some(Seen::Directory)),
    ]);
    let current = edit(&world.store, &reader, &imported.workspace, &edits).await;
    let found = status(&reader, &Base::pin(&imported), &current, &StatusOptions::default()).await.unwrap();
    let shown: Vec<_> = found.iter().map(|change| (String::from_utf8_lossy(&change.path).into_owned(), change.kind)).collect();
    let expected = [
        ("dir/new", StatusKind::Added),
        ("dir/renamed", StatusKind::Renamed),
        ("file-to-link", StatusKind::TypeChanged),
        ("text", StatusKind::Modified),
        ("to-delete", StatusKind::Deleted),
        ("tool", StatusKind::Modified),
    ];
    assert_eq!(shown, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(found[1].from.as_deref(), Some(&b"to-rename"[..]));
    let some = StatusOptions { paths: vec![b"dir".to_vec(), b"tool".to_vec(), b"te".to_vec()], ..StatusOptions::default() };
    let found = status(&reader, &Base::pin(&imported), &current, &some).await.unwrap();
    assert_eq!(
        found.iter().map(|change| String::from_utf8_lossy(&change.path).into_owned()).collect::<Vec<_>>(),
        ["dir/new", "dir/renamed", "tool"]
    );
    let few = StatusOptions { max_changes: 3, ..StatusOptions::default() };
    assert_eq!(status(&reader, &Base::pin(&imported), &current, &few).await.unwrap_err().kind(), landfall::ErrorKind::Limit);
    assert!(status(&reader, &Base::pin(&imported), &imported.workspace, &StatusOptions::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn attributes_are_applied_backwards() {
    let world = World::new().await;
    let repository = world.repository("attributes.git");
    repository
        .write(".gitattributes", "*.txt text eol=crlf\n*.auto text=auto\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n")
        .unwrap();
    repository.write("a.txt", "one\ntwo\nthree\n").unwrap();
    repository.write("b.auto", "one\ntwo\n").unwrap();
    repository.write("c.id", "$Id$\nx\n").unwrap();
    repository.write("d.u16", "o\0n\0e\0\n\0").unwrap();
    repository.commit("base").unwrap();
    let (_, imported) = world.import("attributes.git").await.unwrap();
    let reader = world.reader();
    // Only line ends that git doesn't store: no change.
    let same = edit(
        &world.store,
        &reader,
        &imported.workspace,
        &Edits::from([(b"a.txt".to_vec(), file("one\ntwo\nthree\n")), (b"b.auto".to_vec(), file("one\r\ntwo\r\n"))]),
    )
    .await;
    assert!(status(&reader, &Base::pin(&imported), &same, &StatusOptions::default()).await.unwrap().is_empty());
    let changed = Edits::from([
        (b"a.txt".to_vec(), file("one\r\nTWO\r\nthree\r\n")),
        (b"c.id".to_vec(), file(format!("$Id: {} $\ny\n", repository.git(&["rev-parse", "HEAD:c.id"]).unwrap()))),
        (b"d.u16".to_vec(), file("t\0w\0o\0\n\0")),
    ]);
    let current = edit(&world.store, &reader, &imported.workspace, &changed).await;
    let patch = String::from_utf8(diff(&reader, &Base::pin(&imported), &current, &DiffOptions::default()).await.unwrap()).unwrap();
    assert!(patch.contains("\n-two\n+TWO\n") && patch.contains("\n $Id$\n-x\n+y\n") && patch.contains("\n-one\n+two\n"), "{patch}");
    let checkout = world.folder.path().join("checkout");
    run(world.folder.path(), &["clone", "-q", repository.bare().to_str().unwrap(), checkout.to_str().unwrap()]).unwrap();
    std::fs::write(world.folder.path().join("p"), &patch).unwrap();
    run(&checkout, &["apply", "../p"]).unwrap();
    assert_eq!(std::fs::read(checkout.join("a.txt")).unwrap(), b"one\r\nTWO\r\nthree\r\n");
    assert_eq!(std::fs::read(checkout.join("d.u16")).unwrap(), b"t\0w\0o\0\n\0");
}

async fn opened(world: &World, name: &str, imported: &Imported, pin: &landfall::pin::Pin, current: &Root) -> PathBuf {
    let reader = world.reader();
    let folder = world.folder.path().join(name);
    lay_out(&reader, current, &folder).await;
    let options = StatusOptions { renames: false, ..StatusOptions::default() };
    let changed: HashSet<Vec<u8>> =
        status(&reader, &Base::pin(imported), current, &options).await.unwrap().iter().map(|change| change.path.to_vec()).collect();
    write_git_dir(&reader, imported, None, pin, &folder, changed).await.unwrap();
    folder
}

#[tokio::test]
async fn git_works_in_an_opened_folder() {
    let world = World::new().await;
    let repository = world.repository("app.git");
    base(&repository);
    repository.write("dir/a", "newer\n").unwrap();
    repository.commit("second").unwrap();
    let (access, imported) = world.import("app.git").await.unwrap();
    let reader = world.reader();

    let clean = opened(&world, "clean", &imported, access.pin(), &imported.workspace).await;
    assert_eq!(run(&clean, &["status", "--porcelain"]).unwrap(), "");
    assert_eq!(run(&clean, &["diff", "HEAD"]).unwrap(), "");
    run(&clean, &["fsck", "--strict"]).unwrap();
    assert_eq!(run(&clean, &["rev-parse", "HEAD"]).unwrap(), imported.commit.to_string());
    assert_eq!(run(&clean, &["symbolic-ref", "HEAD"]).unwrap(), "refs/heads/main");
    assert_eq!(run(&clean, &["rev-parse", "--is-shallow-repository"]).unwrap(), "true");
    assert_eq!(run(&clean, &["remote", "get-url", "origin"]).unwrap(), access.pin().url);
    // Without reading a file: the index knows them all.
    assert_eq!(run(&clean, &["diff-files"]).unwrap(), "");

    let edits: Edits = cases().into_iter().filter(|(name, _)| !name.contains("directory")).flat_map(|(_, edits)| edits).collect();
    let current = edit(&world.store, &reader, &imported.workspace, &edits).await;
    let folder = opened(&world, "edited", &imported, access.pin(), &current).await;
    // Git's own view: the edits laid over a checkout of its own.
    let checkout = world.folder.path().join("checkout");
    run(world.folder.path(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), checkout.to_str().unwrap()]).unwrap();
    for path in std::fs::read_dir(&checkout).unwrap().map(|entry| entry.unwrap().path()) {
        if path.file_name().unwrap() != ".git" {
            if path.is_dir() && !path.is_symlink() { std::fs::remove_dir_all(&path).unwrap() } else { std::fs::remove_file(&path).unwrap() }
        }
    }
    let plain = world.folder.path().join("plain");
    lay_out(&reader, &current, &plain).await;
    for entry in std::fs::read_dir(&plain).unwrap() {
        let entry = entry.unwrap();
        std::fs::rename(entry.path(), checkout.join(entry.file_name())).unwrap();
    }
    for arguments in [&["status", "--porcelain", "-uall"][..], &["diff", "--binary", "HEAD"], &["ls-files", "-s"]] {
        assert_eq!(run(&folder, arguments).unwrap(), run(&checkout, arguments).unwrap(), "{arguments:?}");
    }
    run(&folder, &["fsck", "--strict"]).unwrap();
    // And work goes on there: commit and push.
    run(&folder, &["add", "-A"]).unwrap();
    run(&folder, &["commit", "-q", "-m", "by hand"]).unwrap();
    run(&folder, &["push", "-q", repository.bare().to_str().unwrap(), "HEAD:refs/heads/from-session"]).unwrap();
    run(repository.bare(), &["fsck"]).unwrap();

    let config = std::fs::read_to_string(folder.join(".git/config")).unwrap();
    assert!(!config.contains('@') && !config.contains("hooks"), "{config}");
    let again = write_git_dir(&reader, &imported, None, access.pin(), &folder, HashSet::new()).await.unwrap_err();
    assert_eq!(again.kind(), landfall::ErrorKind::Local);
}

#[tokio::test]
async fn the_zoo_opens_clean() {
    let world = World::new().await;
    let repository = world.repository("zoo.git");
    repository.write(".gitattributes", "*.txt text eol=crlf\n*.id ident\n").unwrap();
    repository.write("a.txt", "one\ntwo\n").unwrap();
    repository.write("x.id", "$Id$\n").unwrap();
    repository.write("caf\u{e9}/x", "y").unwrap();
    repository.git(&["add", "-A"]).unwrap();
    repository.git(&["update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,vendor/module"]).unwrap();
    let commit = repository.commit_index("zoo").unwrap();
    let repositories = world.repositories();
    let revision = landfall::repository::remote::Revision::Commit(commit.parse().unwrap(), None);
    let access = repositories.git().resolve(&world.url("zoo.git"), None, &revision).await.unwrap();
    let imported = repositories.ensure_imported(&access, None).await.unwrap();
    let folder = opened(&world, "zoo", &imported, access.pin(), &imported.workspace).await;
    assert_eq!(run(&folder, &["status", "--porcelain"]).unwrap(), "");
    // Even when git looks at everything again.
    std::fs::remove_file(folder.join(".git/index")).unwrap();
    run(&folder, &["reset", "-q"]).unwrap();
    assert_eq!(run(&folder, &["status", "--porcelain"]).unwrap(), "");
    // A commit that was given without a branch: HEAD is the commit.
    assert!(!git_command(&folder).args(["symbolic-ref", "-q", "HEAD"]).output().unwrap().status.success());
    assert_eq!(run(&folder, &["rev-parse", "HEAD"]).unwrap(), commit);
    run(&folder, &["fsck", "--strict"]).unwrap();
}
