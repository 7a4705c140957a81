//! Attributes of a path (gitattributes(5)) and what git makes of a file by them, in both directions. Line ends and most encodings are the
//! git library's work; `ident` and the Unicode and Latin-1 encodings are done here, since they have to be git's to the byte.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gix::attrs::search::{MetadataCollection, Outcome};
use gix::attrs::{Search, StateRef};
use gix::bstr::ByteSlice as _;
use gix::filter::plumbing::Pipeline;
use gix::filter::plumbing::driver::apply::Delay;
use gix::filter::plumbing::pipeline::convert::{ToGitOutcome, ToWorktreeOutcome, to_worktree};

use super::checkout::Oid;
use super::encoding::Encoding;
use crate::error::{Error, Result};

/// Largest attribute file that is read, in bytes; larger ones count as empty, as git does above its own limit.
pub(super) const ATTRIBUTES_MAX: u64 = 1 << 20;

/// The attributes that the converter looks at, in its order.
const CONVERTED: [&str; 6] = ["crlf", "ident", "filter", "eol", "text", "working-tree-encoding"];

/// The rules of a chain of folders, the top one first.
pub(crate) struct Rules {
    search: Search,
    collection: MetadataCollection,
    /// The same with `ident` taken away, and with `ident` and the encoding taken away: what the library gets to see.
    without_ident: Search,
    without_encoding: Search,
    /// Whether the files mention `ident` or an encoding at all.
    special: bool,
}

impl Rules {
    /// Reads the attribute files of these folders (paths without slashes at the ends).
    pub(crate) fn new<'f>(files: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Result<Self> {
        let failed = |error| Error::internal("attributes can't be set up").source(error);
        let mut collection = MetadataCollection::default();
        let mut buffer = Vec::new();
        let mut search = Search::new_globals(std::iter::empty::<PathBuf>(), &mut buffer, &mut collection).map_err(failed)?;
        let mut special = false;
        for (folder, file) in files {
            let mut place = PathBuf::from("/");
            place.push(OsStr::from_bytes(folder));
            place.push(".gitattributes");
            special |= file.find("ident").is_some() || file.find("working-tree-encoding").is_some();
            // Macros count in the top folder only.
            search.add_patterns_buffer(file, place, Some(Path::new("/")), &mut collection, folder.is_empty()).map_err(failed)?;
        }
        let (mut without_ident, mut without_encoding) = (search.clone(), search.clone());
        // What is added last has the last word.
        for (search, rule) in [(&mut without_ident, "* -ident\n"), (&mut without_encoding, "* -ident !working-tree-encoding\n")] {
            search
                .add_patterns_buffer(rule.as_bytes(), PathBuf::from("/.gitattributes"), Some(Path::new("/")), &mut collection, false)
                .map_err(failed)?;
        }
        Ok(Self { search, collection, without_ident, without_encoding, special })
    }

    /// Returns what is done here for a path.
    fn special(&self, path: &[u8]) -> Special {
        let mut special = Special::default();
        if !self.special {
            return special;
        }
        let mut outcome = Outcome::default();
        outcome.initialize_with_selection(&self.collection, ["ident", "working-tree-encoding"]);
        self.search.pattern_matching_relative_path(path.as_bstr(), gix::glob::pattern::Case::Sensitive, Some(false), &mut outcome);
        for found in outcome.iter_selected() {
            match (found.assignment.name.as_str(), found.assignment.state) {
                ("ident", StateRef::Set) => special.ident = true,
                ("working-tree-encoding", StateRef::Value(name)) => {
                    special.encoding = Encoding::named(name.as_bstr());
                    special.no_encoding = special.encoding.is_some();
                }
                // No name: git refuses such a file, and here it has no encoding.
                ("working-tree-encoding", StateRef::Set | StateRef::Unset) => special.no_encoding = true,
                _ => {}
            }
        }
        special
    }

    fn matching(&self, special: Special, path: &gix::bstr::BStr, out: &mut Outcome) {
        let search = if special.no_encoding { &self.without_encoding } else { &self.without_ident };
        // Anew each time: the outcome is the converter's, and may hold the numbers that other rules gave to the attributes and what their
        // macros stand for.
        *out = Outcome::default();
        out.initialize_with_selection(&self.collection, CONVERTED);
        search.pattern_matching_relative_path(path, gix::glob::pattern::Case::Sensitive, Some(false), out);
    }
}

