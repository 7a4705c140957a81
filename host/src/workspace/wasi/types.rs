//! `wasi:filesystem/types`: every call of a descriptor, put to its handle.

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use super::FilesystemView;
use super::bindings::wasi::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, MetadataHashValue, NewTimestamp, OpenFlags,
    PathFlags,
};
use super::descriptor::{Descriptor, Opening};
use super::errors::{self, Fault};
use super::streams::{Input, Listing, Output, Place};
use crate::workspace::{self, Follow, FsError, Handle, Kind, NewTime, Stat, path};

type Result<T> = std::result::Result<T, Fault>;

impl types::Host for FilesystemView<'_> {
    fn convert_error_code(&mut self, fault: Fault) -> wasmtime::Result<ErrorCode> {
        fault.into_code()
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<FsError>().and_then(errors::code))
    }
}

impl FilesystemView<'_> {
    fn push_output(&mut self, output: Output) -> Result<Resource<DynOutputStream>> {
        let output: DynOutputStream = Box::new(output);
        Ok(self.table.push(output)?)
    }
}

impl types::HostDescriptor for FilesystemView<'_> {
    fn read_via_stream(&mut self, fd: Resource<Descriptor>, offset: u64) -> Result<Resource<DynInputStream>> {
        let descriptor = self.table.get(&fd)?;
        if descriptor.directory {
            return Err(ErrorCode::IsDirectory.into());
        }
        let file = descriptor.readable()?;
        file.kind()?;
        let input: DynInputStream = Box::new(Input::new(file.clone(), in_range(offset)?, self.ctx.seats.take()?));
        Ok(self.table.push(input)?)
    }

    fn write_via_stream(&mut self, fd: Resource<Descriptor>, offset: u64) -> Result<Resource<DynOutputStream>> {
        let file = self.table.get(&fd)?.writable()?;
        file.kind()?;
        let output = Output::new(file.clone(), Place::At(in_range(offset)?), self.ctx.seats.take()?);
        self.push_output(output)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> Result<Resource<DynOutputStream>> {
        let file = self.table.get(&fd)?.writable()?;
        file.kind()?;
        let output = Output::new(file.clone(), Place::End, self.ctx.seats.take()?);
        self.push_output(output)
    }

    async fn advise(&mut self, fd: Resource<Descriptor>, offset: u64, length: u64, advice: Advice) -> Result<()> {
        let advice = if matches!(advice, Advice::WillNeed) { workspace::Advice::WillNeed } else { workspace::Advice::Other };
        Ok(self.table.get(&fd)?.file()?.advise(offset, length, advice).await?)
    }

    fn sync_data(&mut self, fd: Resource<Descriptor>) -> Result<()> {
        Ok(self.table.get(&fd)?.handle.sync()?)
    }

    fn get_flags(&mut self, fd: Resource<Descriptor>) -> Result<DescriptorFlags> {
        let descriptor = self.table.get(&fd)?;
        descriptor.handle.kind()?;
        Ok(descriptor.flags)
    }

    fn get_type(&mut self, fd: Resource<Descriptor>) -> Result<DescriptorType> {
        Ok(type_of(self.table.get(&fd)?.handle.kind()?))
    }

    fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> Result<()> {
        Ok(self.table.get(&fd)?.writable()?.set_size(size)?)
    }

    fn set_times(&mut self, fd: Resource<Descriptor>, access: NewTimestamp, modification: NewTimestamp) -> Result<()> {
        new_time(access)?;
        Ok(self.table.get(&fd)?.handle.set_times(new_time(modification)?)?)
    }

    async fn read(&mut self, fd: Resource<Descriptor>, length: u64, offset: u64) -> Result<(Vec<u8>, bool)> {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(workspace::READ_MAX);
        let read = self.table.get(&fd)?.readable()?.read_at(in_range(offset)?, length).await?;
        // The end is told by an answer without bytes, as `pread` does: a file may grow after its last byte was read.
        let end = read.bytes.is_empty() && read.end;
        Ok((read.bytes.into(), end))
    }

    fn write(&mut self, fd: Resource<Descriptor>, buffer: Vec<u8>, offset: u64) -> Result<u64> {
        let file = self.table.get(&fd)?.writable()?;
        let offset = in_range(offset)?;
        if !buffer.is_empty() {
            file.write_at(offset, &buffer)?;
        }
        Ok(buffer.len() as u64)
    }

    fn read_directory(&mut self, fd: Resource<Descriptor>) -> Result<Resource<Listing>> {
        let names = self.table.get(&fd)?.directory()?.read_directory()?;
        Ok(self.table.push(Listing { names, _seat: self.ctx.seats.take()? })?)
    }

    fn sync(&mut self, fd: Resource<Descriptor>) -> Result<()> {
        Ok(self.table.get(&fd)?.handle.sync()?)
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> Result<()> {
        Ok(self.table.get(&fd)?.directory()?.create_directory_at(path.as_bytes()).await?)
    }

    fn stat(&mut self, fd: Resource<Descriptor>) -> Result<DescriptorStat> {
        Ok(stat(&self.table.get(&fd)?.handle.stat()?))
    }

    async fn stat_at(&mut self, fd: Resource<Descriptor>, flags: PathFlags, path: String) -> Result<DescriptorStat> {
        Ok(stat(&self.table.get(&fd)?.directory()?.stat_at(path.as_bytes(), follow(flags)).await?))
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
        access: NewTimestamp,
        modification: NewTimestamp,
    ) -> Result<()> {
        new_time(access)?;
        let modified = new_time(modification)?;
        Ok(self.table.get(&fd)?.directory()?.set_times_at(path.as_bytes(), follow(flags), modified).await?)
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> Result<()> {
        let (directory, new_directory) = (self.table.get(&fd)?.directory()?, self.table.get(&new_fd)?.directory()?);
        // As in wasmtime: the flag is on its way out of the interface, and POSIX `link` doesn't follow here.
        if flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        match directory.link_at(path.as_bytes(), Follow::No, new_directory, new_path.as_bytes()).await {
            Err(FsError::NotPermitted) => link_symlink(directory, path.as_bytes(), new_directory, new_path.as_bytes()).await,
            other => Ok(other?),
        }
    }

    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<Resource<Descriptor>> {
        let base = self.table.get(&fd)?;
        let opening = Opening::new(open_flags, flags)?;
        // Before anything is created.
        let seat = self.ctx.seats.take()?;
        let handle = base.directory()?.open_at(path.as_bytes(), follow(path_flags), opening.how).await?;
        let directory = handle.kind()? == Kind::Directory;
        Ok(self.table.push(Descriptor { handle, directory, flags: opening.flags(directory), _seat: Some(seat) })?)
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> Result<String> {
        let target = self.table.get(&fd)?.directory()?.readlink_at(path.as_bytes()).await?;
        // A guest can't make such a link, but a repository may hold one.
        if target.starts_with(b"/") {
            return Err(ErrorCode::NotPermitted.into());
        }
        Ok(path::display(&target).into_owned())
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> Result<()> {
        Ok(self.table.get(&fd)?.directory()?.remove_directory_at(path.as_bytes()).await?)
    }

    async fn rename_at(&mut self, fd: Resource<Descriptor>, path: String, new_fd: Resource<Descriptor>, new_path: String) -> Result<()> {
        let (directory, new_directory) = (self.table.get(&fd)?.directory()?, self.table.get(&new_fd)?.directory()?);
        Ok(directory.rename_at(path.as_bytes(), new_directory, new_path.as_bytes()).await?)
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, target: String, path: String) -> Result<()> {
        Ok(self.table.get(&fd)?.directory()?.symlink_at(target.as_bytes(), path.as_bytes()).await?)
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> Result<()> {
        Ok(self.table.get(&fd)?.directory()?.unlink_file_at(path.as_bytes()).await?)
    }

    fn is_same_object(&mut self, a: Resource<Descriptor>, b: Resource<Descriptor>) -> wasmtime::Result<bool> {
        Ok(self.table.get(&a)?.handle.is_same(&self.table.get(&b)?.handle))
    }

    fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> Result<MetadataHashValue> {
        Ok(hash(&self.table.get(&fd)?.handle.stat()?))
    }

    async fn metadata_hash_at(&mut self, fd: Resource<Descriptor>, flags: PathFlags, path: String) -> Result<MetadataHashValue> {
        Ok(hash(&self.table.get(&fd)?.directory()?.stat_at(path.as_bytes(), follow(flags)).await?))
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(fd)?;
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for FilesystemView<'_> {
    async fn read_directory_entry(&mut self, stream: Resource<Listing>) -> Result<Option<DirectoryEntry>> {
        let entry = self.table.get_mut(&stream)?.names.next().await?;
        Ok(entry.map(|entry| DirectoryEntry { type_: type_of(entry.kind), name: path::display(&entry.name).into_owned() }))
    }

    fn drop(&mut self, stream: Resource<Listing>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

/// Gives a symbolic link another name. Systems differ on whether that can be done, and guests expect Linux's way. A workspace's links
/// have one name each, so it becomes a second link with the same target: they can't be told apart but by their link count.
async fn link_symlink(directory: &Handle, path: &[u8], new_directory: &Handle, new_path: &[u8]) -> Result<()> {
    let same = directory.filesystem().same(new_directory.filesystem());
    match directory.stat_at(path, Follow::No).await {
        Ok(stat) if same && stat.kind == Kind::Symlink => {}
        _ => return Err(ErrorCode::NotPermitted.into()),
    }
    let target = directory.readlink_at(path).await?;
    Ok(new_directory.symlink_at(&target, new_path).await?)
}

/// Refuses offsets that no file can have, as the system calls do.
fn in_range(offset: u64) -> std::result::Result<u64, ErrorCode> {
    if i64::try_from(offset).is_ok() { Ok(offset) } else { Err(ErrorCode::Invalid) }
}

fn follow(flags: PathFlags) -> Follow {
    if flags.contains(PathFlags::SYMLINK_FOLLOW) { Follow::Yes } else { Follow::No }
}

fn type_of(kind: Kind) -> DescriptorType {
    match kind {
        Kind::File => DescriptorType::RegularFile,
        Kind::Directory => DescriptorType::Directory,
        Kind::Symlink => DescriptorType::SymbolicLink,
    }
}

/// Access and status-change times aren't kept, and the interface has a way to say so.
fn stat(stat: &Stat) -> DescriptorStat {
    let seconds = stat.modified.div_euclid(1_000_000_000);
    let nanoseconds = u32::try_from(stat.modified.rem_euclid(1_000_000_000)).unwrap_or(0);
    DescriptorStat {
        type_: type_of(stat.kind),
        link_count: stat.links,
        size: stat.size,
        data_access_timestamp: None,
        // A time before 1970 can't be told either.
        data_modification_timestamp: u64::try_from(seconds).ok().map(|seconds| Datetime { seconds, nanoseconds }),
        status_change_timestamp: None,
    }
}

/// Made of the object's identity alone: C libraries give the lower half out as `st_ino`, which has to stay when a file changes.
fn hash(stat: &Stat) -> MetadataHashValue {
    MetadataHashValue { lower: stat.inode, upper: stat.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) }
}

fn new_time(time: NewTimestamp) -> std::result::Result<NewTime, ErrorCode> {
    Ok(match time {
        NewTimestamp::NoChange => NewTime::Keep,
        NewTimestamp::Now => NewTime::Now,
        NewTimestamp::Timestamp(at) => {
            let nanos = i64::try_from(at.seconds).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
            NewTime::At(nanos.and_then(|nanos| nanos.checked_add(i64::from(at.nanoseconds))).ok_or(ErrorCode::Overflow)?)
        }
    })
}
