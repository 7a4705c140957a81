//! The text of a patch, as `git diff --full-index --binary` writes it and `git apply` reads it: one file at a time, from bytes.

use std::io::Write as _;

use gix::bstr::ByteSlice as _;
use gix::diff::blob::{Algorithm, InternedInput, diff_with_slider_heuristics, sources::byte_lines};

use super::base85;
use super::checkout::{GitMode, Oid};
use crate::error::{Error, Result};

/// Lines of context around a change, as git's default.
pub const CONTEXT: u32 = 3;
/// Most lines of context.
pub const CONTEXT_MAX: u32 = 10_000;
/// How far git looks for a NUL byte that makes a file binary, in bytes.
const BINARY_LOOK: usize = 8_000;
/// Larger files are given as binary patches: a diff by lines would need many times their size in memory. In bytes.
const TEXT_MAX: usize = 16 << 20;

/// How a patch is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Unchanged lines around a change, at most [`CONTEXT_MAX`].
    pub context: u32,
    /// Whether it goes into a mail: text with carriage returns is then given as binary, since `git am` takes them away.
    pub mail: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { context: CONTEXT, mail: false }
    }
}

/// One side of a file's change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Side {
    /// What it is in git.
    pub mode: GitMode,
    /// The blob's id: of what git would store, so with attributes applied backwards.
    pub id: Oid,
    /// The blob's bytes; a link's target; empty for a submodule.
    pub bytes: bytes::Bytes,
}

/// Returns the id that git gives to a blob.
#[must_use]
pub fn blob_id(bytes: &[u8]) -> Oid {
    let mut id = [0; 20];
    if let Ok(hash) = gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, bytes) {
        id.copy_from_slice(&hash.as_bytes()[..20]);
    }
    id
}

/// Appends the patch from `before` at `old` to `after` at `new`. The paths differ for a rename.
///
/// # Errors
/// `Internal` when neither side is there.
pub fn write_file(out: &mut Vec<u8>, old: &[u8], before: Option<&Side>, new: &[u8], after: Option<&Side>, style: Style) -> Result<()> {
    if let (Some(before), Some(after)) = (before, after)
        && kind(before.mode) != kind(after.mode)
    {
        // Git has no patch from a file to a link: it is taken away and made anew.
        write_file(out, old, Some(before), old, None, style)?;
        return write_file(out, new, None, new, Some(after), style);
    }
    let (old_name, new_name) = (quoted(b"a/", old), quoted(b"b/", new));
    out.extend_from_slice(b"diff --git ");
    out.extend_from_slice(&old_name);
    out.push(b' ');
    out.extend_from_slice(&new_name);
    out.push(b'\n');
    let mut mode_of_index = None;
    match (before, after) {
        (None, None) => return Err(Error::internal("a change has neither side")),
        (Some(before), None) => line(out, "deleted file mode ", before.mode.as_octal()),
        (None, Some(after)) => line(out, "new file mode ", after.mode.as_octal()),
        (Some(before), Some(after)) => {
            if before.mode == after.mode {
                mode_of_index = Some(before.mode);
            } else {
                line(out, "old mode ", before.mode.as_octal());
                line(out, "new mode ", after.mode.as_octal());
            }
            if old != new {
                // Renames are found by equal content only.
                out.extend_from_slice(if before.id == after.id { b"similarity index 100%\n" as &[u8] } else { b"similarity index 50%\n" });
                out.extend_from_slice(b"rename from ");
                out.extend_from_slice(&quoted(b"", old));
                out.extend_from_slice(b"\nrename to ");
                out.extend_from_slice(&quoted(b"", new));
                out.push(b'\n');
            }
        }
    }
    let zero = [0; 20];
    let (old_id, new_id) = (before.map_or(&zero, |side| &side.id), after.map_or(&zero, |side| &side.id));
    if old_id == new_id {
        return Ok(());
    }
    out.extend_from_slice(b"index ");
    out.extend_from_slice(hex::encode(old_id).as_bytes());
    out.extend_from_slice(b"..");
    out.extend_from_slice(hex::encode(new_id).as_bytes());
    if let Some(mode) = mode_of_index {
        out.push(b' ');
        out.extend_from_slice(mode.as_octal().as_bytes());
    }
    out.push(b'\n');
    let (old_bytes, new_bytes) = (patch_bytes(before), patch_bytes(after));
    if [&old_bytes, &new_bytes].into_iter().any(|bytes| is_binary(bytes) || style.mail && bytes.contains(&b'\r')) {
        out.extend_from_slice(b"GIT binary patch\n");
        literal(out, &new_bytes)?;
        return literal(out, &old_bytes);
    }
    if old_bytes.is_empty() && new_bytes.is_empty() {
        return Ok(());
    }
    header_name(out, "--- ", before.map(|_| (&old_name, old)));
    header_name(out, "+++ ", after.map(|_| (&new_name, new)));
    hunks(out, &old_bytes, &new_bytes, style.context.min(CONTEXT_MAX));
    Ok(())
}

/// Returns what stands in a patch for a side: a submodule's is a line with its commit.
fn patch_bytes(side: Option<&Side>) -> bytes::Bytes {
    match side {
        None => bytes::Bytes::new(),
        Some(side) if side.mode == GitMode::Submodule => format!("Subproject commit {}\n", hex::encode(side.id)).into(),
        Some(side) => side.bytes.clone(),
    }
}

