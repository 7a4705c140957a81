//! Names and paths as guests give them.

use std::borrow::Cow;

use super::fault::{FsError, FsResult};
use super::limits::Limits;

/// A path taken apart.
#[derive(Clone, Debug)]
pub(super) struct Path<'a> {
    /// What follows, without empty parts; `.` and `..` are among them.
    rest: &'a [u8],
    /// Whether it ends in `/`: then it has to name a directory.
    pub(super) directory: bool,
}

impl<'a> Path<'a> {
    /// Checks the rules of a whole path.
    pub(super) fn parse(path: &'a [u8], limits: &Limits) -> FsResult<Self> {
        if path.is_empty() {
            return Err(FsError::NoEntry);
        }
        if path.len() > limits.path {
            return Err(FsError::NameTooLong);
        }
        if path.contains(&0) {
            return Err(FsError::Invalid);
        }
        if path[0] == b'/' {
            return Err(FsError::NotPermitted);
        }
        Ok(Self { rest: path, directory: path.ends_with(b"/") })
    }

    /// Takes the next part off; `last` tells whether nothing follows it.
    pub(super) fn next(&mut self) -> Option<Part<'a>> {
        let name = self.rest.split(|byte| *byte == b'/').find(|part| !part.is_empty())?;
        // The found part lies within `rest`; skipped separators lie before it.
        let skipped = self.rest.iter().position(|byte| *byte != b'/').unwrap_or(0);
        self.rest = &self.rest[skipped + name.len()..];
        Some(Part { name, last: self.rest.iter().all(|byte| *byte == b'/') })
    }
}

/// A part of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part<'a> {
    /// A name, `.` or `..`.
    pub(super) name: &'a [u8],
    /// Whether it is the last one.
    pub(super) last: bool,
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

/// Shows a name or a link's target as text: UTF-8 as it is, any other byte as `\x` and two hex digits.
#[must_use]
pub fn display(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str("\\x");
            text.push_str(&hex::encode([*byte]));
        }
    }
    Cow::Owned(text)
}

/// Returns the name that [`display`] shows as `shown`, when that isn't `shown` itself.
pub(super) fn undisplay(shown: &[u8]) -> Option<Vec<u8>> {
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
        let mut parsed = Path::parse(path.as_bytes(), &Limits::default()).unwrap();
        let mut parts = Vec::new();
        while let Some(part) = parsed.next() {
            parts.push(format!("{}{}", String::from_utf8_lossy(part.name), if part.last { "!" } else { "" }));
        }
        parts
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(parts("a/b//c"), ["a", "b", "c!"]);
        assert_eq!(parts("a/"), ["a!"]);
        assert_eq!(parts("./../x//"), [".", "..", "x!"]);
        for (bad, is) in [("", "there is nothing"), ("/a", "not permitted"), ("a\0b", "not valid")] {
            let error = Path::parse(bad.as_bytes(), &Limits::default()).unwrap_err();
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
