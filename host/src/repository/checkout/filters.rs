//! The attributes of a tree, applied to its files as they are walked.

use std::collections::HashMap;

use gix::bstr::BString;
use gix::filter::plumbing::Pipeline;
use gix::objs::{FindExt as _, FindHeader as _, TreeRefIter};

use super::{Oid, damaged, read_tree};
use crate::error::Result;
use crate::repository::attributes::{ATTRIBUTES_MAX, Rules, pipeline, to_worktree};

/// The attribute files of a tree, and the rules of the folder that the walk is in.
pub(super) struct Filters {
    /// By their folder's path.
    files: HashMap<Vec<u8>, Vec<u8>>,
    /// The folders whose files make the rules, the top one first, and the rules.
    last: Option<(Vec<Vec<u8>>, Rules)>,
    pipeline: Pipeline,
}

impl Filters {
    pub(super) fn new(repository: &gix::Repository, root: gix::ObjectId) -> Result<Self> {
        let mut files = HashMap::new();
        collect_attributes(repository, root, &mut BString::default(), &mut files)?;
        Ok(Self { files, last: None, pipeline: pipeline() })
    }

    /// Returns what the worktree gets instead of `blob`, or none when it stays as it is.
    pub(super) fn apply(&mut self, path: &BString, id: &Oid, blob: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut chain: Vec<Vec<u8>> = Vec::new();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            if let Some((folder, _)) = self.files.get_key_value(&path[..end]) {
                chain.push(folder.clone());
            }
        }
        if chain.is_empty() {
            return Ok(None);
        }
        let (chain, rules) = match self.last.take() {
            Some(last) if last.0 == chain => last,
            _ => {
                let files = chain.iter().filter_map(|folder| Some((folder.as_slice(), self.files.get(folder)?.as_slice())));
                let rules = Rules::new(files)?;
                (chain, rules)
            }
        };
        let converted = to_worktree(&mut self.pipeline, &rules, path, id, blob);
        self.last = Some((chain, rules));
        converted
    }
}

/// Reads the attribute files of a tree, wherever they are.
fn collect_attributes(
    repository: &gix::Repository,
    id: gix::ObjectId,
    path: &mut BString,
    files: &mut HashMap<Vec<u8>, Vec<u8>>,
) -> Result<()> {
    let bytes = read_tree(repository, &id)?;
    for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
        let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
        if entry.filename == ".gitattributes" && entry.mode.is_blob() {
            let size = repository.objects.try_header(entry.oid).ok().flatten().map_or(0, |header| header.size);
            if (1..=ATTRIBUTES_MAX).contains(&size) {
                let mut buffer = Vec::new();
                repository.objects.find_blob(entry.oid, &mut buffer).map_err(|_| damaged("an attribute file"))?;
                files.insert(path.to_vec(), buffer);
            }
        } else if entry.mode.is_tree() {
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.filename);
            collect_attributes(repository, entry.oid.to_owned(), path, files)?;
            path.truncate(length);
        }
    }
    Ok(())
}