fn kind(mode: GitMode) -> u8 {
    match mode {
        GitMode::File | GitMode::Executable => 0,
        GitMode::Symlink => 1,
        GitMode::Submodule => 2,
    }
}

fn line(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

fn header_name(out: &mut Vec<u8>, sign: &str, name: Option<(&Vec<u8>, &[u8])>) {
    out.extend_from_slice(sign.as_bytes());
    match name {
        None => out.extend_from_slice(b"/dev/null"),
        Some((shown, raw)) => {
            out.extend_from_slice(shown);
            // Without the tab, readers take what follows a blank for a time stamp.
            if raw.contains(&b' ') && !shown.starts_with(b"\"") {
                out.push(b'\t');
            }
        }
    }
    out.push(b'\n');
}

/// Quotes a name as git does with `core.quotePath`: in double quotes with C escapes, when it has bytes that need it.
fn quoted(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| (b' '..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if name.iter().all(plain) {
        return [prefix, name].concat();
    }
    let mut out = vec![b'"'];
    out.extend_from_slice(prefix);
    for byte in name {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            11 => out.extend_from_slice(b"\\v"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ if plain(byte) => out.push(*byte),
            _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    out.push(b'"');
    out
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.len() > TEXT_MAX || bytes.iter().take(BINARY_LOOK).any(|byte| *byte == 0)
}

/// Appends the changed lines in hunks of git's form.
fn hunks(out: &mut Vec<u8>, before: &[u8], after: &[u8], context: u32) {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let diff = diff_with_slider_heuristics(Algorithm::Histogram, &input);
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (before.lines_with_terminator().collect(), after.lines_with_terminator().collect());
    let changes: Vec<_> = diff.hunks().collect();
    // Changes whose contexts touch stand in one hunk.
    let mut first = 0;
    while first < changes.len() {
        let mut last = first;
        while last + 1 < changes.len() && changes[last + 1].before.start - changes[last].before.end <= 2 * context {
            last += 1;
        }
        let group = &changes[first..=last];
        let (Some(start), Some(end)) = (group.first(), group.last()) else { break };
        let lead = start.before.start.min(context);
        let tail = (u32::try_from(old.len()).unwrap_or(u32::MAX) - end.before.end).min(context);
        let (old_from, old_to) = (start.before.start - lead, end.before.end + tail);
        let (new_from, new_to) = (start.after.start - lead, end.after.end + tail);
        out.extend_from_slice(b"@@ -");
        range(out, old_from, old_to - old_from);
        out.extend_from_slice(b" +");
        range(out, new_from, new_to - new_from);
        out.extend_from_slice(b" @@\n");
        let mut at = old_from;
        for change in group {
            lines(out, b' ', old.get(at as usize..change.before.start as usize));
            lines(out, b'-', old.get(change.before.start as usize..change.before.end as usize));
            lines(out, b'+', new.get(change.after.start as usize..change.after.end as usize));
            at = change.before.end;
        }
        lines(out, b' ', old.get(at as usize..old_to as usize));
        first = last + 1;
    }
}

/// Appends a range of lines: counted from one, or the line before it when it is empty; the count is left out when it is one.
fn range(out: &mut Vec<u8>, from: u32, count: u32) {
    let start = if count == 0 { from } else { from + 1 };
    // Writing to a Vec can't fail.
    let _ = if count == 1 { write!(out, "{start}") } else { write!(out, "{start},{count}") };
}

fn lines(out: &mut Vec<u8>, sign: u8, lines: Option<&[&[u8]]>) {
    for line in lines.unwrap_or_default() {
        out.push(sign);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// Appends one half of a binary patch: the whole content, deflated, in lines of at most 52 bytes.
fn literal(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    let _ = writeln!(out, "literal {}", bytes.len());
    let failed = |error| Error::internal("a binary patch can't be compressed").source(error);
    let mut writer = gix::zlib::stream::deflate::Write::new(Vec::new(), gix::zlib::Compression::DEFAULT);
    writer.write_all(bytes).map_err(failed)?;
    writer.flush().map_err(failed)?;
    for group in writer.into_inner().chunks(52) {
        let length = u8::try_from(group.len()).unwrap_or(52);
        out.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        base85::encode(group, out);
        out.push(b'\n');
    }
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(mode: GitMode, bytes: &'static [u8]) -> Side {
        Side { mode, id: blob_id(bytes), bytes: bytes.into() }
    }

    #[test]
    fn blob_ids_are_gits() {
        assert_eq!(hex::encode(blob_id(b"")), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(hex::encode(blob_id(b"hello\n")), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn a_missing_newline_is_said_on_the_side_that_misses_it() {
        let mut out = Vec::new();
        let (before, after) = (side(GitMode::File, b"a\nb"), side(GitMode::File, b"a\nb\n"));
        write_file(&mut out, b"f", Some(&before), b"f", Some(&after), Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"), "{text}");
    }

    #[test]
    fn names_are_quoted_as_git_quotes_them() {
        assert_eq!(quoted(b"a/", b"x y"), b"a/x y");
        assert_eq!(quoted(b"a/", "ü\t\"".as_bytes()), b"\"a/\\303\\274\\t\\\"\"");
        assert_eq!(quoted(b"b/", b"\xff\x7f"), b"\"b/\\377\\177\"");
    }
}
