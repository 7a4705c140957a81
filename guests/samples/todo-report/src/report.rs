//! Says what was found: the report for the repository, the answer for whoever asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::compare::Changes;
use crate::find::Todo;

/// Most lines of each kind of change in an answer.
const LINES_MAX: usize = 20;

/// Returns the report as Markdown. It depends on the findings alone.
pub(crate) fn markdown(todos: &[Todo], markers: &[String]) -> String {
    let counts: Vec<String> =
        markers.iter().map(|marker| format!("{} {marker}", todos.iter().filter(|todo| todo.marker == *marker).count())).collect();
    let mut by_file: BTreeMap<&str, Vec<&Todo>> = BTreeMap::new();
    for todo in todos {
        by_file.entry(&todo.path).or_default().push(todo);
    }
    let mut text = String::from("# Open work in the code\n\n");
    let files = by_file.len();
    let _ = writeln!(text, "{} in {files} {}.", counts.join(", "), if files == 1 { "file" } else { "files" });
    for (path, todos) in by_file {
        let _ = writeln!(text, "\n## {path}\n");
        for todo in todos {
            let _ = writeln!(text, "- line {}: **{}**{}", todo.line, todo.marker, described(todo));
        }
    }
    text
}

/// Returns the answer: the state now, and what changed since the last turn when there was one.
pub(crate) fn answer(todos: &[Todo], changes: Option<&Changes>, files: u64, skipped: u64, report: &str) -> String {
    let mut text = format!("{} open in {files} files ({skipped} binary or large ones passed over). See {report}.", todos.len());
    let Some(changes) = changes else {
        text.push_str("\nThis is the first look, so nothing can be said to be new.");
        return text;
    };
    if changes.is_empty() {
        text.push_str("\nNothing changed since the last turn.");
        return text;
    }
    let (new, gone, moved) = (changes.new.len(), changes.gone.len(), changes.moved.len());
    let _ = write!(text, "\nSince the last turn: {new} new, {gone} gone, {moved} moved.");
    lines(&mut text, "new", changes.new.iter().map(|todo| format!("{}{}", place(todo), described(todo))));
    lines(&mut text, "gone", changes.gone.iter().map(|todo| format!("{}{}", place(todo), described(todo))));
    lines(&mut text, "moved", changes.moved.iter().map(|(from, to)| format!("{} -> {}{}", place(from), place(to), described(to))));
    text
}

fn lines(text: &mut String, kind: &str, all: impl ExactSizeIterator<Item = String>) {
    let more = all.len().saturating_sub(LINES_MAX);
    for line in all.take(LINES_MAX) {
        let _ = write!(text, "\n  {kind} {line}");
    }
    if more > 0 {
        let _ = write!(text, "\n  {kind} {more} more");
    }
}

fn place(todo: &Todo) -> String {
    format!("{}:{}", todo.path, todo.line)
}

fn described(todo: &Todo) -> String {
    let owner = todo.owner.as_ref().map(|owner| format!(" ({owner})")).unwrap_or_default();
    if todo.text.is_empty() { owner } else { format!("{owner} {}", todo.text) }
}
