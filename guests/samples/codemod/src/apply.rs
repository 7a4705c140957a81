//! Applies the rules to the files, and makes the diff.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use landfall_guest::Failure;
use sample_files::Entry;
use similar::TextDiff;

use crate::rules::Rules;

/// Largest file that is changed, in bytes: larger ones are data.
const FILE_MAX: u64 = 4 << 20;

/// Most lines of the diff in an answer.
const LINES_MAX: usize = 200;

/// What a run did.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The changed files, in order, each with how often a rule applied.
    pub(crate) files: Vec<(String, usize)>,
    /// How often each rule applied, and in how many files; in the rules' order.
    pub(crate) rules: Vec<(usize, usize)>,
    /// How many files were passed over for being too large or no UTF-8 text.
    pub(crate) skipped: usize,
    /// The difference, as a unified diff that `git apply` accepts.
    pub(crate) diff: String,
}

/// Applies the rules to each text file under a directory, in order; a dry run only says what it would do. Follows no links.
pub(crate) fn apply(workspace: &Path, rules: &Rules, dry: bool, mut changed: impl FnMut(&str)) -> Result<Outcome, Failure> {
    let mut outcome = Outcome { rules: vec![(0, 0); rules.rules.len()], ..Outcome::default() };
    sample_files::walk(workspace, &[], |Entry { name, path, metadata }| -> Result<(), Failure> {
        if rules.source.as_ref() == Some(&name) || !rules.rules.iter().any(|rule| rule.covers(&name)) {
            return Ok(());
        }
        let failed = |what: &str, error: &std::io::Error| Failure::other(format!("can't {what} {name}: {error}"));
        if metadata.len() > FILE_MAX {
            outcome.skipped += 1;
            return Ok(());
        }
        let Ok(before) = String::from_utf8(fs::read(&path).map_err(|error| failed("read", &error))?) else {
            outcome.skipped += 1;
            return Ok(());
        };
        let Some((after, times)) = outcome.rewrite(rules, &name, &before) else { return Ok(()) };
        if !dry {
            // Written over, not replaced, so that the mode stays.
            fs::write(&path, &after).map_err(|error| failed("write", &error))?;
        }
        outcome.diff.push_str(&diff(&name, &before, &after));
        changed(&name);
        outcome.files.push((name, times));
        Ok(())
    })?;
    Ok(outcome)
}

impl Outcome {
    /// Returns a file's text after all rules, and how often they applied; none when it stays as it is.
    fn rewrite(&mut self, rules: &Rules, path: &str, before: &str) -> Option<(String, usize)> {
        let mut text = before.to_owned();
        let mut times = Vec::new();
        for (index, rule) in rules.rules.iter().enumerate() {
            if rule.covers(path)
                && let Some((after, count)) = rule.apply(&text)
            {
                text = after;
                times.push((index, count));
            }
        }
        if text == before {
            return None;
        }
        for (index, count) in &times {
            self.rules[*index].0 += count;
            self.rules[*index].1 += 1;
        }
        Some((text, times.iter().map(|(_, count)| count).sum()))
    }

    /// Returns what to answer.
    pub(crate) fn answer(&self, rules: &Rules, dry: bool) -> String {
        let total: usize = self.files.iter().map(|(_, times)| times).sum();
        let verb = if dry { "Would change" } else { "Changed" };
        let mut text = format!("{verb} {total} places in {} files.", self.files.len());
        for (rule, (times, files)) in rules.rules.iter().zip(&self.rules) {
            let _ = match times {
                0 => write!(text, "\n  {}: no match", rule.name),
                _ => write!(text, "\n  {}: {times} in {files} files", rule.name),
            };
        }
        if self.skipped > 0 {
            let _ = write!(text, "\n{} files were passed over: too large or no UTF-8 text.", self.skipped);
        }
        let lines = self.diff.lines().count();
        if lines > 0 {
            text.push_str("\n\n");
            text.extend(self.diff.split_inclusive('\n').take(LINES_MAX));
        }
        if lines > LINES_MAX {
            let _ = write!(text, "… {} more lines in /state/codemod.diff", lines - LINES_MAX);
        }
        text
    }
}

fn diff(path: &str, before: &str, after: &str) -> String {
    let text = TextDiff::from_lines(before, after);
    let mut unified = text.unified_diff();
    let unified = unified.context_radius(3).header(&format!("a/{path}"), &format!("b/{path}")).to_string();
    // git wants the last line of a file without a newline marked; `similar` marks it, and each file's part must end with one.
    let end = if unified.ends_with('\n') { "" } else { "\n" };
    format!("diff --git a/{path} b/{path}\n{unified}{end}")
}
