//! The session's commits as mails, one for each, as `git format-patch` writes them and `git am` reads them (RFC 5322, RFC 2047).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::checkout::{GitMode, Oid};
use super::cleaner::Cleaner;
use super::history::{CommitInfo, Signature, history};
use super::imported::{Imported, find};
use super::objects::{ObjectKind, Objects, TreeEntries, TreeEntry};
use super::patch::{self, Side, Style, blob_id};
use super::session_git::SessionGit;
use crate::base64;
use crate::error::{Error, Result};
use crate::workspace::list;
use crate::workspace::page::Node;
use crate::workspace::source::Source;

/// Most commits of a series.
pub const COMMITS_MAX: usize = 10_000;
/// Largest file in a mail and longest mail, in bytes: both are held in memory.
const MAIL_MAX: u64 = 256 << 20;
/// Longest name of a file in bytes, without number and ending.
const SLUG_MAX: usize = 52;

/// A commit as a mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mail {
    /// A name for a file, such as `0001-Fix-the-lexer.patch`.
    pub name: String,
    /// The mail, beginning with the line that separates mails in a mailbox.
    pub bytes: Vec<u8>,
}

/// Returns the session's commits as mails, the oldest first.
///
/// # Errors
/// `Limit` (`diff`) for a commit that is too large; as [`history`].
pub async fn series(source: &dyn Source, imported: &Imported, git: &SessionGit) -> Result<Vec<Mail>> {
    let mut commits = history(source, imported, Some(git), COMMITS_MAX + 1).await?;
    let Some(pin) = commits.pop().filter(|last| last.pinned) else {
        return Err(Error::limit(format!("the session has more than {COMMITS_MAX} commits")).code("diff"));
    };
    commits.reverse();
    let objects = Objects::new(source, [&git.root, &imported.git]);
    let mut blobs = Blobs { source, imported, objects: &objects, cleaner: Cleaner::new(source, &imported.workspace) };
    let (mut mails, mut before) = (Vec::new(), pin.tree);
    for (at, commit) in commits.iter().enumerate() {
        let mut bytes = header(commit, at + 1, commits.len());
        blobs.patch(&mut bytes, &before, &commit.tree).await?;
        bytes.extend_from_slice(concat!("-- \nlandfall ", env!("CARGO_PKG_VERSION"), "\n\n").as_bytes());
        mails.push(Mail { name: format!("{:04}-{}.patch", at + 1, slug(commit.subject())), bytes });
        before = commit.tree;
    }
    Ok(mails)
}

/// The blobs of the session's commits and of the pin.
struct Blobs<'a> {
    source: &'a dyn Source,
    imported: &'a Imported,
    objects: &'a Objects<'a>,
    cleaner: Cleaner<'a>,
}

type Leaf = (GitMode, Oid);

