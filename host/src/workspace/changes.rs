//! What differs from the base, without a capture.

use bytes::Bytes;

use super::fault::FsResult;
use super::filesystem::Filesystem;
use super::node::{Body, Edit, NodeId, TOP};
use super::page::{Entry, Node as Stored};
use super::stat::Kind;
use super::state::{State, Step, stored_kind};

/// A path that differs from the base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedPath {
    /// The path from the top directory: names joined by `/`.
    pub path: Bytes,
    /// What is there now, or was there when it is removed.
    pub kind: Kind,
    /// How it differs.
    pub change: Change,
}

/// How a path differs from the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It wasn't there. A new directory stands for all that is in it.
    Added,
    /// It isn't there any more. A removed directory stands for all that was in it.
    Removed,
    /// It is another object or may have other content; a directory only when it was replaced by another one.
    Modified,
}

impl Filesystem {
    /// Returns up to `most` paths that differ from the base, in the order of a walk that goes by name and takes a directory's own names
    /// before those below. Costs what was edited, not what is there; reads only directory pages. Times alone are no difference. A
    /// file with several names is found only by names that were given or taken: edits of its content don't show.
    ///
    /// # Errors
    /// `Host` when the base can't be read; `BadDescriptor` when the filesystem was reset meanwhile.
    pub async fn changed_paths(&self, most: usize) -> FsResult<Vec<ChangedPath>> {
        let generation = self.state().generation;
        let mut found = Vec::new();
        let mut waiting = vec![(TOP, Bytes::new())];
        while let Some((id, path)) = waiting.pop() {
            let (changes, mut below) = self.run(generation, |state| state.changed_names(id)).await?;
            for (name, kind, change) in changes {
                if found.len() == most {
                    return Ok(found);
                }
                found.push(ChangedPath { path: join(&path, &name), kind, change });
            }
            below.reverse();
            waiting.extend(below.into_iter().map(|(name, id)| (id, join(&path, &name))));
        }
        Ok(found)
    }
}

fn join(path: &[u8], name: &[u8]) -> Bytes {
    if path.is_empty() { Bytes::copy_from_slice(name) } else { [path, b"/", name].concat().into() }
}

/// Changed names of a directory, and its directories that have to be looked into.
type Changed = (Vec<(Bytes, Kind, Change)>, Vec<(Bytes, NodeId)>);

impl State {
    fn changed_names(&mut self, id: NodeId) -> Step<Changed> {
        let directory = self.directory(id)?;
        let base = directory.base.clone();
        let edits: Vec<_> = directory.edits.iter().map(|(name, edit)| (name.clone(), *edit)).collect();
        let (mut changes, mut below) = (Vec::new(), Vec::new());
        for (name, edit) in edits {
            let before = match &base {
                Some(base) => self.stored_entry(base, &name)?,
                None => None,
            };
            let change = match (before, edit) {
                (None, Edit::Gone) => None,
                (Some(entry), Edit::Gone) => Some((stored_kind(&entry.node), Change::Removed)),
                (None, Edit::Linked(_)) => Some((Kind::File, Change::Added)),
                (None, Edit::Node(node)) => Some((self.node(node)?.kind(), Change::Added)),
                (Some(entry), Edit::Linked(number)) => (entry.node != Stored::Linked(number)).then_some((Kind::File, Change::Modified)),
                (Some(entry), Edit::Node(node)) => {
                    if self.is_edited_in_place(node, &entry)? {
                        below.push((name.clone(), node));
                        None
                    } else if self.is_same_content(node, &entry)? {
                        None
                    } else {
                        Some((self.node(node)?.kind(), Change::Modified))
                    }
                }
            };
            changes.extend(change.map(|(kind, change)| (name, kind, change)));
        }
        Ok((changes, below))
    }

    /// Says whether an object is the directory that the base has there, with edits in it.
    fn is_edited_in_place(&self, id: NodeId, entry: &Entry) -> FsResult<bool> {
        Ok(match (&self.node(id)?.body, &entry.node) {
            (Body::Directory(directory), Stored::Directory(link)) => directory.base.as_ref().is_some_and(|base| base.id == link.id),
            _ => false,
        })
    }

    fn is_same_content(&self, id: NodeId, entry: &Entry) -> FsResult<bool> {
        let node = self.node(id)?;
        Ok(match (&node.body, &entry.node) {
            (Body::File { data, .. }, Stored::File { size, content }) => {
                !data.is_edited() && node.mode == entry.mode && data.size() == *size && *data.base().content == *content
            }
            (Body::Symlink(now), Stored::Symlink(then)) => now == then,
            _ => false,
        })
    }
}
