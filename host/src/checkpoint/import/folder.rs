//! Reads a folder of this machine. Links aren't followed, and what is no file, directory or link is refused.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::{Out, PIECE, Step};
use crate::error::{Error, Result};
use crate::workspace::path::{display, is_dot_git};

pub(super) fn read(top: &Path, out: &Out) -> Result<()> {
    // Files with several names by device and inode: the first path of each.
    let mut first: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut waiting = vec![Vec::new()];
    while let Some(folder) = waiting.pop() {
        let at = top.join(std::ffi::OsStr::from_bytes(&folder));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&at).map_err(|error| unreadable(&at, error))? {
            names.push(entry.map_err(|error| unreadable(&at, error))?.file_name().into_vec());
        }
        // The same folder gives the same packs.
        names.sort_unstable();
        let mut below = Vec::new();
        for name in names {
            let path = if folder.is_empty() { name.clone() } else { [&folder[..], b"/", &name[..]].concat() };
            let at = top.join(std::ffi::OsStr::from_bytes(&path));
            let meta = std::fs::symlink_metadata(&at).map_err(|error| unreadable(&at, error))?;
            let (mode, mtime) = (u16::try_from(meta.mode() & 0o777).unwrap_or(0), time(&meta));
            let kind = meta.file_type();
            if is_dot_git(&name) {
                out.put(Step::Skipped)?;
            } else if kind.is_dir() {
                out.put(Step::Directory { path: path.clone(), mode, mtime })?;
                below.push(path);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&at).map_err(|error| unreadable(&at, error))?.into_os_string().into_vec();
                out.put(Step::Symlink { path, mtime, target })?;
            } else if kind.is_file() {
                if meta.nlink() > 1 {
                    match first.entry((meta.dev(), meta.ino())) {
                        std::collections::hash_map::Entry::Occupied(found) => {
                            out.put(Step::Link { path, to: found.get().clone() })?;
                            continue;
                        }
                        std::collections::hash_map::Entry::Vacant(slot) => drop(slot.insert(path.clone())),
                    }
                }
                file(&at, path, out)?;
            } else {
                let what = if kind.is_fifo() || kind.is_socket() { "a pipe or socket" } else { "a device" };
                return Err(Error::denied(format!("{} is {what}", display(&path))).code("special_file"));
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    Ok(())
}

fn file(at: &Path, path: Vec<u8>, out: &Out) -> Result<()> {
    let failed = |error| unreadable(at, error);
    let flags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK);
    let mut file = File::options()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).map_err(|_| Error::internal("the flags of open don't fit"))?)
        .open(at)
        .map_err(failed)?;
    // Of the opened file, which may be another one than a moment ago.
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::denied(format!("{} is no file any more", display(&path))).code("special_file"));
    }
    let (mode, mtime, size) = (u16::try_from(meta.mode() & 0o777).unwrap_or(0), time(&meta), meta.len());
    out.put(Step::File { path, mode, mtime, size })?;
    let mut left = size;
    while left > 0 {
        let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
        let count = file.read(&mut piece).map_err(failed)?;
        if count == 0 {
            break;
        }
        piece.truncate(count);
        left -= count as u64;
        out.put(Step::Data(piece.into()))?;
    }
    out.put(Step::End)
}

fn time(meta: &std::fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::local(format!("{} can't be read", path.display())).source(error)
}
