//! Repositories of every kind, made from numbers: an import is what `git checkout` gives, and a commit of edits has the very tree that
//! `git add --all` and `git write-tree` give for the same files.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall::checkpoint::writer::{PackWriter, WriterOptions};
use landfall::pin::Pin;
use landfall::repository::commit::{CommitRequest, Identity, commit};
use landfall::repository::export::write_git_dir;
use landfall::repository::history::history;
use landfall::repository::imported::Imported;
use landfall::repository::session_git::SessionGit;
use landfall::workspace::page::{Home, Root};
use landfall_tests::git_server::{TestRepository, run};

use super::support::{Edits, Seen, World, edit, in_root, lay_out, on_disk};

/// Numbers that look random and are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const NAMES: &[&str] =
    &["a", "b.txt", "c.id", "d.auto", "e.bin", "Makefile", "x y", "ü.txt", "A", "b", "-dash", "#hash", "b.txt.orig", "0"];
const FOLDERS: &[&str] = &["", "src", "src/deep", "src-x", "docs", "docs/a/b", "SRC", "t"];
const ATTRIBUTES: &[&str] = &[
    "*.txt text eol=crlf",
    "*.txt text",
    "*.txt -text",
    "*.txt eol=lf",
    "* text=auto",
    "*.id ident",
    "*.auto text=auto eol=crlf",
    "*.bin binary",
    "docs/** -text",
    "*.txt !text",
    "*.orig filter=none",
    "[attr]win text eol=crlf",
    "Makefile win",
    "*.auto working-tree-encoding=ISO-8859-1",
    "a export-ignore",
];
const IGNORES: &[&str] = &["*.orig", "/b", "docs/", "!docs/a", "src/**/a", "t/*", "!t/A", "\\#hash", "x\\ y", "*.bin"];

fn content(numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = Vec::new();
    match numbers.below(12) {
        0 => {}
        1 => bytes.extend((0..numbers.below(400)).map(|_| numbers.next().to_le_bytes()[0])),
        2 => bytes.extend_from_slice(b"at $Id$ and $Id: old $\n"),
        3 => bytes.extend_from_slice(b"\0\r\n\0"),
        _ => {
            let ends: &[&str] = [&["\n"][..], &["\r\n"], &["\n", "\r\n"], &["\r", "\n"]][numbers.below(4)];
            for line in 0..numbers.below(20) {
                bytes.extend_from_slice(format!("line {line} {}", numbers.below(5)).as_bytes());
                bytes.extend_from_slice(numbers.one(ends).as_bytes());
            }
            bytes.extend_from_slice(numbers.one(&["", "no newline at the end"]).as_bytes());
        }
    }
    bytes
}

