//! Applies a file of search-and-replace rules to the workspace and leaves a diff to review.
//!
//! The rules are the run's input, else its attachment `codemod.toml`, else the file that the parameter `rules` names, else
//! `/workspace/codemod.toml`:
//!
//! ```toml
//! [[rule]]
//! name = "the client moved"          # optional: what the answer calls it
//! files = ["src/**/*.rs"]            # optional: only these; globs relative to the workspace
//! except = ["**/generated/**"]       # optional: but not these
//! search = "old::Client"             # either a text, taken literally,
//! replace = "new::Client"
//! whole-word = true                  # optional: not inside longer words
//!
//! [[rule]]
//! regex = 'log\((?<what>[^)]*)\)'    # or a pattern (the syntax of the crate regex; `^` and `$` match at lines)
//! replace = "trace($what)"
//! ```
//!
//! Rules apply in order to each text file that `.gitignore` doesn't name. The diff of the whole turn is in `/state/codemod.diff`; the
//! answer has its beginning. The parameter `dry-run` with the value `true` leaves the files as they are.

mod apply;
mod rules;

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

use landfall_guest::{Agent, Failure, Request, Response, progress};

use rules::Rules;

/// Where the rules are when nothing says otherwise, and what an attachment of rules is called.
const RULES: &str = "codemod.toml";

struct Codemod;

impl Agent for Codemod {
    fn run(request: Request) -> Result<Response, Failure> {
        let workspace = Path::new("/workspace");
        let rules = rules(&request, workspace)?;
        let dry = match request.param("dry-run") {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(Failure::InvalidRequest(format!("`dry-run` is `true` or `false`, not {other:?}"))),
        };
        let said = turn(workspace, Path::new("/state"), &rules, dry, |path| {
            // Only for whoever watches: a full event log is no reason to fail.
            let _ = progress::emit("file.changed", path);
        })?;
        Ok(Response::from(said))
    }
}

landfall_guest::export!(Codemod);

/// Reads the rules from where the request says they are.
fn rules(request: &Request, workspace: &Path) -> Result<Rules, Failure> {
    if !request.input.trim().is_empty() {
        return Rules::parse(&request.input, None);
    }
    if let Some(attachment) = request.attachment(RULES) {
        let text = str::from_utf8(&attachment.content)
            .map_err(|error| Failure::InvalidRequest(format!("the attachment {RULES} isn't UTF-8 text: {error}")))?;
        return Rules::parse(text, None);
    }
    let path = request.param("rules").unwrap_or(RULES);
    if path.is_empty() || Path::new(path).components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Failure::InvalidRequest(format!("`rules` must be a path inside the workspace, not {path:?}")));
    }
    match fs::read_to_string(workspace.join(path)) {
        Ok(text) => Rules::parse(&text, Some(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::InvalidRequest(format!(
            "no rules: there is no {path} in the workspace, and neither an input nor an attachment {RULES} was given"
        ))),
        Err(error) => Err(Failure::other(format!("can't read {path}: {error}"))),
    }
}

/// One turn on these directories. Returns what to answer.
fn turn(workspace: &Path, state: &Path, rules: &Rules, dry: bool, changed: impl FnMut(&str)) -> Result<String, Failure> {
    let outcome = apply::apply(workspace, rules, dry, changed)?;
    let diff = state.join("codemod.diff");
    fs::write(&diff, &outcome.diff).map_err(|error| Failure::other(format!("can't write {}: {error}", diff.display())))?;
    Ok(outcome.answer(rules, dry))
}

#[cfg(test)]
mod tests;
