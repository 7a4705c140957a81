//! Finds a marker in a line of text.

use serde::{Deserialize, Serialize};

/// Longest text that is kept of a finding, in characters.
const TEXT_MAX: usize = 160;

/// Longest line that is looked at, in bytes: longer ones are generated.
const LINE_MAX: usize = 4096;

/// What opens a comment in the languages that people write.
const OPENERS: [&str; 13] = ["//", "#", "/*", "*", "--", ";", "<!--", "%", "\"\"\"", "'''", "{-", "(*", "REM"];

/// What closes one on the same line.
const CLOSERS: [&str; 6] = ["*/", "-->", "-}", "*)", "\"\"\"", "'''"];

/// A marker somewhere in the workspace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Todo {
    /// The file, relative to the workspace.
    pub(crate) path: String,
    /// The line's number, from 1.
    pub(crate) line: u64,
    /// The word that marked it.
    pub(crate) marker: String,
    /// Who it is for: `alice` in `TODO(alice): …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// What follows the marker, without the comment's end.
    pub(crate) text: String,
}

/// Returns marker, owner and text of the first marker in a line.
///
/// A marker is a whole word in the given case, and either opens a comment or is followed by `:` or `(`; so prose about markers isn't
/// found.
pub(crate) fn find<'m>(line: &str, markers: &'m [String]) -> Option<(&'m str, Option<String>, String)> {
    if line.len() > LINE_MAX {
        return None;
    }
    let candidates = markers.iter().flat_map(|marker| line.match_indices(marker.as_str()).map(move |(at, _)| (at, marker.as_str())));
    let (at, marker) = candidates.filter(|(at, marker)| is_marker(line, *at, marker)).min()?;
    let rest = &line[at + marker.len()..];
    let (owner, rest) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((owner, rest)) if !owner.trim().is_empty() => (Some(owner.trim().to_owned()), rest),
        Some((_, rest)) => (None, rest),
        None => (None, rest),
    };
    let mut text = rest.trim_start_matches([':', '-', ' ', '\t']).trim_end();
    for closer in CLOSERS {
        text = text.strip_suffix(closer).unwrap_or(text).trim_end();
    }
    Some((marker, owner, shorten(text)))
}

fn is_marker(line: &str, at: usize, marker: &str) -> bool {
    let (before, after) = (&line[..at], &line[at + marker.len()..]);
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(in_word) || after.starts_with(in_word) {
        return false;
    }
    let opens_comment = || OPENERS.iter().any(|opener| before.trim_end().ends_with(opener));
    // `"TODO:"` and `TODO` in backquotes are about the word.
    let quoted = before.ends_with(['"', '\'', '`']) && !before.ends_with("\"\"\"") && !before.ends_with("'''");
    !quoted && (after.starts_with([':', '(']) || opens_comment())
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<(String, Option<String>, String)> {
        let markers = ["TODO".to_owned(), "FIXME".to_owned()];
        find(line, &markers).map(|(marker, owner, text)| (marker.to_owned(), owner, text))
    }

    #[test]
    fn finds_markers_of_many_languages() {
        for line in [
            "// TODO: drop it",
            "  # TODO drop it",
            "/* TODO: drop it */",
            "<!-- TODO drop it -->",
            "x(); -- TODO: drop it",
            "TODO: drop it",
        ] {
            assert_eq!(found(line), Some(("TODO".into(), None, "drop it".into())), "{line}");
        }
        assert_eq!(found("// FIXME(alice): later"), Some(("FIXME".into(), Some("alice".into()), "later".into())));
        assert_eq!(found("# TODO"), Some(("TODO".into(), None, String::new())));
    }

    #[test]
    fn passes_over_prose_and_parts_of_words() {
        for line in ["a list of TODO items", "// TODOS: x", "let MY_TODO: u8 = 1;", "say \"TODO: x\"", "the `TODO:` marker", "// todo: x"] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn takes_the_first_of_two_and_shortens() {
        assert_eq!(found("// FIXME: a TODO: b").unwrap().0, "FIXME");
        assert_eq!(found(&format!("// TODO: {}", "ü".repeat(500))).unwrap().2.chars().count(), TEXT_MAX + 1);
        assert_eq!(found(&format!("// TODO: {}", "x".repeat(LINE_MAX))), None);
    }
}