impl Blobs<'_> {
    /// Appends what differs between two trees.
    async fn patch(&mut self, out: &mut Vec<u8>, before: &Oid, after: &Oid) -> Result<()> {
        let mut changes = BTreeMap::new();
        compare(self.objects, b"", Some(before), Some(after), &mut changes).await?;
        // A file that went and one that came with the same content are one that was renamed.
        let mut gone: BTreeMap<Leaf2, Vec<Bytes>> = BTreeMap::new();
        for (path, (before, after)) in changes.iter().rev() {
            if let (Some((mode, id)), None) = (before, after) {
                gone.entry((*mode == GitMode::Symlink, *id)).or_default().push(path.clone());
            }
        }
        let mut from = BTreeMap::new();
        for (path, (before, after)) in &changes {
            if let (None, Some((mode, id))) = (before, after)
                && *mode != GitMode::Submodule
                && *id != blob_id(b"")
                && let Some(old) = gone.get_mut(&(*mode == GitMode::Symlink, *id)).and_then(Vec::pop)
            {
                from.insert(path.clone(), old);
            }
        }
        let moved: std::collections::BTreeSet<&Bytes> = from.values().collect();
        let style = Style { mail: true, ..Style::default() };
        for (path, (before, after)) in &changes {
            if moved.contains(path) {
                continue;
            }
            if let Some(old) = from.get(path) {
                // Of a renamed file nothing is shown.
                let side = |leaf: Option<Leaf>| leaf.map(|(mode, id)| Side { mode, id, bytes: Bytes::new() });
                let before = changes.get(old).and_then(|(before, _)| *before);
                patch::write_file(out, old, side(before).as_ref(), path, side(*after).as_ref(), style)?;
                continue;
            }
            let (before, after) = (self.side(path, *before).await?, self.side(path, *after).await?);
            patch::write_file(out, path, before.as_ref(), path, after.as_ref(), style)?;
            if out.len() as u64 > MAIL_MAX {
                return Err(Error::limit(format!("a commit's patch is longer than {MAIL_MAX} bytes")).code("diff"));
            }
        }
        Ok(())
    }

    async fn side(&mut self, path: &[u8], leaf: Option<Leaf>) -> Result<Option<Side>> {
        let Some((mode, id)) = leaf else { return Ok(None) };
        let bytes = if mode == GitMode::Submodule { Bytes::new() } else { self.blob(path, &id).await? };
        Ok(Some(Side { mode, id, bytes }))
    }

    /// Returns a blob: the session's own, or what the pin has at the path, with its attributes applied backwards.
    async fn blob(&mut self, path: &[u8], id: &Oid) -> Result<Bytes> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        let fits = |size: u64| match size {
            0..=MAIL_MAX => Ok(()),
            _ => Err(Error::limit(format!("{:?} has {size} bytes, and a mail takes files of up to {MAIL_MAX}", shown())).code("diff")),
        };
        if let Some((content, size)) = self.objects.find(ObjectKind::Blob, id).await? {
            fits(size)?;
            return list::read(self.source, &content, size, 0..size).await;
        }
        let found = match find(self.source, &self.imported.workspace, path).await?.map(|entry| entry.node) {
            Some(Node::File { size, content }) => {
                fits(size)?;
                list::read(self.source, &content, size, 0..size).await?
            }
            Some(Node::Symlink(target)) => target,
            _ => return Err(missing(&shown())),
        };
        if blob_id(&found) == *id {
            return Ok(found);
        }
        let cleaned = self.cleaner.clean(path, found.clone(), Some(&found)).await?;
        if blob_id(&cleaned) == *id { Ok(cleaned) } else { Err(missing(&shown())) }
    }
}

type Leaf2 = (bool, Oid);

fn missing(path: &str) -> Error {
    Error::damaged(format!("the pinned content of {path:?} can't be had back from its checked-out form"))
        .code("blob_not_kept")
        .hint("open the checkpoint and use git there: `landfall checkpoint open`")
}

/// Collects the leaves that differ between two trees, by path, without looking into subtrees that are the same.
async fn compare(
    objects: &Objects<'_>,
    path: &[u8],
    before: Option<&Oid>,
    after: Option<&Oid>,
    changes: &mut BTreeMap<Bytes, (Option<Leaf>, Option<Leaf>)>,
) -> Result<()> {
    if before == after {
        return Ok(());
    }
    let read = async |id: Option<&Oid>| -> Result<TreeEntries> {
        match id {
            // No object is written for it inside of another tree, and the pin may have one of no entries.
            Some(id) => Ok((*objects.tree(id).await?).clone()),
            None => Ok(TreeEntries::new()),
        }
    };
    let (before, after) = (read(before).await?, read(after).await?);
    let names: std::collections::BTreeSet<&Bytes> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        let whole = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
        let tree = |entry: Option<&TreeEntry>| match entry {
            Some(TreeEntry::Tree(id)) => Some(*id),
            _ => None,
        };
        let leaf = |entry: Option<&TreeEntry>| match entry {
            Some(TreeEntry::Leaf(mode, id)) => Some((*mode, *id)),
            _ => None,
        };
        if leaf(old) != leaf(new) {
            changes.insert(Bytes::from(whole.clone()), (leaf(old), leaf(new)));
        }
        Box::pin(compare(objects, &whole, tree(old).as_ref(), tree(new).as_ref(), changes)).await?;
    }
    Ok(())
}

