//! What git would store of a file of the workspace: the attributes of its folders, applied backwards. Reads only the attribute files on
//! the way to the paths asked for.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gix::attrs::search::{MetadataCollection, Outcome};
use gix::filter::plumbing::Pipeline;
use gix::filter::plumbing::pipeline::convert::ToGitOutcome;

use super::imported::find;
use crate::error::{Error, Result};
use crate::workspace::list;
use crate::workspace::page::{Node, Root};
use crate::workspace::source::Source;

/// Largest attribute file that is read, in bytes; larger ones count as empty, as git does above its own limit.
const ATTRIBUTES_MAX: u64 = 1 << 20;

/// The attributes of one root.
pub(super) struct Cleaner<'a> {
    source: &'a dyn Source,
    root: &'a Root,
    /// Attribute files by their folder's path; none where there is none.
    files: HashMap<Vec<u8>, Option<Bytes>>,
    pipeline: Pipeline,
}

impl<'a> Cleaner<'a> {
    pub(super) fn new(source: &'a dyn Source, root: &'a Root) -> Self {
        let options = gix::filter::plumbing::pipeline::Options { drivers: Vec::new(), ..Default::default() };
        Self { source, root, files: HashMap::new(), pipeline: Pipeline::new(Default::default(), gix::hash::Kind::Sha1, options) }
    }

    /// Returns what git would store of a file with this path and content. `stored` is the blob that the pin has at the path: text with
    /// carriage returns in it stays as it is under `text=auto`.
    pub(super) async fn clean(&mut self, path: &[u8], content: Bytes, stored: Option<&Bytes>) -> Result<Bytes> {
        let folders = self.folders(path).await?;
        if folders.iter().all(|folder| self.files.get(folder).is_none_or(Option::is_none)) {
            return Ok(content);
        }
        let failed =
            |_| Error::remote(format!("the attributes of {:?} can't be read", String::from_utf8_lossy(path))).code("bad_attributes");
        let mut collection = MetadataCollection::default();
        let mut buffer = Vec::new();
        let mut search = gix::attrs::Search::new_globals(std::iter::empty::<PathBuf>(), &mut buffer, &mut collection)
            .map_err(|error| Error::internal("attributes can't be set up").source(error))?;
        for folder in &folders {
            if let Some(Some(file)) = self.files.get(folder) {
                let mut place = PathBuf::from("/");
                if !folder.is_empty() {
                    place.push(OsStr::from_bytes(folder));
                }
                place.push(".gitattributes");
                search
                    .add_patterns_buffer(file, place, Some(Path::new("/")), &mut collection, folder.is_empty())
                    .map_err(|error| Error::internal("attributes can't be set up").source(error))?;
            }
        }
        let case = gix::glob::pattern::Case::Sensitive;
        let outcome = self
            .pipeline
            .convert_to_git(
                std::io::Cursor::new(content.clone()),
                Path::new(OsStr::from_bytes(path)),
                &mut |path, out: &mut Outcome| {
                    // Tells the outcome which attributes these files name.
                    out.initialize(&collection);
                    search.pattern_matching_relative_path(path, case, Some(false), out);
                },
                &mut |buffer| {
                    Ok(stored.map(|stored| {
                        buffer.clear();
                        buffer.extend_from_slice(stored);
                    }))
                },
            )
            .map_err(failed)?;
        Ok(match outcome {
            ToGitOutcome::Unchanged(_) => content,
            ToGitOutcome::Buffer(bytes) => Bytes::copy_from_slice(bytes),
            ToGitOutcome::Process(_) => return Err(Error::internal("a filter program was asked for, and there are none")),
        })
    }

    /// Whether any attribute file is on the way to a path.
    pub(super) async fn has_any(&mut self, path: &[u8]) -> Result<bool> {
        let folders = self.folders(path).await?;
        Ok(folders.iter().any(|folder| self.files.get(folder).is_some_and(Option::is_some)))
    }

    /// Returns the folders on the way to a path, the top one first, with their attribute files loaded.
    async fn folders(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut folders = vec![Vec::new()];
        folders.extend(path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| path[..at].to_vec()));
        for folder in &folders {
            if !self.files.contains_key(folder) {
                let file = self.load(folder).await?;
                self.files.insert(folder.clone(), file);
            }
        }
        Ok(folders)
    }

    async fn load(&self, folder: &[u8]) -> Result<Option<Bytes>> {
        let mut path = folder.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(b".gitattributes");
        match find(self.source, self.root, &path).await?.map(|entry| entry.node) {
            Some(Node::File { size, content }) if size > 0 && size <= ATTRIBUTES_MAX => {
                Ok(Some(list::read(self.source, &content, size, 0..size).await?))
            }
            _ => Ok(None),
        }
    }
}