fn path(numbers: &mut Numbers) -> String {
    let (folder, name) = (numbers.one(FOLDERS), numbers.one(NAMES));
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn lines(numbers: &mut Numbers, of: &[&str], most: usize) -> String {
    (0..1 + numbers.below(most)).map(|_| format!("{}\n", numbers.one(of))).collect()
}

/// Writes a path unless a file is in the way of its folders, or a folder in its own.
fn write(repository: &TestRepository, path: &str, bytes: &[u8]) {
    if !repository.work().join(path).is_dir() {
        let _ = repository.write(path, bytes);
    }
}

/// A commit whose files no attribute has cleaned: blobs go in as they are, as another machine may have committed them.
fn generate(repository: &TestRepository, numbers: &mut Numbers) {
    for _ in 0..numbers.below(60) {
        write(repository, &path(numbers), &content(numbers));
    }
    if numbers.below(4) > 0 {
        write(repository, ".gitattributes", lines(numbers, ATTRIBUTES, 6).as_bytes());
    }
    if numbers.below(3) == 0 {
        write(repository, "src/.gitattributes", lines(numbers, ATTRIBUTES, 3).as_bytes());
    }
    if numbers.below(3) > 0 {
        write(repository, ".gitignore", lines(numbers, IGNORES, 6).as_bytes());
    }
    if numbers.below(3) == 0 {
        write(repository, "docs/.gitignore", lines(numbers, IGNORES, 2).as_bytes());
    }
    if numbers.below(2) == 0 {
        let _ = std::os::unix::fs::symlink(numbers.one(&["a", "../..", "/etc/passwd", "nowhere"]), repository.work().join("link"));
    }
    for (path, seen) in on_disk(repository.work()) {
        let Seen::File { .. } = seen else { continue };
        let path = String::from_utf8(path).unwrap();
        let raw = repository.git(&["hash-object", "-w", "--no-filters", "--", &path]).unwrap();
        let mode = if numbers.below(8) == 0 { "100755" } else { "100644" };
        repository.git(&["update-index", "--add", "--cacheinfo", &format!("{mode},{raw},{path}")]).unwrap();
    }
    if repository.work().join("link").is_symlink() {
        repository.git(&["add", "-f", "link"]).unwrap();
    }
    if numbers.below(3) == 0 {
        repository.git(&["update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,vendor/module"]).unwrap();
    }
    repository.commit_index("generated").unwrap();
}

fn edits(numbers: &mut Numbers, files: &[String]) -> Edits {
    let mut edits = Edits::new();
    for _ in 0..1 + numbers.below(12) {
        let old = if files.is_empty() { path(numbers) } else { files[numbers.below(files.len())].clone() };
        let file = |executable, bytes| Some(Seen::File { executable, bytes });
        match numbers.below(9) {
            0 | 1 => drop(edits.insert(old.into_bytes(), file(false, content(numbers)))),
            2 => drop(edits.insert(old.into_bytes(), file(true, content(numbers)))),
            3 => drop(edits.insert(old.into_bytes(), None)),
            4 => drop(edits.insert(old.into_bytes(), Some(Seen::Link(b"a".to_vec())))),
            5 => drop(edits.insert(b".gitattributes".to_vec(), file(false, lines(numbers, ATTRIBUTES, 4).into_bytes()))),
            6 => drop(edits.insert(b".gitignore".to_vec(), file(false, lines(numbers, IGNORES, 4).into_bytes()))),
            7 => {
                // A file becomes a folder.
                edits.insert(format!("{old}/inside").into_bytes(), file(false, content(numbers)));
            }
            _ => drop(edits.insert(path(numbers).into_bytes(), file(false, content(numbers)))),
        }
    }
    // One thing at a path, and nothing beneath what is no folder.
    let kept: Vec<Vec<u8>> = edits.keys().cloned().collect();
    edits.retain(|path, edit| {
        edit.is_none() || !kept.iter().any(|other| other.len() > path.len() && other.starts_with(&[path, &b"/"[..]].concat()))
    });
    edits
}

/// Commits what a root has changed, as a turn does, and returns the session's git root.
async fn committed(world: &World, imported: &Imported, git: Option<&SessionGit>, current: &Root) -> Option<SessionGit> {
    let reader = world.reader();
    let home = Arc::new(Home::Session(landfall::id::SessionRef { agent: "tester".parse().unwrap(), session: "s".parse().unwrap() }));
    let mut writer = PackWriter::new(world.store.clone(), home, WriterOptions::default());
    let request = CommitRequest {
        message: String::from("edits"),
        paths: Vec::new(),
        identity: Identity::new("A", "a@example.com").unwrap(),
        time: 1_800_000_000,
    };
    let root = match commit(&reader, &mut writer, imported, git, current, &request).await {
        Ok((_, root)) => root,
        Err(error) => {
            assert_eq!(error.stable_code(), "nothing_to_commit", "{error:?}");
            return None;
        }
    };
    writer.finish().await.unwrap();
    Some(SessionGit::open(&reader, &writer.resolve_root(&root).unwrap()).await.unwrap())
}

/// The tree that the real git makes of a folder that was opened with everything uncommitted.
fn gits_tree(folder: &Path) -> String {
    run(folder, &["add", "--all"]).unwrap();
    run(folder, &["write-tree"]).unwrap()
}

/// Lays a root out as a folder with a `.git` at the session's last commit, or at the pin.
async fn opened(world: &World, name: &str, imported: &Imported, git: Option<&SessionGit>, pin: &Pin, current: &Root) -> PathBuf {
    let folder = world.folder.path().join(name);
    let reader = world.reader();
    lay_out(&reader, current, &folder).await;
    let changes =
        landfall::workspace::diff::diff(&reader, git.map_or(&imported.workspace, |git| &git.files), &reader, current).await.unwrap();
    let changed: HashSet<Vec<u8>> = changes.into_iter().map(|change| change.path.to_vec()).collect();
    write_git_dir(&reader, imported, git, pin, &folder, changed).await.unwrap();
    folder
}

async fn check(seed: u64) {
    let mut numbers = Numbers(seed);
    let world = World::new().await;
    let repository = world.repository("g.git");
    generate(&repository, &mut numbers);
    let (access, imported) = world.import("g.git").await.unwrap();
    let reader = world.reader();

    // The import is a checkout.
    let checkout = world.folder.path().join("checkout");
    run(world.folder.path(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), checkout.to_str().unwrap()]).unwrap();
    let (expected, found) = (on_disk(&checkout), in_root(&reader, &imported.workspace).await);
    assert_eq!(
        found.keys().map(|path| String::from_utf8_lossy(path)).collect::<Vec<_>>(),
        expected.keys().map(|path| String::from_utf8_lossy(path)).collect::<Vec<_>>(),
        "seed {seed}"
    );
    for (path, seen) in &expected {
        assert_eq!(found.get(path), Some(seen), "seed {seed}: {}", String::from_utf8_lossy(path));
    }

    // Two rounds of edits, each committed: git makes the same trees of the same files.
    let (mut current, mut git) = (imported.workspace.clone(), None);
    for round in 0..2 {
        let files: Vec<String> = in_root(&reader, &current)
            .await
            .into_iter()
            .filter(|(path, seen)| {
                *seen != Seen::Directory && !path.starts_with(b"vendor/") && !path.windows(4).any(|part| part == b".git")
            })
            .map(|(path, _)| String::from_utf8(path).unwrap())
            .collect();
        let wanted = edits(&mut numbers, &files);
        current = edit(&world.store, &reader, &current, &wanted).await;
        let name = format!("round-{round}");
        let before = opened(&world, &format!("{name}.before"), &imported, git.as_ref(), access.pin(), &current).await;
        let expected = gits_tree(&before);
        let Some(made) = committed(&world, &imported, git.as_ref(), &current).await else {
            assert_eq!(expected, run(&before, &["rev-parse", "HEAD^{tree}"]).unwrap(), "seed {seed}, {name}");
            continue;
        };
        let folder = opened(&world, &name, &imported, Some(&made), access.pin(), &current).await;
        let shown: BTreeMap<String, &Option<Seen>> =
            wanted.iter().map(|(path, edit)| (String::from_utf8_lossy(path).into_owned(), edit)).collect();
        let tree = run(&folder, &["rev-parse", "HEAD^{tree}"]).unwrap();
        if tree != expected {
            let listing = |folder: &Path, tree: &str| run(folder, &["ls-tree", "-r", tree]).unwrap();
            panic!("seed {seed}, {name}: {shown:?}\ngit:\n{}\nthis:\n{}", listing(&before, &expected), listing(&folder, &tree));
        }
        run(&folder, &["fsck", "--strict"]).unwrap();
        // Totals are exact, and what isn't ignored is committed.
        in_root(&reader, &made.files).await;
        in_root(&reader, &made.root).await;
        let commits = history(&reader, &imported, Some(&made), 10).await.unwrap();
        assert_eq!(
            run(&folder, &["rev-list", "HEAD"]).unwrap(),
            commits.iter().map(|commit| commit.id.to_string()).collect::<Vec<_>>().join("\n")
        );
        git = Some(made);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_repositories_come_in_as_git_checks_them_out_and_go_out_as_git_adds_them() {
    for seed in 0..16 {
        check(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_trees_come_in_as_git_checks_them_out() {
    // The sources of what this project depends on.
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let mut folders: Vec<PathBuf> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["source"].is_string())
        .map(|package| Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned())
        .collect();
    folders.sort();
    let world = World::new().await;
    let repository = world.repository("crates.git");
    // Every tenth, so that it stays a matter of seconds; thousands of files all the same.
    let mut packages = 0;
    for folder in folders.iter().step_by(10) {
        let name = folder.file_name().unwrap();
        let copied = std::process::Command::new("cp").arg("-r").arg(folder).arg(repository.work().join(name)).status().unwrap();
        assert!(copied.success());
        packages += 1;
    }
    repository.commit("sources").unwrap();
    let (_, imported) = world.import("crates.git").await.unwrap();
    let checkout = world.folder.path().join("checkout");
    run(world.folder.path(), &["clone", "-q", "-b", "main", repository.bare().to_str().unwrap(), checkout.to_str().unwrap()]).unwrap();
    let (expected, found) = (on_disk(&checkout), in_root(&world.reader(), &imported.workspace).await);
    assert!(packages > 20 && expected.len() > 1_000, "{packages} packages, {} paths", expected.len());
    for (path, seen) in &expected {
        assert!(found.get(path) == Some(seen), "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(found.len(), expected.len());
}