/// What of a path's attributes is done here and not by the library.
#[derive(Clone, Copy, Default)]
struct Special {
    ident: bool,
    encoding: Option<Encoding>,
    /// Whether the library must not see the path's encoding.
    no_encoding: bool,
}

/// Makes a converter that has no filter programs and so can run none: a `filter` attribute leaves the content as it is.
pub(crate) fn pipeline() -> Pipeline {
    let options = gix::filter::plumbing::pipeline::Options { drivers: Vec::new(), ..Default::default() };
    Pipeline::new(Default::default(), gix::hash::Kind::Sha1, options)
}

fn unreadable(path: &[u8]) -> Error {
    Error::remote(format!("the attributes of {:?} can't be applied", super::checkout::show(path))).code("bad_attributes")
}

/// Returns what a checkout has instead of a blob, or none when it has the blob's bytes.
pub(crate) fn to_worktree(pipeline: &mut Pipeline, rules: &Rules, path: &[u8], id: &Oid, blob: &[u8]) -> Result<Option<Vec<u8>>> {
    let special = rules.special(path);
    let expanded = if special.ident { expand_ident(blob, id) } else { None };
    let options = to_worktree::Options { can_delay: Delay::Forbid, unknown_encoding: to_worktree::UnknownEncoding::Ignore };
    let outcome = pipeline
        .convert_to_worktree(
            expanded.as_deref().unwrap_or(blob),
            path.as_bstr(),
            &mut |path, out: &mut Outcome| rules.matching(special, path, out),
            options,
        )
        .map_err(|_| unreadable(path))?;
    let converted = match outcome {
        ToWorktreeOutcome::Unchanged(_) => None,
        ToWorktreeOutcome::Buffer(bytes) => Some(bytes.to_vec()),
        ToWorktreeOutcome::Process(_) => return Err(Error::internal("a filter program was asked for, and there are none")),
    };
    let converted = converted.or(expanded);
    match special.encoding {
        // What can't be written in an encoding is checked out as it is.
        Some(encoding) => Ok(encoding.encode(converted.as_deref().unwrap_or(blob)).or(converted)),
        None => Ok(converted),
    }
}

/// Returns what git would store of a file. `stored` is the blob that the pin has at the path: text with carriage returns in it stays as it
/// is under `text=auto`.
pub(crate) fn to_git(pipeline: &mut Pipeline, rules: &Rules, path: &[u8], content: Bytes, stored: Option<&Bytes>) -> Result<Bytes> {
    let special = rules.special(path);
    let content = special.encoding.and_then(|encoding| encoding.decode(&content)).map_or(content, Bytes::from);
    let outcome = pipeline
        .convert_to_git(
            std::io::Cursor::new(content.clone()),
            Path::new(OsStr::from_bytes(path)),
            &mut |path, out: &mut Outcome| rules.matching(special, path, out),
            &mut |buffer| {
                Ok(stored.map(|stored| {
                    buffer.clear();
                    buffer.extend_from_slice(stored);
                }))
            },
        )
        .map_err(|_| unreadable(path))?;
    let content = match outcome {
        ToGitOutcome::Unchanged(_) => content,
        ToGitOutcome::Buffer(bytes) => Bytes::copy_from_slice(bytes),
        ToGitOutcome::Process(_) => return Err(Error::internal("a filter program was asked for, and there are none")),
    };
    Ok(if special.ident { collapse_ident(&content).map_or(content, Bytes::from) } else { content })
}

/// Splits after the next dollar sign; none when there is no further one.
fn after_dollar(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.find_byte(b'$').map(|at| bytes.split_at(at + 1))
}

