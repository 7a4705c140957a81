//! A commit of what the workspace changed, as `git add -A && git commit` would make it: attributes applied backwards, ignored files left
//! out, directories without files not kept. Costs what changed, whatever the size of the tree.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::base::Base;
use super::checkout::{FILTERED_MAX, GitMode, Oid, can_check_out};
use super::history;
use super::imported::Imported;
use super::objects::{ObjectKind, Objects, content_id, object_id};
use super::session_git::{self, Added, FileEdit, SessionGit};
use super::status::{Cleaners, FileView, StatusChange, StatusOptions, status};
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::workspace::list;
use crate::workspace::page::{Node, Root};
use crate::workspace::source::{Sink, Source};

/// Longest message of a commit in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Longest name or address of an identity in bytes.
pub const IDENTITY_MAX: usize = 200;

/// Who commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The name, as people read it.
    pub name: String,
    /// The mail address.
    pub email: String,
}

impl Identity {
    /// Checks an identity by git's rules: nothing in it may end its line or its part of the line.
    ///
    /// # Errors
    /// `Usage`, saying which rule it breaks.
    pub fn new(name: &str, email: &str) -> Result<Self> {
        for (what, text) in [("name", name), ("email", email)] {
            if text.trim().is_empty() || text.len() > IDENTITY_MAX {
                return Err(Error::usage(format!("the {what} of an author needs 1 to {IDENTITY_MAX} bytes")));
            }
            if text.chars().any(|c| c.is_control() || matches!(c, '<' | '>')) {
                return Err(Error::usage(format!("{text:?} can't be the {what} of an author: no control characters, no < and >")));
            }
        }
        if email.contains(' ') {
            return Err(Error::usage(format!("{email:?} can't be the email of an author: it has a blank")));
        }
        Ok(Self { name: name.trim().to_owned(), email: email.to_owned() })
    }

    /// Returns the identity of an agent whose config names none. The domain is one that can't exist (RFC 2606).
    #[must_use]
    pub fn of_agent(agent: &crate::id::AgentName) -> Self {
        Self { name: agent.to_string(), email: format!("{agent}@landfall.invalid") }
    }
}

/// What is to be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitRequest {
    /// The message; blanks at line ends and empty lines at both ends are taken away, as git does it.
    pub message: String,
    /// Files and directories (raw bytes, without a slash at either end); empty means all.
    pub paths: Vec<Vec<u8>>,
    /// Author and committer.
    pub identity: Identity,
    /// When, in seconds since 1970.
    pub time: i64,
}

/// Checks what can be checked before the workspace is looked at.
///
/// # Errors
/// `Usage` for a message that can't be one.
pub fn check(request: &CommitRequest) -> Result<()> {
    clean_message(&request.message).map(drop)
}

/// Makes a commit on top of the session's last one, or of the pin. Returns its id and the session's `git` root after it, with the sink's
/// links; `current` has to be stored and readable from the source.
///
/// # Errors
/// `Usage` for a message or paths that can't be, and with the code `nothing_to_commit`; `Limit` (`changes`); as [`Source::chunk`] and the
/// sink.
pub async fn commit(
    source: &dyn Source,
    sink: &mut dyn Sink,
    imported: &Imported,
    git: Option<&SessionGit>,
    current: &Root,
    request: &CommitRequest,
) -> Result<(CommitId, Root)> {
    let message = clean_message(&request.message)?;
    let objects = Objects::new(source, git.map(|git| &git.root).into_iter().chain([&imported.git]));
    let parent = git.map_or(imported.commit, |git| git.head);
    let old_tree = history::tree_of(&objects, imported, parent).await?;
    let base = match git {
        Some(git) => Base::session(git, &objects).await?,
        None => Base::pin(imported),
    };
    let options = StatusOptions { paths: request.paths.clone(), renames: false, ignored: false, ..StatusOptions::default() };
    let changes = status(source, &base, current, &options).await?;
    let mut made =
        Made { cleaners: Cleaners::new(source, &base, current), source, leaves: Vec::new(), files: BTreeMap::new(), blobs: Vec::new() };
    for change in &changes {
        if change.before.is_some() || !objects.in_submodule(&old_tree, &change.path).await? {
            made.add(sink, change).await?;
        }
    }
    let Made { leaves, files, blobs, .. } = made;
    let edits: Vec<_> = leaves.iter().map(|(path, leaf)| (&path[..], *leaf)).collect();
    let mut trees = Vec::new();
    let tree = match objects.edit(Some(old_tree), &edits, &mut trees).await? {
        Some(tree) => tree,
        None => {
            let empty = object_id(ObjectKind::Tree, b"")?;
            trees.push((empty, Vec::new()));
            empty
        }
    };
    if tree == old_tree {
        return Err(Error::usage("there is nothing to commit: the files are as the last commit has them")
            .code("nothing_to_commit")
            .hint("edit a file first, or name paths that differ"));
    }
    let Identity { name, email } = &request.identity;
    let time = request.time;
    let body = format!(
        "tree {}\nparent {parent}\nauthor {name} <{email}> {time} +0000\ncommitter {name} <{email}> {time} +0000\n\n{message}",
        hex::encode(tree)
    );
    let id = object_id(ObjectKind::Commit, body.as_bytes())?;
    let mut new = blobs;
    for (kind, id, bytes) in
        trees.iter().map(|(id, bytes)| (ObjectKind::Tree, id, bytes.as_slice())).chain([(ObjectKind::Commit, &id, body.as_bytes())])
    {
        let node = Node::File { size: bytes.len() as u64, content: list::build(sink, None, bytes).await? };
        new.push((kind, hex::encode(id), node));
    }
    let stamp = time.saturating_mul(1_000_000_000);
    let old_files = git.map_or(&imported.workspace, |git| &git.files);
    let (page, totals) = session_git::edit_files(source, sink, old_files, &files, stamp).await?;
    let head = CommitId::from_bytes(id);
    let root = session_git::write(source, sink, git, Added { head, files: page, totals, objects: new }, stamp).await?;
    Ok((head, root))
}

