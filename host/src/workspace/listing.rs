//! Reading a directory's names while it may change.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::fault::FsResult;
use super::handle::Handle;
use super::node::{Edit, NodeId};
use super::page::{Page, PageLink};
use super::stat::Kind;
use super::state::{State, Step, Stop, stored_kind};
use super::tree;
use crate::error::Result;
use crate::id::PageId;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name's bytes, usually UTF-8; [`super::path::display`] gives a text for any.
    pub name: Bytes,
    /// What it names.
    pub kind: Kind,
}

/// A stream over the names of a directory in ascending order of their bytes. It shows each name that was there all the time exactly
/// once; names made or removed meanwhile are shown or not. `.` and `..` aren't among them.
#[derive(Debug)]
pub struct DirectoryStream {
    directory: Handle,
    /// The name shown last.
    last: Option<Bytes>,
    /// All names of a stored directory that is split.
    listed: Option<Listed>,
}

/// The names of a stored directory in ascending order. Streams over the same directory share them.
#[derive(Debug)]
struct Listed {
    id: PageId,
    names: Arc<[DirectoryEntry]>,
}

/// The names that streams hold.
#[derive(Debug, Default)]
pub(super) struct Listings(HashMap<PageId, Weak<[DirectoryEntry]>>);

impl Listings {
    fn get(&self, id: &PageId) -> Option<Arc<[DirectoryEntry]>> {
        self.0.get(id)?.upgrade()
    }

    fn put(&mut self, id: PageId, names: &Arc<[DirectoryEntry]>) {
        self.0.retain(|_, names| names.strong_count() > 0);
        self.0.insert(id, Arc::downgrade(names));
    }
}

impl DirectoryStream {
    pub(super) fn new(directory: Handle) -> Self {
        Self { directory, last: None, listed: None }
    }

    /// Returns the next name, or none at the end.
    ///
    /// # Errors
    /// `BadDescriptor` after a reset, `Host` when the directory can't be loaded.
    pub async fn next(&mut self) -> FsResult<Option<DirectoryEntry>> {
        let filesystem = self.directory.filesystem().clone();
        let id = self.directory.node();
        loop {
            let (listed, last) = (&self.listed, &self.last);
            let found = filesystem
                .run(self.directory.generation(), |state| match state.next_name(id, last.as_deref(), listed.as_ref()) {
                    Err(Stop::List(link)) => Ok(Err(link)),
                    found => found.map(Ok),
                })
                .await?;
            match found {
                Ok(found) => {
                    self.last = found.as_ref().map(|entry| entry.name.clone()).or(self.last.take());
                    return Ok(found);
                }
                Err(link) => {
                    let known = filesystem.state().listings.get(&link.id);
                    let names = match known {
                        Some(names) => names,
                        None => {
                            let names = list(&filesystem, &link).await?;
                            filesystem.state().listings.put(link.id, &names);
                            names
                        }
                    };
                    self.listed = Some(Listed { id: link.id, names });
                }
            }
        }
    }
}

async fn list(filesystem: &super::Filesystem, link: &PageLink) -> Result<Arc<[DirectoryEntry]>> {
    let entries = tree::list(&**filesystem.source(), link).await?;
    Ok(entries.into_iter().map(|entry| DirectoryEntry { kind: stored_kind(&entry.node), name: entry.name }).collect())
}

impl State {
    /// Returns the first name after `last`.
    fn next_name(&mut self, id: NodeId, last: Option<&[u8]>, listed: Option<&Listed>) -> Step<Option<DirectoryEntry>> {
        let base = self.directory(id)?.base.clone();
        let page = base.as_ref().map(|link| self.page(link, None)).transpose()?;
        let directory = self.directory(id)?;
        let stored: &mut dyn Iterator<Item = (&Bytes, Kind)> = match (page.as_deref(), &base) {
            (None, _) | (_, None) => &mut std::iter::empty(),
            (Some(Page::Directory(entries)), _) => {
                &mut entries[start(entries, last, |entry| &entry.name)..].iter().map(|entry| (&entry.name, stored_kind(&entry.node)))
            }
            (Some(Page::Split(_)), Some(link)) => {
                let Some(listed) = listed.filter(|listed| listed.id == link.id) else { return Err(Stop::List(Box::new(link.clone()))) };
                let names = &listed.names[start(&listed.names, last, |entry| &entry.name)..];
                &mut names.iter().map(|entry| (&entry.name, entry.kind))
            }
            (Some(_), Some(link)) => return Err(tree::misplaced(link.id, "isn't a directory").into()),
        };
        let mut stored = stored.peekable();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut edits = directory.edits.range::<[u8], _>((after, Bound::Unbounded)).peekable();
        // Both go up by name; where both have one, the edit counts.
        loop {
            let edit = match (stored.peek(), edits.peek()) {
                (None, None) => return Ok(None),
                (Some((name, kind)), edit) if edit.is_none_or(|(edited, _)| *name < *edited) => {
                    return Ok(Some(DirectoryEntry { name: Bytes::clone(name), kind: *kind }));
                }
                _ => edits.next(),
            };
            let Some((name, edit)) = edit else { return Ok(None) };
            stored.next_if(|(stored, _)| *stored == name);
            let kind = match edit {
                Edit::Gone => continue,
                Edit::Linked(_) => Kind::File,
                Edit::Node(id) => self.node(*id)?.kind(),
            };
            return Ok(Some(DirectoryEntry { name: name.clone(), kind }));
        }
    }
}

/// Returns where the names after `last` begin.
fn start<T>(entries: &[T], last: Option<&[u8]>, name: impl Fn(&T) -> &Bytes) -> usize {
    last.map_or(0, |last| entries.partition_point(|entry| **name(entry) <= *last))
}
