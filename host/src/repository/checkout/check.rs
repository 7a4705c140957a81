//! The first pass over a tree.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::bstr::BString;
use gix::objs::tree::EntryMode;
use gix::objs::{FindHeader as _, TreeRefIter};

use super::{TreeLimits, can_check_out, damaged, read_tree, show};
use crate::error::{Error, Result};
use crate::id::CommitId;

/// Longest name of an entry in bytes, as in the workspace and on every Linux file system.
const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes.
const TARGET_MAX: u64 = 4_095;

/// The first pass: names, kinds, counts and sizes, before anything is given out.
pub(super) struct Check<'a> {
    pub(super) repository: &'a gix::Repository,
    pub(super) limits: &'a TreeLimits,
    pub(super) commit: CommitId,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) has_attributes: bool,
    pub(super) interrupt: &'a AtomicBool,
}

impl Check<'_> {
    pub(super) fn directory(&mut self, id: gix::ObjectId, path: &mut BString, depth: usize) -> Result<()> {
        if depth > self.limits.depth {
            return Err(self.over("depth", depth as u64, self.limits.depth as u64));
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::cancelled("the import was cancelled"));
        }
        let bytes = read_tree(self.repository, &id)?;
        let mut names: HashSet<&[u8]> = HashSet::new();
        for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
            let name: &[u8] = entry.filename;
            self.name(name, entry.mode, path)?;
            if !names.insert(name) {
                return Err(self.hostile(path, name, "stands there twice"));
            }
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(self.over("number of entries", self.entries, self.limits.entries));
            }
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if path.len() > self.limits.path {
                return Err(self.over("length of a path", path.len() as u64, self.limits.path as u64));
            }
            if entry.mode.is_tree() {
                self.directory(entry.oid.to_owned(), path, depth + 1)?;
            } else if !entry.mode.is_commit() {
                self.blob(entry.oid, entry.mode, path)?;
                self.has_attributes |= name == b".gitattributes" && entry.mode.is_blob();
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn name(&self, name: &[u8], mode: EntryMode, path: &BString) -> Result<()> {
        if !can_check_out(name, mode.is_link()) {
            return Err(self.hostile(path, name, "is a name that git refuses to check out"));
        }
        if name.len() > NAME_MAX {
            return Err(self.over("length of a name", name.len() as u64, NAME_MAX as u64));
        }
        Ok(())
    }

    fn blob(&mut self, id: &gix::oid, mode: EntryMode, path: &BString) -> Result<()> {
        let header = self.repository.objects.try_header(id).ok().flatten().ok_or_else(|| damaged("a file's content"))?;
        if header.kind != gix::objs::Kind::Blob {
            return Err(damaged("a file whose content is something else"));
        }
        if mode.is_link() {
            if header.size == 0 || header.size > TARGET_MAX {
                return Err(Error::limit(format!(
                    "the symbolic link {:?} of commit {} has a target of {} bytes, outside 1 to {TARGET_MAX}",
                    show(path),
                    self.commit,
                    header.size
                )));
            }
            return Ok(());
        }
        if header.size > self.limits.file {
            return Err(self.over("size of a file", header.size, self.limits.file));
        }
        self.bytes = self.bytes.saturating_add(header.size);
        if self.bytes > self.limits.bytes {
            return Err(self.over("size of all files", self.bytes, self.limits.bytes));
        }
        Ok(())
    }

    fn over(&self, what: &str, value: u64, limit: u64) -> Error {
        Error::limit(format!("the tree of commit {} is too large: {what} is {value}, the limit is {limit}", self.commit))
            .code("tree_too_large")
    }

    fn hostile(&self, path: &BString, name: &[u8], why: &str) -> Error {
        let whole = if path.is_empty() { show(name) } else { format!("{}/{}", show(path), show(name)) };
        Error::remote(format!("commit {} can't be checked out: {whole:?} {why}", self.commit)).code("hostile_tree")
    }
}