/// Writes `$Id$` and a former `$Id: x $` as `$Id: <blob id> $`, by the steps of git's `ident_to_worktree`. None when there is none.
fn expand_ident(blob: &[u8], id: &Oid) -> Option<Vec<u8>> {
    let (mut rest, mut out, mut found) = (blob, Vec::new(), false);
    while let Some((before, after)) = after_dollar(rest) {
        out.extend_from_slice(before);
        rest = after;
        if let Some(after) = rest.strip_prefix(b"Id$") {
            rest = after;
        } else if let Some(inner) = rest.strip_prefix(b"Id:") {
            let Some(end) = inner.find_byte(b'$') else { break };
            let inside = &inner[..end];
            // A line end, or blanks inside: another system's keyword, which stays.
            let blank = inside.get(1..).and_then(|inside| inside.find_byte(b' ')).map(|at| at + 1);
            if inside.contains(&b'\n') || blank.is_some_and(|at| at + 1 < inside.len()) {
                continue;
            }
            rest = &inner[end + 1..];
        } else {
            continue;
        }
        found = true;
        out.extend_from_slice(b"Id: ");
        out.extend_from_slice(hex::encode(id).as_bytes());
        out.extend_from_slice(b" $");
    }
    out.extend_from_slice(rest);
    found.then_some(out)
}

/// Writes `$Id: x $` as `$Id$`, by the steps of git's `ident_to_git`. None when there is none.
fn collapse_ident(content: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut out, mut found) = (content, Vec::new(), false);
    while let Some((before, after)) = after_dollar(rest) {
        out.extend_from_slice(before);
        rest = after;
        let Some(inner) = rest.strip_prefix(b"Id:") else { continue };
        let Some(end) = inner.find_byte(b'$') else { break };
        if inner[..end].contains(&b'\n') {
            continue;
        }
        out.extend_from_slice(b"Id$");
        rest = &inner[end + 1..];
        found = true;
    }
    out.extend_from_slice(rest);
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_one_folder_leave_nothing_behind_for_the_next() {
        // The second file names other attributes and macros, so that its numbers differ from the first one's.
        let first = Rules::new([(&b""[..], &b"[attr]win text eol=crlf\n*.x win\n*.y working-tree-encoding=UTF-16\n"[..])]).unwrap();
        let second = Rules::new([(&b""[..], &b"* text=auto !eol\n*.pl linguist-language=Perl\n[attr]raw -text\n*.x raw\n"[..])]).unwrap();
        let (mut pipeline, id) = (pipeline(), [0; 20]);
        for _ in 0..2 {
            assert_eq!(to_worktree(&mut pipeline, &first, b"a.x", &id, b"1\n").unwrap().as_deref(), Some(&b"1\r\n"[..]));
            assert_eq!(to_worktree(&mut pipeline, &second, b"a.x", &id, b"1\n").unwrap(), None);
            assert_eq!(to_worktree(&mut pipeline, &second, b".cargo-ok", &id, b"{}").unwrap(), None);
            assert_eq!(to_worktree(&mut pipeline, &second, b"a.pl", &id, b"1\n").unwrap(), None);
        }
    }

    #[test]
    fn idents_are_expanded_and_collapsed_as_git_does() {
        let id = [0x11; 20];
        let hex = "11".repeat(20);
        for (stored, shown) in [
            ("a $Id$ b", format!("a $Id: {hex} $ b")),
            ("$Id: old $", format!("$Id: {hex} $")),
            ("$Id:$", format!("$Id: {hex} $")),
            ("$Id: from another system $", String::from("$Id: from another system $")),
            ("$Id: cut\noff $ $Id$", format!("$Id: cut\noff $ $Id: {hex} $")),
            ("$Id: no end", String::from("$Id: no end")),
            ("$Idx$ $ $Id$", format!("$Idx$ $ $Id: {hex} $")),
        ] {
            let out = expand_ident(stored.as_bytes(), &id).unwrap_or_else(|| stored.as_bytes().to_vec());
            assert_eq!(String::from_utf8(out).unwrap(), shown, "{stored:?}");
        }
        assert_eq!(collapse_ident(format!("a $Id: {hex} $ b").as_bytes()).unwrap(), b"a $Id$ b");
        assert_eq!(collapse_ident(b"nothing $here$"), None);
        assert_eq!(collapse_ident(b"$Id: x\n$ $Id: y$"), Some(b"$Id: x\n$ $Id$".to_vec()));
    }
}
