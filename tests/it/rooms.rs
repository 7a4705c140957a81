//! The rooms of the library look into each other one way only. The table in `ARCHITECTURE.md` says which looks into which; here it is
//! compared with what the sources use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rooms that a room uses, each with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Reads the table: each room with those that it may use, in the table's order.
fn table(architecture: &str) -> Vec<(String, BTreeSet<String>)> {
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = architecture.lines().skip_while(|line| *line != "| room | uses |").skip(2).take_while(|line| line.starts_with('|'));
    let mut table = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [rooms, uses] = cells[..] else { panic!("a row of the table has two cells: {row}") };
        let uses: BTreeSet<String> = names(uses).into_iter().collect();
        table.extend(names(rooms).into_iter().map(|room| (room, uses.clone())));
    }
    table
}

/// Finds which rooms a source file uses: by `crate::`, or by so many `super::` that they end at the crate.
fn used(source: &str, depth: usize, rooms: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let up = "super::".repeat(depth);
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        assert!(!line.contains("crate::{"), "one `use` for each room, so that this test can read it: {line}");
        for (at, path) in line.match_indices("crate::").chain(line.match_indices(&up)) {
            let before = line[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '_' | ':' | '$')) {
                continue;
            }
            let name: String = line[at + path.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            match name.chars().next() {
                // The crate's own names are the errors, said again.
                Some(first) if first.is_uppercase() && path == "crate::" => found.insert(String::from("error")),
                _ if path == "crate::" || rooms.contains(&name) => found.insert(name),
                _ => false,
            };
        }
    }
    found
}

fn visit(folder: &Path, room: Option<&str>, depth: usize, rooms: &BTreeSet<String>, uses: &mut Uses) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let stem = name.trim_end_matches(".rs");
        if path.is_dir() {
            visit(&path, Some(room.unwrap_or(stem)), depth + 1, rooms, uses);
        } else if name.ends_with(".rs") && (room.is_some() || stem != "lib") {
            let room = room.unwrap_or(stem);
            let depth = if stem == "mod" { depth } else { depth + 1 };
            for other in used(&std::fs::read_to_string(&path).unwrap(), depth, rooms) {
                if other != room {
                    uses.entry(room.to_owned()).or_default().entry(other).or_insert_with(|| path.display().to_string());
                }
            }
        }
    }
}

/// Returns what the sources and the table disagree about.
fn faults(table: &[(String, BTreeSet<String>)], rooms: &BTreeSet<String>, uses: &Uses) -> Vec<String> {
    let mut faults = Vec::new();
    let listed: BTreeSet<String> = table.iter().map(|(room, _)| room.clone()).collect();
    for room in rooms.symmetric_difference(&listed) {
        faults.push(format!("`{room}` is in the table or in host/src, and not in the other"));
    }
    let none = BTreeMap::new();
    for (at, (room, allowed)) in table.iter().enumerate() {
        for below in allowed {
            if !table[at + 1..].iter().any(|(other, _)| other == below) {
                faults.push(format!("`{room}` may use `{below}`, which isn't below it in the table"));
            }
        }
        let used = uses.get(room).unwrap_or(&none);
        for (other, file) in used.iter().filter(|(other, _)| !allowed.contains(*other)) {
            faults.push(format!("{file} uses `{other}`, and the table doesn't let `{room}`: move what is used to where both may look"));
        }
        for unused in allowed.iter().filter(|other| !used.contains_key(*other)) {
            faults.push(format!("`{room}` doesn't use `{unused}` any more: take it out of the table"));
        }
    }
    faults
}

#[test]
fn rooms_look_into_each_other_as_the_table_says() {
    let table = table(&std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap());
    let source = repository().join("host/src");
    let mut rooms = BTreeSet::new();
    for entry in std::fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        rooms.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    rooms.remove("lib");
    let mut uses = Uses::new();
    visit(&source, None, 0, &rooms, &mut uses);
    let faults = faults(&table, &rooms, &uses);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_look_back_and_a_stale_row_are_found() {
    let rooms: BTreeSet<String> = ["turn", "store", "error"].map(str::to_owned).into();
    let text = "| room | uses |\n|---|---|\n| `turn` | `store`, `error` |\n| `store` | `error` |\n| `error` | |\n\n| x | y |";
    let table = table(text);
    assert_eq!(table.len(), 3);
    let sources = |turn: &str, store: &str| {
        let of = |room: &str, source: &str| {
            let found = used(source, 1, &rooms).into_iter().filter(|other| other != room).map(|other| (other, format!("{room}.rs")));
            (room.to_owned(), found.collect())
        };
        faults(&table, &rooms, &Uses::from([of("turn", turn), of("store", store)]))
    };
    let turn = "use crate::store::Store;\n    crate::Error::new()";
    assert_eq!(sources(turn, "use crate::error::Result;\n// crate::turn\n/// [`crate::turn::run`]"), [""; 0]);
    for back in ["use crate::turn::run;", "    f(super::turn::run)", "let a = crate::turn::A;"] {
        let faults = sources(turn, &format!("use crate::ErrorKind;\n{back}"));
        assert!(faults.len() == 1 && faults[0].starts_with("store.rs uses `turn`"), "{back}: {faults:?}");
    }
    assert_eq!(sources(turn, "").len(), 1);
    assert_eq!(faults(&table[..2], &rooms, &Uses::new()).len(), 6);
}