/// What the changes of a commit come to.
struct Made<'a> {
    source: &'a dyn Source,
    cleaners: Cleaners<'a>,
    leaves: Vec<(Bytes, Option<(GitMode, Oid)>)>,
    files: BTreeMap<Bytes, FileEdit>,
    blobs: Vec<(ObjectKind, String, Node)>,
}

impl Made<'_> {
    async fn add(&mut self, sink: &mut dyn Sink, change: &StatusChange) -> Result<()> {
        let Some(after) = &change.after else {
            self.leaves.push((change.path.clone(), None));
            self.files.insert(change.path.clone(), None);
            return Ok(());
        };
        if after.mode == GitMode::Submodule {
            return Ok(());
        }
        check_path(&change.path, after.mode)?;
        let (id, blob) = self.blob(sink, change, after).await?;
        self.leaves.push((change.path.clone(), Some((after.mode, id))));
        self.blobs.push((ObjectKind::Blob, hex::encode(id), blob));
        let node = match after.mode {
            GitMode::Symlink => Node::Symlink(list::read(self.source, &after.content, after.size, 0..after.size).await?),
            _ => Node::File { size: after.size, content: after.content.clone() },
        };
        self.files.insert(change.path.clone(), Some((after.permissions, after.modified, node)));
        Ok(())
    }

    /// Returns the blob that a file becomes: its id, and its body, which is the file's own content wherever that is the same.
    async fn blob(&mut self, sink: &mut dyn Sink, change: &StatusChange, after: &FileView) -> Result<(Oid, Node)> {
        let same = Node::File { size: after.size, content: after.content.clone() };
        let as_it_is = after.mode == GitMode::Symlink || after.size > FILTERED_MAX as u64 || !self.cleaners.has_any(&change.path).await?;
        if as_it_is {
            return Ok((content_id(self.source, &after.content, after.size).await?, same));
        }
        let before = match &change.before {
            Some(view) if view.mode != GitMode::Submodule => Some(self.cleaners.side_before(&change.path, view).await?),
            _ => None,
        };
        let content = list::read(self.source, &after.content, after.size, 0..after.size).await?;
        let side = self.cleaners.side_after(&change.path, after, before.as_ref()).await?;
        if side.bytes == content {
            return Ok((side.id, same));
        }
        let content = list::build(sink, None, &side.bytes).await?;
        Ok((side.id, Node::File { size: side.bytes.len() as u64, content }))
    }
}

/// Refuses a path that git would refuse to check out, as an import does: so nobody gets a commit that can't be used.
fn check_path(path: &[u8], mode: GitMode) -> Result<()> {
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        if !can_check_out(part, mode == GitMode::Symlink && parts.peek().is_none()) {
            let what = if mode == GitMode::Symlink { "the link" } else { "the file" };
            return Err(Error::usage(format!("{what} {:?} has a name that git refuses to check out", super::checkout::show(path)))
                .hint("rename it, or commit other paths"));
        }
    }
    Ok(())
}

/// Makes of a message what git makes of it: no blanks at line ends, no empty lines at either end or in pairs, one line feed at the end.
fn clean_message(message: &str) -> Result<String> {
    if message.len() > MESSAGE_MAX {
        return Err(Error::usage(format!("the message has {} bytes; a commit takes up to {MESSAGE_MAX}", message.len())));
    }
    if message.contains('\0') {
        return Err(Error::usage("the message has a NUL byte, which a commit can't hold"));
    }
    let mut cleaned = String::with_capacity(message.len() + 1);
    let mut empty = false;
    for line in message.split('\n').map(|line| line.trim_end_matches([' ', '\t', '\r', '\u{b}', '\u{c}'])) {
        if line.is_empty() {
            empty = !cleaned.is_empty();
            continue;
        }
        if std::mem::take(&mut empty) {
            cleaned.push('\n');
        }
        cleaned.push_str(line);
        cleaned.push('\n');
    }
    if cleaned.is_empty() {
        return Err(Error::usage("the message is empty").hint("say in one line what the commit does"));
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cleaned_as_git_cleans_it() {
        assert_eq!(clean_message("\n\n one \t\n\n\n\ntwo\r\nthree\n\n").unwrap(), " one\n\ntwo\nthree\n");
        for bad in ["", " \n\t\n", "a\0b"] {
            assert!(clean_message(bad).is_err(), "{bad:?}");
        }
        assert!(clean_message(&"x".repeat(MESSAGE_MAX + 1)).is_err());
    }

    #[test]
    fn an_identity_can_t_break_out_of_its_line() {
        for (name, email) in [("", "a@b"), ("a", ""), ("a\nparent x", "a@b"), ("a <b>", "a@b"), ("a", "a@b> 0"), ("a", "a b")] {
            assert!(Identity::new(name, email).is_err(), "{name:?} {email:?}");
        }
        assert_eq!(Identity::new(" Ada L. ", "ada@example.com").unwrap().name, "Ada L.");
    }
}
