//! The commits of a session: those that its agent made, down to the pin.

use gix::bstr::ByteSlice as _;
use gix::objs::CommitRef;

use super::checkout::Oid;
use super::imported::Imported;
use super::objects::{ObjectKind, Objects};
use super::session_git::SessionGit;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::workspace::source::Source;

/// Who made a commit, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The name; bytes that aren't UTF-8 are replaced.
    pub name: String,
    /// The mail address, likewise.
    pub email: String,
    /// Seconds since 1970.
    pub time: i64,
    /// The zone that it was made in, minutes east of UTC.
    pub offset: i32,
}

/// A commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitInfo {
    /// Its id.
    pub id: CommitId,
    /// The id of its tree.
    pub tree: Oid,
    /// The commits that it stands on.
    pub parents: Vec<CommitId>,
    /// Who wrote the change.
    pub author: Signature,
    /// Who made the commit.
    pub committer: Signature,
    /// Its message; bytes that aren't UTF-8 are replaced.
    pub message: String,
    /// Whether it is the pin.
    pub pinned: bool,
}

impl CommitInfo {
    /// Returns the first line of the message.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.message.trim_start().lines().next().unwrap_or_default().trim_end()
    }
}

/// Returns the session's commits, the newest first, and the pin after them; at most `limit`.
///
/// # Errors
/// As [`Source::page`]; `Damaged` when one of them can't be read or they don't lead to the pin.
pub async fn history(source: &dyn Source, imported: &Imported, git: Option<&SessionGit>, limit: usize) -> Result<Vec<CommitInfo>> {
    let objects = Objects::new(source, git.map(|git| &git.root).into_iter().chain([&imported.git]));
    let mut next = git.map_or(imported.commit, |git| git.head);
    let mut commits = Vec::new();
    while commits.len() < limit {
        let mut info = read(&objects, next).await?;
        info.pinned = next == imported.commit;
        let parent = info.parents.first().copied();
        let last = info.pinned;
        commits.push(info);
        match parent {
            _ if last => break,
            Some(parent) => next = parent,
            None => return Err(Error::damaged("the session's commits don't lead to its pin").code("git_damaged")),
        }
    }
    Ok(commits)
}

/// Returns the tree of a commit of the session, or of its pin.
pub(super) async fn tree_of(objects: &Objects<'_>, imported: &Imported, commit: CommitId) -> Result<Oid> {
    if commit == imported.commit { imported.tree_id() } else { Ok(read(objects, commit).await?.tree) }
}

/// Reads a commit of the session, or its pin.
pub(super) async fn read(objects: &Objects<'_>, id: CommitId) -> Result<CommitInfo> {
    let bytes = objects.read(ObjectKind::Commit, id.as_bytes()).await?;
    let unreadable = || Error::damaged(format!("commit {id} of the session can't be read")).code("git_damaged");
    let commit = CommitRef::from_bytes(&bytes, gix::hash::Kind::Sha1).map_err(|_| unreadable())?;
    let signature = |found: gix::Result<gix::actor::SignatureRef<'_>>| {
        // A signature that git itself would show as it can is no reason to refuse the commit.
        found.map_or_else(
            |_| Signature { name: String::new(), email: String::new(), time: 0, offset: 0 },
            |found| {
                let time = found.time().unwrap_or_default();
                Signature {
                    name: found.name.to_str_lossy().into(),
                    email: found.email.to_str_lossy().into(),
                    time: time.seconds,
                    offset: time.offset / 60,
                }
            },
        )
    };
    let parents: Option<Vec<_>> = commit.parents().map(|parent| Some(CommitId::from_bytes(parent.as_bytes().try_into().ok()?))).collect();
    let mut tree = [0; 20];
    tree.copy_from_slice(&commit.tree().as_bytes()[..20]);
    Ok(CommitInfo {
        id,
        tree,
        parents: parents.ok_or_else(unreadable)?,
        author: signature(commit.author()),
        committer: signature(commit.committer()),
        message: commit.message.to_str_lossy().into(),
        pinned: false,
    })
}
