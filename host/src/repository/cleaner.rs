//! What git would store of files of a root, by the root's own attribute files. Only those on the way to the paths asked for are read.

use std::collections::HashMap;

use bytes::Bytes;
use gix::filter::plumbing::Pipeline;

use super::attributes::{ATTRIBUTES_MAX, Rules, pipeline, to_git};
use super::imported::find;
use crate::error::Result;
use crate::workspace::list;
use crate::workspace::page::{Node, Root};
use crate::workspace::source::Source;

/// The attributes of one root.
pub(super) struct Cleaner<'a> {
    source: &'a dyn Source,
    root: &'a Root,
    /// Attribute files by their folder's path; none where there is none.
    files: HashMap<Vec<u8>, Option<Bytes>>,
    /// The folder that was asked for last, and its rules.
    last: Option<(Vec<u8>, Rules)>,
    pipeline: Pipeline,
}

impl<'a> Cleaner<'a> {
    pub(super) fn new(source: &'a dyn Source, root: &'a Root) -> Self {
        Self { source, root, files: HashMap::new(), last: None, pipeline: pipeline() }
    }

    /// Returns what git would store of a file with this path and content; `stored` as in [`to_git`].
    pub(super) async fn clean(&mut self, path: &[u8], content: Bytes, stored: Option<&Bytes>) -> Result<Bytes> {
        let folders = self.folders(path).await?;
        let files: Vec<_> = folders.iter().filter_map(|folder| Some((folder.as_slice(), self.files.get(folder)?.as_deref()?))).collect();
        if files.is_empty() {
            return Ok(content);
        }
        let folder = folders.last().cloned().unwrap_or_default();
        let rules = match self.last.take() {
            Some((last, rules)) if last == folder => rules,
            _ => Rules::new(files)?,
        };
        let cleaned = to_git(&mut self.pipeline, &rules, path, content, stored);
        self.last = Some((folder, rules));
        cleaned
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
