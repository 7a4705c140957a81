//! Whole turns on directories of this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::rules::Rules;
use super::turn;

const RULES: &str = "[[rule]]\nname = 'rename'\nfiles = ['**/*.rs']\nsearch = 'old'\nreplace = 'new'\nwhole-word = true\n\n\
                     [[rule]]\nname = 'idle'\nsearch = 'nowhere to be found'\nreplace = ''\n";

fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn tree(root: &Path) {
    put(root, "codemod.toml", RULES);
    put(root, ".gitignore", "/out\n");
    put(root, "src/a.rs", "use old;\nfn older() {}\nold(old)\n");
    put(root, "src/no-newline.rs", "let x = old");
    put(root, "notes.md", "the old way\n");
    put(root, "out/b.rs", "old\n");
    put(root, "latin.rs", b"old \xe9\n");
}

#[test]
fn changes_what_the_rules_cover_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, state) = (directory.path().join("workspace"), directory.path());
    tree(&workspace);
    let rules = Rules::parse(RULES, Some("codemod.toml")).unwrap();
    let mut changed = Vec::new();
    let said = turn(&workspace, state, &rules, false, |path| changed.push(path.to_owned())).unwrap();
    assert!(
        said.starts_with(
            "Changed 4 places in 2 files.\n  rename: 4 in 2 files\n  idle: no match\n1 files were passed over: too large or no UTF-8 text.\n\ndiff --git"
        ),
        "{said}"
    );
    assert_eq!(changed, ["src/a.rs", "src/no-newline.rs"]);
    let read = |path: &str| fs::read(workspace.join(path)).unwrap();
    assert_eq!(read("src/a.rs"), b"use new;\nfn older() {}\nnew(new)\n");
    assert_eq!(read("src/no-newline.rs"), b"let x = new");
    assert_eq!(read("notes.md"), b"the old way\n");
    assert_eq!(read("out/b.rs"), b"old\n");
    assert_eq!(read("latin.rs"), b"old \xe9\n");
    assert_eq!(read("codemod.toml"), RULES.as_bytes());

    let again = turn(&workspace, state, &rules, false, |_| {}).unwrap();
    assert!(again.starts_with("Changed 0 places in 0 files."), "{again}");
}

#[test]
fn git_applies_the_diff_of_a_dry_run() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, state) = (directory.path().join("workspace"), directory.path());
    tree(&workspace);
    let rules = Rules::parse(RULES, Some("codemod.toml")).unwrap();
    let said = turn(&workspace, state, &rules, true, |_| {}).unwrap();
    assert!(said.starts_with("Would change 4 places in 2 files."), "{said}");
    assert_eq!(fs::read(workspace.join("src/no-newline.rs")).unwrap(), b"let x = old");

    let applied =
        Command::new("git").args(["apply", "../codemod.diff"]).current_dir(&workspace).env("GIT_CEILING_DIRECTORIES", state).status();
    assert!(applied.unwrap().success());
    assert_eq!(fs::read(workspace.join("src/a.rs")).unwrap(), b"use new;\nfn older() {}\nnew(new)\n");
    assert_eq!(fs::read(workspace.join("src/no-newline.rs")).unwrap(), b"let x = new");
}
