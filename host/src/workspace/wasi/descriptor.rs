//! Descriptors: a handle on an object, and what may be done with it.

use super::bindings::wasi::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags};
use super::errors::Fault;
use super::seats::Seat;
use crate::workspace::{Handle, OpenHow};

/// An open file or directory of a guest (`wasi:filesystem/types.descriptor`).
#[derive(Debug)]
pub struct Descriptor {
    pub(super) handle: Handle,
    /// Whether it is a directory: an open object never changes its kind.
    pub(super) directory: bool,
    pub(super) flags: DescriptorFlags,
    /// None for a preopen.
    pub(super) _seat: Option<Seat>,
}

impl Descriptor {
    /// Returns the handle of a directory.
    pub(super) fn directory(&self) -> Result<&Handle, Fault> {
        if self.directory { Ok(&self.handle) } else { Err(ErrorCode::NotDirectory.into()) }
    }

    /// Returns the handle of a file, for calls that make no sense on a directory. Such calls are `bad-descriptor` there, as in wasmtime.
    pub(super) fn file(&self) -> Result<&Handle, Fault> {
        if self.directory { Err(ErrorCode::BadDescriptor.into()) } else { Ok(&self.handle) }
    }

    /// Returns the handle of a file that was opened for reading.
    pub(super) fn readable(&self) -> Result<&Handle, Fault> {
        if self.flags.contains(DescriptorFlags::READ) { self.file() } else { Err(ErrorCode::BadDescriptor.into()) }
    }

    /// Returns the handle of a file that was opened for writing.
    pub(super) fn writable(&self) -> Result<&Handle, Fault> {
        if self.flags.contains(DescriptorFlags::WRITE) { self.file() } else { Err(ErrorCode::BadDescriptor.into()) }
    }
}

/// What a guest asks `open-at` for, put in the workspace's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opening {
    pub(super) how: OpenHow,
    flags: DescriptorFlags,
}

impl Opening {
    /// Follows wasmtime where the interface is silent: creating or truncating implies writing, and what isn't opened for writing is
    /// opened for reading. The three flags for synchronised writes are requests, and nothing is durable before the turn ends, so they
    /// are only remembered.
    ///
    /// `mutate-directory` is remembered and given back by `get-flags`, but changing a directory through a descriptor without it is
    /// allowed, as in wasmtime: C libraries open directories without it and then change them.
    pub(super) fn new(open: OpenFlags, asked: DescriptorFlags) -> Result<Self, ErrorCode> {
        let how = OpenHow {
            create: open.contains(OpenFlags::CREATE),
            exclusive: open.contains(OpenFlags::EXCLUSIVE),
            directory: open.contains(OpenFlags::DIRECTORY),
            truncate: open.contains(OpenFlags::TRUNCATE),
            write: asked.contains(DescriptorFlags::WRITE) || open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE),
        };
        if how.directory && (how.create || how.exclusive || how.truncate) {
            return Err(ErrorCode::Invalid);
        }
        let mut flags = asked;
        if how.write {
            flags |= DescriptorFlags::WRITE;
        }
        if !asked.contains(DescriptorFlags::WRITE) {
            flags |= DescriptorFlags::READ;
        }
        Ok(Self { how, flags })
    }

    /// Returns the flags of the opened descriptor.
    pub(super) fn flags(self, directory: bool) -> DescriptorFlags {
        let other = if directory { DescriptorFlags::WRITE } else { DescriptorFlags::MUTATE_DIRECTORY };
        self.flags & !other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creating_implies_writing_and_not_writing_means_reading() {
        let flags = |open, asked| Opening::new(open, asked).map(|opening| opening.flags(false));
        let (read, write, none) = (DescriptorFlags::READ, DescriptorFlags::WRITE, DescriptorFlags::empty());
        assert_eq!(flags(OpenFlags::empty(), none), Ok(read));
        assert_eq!(flags(OpenFlags::empty(), write), Ok(write));
        assert_eq!(flags(OpenFlags::CREATE, none), Ok(read | write));
        assert_eq!(flags(OpenFlags::CREATE, write), Ok(write));
        assert_eq!(flags(OpenFlags::TRUNCATE, read), Ok(read | write));
        assert_eq!(flags(OpenFlags::DIRECTORY | OpenFlags::TRUNCATE, read), Err(ErrorCode::Invalid));
        assert_eq!(flags(OpenFlags::empty(), read | DescriptorFlags::MUTATE_DIRECTORY), Ok(read));
    }
}
