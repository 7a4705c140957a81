//! Writing to files, within the limits.

use super::fault::{FsError, FsResult};
use super::node::NodeId;
use super::state::State;

impl State {
    /// Writes all of `data` at an offset, or at the end of the file, and returns the offset.
    pub(super) fn write(&mut self, id: NodeId, offset: Option<u64>, data: &[u8]) -> FsResult<u64> {
        self.editable(id)?;
        let size = self.file_mut(id)?.size();
        let offset = offset.unwrap_or(size);
        if data.is_empty() {
            return Ok(offset);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
        self.may_grow(size, size.max(end))?;
        let file = self.file_mut(id)?;
        file.write(offset, data)?;
        let new = file.size();
        self.resized(id, size, new)?;
        Ok(offset)
    }

    /// Cuts a file off or fills it up with zeros.
    pub(super) fn set_size(&mut self, id: NodeId, new: u64) -> FsResult<()> {
        self.editable(id)?;
        let size = self.file_mut(id)?.size();
        self.may_grow(size, new)?;
        self.file_mut(id)?.set_size(new);
        self.resized(id, size, new)
    }

    /// Refuses when editing an object would take memory that isn't left. One that is edited already takes no more.
    pub(super) fn editable(&self, id: NodeId) -> FsResult<()> {
        let node = self.node(id)?;
        if node.edited || node.names == 0 { self.writable() } else { self.growable() }
    }

    fn may_grow(&self, size: u64, new: u64) -> FsResult<()> {
        if new <= size {
            return Ok(());
        }
        if new > self.setup.limits.file {
            return Err(FsError::FileTooLarge);
        }
        self.usage.room(&self.setup.limits, 0, new - size)
    }

    /// Accounts for a change of a file's length and marks the file.
    fn resized(&mut self, id: NodeId, old: u64, new: u64) -> FsResult<()> {
        let now = self.now();
        let node = self.node_mut(id)?;
        node.modified = now;
        let total = if node.names > 0 { &mut self.usage.bytes } else { &mut self.usage.unlinked };
        *total = (*total + new).saturating_sub(old);
        self.mark(id)
    }
}