/// Writes a mail's beginning: the separator of mailboxes, the headers, and the message.
fn header(commit: &CommitInfo, number: usize, of: usize) -> Vec<u8> {
    let message = commit.message.trim_start_matches('\n');
    let (title, body) = message.split_once("\n\n").unwrap_or((message, ""));
    let title = title.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let prefix = if of == 1 { String::from("[PATCH]") } else { format!("[PATCH {number:0width$}/{of}]", width = of.to_string().len()) };
    let mut text = format!(
        "From {} Mon Sep 17 00:00:00 2001\nFrom: {} <{}>\nDate: {}\nSubject: {prefix} {}\n",
        commit.id,
        phrase(&commit.author.name),
        commit.author.email,
        date(&commit.author),
        encoded(&title),
    );
    if !message.is_ascii() {
        text.push_str("MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n");
    }
    text.push('\n');
    let mut first = true;
    for line in body.trim_matches('\n').lines() {
        // Readers of mails would take such a line for the message's end or for a header.
        let taken = ["---", "diff -", "Index: ", "From ", ">From "].iter().any(|start| line.starts_with(start))
            || first && ["From:", "Subject:", "Date:", "Content-Type:"].iter().any(|start| line.starts_with(start));
        first &= line.is_empty();
        if taken {
            text.push(' ');
        }
        text.push_str(line);
        text.push('\n');
    }
    if !body.is_empty() {
        text.push('\n');
    }
    text.push_str("---\n\n");
    text.into_bytes()
}

/// Writes a time as RFC 5322, 3.3 has it, in the zone that it was made in.
fn date(signature: &Signature) -> String {
    let zone = jiff::tz::Offset::from_seconds(signature.offset.saturating_mul(60)).unwrap_or(jiff::tz::Offset::UTC);
    let at = jiff::Timestamp::from_second(signature.time).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::fixed(zone)).strftime("%a, %d %b %Y %H:%M:%S %z").to_string()
}

/// Writes a display name: quoted where it has characters with a meaning, encoded where it isn't ASCII.
fn phrase(name: &str) -> String {
    if !name.is_ascii() || name.contains("=?") {
        return encoded(name);
    }
    if name.bytes().any(|byte| b"()<>[]:;@\\,.\"".contains(&byte)) {
        return format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    name.to_owned()
}

/// Writes text as encoded words (RFC 2047), each short enough for its line, where it isn't plain ASCII.
fn encoded(text: &str) -> String {
    const WORD: usize = 42;
    if text.is_ascii() && !text.contains("=?") {
        return text.to_owned();
    }
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(WORD);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (word, after) = rest.split_at(end);
        words.push(format!("=?UTF-8?B?{}?=", base64::encode_padded(word.as_bytes())));
        rest = after;
    }
    words.join("\n ")
}

/// Makes a file's name of a subject, as git does: what isn't a letter, digit, dot or underscore becomes a dash.
fn slug(subject: &str) -> String {
    let mut slug = String::new();
    for c in subject.chars() {
        if slug.len() >= SLUG_MAX {
            break;
        }
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') && !slug.ends_with('.') && !slug.is_empty() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches(['-', '.']);
    if slug.is_empty() { String::from("commit") } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_come_from_subjects() {
        assert_eq!(slug("Fix the lexer: don't panic!"), "Fix-the-lexer-don-t-panic");
        assert_eq!(slug("../../etc/passwd"), "etc-passwd");
        assert_eq!(slug("ünï"), "n");
        assert_eq!(slug("---"), "commit");
    }

    #[test]
    fn what_isn_t_ascii_is_encoded_in_words_that_end_at_characters() {
        assert_eq!(encoded("plain"), "plain");
        let words = encoded(&"ü".repeat(60));
        assert!(words.lines().count() > 1 && words.lines().all(|line| line.len() <= 76), "{words}");
        assert_eq!(phrase("Ada L. Byron"), "\"Ada L. Byron\"");
    }
}
