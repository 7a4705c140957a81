//! Names and paths as guests give them.

use std::borrow::Cow;
use std::ops::Range;

use super::fault::{FsError, FsResult};
use super::limits::Limits;

/// Reading a path part by part. Empty parts don't count; `.` and `..` do.
#[derive(Debug)]
pub(super) struct Path;

/// A part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Where in the path it is.
    pub(super) range: Range<usize>,
    /// Whether no other part follows.
    pub(super) last: bool,
}

impl Path {
    /// Checks the rules of a whole path.
    pub(super) fn check(path: &[u8], limits: &Limits) -> FsResult<()> {
        match path {
            [] => Err(FsError::NoEntry),
            _ if path.len() > limits.path => Err(FsError::NameTooLong),
            [b'/', ..] => Err(FsError::NotPermitted),
            _ if path.contains(&0) => Err(FsError::Invalid),
            _ => Ok(()),
        }
    }

    /// Returns the first part from `at` on.
    pub(super) fn part(path: &[u8], at: usize) -> Option<Part> {
        let start = at + path.get(at..)?.iter().position(|byte| *byte != b'/')?;
        let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |len| start + len);
        Some(Part { range: start..end, last: path[end..].iter().all(|byte| *byte == b'/') })
    }
}

/// Says whether some system would take `name` for `.git`: in any case, with code points that HFS+ ignores, with the endings and the
/// short form that NTFS takes for the same name. The rules are those of git's `is_hfs_dotgit` and `is_ntfs_dotgit`, for each part
/// between backslashes.
#[must_use]
pub fn is_dot_git(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'\\').any(|part| is_ntfs_dot_git(part) || is_hfs_dot_git(part))
}

fn is_ntfs_dot_git(name: &[u8]) -> bool {
    let rest = match name {
        [b'.', rest @ ..] if starts_with_folded(rest, b"git") => &rest[3..],
        rest if starts_with_folded(rest, b"git~1") => &rest[5..],
        _ => return false,
    };
    // NTFS drops blanks and dots at the end, and a colon begins the name of a stream.
    rest.iter().find(|byte| !matches!(byte, b' ' | b'.')).is_none_or(|byte| *byte == b':')
}

fn starts_with_folded(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn is_hfs_dot_git(name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(name) else { return false };
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.chars().filter(|c| !ignored(c)).map(|c| c.to_ascii_lowercase()).eq(".git".chars())
}

/// Shows a name or a link's target as text: UTF-8 as it is; where something isn't, each such byte, and each backslash, as `\x` and two hex
/// digits, so that no two of them look the same.
#[must_use]
pub fn display(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        for byte in chunk.invalid() {
            text.push_str("\\x");
            text.push_str(&hex::encode([*byte]));
        }
    }
    Cow::Owned(text)
}

/// Returns the name that [`display`] shows as `shown`, when that isn't `shown` itself.
pub(crate) fn undisplay(shown: &[u8]) -> Option<Vec<u8>> {
    if !shown.windows(2).any(|pair| pair == b"\\x") {
        return None;
    }
    let mut name = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let [first, after @ ..] = rest {
        let byte = after.strip_prefix(b"x").and_then(|digits| digits.get(..2)).and_then(|digits| {
            let mut byte = [0];
            hex::decode_to_slice(digits, &mut byte).ok().map(|()| byte[0])
        });
        match byte {
            Some(byte) if *first == b'\\' => {
                name.push(byte);
                rest = &rest[4..];
            }
            _ => {
                name.push(*first);
                rest = after;
            }
        }
    }
    // Only names that aren't UTF-8 are shown escaped, so the way back has to come out as it went in.
    (std::str::from_utf8(&name).is_err() && display(&name).as_bytes() == shown).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(part) = Path::part(path.as_bytes(), at) {
            at = part.range.end;
            parts.push(format!("{}{}", &path[part.range], if part.last { "!" } else { "" }));
        }
        parts
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(parts("a/b//c"), ["a", "b", "c!"]);
        assert_eq!(parts("a/"), ["a!"]);
        assert_eq!(parts("./../x//"), [".", "..", "x!"]);
        for (bad, is) in [("", "there is nothing"), ("/a", "not permitted"), ("a\0b", "not valid")] {
            let error = Path::check(bad.as_bytes(), &Limits::default()).unwrap_err();
            assert!(error.to_string().contains(is), "{bad:?}: {error}");
        }
    }

    #[test]
    fn every_disguise_of_dot_git_is_known() {
        for bad in [
            ".git",
            ".GIT",
            ".Git",
            "git~1",
            "GIT~1",
            ".git ",
            ".git.",
            ".git . .",
            ".git::$INDEX_ALLOCATION",
            "git~1:x",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".gi\u{206f}T",
            "a\\.git",
            ".git\\b",
        ] {
            assert!(is_dot_git(bad.as_bytes()), "{bad:?}");
        }
        for good in [".gitignore", ".github", "git", ".git2", "git~2", "git~1x", ".gi", "..git", ".git-x", "x.git", ".gıt"] {
            assert!(!is_dot_git(good.as_bytes()), "{good:?}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_can_be_shown_and_named() {
        for name in [&b"\xff"[..], b"a\xc3", b"\xe4\\x41", b"\\xff\xff"] {
            let shown = display(name);
            assert_eq!(undisplay(shown.as_bytes()).as_deref(), Some(name), "{shown}");
        }
        for plain in ["\\x41", "a\\xzz", "\\xFF", "plain"] {
            assert_eq!(undisplay(plain.as_bytes()), None, "{plain}");
        }
    }
}
