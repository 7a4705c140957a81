//! Finds TODO and FIXME in the workspace, with file and line, keeps `REPORT.md` current and says what is new, gone and moved since the
//! last turn.
//!
//! The report depends on the files alone, so a turn that finds nothing new changes nothing. What was found is remembered in
//! `/state/todos.json`.
//!
//! Configuration (`[agents.NAME.config]`), each also a parameter of a single run:
//! - `markers`: the words to look for, separated by commas; `TODO,FIXME` when not set;
//! - `report`: the report's path in the workspace; `REPORT.md` when not set.

mod compare;
mod find;
mod memory;
mod report;
mod scan;

use std::path::Path;

use landfall_guest::{Agent, Failure, Request, Response, config, progress};

use compare::Changes;
use scan::Scan;

/// What a run is told.
struct Options {
    markers: Vec<String>,
    report: String,
}

struct TodoReport;

impl Agent for TodoReport {
    fn run(request: Request) -> Result<Response, Failure> {
        let options = options(&request)?;
        let said = turn(Path::new("/workspace"), Path::new("/state"), &options, |files| {
            // Only for whoever watches: a full event log is no reason to fail.
            let _ = progress::emit("files.scanned", &files.to_string());
        })?;
        Ok(Response::from(said))
    }
}

landfall_guest::export!(TodoReport);

fn options(request: &Request) -> Result<Options, Failure> {
    let value = |name: &str, default: &str| -> Result<String, Failure> {
        let given = match request.param(name) {
            Some(value) => Some(value.to_owned()),
            None => config::get(name)?,
        };
        Ok(given.unwrap_or_else(|| default.to_owned()))
    };
    let markers: Vec<String> =
        value("markers", "TODO,FIXME")?.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    if markers.is_empty() {
        return Err(Failure::InvalidRequest("`markers` names no word to look for".to_owned()));
    }
    let report = value("report", "REPORT.md")?;
    if report.is_empty() || Path::new(&report).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
        return Err(Failure::InvalidRequest(format!("`report` must be a path inside the workspace, not {report:?}")));
    }
    Ok(Options { markers, report })
}

/// One turn on these directories. Returns what to answer.
fn turn(workspace: &Path, state: &Path, options: &Options, scanned: impl FnMut(u64)) -> Result<String, Failure> {
    let Scan { todos, files, skipped } = scan::scan(workspace, &options.markers, &options.report, scanned)?;
    let before = memory::load(state)?;
    let changes = before.as_deref().map(|before| Changes::between(before, &todos));
    write_if_changed(&workspace.join(&options.report), &report::markdown(&todos, &options.markers))?;
    memory::save(state, &todos)?;
    Ok(report::answer(&todos, changes.as_ref(), files, skipped, &options.report))
}

/// Writes a file unless it already has this content, so that an unchanged report is no change of the workspace.
fn write_if_changed(path: &Path, content: &str) -> Result<(), Failure> {
    if std::fs::read(path).is_ok_and(|old| old == content.as_bytes()) {
        return Ok(());
    }
    let write = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)
    };
    write().map_err(|error| Failure::other(format!("can't write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests;
