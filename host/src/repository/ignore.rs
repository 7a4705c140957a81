//! Which files the `.gitignore` files of a root name (gitignore(5)). Only those on the way to the paths asked for are read; no other
//! list of patterns counts, neither of the machine nor of a user.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gix::bstr::ByteSlice as _;
use gix::glob::pattern::Case;
use gix::ignore::Search;
use gix::ignore::search::Ignore;

use super::imported::find;
use crate::error::{Error, Result};
use crate::workspace::list;
use crate::workspace::page::{Node, Root};
use crate::workspace::source::Source;

/// Largest file of patterns that is read, in bytes; larger ones count as empty, as git does with attributes.
const PATTERNS_MAX: u64 = 1 << 20;

/// The patterns of one root.
#[derive(Debug)]
pub struct Ignores<'a> {
    source: &'a dyn Source,
    root: &'a Root,
    /// Folders by their path: whether they are ignored themselves, or the patterns for what is in them.
    folders: HashMap<Vec<u8>, Folder>,
}

#[derive(Clone, Debug)]
enum Folder {
    Ignored,
    Patterns(std::sync::Arc<Search>),
}

impl<'a> Ignores<'a> {
    /// Makes the view of a root; reads nothing.
    #[must_use]
    pub fn new(source: &'a dyn Source, root: &'a Root) -> Self {
        Self { source, root, folders: HashMap::new() }
    }

    /// Says whether a path is ignored: by a pattern of its own, or because a folder that it is in is.
    ///
    /// # Errors
    /// As [`Source::page`].
    pub async fn is_ignored(&mut self, path: &[u8], directory: bool) -> Result<bool> {
        let parent = path.rfind_byte(b'/').map_or(&b""[..], |at| &path[..at]);
        Ok(match self.folder(parent).await? {
            Folder::Ignored => true,
            Folder::Patterns(search) => matches(&search, path, directory),
        })
    }

    async fn folder(&mut self, path: &[u8]) -> Result<Folder> {
        // From the top down, each from the one above it.
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([path.len()]);
        let mut above = match self.folders.get(&b""[..]) {
            Some(top) => top.clone(),
            None => self.enter(b"", &Search::default()).await?,
        };
        if path.is_empty() {
            return Ok(above);
        }
        for end in ends {
            let folder = &path[..end];
            above = match (self.folders.get(folder), &above) {
                (Some(known), _) => known.clone(),
                (None, Folder::Ignored) => Folder::Ignored,
                (None, Folder::Patterns(search)) if matches(search, folder, true) => {
                    self.folders.insert(folder.to_vec(), Folder::Ignored);
                    Folder::Ignored
                }
                (None, Folder::Patterns(search)) => {
                    let search = std::sync::Arc::clone(search);
                    self.enter(folder, &search).await?
                }
            };
        }
        Ok(above)
    }

    /// Adds a folder's own patterns to those above it.
    async fn enter(&mut self, folder: &[u8], above: &Search) -> Result<Folder> {
        let mut search = above.clone();
        if let Some(patterns) = self.load(folder).await? {
            let mut place = PathBuf::from("/");
            place.push(OsStr::from_bytes(folder));
            place.push(".gitignore");
            search
                .add_patterns_buffer(&patterns, place, Some(Path::new("/")), Ignore::default())
                .map_err(|error| Error::internal("patterns can't be set up").source(error))?;
        }
        let entered = Folder::Patterns(std::sync::Arc::new(search));
        self.folders.insert(folder.to_vec(), entered.clone());
        Ok(entered)
    }

    async fn load(&self, folder: &[u8]) -> Result<Option<Bytes>> {
        let path = if folder.is_empty() { b".gitignore".to_vec() } else { [folder, b"/.gitignore"].concat() };
        match find(self.source, self.root, &path).await?.map(|entry| entry.node) {
            Some(Node::File { size, content }) if size > 0 && size <= PATTERNS_MAX => {
                Ok(Some(list::read(self.source, &content, size, 0..size).await?))
            }
            // A link isn't followed, as in git.
            _ => Ok(None),
        }
    }
}

fn matches(search: &Search, path: &[u8], directory: bool) -> bool {
    search
        .pattern_matching_relative_path(path.as_bstr(), Some(directory), Case::Sensitive)
        .is_some_and(|found| !found.pattern.is_negative())
}
