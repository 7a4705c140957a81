//! Whole turns on directories of this machine.

use std::fs;
use std::path::Path;

use super::{Options, turn};

fn options() -> Options {
    Options { markers: vec!["TODO".to_owned(), "FIXME".to_owned()], report: "REPORT.md".to_owned() }
}

fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn reports_what_changed_since_the_last_turn() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, state) = (directory.path().join("workspace"), directory.path().join("state"));
    fs::create_dir_all(&state).unwrap();
    put(&workspace, "src/a.rs", "fn a() {} // TODO(bo): one\n\n// FIXME: two\n");

    let first = turn(&workspace, &state, &options(), |_| {}).unwrap();
    assert!(first.starts_with("2 open in 1 files"), "{first}");
    assert_eq!(
        fs::read_to_string(workspace.join("REPORT.md")).unwrap(),
        "# Open work in the code\n\n1 TODO, 1 FIXME in 1 file.\n\n## src/a.rs\n\n- line 1: **TODO** (bo) one\n- line 3: **FIXME** two\n"
    );

    let second = turn(&workspace, &state, &options(), |_| {}).unwrap();
    assert!(second.ends_with("Nothing changed since the last turn."), "{second}");

    put(&workspace, "src/a.rs", "\nfn a() {} // TODO(bo): one\n// TODO: three\n");
    let third = turn(&workspace, &state, &options(), |_| {}).unwrap();
    assert!(third.contains("1 new, 1 gone, 1 moved."), "{third}");
    assert!(third.contains("\n  new src/a.rs:3 three\n  gone src/a.rs:3 two\n  moved src/a.rs:1 -> src/a.rs:2 (bo) one"), "{third}");
}

#[test]
fn an_unchanged_turn_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, state) = (directory.path().join("workspace"), directory.path().join("state"));
    fs::create_dir_all(&state).unwrap();
    put(&workspace, "a.py", "# TODO: one\n");
    turn(&workspace, &state, &options(), |_| {}).unwrap();
    let times = || [workspace.join("REPORT.md"), state.join("todos.json")].map(|path| fs::metadata(path).unwrap().modified().unwrap());
    let before = times();
    turn(&workspace, &state, &options(), |_| {}).unwrap();
    assert_eq!(times(), before);
}

#[test]
fn passes_over_what_is_not_source() {
    let directory = tempfile::tempdir().unwrap();
    let (workspace, state) = (directory.path().join("workspace"), directory.path().join("state"));
    fs::create_dir_all(&state).unwrap();
    put(&workspace, ".gitignore", "/generated/\n*.log\n");
    for path in ["node_modules/x/a.js", "target/b.rs", ".git/hooks/c", "generated/d.rs", "deep/e.log"] {
        put(&workspace, path, "// TODO: not ours\n");
    }
    put(&workspace, "deep/generated/f.rs", "// TODO: ours, the pattern is anchored\n");
    put(&workspace, "image.bin", b"// TODO: \0 binary\n");
    put(&workspace, "huge.txt", format!("// TODO: huge\n{}", "x".repeat(2 << 20)));
    put(&workspace, ".github/ci.yml", "# TODO: hidden directories are source too\n");
    let mut counts = Vec::new();
    let said = turn(&workspace, &state, &options(), |files| counts.push(files)).unwrap();
    assert!(said.starts_with("2 open in 3 files (2 binary or large ones passed over)"), "{said}");
    assert_eq!(counts, [5]);
    let report = fs::read_to_string(workspace.join("REPORT.md")).unwrap();
    assert!(report.contains("deep/generated/f.rs") && report.contains(".github/ci.yml") && !report.contains("not ours"), "{report}");
}
