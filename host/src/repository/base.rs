//! What a workspace is compared with: the pinned commit, or the last one that the session made.

use super::checkout::{GitMode, Oid};
use super::history;
use super::imported::{Imported, blob_of};
use super::objects::Objects;
use super::session_git::SessionGit;
use crate::error::Result;
use crate::workspace::page::Root;
use crate::workspace::source::Source;

/// A commit as it stands in the store.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// Its files as a checkout lays them out.
    pub(super) files: &'a Root,
    /// Whether it may have attribute files.
    pub(super) attributes: bool,
    ids: Ids<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Ids<'a> {
    Table(&'a Root),
    Tree(&'a Objects<'a>, Oid),
}

impl<'a> Base<'a> {
    /// The pin.
    #[must_use]
    pub fn pin(imported: &'a Imported) -> Self {
        Self { files: &imported.workspace, attributes: imported.attributes, ids: Ids::Table(&imported.blobs) }
    }

    /// The last commit of the session, with the objects of the session and its pin.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub async fn session(git: &'a SessionGit, objects: &'a Objects<'a>) -> Result<Self> {
        let tree = history::read(objects, git.head).await?.tree;
        Ok(Self { files: &git.files, attributes: true, ids: Ids::Tree(objects, tree) })
    }

    /// Returns the git mode and blob id of a file, reading only what is on the way to it; none when there is no such file.
    pub(super) async fn blob_of(&self, source: &dyn Source, path: &[u8]) -> Result<Option<(GitMode, Oid)>> {
        match self.ids {
            Ids::Table(blobs) => blob_of(source, blobs, path).await,
            Ids::Tree(objects, tree) => objects.leaf(&tree, path).await,
        }
    }
}
