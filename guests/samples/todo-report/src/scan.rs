//! Looks through the workspace.

use std::fs;
use std::path::Path;

use landfall_guest::Failure;
use sample_files::Entry;

use crate::find::{Todo, find};

/// Largest file that is read, in bytes: larger ones are data.
const FILE_MAX: u64 = 1 << 20;

/// How much of a file tells whether it is text, in bytes (as git does it).
const PROBE: usize = 8000;

/// Directories that hold other people's or generated files, also where no `.gitignore` names them.
const SKIPPED: [&str; 11] = [".hg", ".svn", "node_modules", "target", "vendor", "dist", "__pycache__", ".venv", "venv", ".tox", ".next"];

/// How many files pass between two calls of the progress function.
const STEP: u64 = 1000;

/// What a look through the workspace gave.
pub(crate) struct Scan {
    /// All markers, sorted by path and line.
    pub(crate) todos: Vec<Todo>,
    /// How many files were read.
    pub(crate) files: u64,
    /// How many were passed over for being binary or too large.
    pub(crate) skipped: u64,
}

/// Reads the text files under a directory, in order. Follows no links; honours `.gitignore` files.
pub(crate) fn scan(workspace: &Path, markers: &[String], report: &str, mut scanned: impl FnMut(u64)) -> Result<Scan, Failure> {
    let mut scan = Scan { todos: Vec::new(), files: 0, skipped: 0 };
    sample_files::walk(workspace, &SKIPPED, |entry| -> Result<(), Failure> {
        if entry.name == report {
            return Ok(());
        }
        let content = if entry.metadata.len() > FILE_MAX { None } else { Some(read(&entry)?) };
        match content.filter(|content| is_text(content)) {
            Some(content) => search(&entry.name, &content, markers, &mut scan.todos),
            None => scan.skipped += 1,
        }
        scan.files += 1;
        if scan.files.is_multiple_of(STEP) {
            scanned(scan.files);
        }
        Ok(())
    })?;
    scanned(scan.files);
    scan.files -= scan.skipped;
    scan.todos.sort();
    Ok(scan)
}

fn search(path: &str, content: &[u8], markers: &[String], todos: &mut Vec<Todo>) {
    for (line, text) in (1..).zip(String::from_utf8_lossy(content).lines()) {
        if let Some((marker, owner, text)) = find(text, markers) {
            todos.push(Todo { path: path.to_owned(), line, marker: marker.to_owned(), owner, text });
        }
    }
}

fn is_text(content: &[u8]) -> bool {
    !content[..content.len().min(PROBE)].contains(&0)
}

fn read(entry: &Entry) -> Result<Vec<u8>, Failure> {
    fs::read(&entry.path).map_err(|error| Failure::other(format!("can't read {}: {error}", entry.name)))
}
