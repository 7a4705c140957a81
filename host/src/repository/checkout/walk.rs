//! The second pass over a tree: what is in it, in batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use gix::bstr::BString;
use gix::objs::tree::EntryMode;
use gix::objs::{FindExt as _, FindHeader as _, TreeRefIter};

use super::filters::Filters;
use super::flow::Flow;
use super::{Data, FILTERED_MAX, Step, Tree, damaged, oid, read_tree, show};
use crate::error::{Error, Result};

/// Bytes of a batch of events.
const BATCH_BYTES: usize = 512 << 10;

/// The second pass.
pub(super) struct Walk<'a> {
    pub(super) tree: &'a Tree,
    pub(super) filters: Option<&'a mut Filters>,
    pub(super) flow: Arc<Flow>,
    pub(super) batch: Vec<Step>,
    pub(super) weight: usize,
    pub(super) send: &'a mut dyn FnMut(Vec<Step>) -> bool,
    pub(super) blob: Vec<u8>,
}

impl Walk<'_> {
    pub(super) fn directory(&mut self, id: gix::ObjectId, path: &mut BString) -> Result<()> {
        let repository = &self.tree.repository;
        let bytes = read_tree(repository, &id)?;
        for entry in TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1) {
            let entry = entry.map_err(|_| damaged("a tree that can't be read"))?;
            let name = Bytes::copy_from_slice(entry.filename);
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.filename);
            let id = oid(entry.oid);
            if entry.mode.is_tree() {
                self.give(Step::Enter(name), 0)?;
                self.directory(entry.oid.to_owned(), path)?;
                self.give(Step::Leave, 0)?;
            } else if entry.mode.is_commit() {
                self.give(Step::Submodule { name, id }, 0)?;
            } else if entry.mode.is_link() {
                let target = repository.objects.find_blob(entry.oid, &mut self.blob).map_err(|_| damaged("a symbolic link"))?;
                if target.data.contains(&0) {
                    return Err(
                        Error::remote(format!("the symbolic link {:?} has a target with a NUL byte", show(path))).code("hostile_tree")
                    );
                }
                let target = Bytes::copy_from_slice(target.data);
                let weight = target.len();
                self.give(Step::Symlink { name, id, target }, weight)?;
            } else {
                self.file(name, entry.oid, entry.mode, path)?;
            }
            path.truncate(length);
        }
        // Behind what is in it: the bytes are needed until then.
        let weight = bytes.len();
        self.give(Step::Tree { id: oid(&id), body: bytes }, weight)
    }

    fn file(&mut self, name: Bytes, id: &gix::oid, mode: EntryMode, path: &BString) -> Result<()> {
        let repository = &self.tree.repository;
        let size = repository.objects.try_header(id).ok().flatten().ok_or_else(|| damaged("a file's content"))?.size;
        if size > BATCH_BYTES as u64 {
            // What is waiting in the batch holds a part of the flow that this file is about to wait for.
            self.flush()?;
        }
        let weight = self.flow.take(size);
        let mut bytes = Vec::new();
        let length = repository.objects.find_blob(id, &mut bytes).map_err(|_| damaged("a file's content"))?.data.len();
        bytes.truncate(length);
        if let Some(filters) = self.filters.as_deref_mut()
            && length <= FILTERED_MAX
            && let Some(filtered) = filters.apply(path, &oid(id), &bytes)?
        {
            bytes = filtered;
            if bytes.len() as u64 > self.tree.file_max {
                return Err(Error::limit(format!(
                    "the file {:?} is larger than the limit of {} bytes with its attributes applied",
                    show(path),
                    self.tree.file_max
                ))
                .code("tree_too_large"));
            }
        }
        let (count, executable) = (bytes.len(), mode.is_executable());
        self.give(Step::File { name, executable, id: oid(id), data: Data { bytes, _weight: weight } }, count)
    }

    fn give(&mut self, step: Step, weight: usize) -> Result<()> {
        if self.tree.interrupt.load(Ordering::Relaxed) {
            return Err(Error::cancelled("the import was cancelled"));
        }
        self.batch.push(step);
        self.weight += weight + 64;
        if self.weight >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.weight = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() || (self.send)(batch) { Ok(()) } else { Err(Error::cancelled("the import was cancelled")) }
    }
}
