//! The types that several interfaces share: files and how they differ.

use super::bindings::landfall::agent::types as wit;
use crate::clock::UnixNanos;

/// What an entry of a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// What is known of an entry without reading it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, 0 to 0o777.
    pub mode: u16,
    /// A file's length or a link target's length, in bytes; 0 for a directory.
    pub size: u64,
    /// When its content changed last.
    pub modified: UnixNanos,
}

/// How a path differs between two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Deleted,
    /// Both have it as the same kind, with other content or another mode.
    Modified,
    /// Both have it, as different kinds.
    TypeChanged,
}

/// A path that differs between two trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The path, as raw bytes. Guests get it as [`shown`] makes it.
    pub path: bytes::Bytes,
    /// How it differs.
    pub kind: ChangeKind,
    /// The entry in the first tree.
    pub before: Option<FileInfo>,
    /// The entry in the second tree.
    pub after: Option<FileInfo>,
}

/// Most paths of one answer.
pub const CHANGES_MAX: usize = 100_000;
/// Most bytes of a file in one answer.
pub const READ_MAX: u64 = 8 << 20;

/// Shows a name of any bytes: what isn't UTF-8 as `\xNN`, and a backslash doubled, so that no two names look the same.
#[must_use]
pub fn shown(name: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(name.len());
    for part in name.utf8_chunks() {
        for piece in part.valid().split_inclusive('\\') {
            text.push_str(piece);
            if piece.ends_with('\\') {
                text.push('\\');
            }
        }
        for byte in part.invalid() {
            // Writing to a String can't fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns the name that [`shown`] shows; a backslash that begins none of its forms stands for itself.
#[must_use]
pub fn unshown(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', below @ ..]) => {
                name.push(b'\\');
                rest = below;
            }
            (b'\\', [b'x', high, low, below @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let mut byte = [0];
                if hex::decode_to_slice([*high, *low], &mut byte).is_ok() {
                    name.push(byte[0]);
                    rest = below;
                }
            }
            _ => name.push(*first),
        }
    }
    name
}

pub(crate) fn instant(at: UnixNanos) -> wit::Instant {
    const SECOND: i64 = 1_000_000_000;
    wit::Instant { seconds: at.div_euclid(SECOND), nanoseconds: u32::try_from(at.rem_euclid(SECOND)).unwrap_or(0) }
}

impl From<FileInfo> for wit::FileInfo {
    fn from(info: FileInfo) -> Self {
        let kind = match info.kind {
            FileKind::File => wit::FileKind::File,
            FileKind::Directory => wit::FileKind::Directory,
            FileKind::Symlink => wit::FileKind::Symlink,
        };
        Self { kind, mode: info.mode, size: info.size, modified: instant(info.modified) }
    }
}

impl From<Change> for wit::Change {
    fn from(change: Change) -> Self {
        let kind = match change.kind {
            ChangeKind::Added => wit::ChangeKind::Added,
            ChangeKind::Deleted => wit::ChangeKind::Deleted,
            ChangeKind::Modified => wit::ChangeKind::Modified,
            ChangeKind::TypeChanged => wit::ChangeKind::TypeChanged,
        };
        Self { path: shown(&change.path), kind, before: change.before.map(Into::into), after: change.after.map(Into::into) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_so_that_no_two_look_alike() {
        assert_eq!(shown("src/größe.rs".as_bytes()), "src/größe.rs");
        assert_eq!(shown(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(shown(b"a\\xffb\\"), "a\\\\xffb\\\\");
        for name in [&b"src/a b"[..], b"a\xff\xfeb", b"a\\xffb\\", b"\\\\\xff\\x"] {
            assert_eq!(unshown(&shown(name)), name);
        }
        assert_eq!(unshown("a\\b"), b"a\\b");
    }

    #[test]
    fn instants_before_1970_count_up() {
        let at = instant(-1);
        assert_eq!((at.seconds, at.nanoseconds), (-1, 999_999_999));
    }
}
