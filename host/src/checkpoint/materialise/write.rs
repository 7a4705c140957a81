//! Makes files on the disk, on as many threads as call it.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};

use super::disk::Folder;
use super::links::{Leads, directories_needed, judge};
use super::local;
use super::plan::{Directory, File, Names, Piece, unsafe_link};
use crate::checkpoint::frame;
use crate::checkpoint::reader::chunk_damaged;
use crate::error::{Error, Result};
use crate::id::ChunkId;

const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OLD: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Until a file is whole only its owner may touch it.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory that a thread works in, kept open: what follows is mostly in the same one.
struct Cursor {
    folder: Folder,
    at: Option<(Names, OwnedFd)>,
}

impl Cursor {
    fn new(folder: Folder) -> Self {
        Self { folder, at: None }
    }

    fn directory(&mut self, path: &Names) -> Result<&OwnedFd> {
        let kept = self.at.take().filter(|(at, _)| Arc::ptr_eq(at, path) || at == path);
        let opened = match kept {
            Some(kept) => kept,
            None => (Arc::clone(path), self.folder.open(path)?),
        };
        Ok(&self.at.insert(opened).1)
    }

    fn open(&mut self, file: &File, flags: OFlags) -> Result<std::fs::File> {
        let directory = self.directory(&file.directory)?;
        match rustix::fs::openat(directory, &file.name[..], flags, PRIVATE) {
            Ok(opened) => Ok(opened.into()),
            Err(e) => Err(self.failed("making", file, e)),
        }
    }

    fn failed(&self, doing: &str, file: &File, error: rustix::io::Errno) -> Error {
        let mut path = (*file.directory).clone();
        path.push(file.name.clone());
        local(doing, &self.folder.at(&path), error)
    }

    fn write(&self, file: &File, opened: &std::fs::File, bytes: &[u8], offset: u64) -> Result<()> {
        opened.write_all_at(bytes, offset).map_err(|e| {
            let errno = rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO);
            self.failed("writing", file, errno)
        })
    }

    fn finish(&self, file: &File, opened: &std::fs::File) -> Result<()> {
        rustix::fs::fchmod(opened, mode(file.mode)).map_err(|e| self.failed("setting the mode of", file, e))?;
        rustix::fs::futimens(opened, &times(file.mtime)).map_err(|e| self.failed("setting the time of", file, e))
    }
}

/// Makes directories, and files that are inline or have several pieces.
pub(super) fn create(folder: &Folder, directories: &[Directory], files: &[(Arc<File>, Bytes)]) -> Result<()> {
    let mut cursor = Cursor::new(folder.clone());
    for made in directories {
        if let Some((name, parent)) = made.path.split_last() {
            let parent = match &cursor.at {
                Some((at, _)) if at[..] == *parent => Arc::clone(at),
                _ => Arc::new(parent.to_vec()),
            };
            let directory = cursor.directory(&parent)?;
            rustix::fs::mkdirat(directory, &name[..], Mode::RWXU).map_err(|e| local("making", &folder.at(&made.path), e))?;
        }
    }
    for (file, inline) in files {
        // A file whose list had pieces in earlier batches is there already, and only waits to be finished.
        let left = file.left.load(Ordering::Acquire);
        let opened = match cursor.open(file, NEW) {
            Err(_) if left == 0 && inline.is_empty() && file.size > 0 => cursor.open(file, OLD)?,
            other => other?,
        };
        cursor.write(file, &opened, inline, 0)?;
        rustix::fs::ftruncate(&opened, file.size).map_err(|e| cursor.failed("setting the length of", file, e))?;
        if left == 0 {
            cursor.finish(file, &opened)?;
        }
    }
    Ok(())
}

/// Writes the pieces that lie in one range of a pack.
pub(super) struct Job {
    cursor: Cursor,
    /// In the order of the pack.
    pieces: Vec<Piece>,
    /// Pieces that are written.
    done: usize,
}

impl Job {
    pub(super) fn new(folder: Folder, pieces: Vec<Piece>) -> Self {
        Self { cursor: Cursor::new(folder), pieces, done: 0 }
    }

    /// Writes what isn't written yet from the range's bytes, which begin at this offset in the pack. A frame's chunks are all checked before any is
    /// written, so after damage it can be called again with other bytes.
    pub(super) fn run(&mut self, bytes: &Bytes, from: u32) -> Result<()> {
        while let Some(first) = self.pieces.get(self.done) {
            let at = first.at.clone();
            let count =
                self.pieces[self.done..].iter().take_while(|piece| piece.at.frame == at.frame && piece.at.stored == at.stored).count();
            let pieces = &self.pieces[self.done..self.done + count];
            let start = (at.frame - from) as usize;
            let stored = bytes.slice(start..start + at.stored as usize);
            let plain = frame::decode(&stored).map_err(|e| chunk_damaged(first.id, &at, e))?;
            let mut checked: Option<(u32, ChunkId)> = None;
            for piece in pieces {
                let (start, end) = (piece.at.start as usize, (piece.at.start + piece.at.len) as usize);
                // Several files may have the same content.
                if checked == Some((piece.at.start, piece.id)) && end <= plain.len() {
                    continue;
                }
                if end > plain.len() || ChunkId::of(&plain[start..end]) != piece.id {
                    return Err(chunk_damaged(piece.id, &piece.at, Error::damaged("its bytes have another SHA-256")));
                }
                checked = Some((piece.at.start, piece.id));
            }
            for piece in pieces {
                let file = &piece.file;
                let chunk = &plain[piece.at.start as usize..(piece.at.start + piece.at.len) as usize];
                let opened = self.cursor.open(file, if file.single { NEW } else { OLD })?;
                self.cursor.write(file, &opened, chunk, piece.offset)?;
                if file.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.cursor.finish(file, &opened)?;
                }
            }
            self.done += count;
        }
        Ok(())
    }
}

/// What is made when all content is written.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) directories: Vec<Directory>,
    /// The path of a name that is there, and the directory and name of another one.
    pub(super) hard_links: Vec<(Names, Names, Bytes)>,
    /// Directory, name, target and time.
    pub(super) symlinks: Vec<(Names, Bytes, Bytes, i64)>,
}

impl Last {
    /// Makes hard links and symbolic links, then sets the modes and times of the directories, the deepest first.
    pub(super) fn finish(mut self, folder: &Folder, unsafe_links: bool) -> Result<()> {
        let mut cursor = Cursor::new(folder.clone());
        let mut other = Cursor::new(folder.clone());
        for (first, directory, name) in &self.hard_links {
            let Some((first_name, first_directory)) = first.split_last() else { continue };
            let from = other.directory(&Arc::new(first_directory.to_vec()))?;
            let to = cursor.directory(directory)?;
            rustix::fs::linkat(from, &first_name[..], to, &name[..], AtFlags::empty())
                .map_err(|e| local("making a second name of", &folder.at(first), e))?;
        }
        for (directory, name, target, _) in &self.symlinks {
            // No symbolic link has been made yet, so what is a directory now is a real one.
            let inside = match judge(target, directory.len()) {
                Leads::Inside => true,
                Leads::Outside => false,
                Leads::Depends => directories_needed(target, directory).iter().all(|path| folder.is_directory(path)),
            };
            if !inside && !unsafe_links {
                let mut path = (**directory).clone();
                path.push(name.clone());
                return Err(unsafe_link(&path, target));
            }
        }
        for (directory, name, target, mtime) in &self.symlinks {
            let opened = cursor.directory(directory)?;
            let made = rustix::fs::symlinkat(&target[..], opened, &name[..])
                .and_then(|()| rustix::fs::utimensat(opened, &name[..], &times(*mtime), AtFlags::SYMLINK_NOFOLLOW));
            made.map_err(|e| {
                let mut path = (**directory).clone();
                path.push(name.clone());
                local("making the link", &folder.at(&path), e)
            })?;
        }
        drop((cursor, other));
        self.directories.sort_by_key(|directory| std::cmp::Reverse(directory.path.len()));
        for directory in &self.directories {
            let opened = folder.open(&directory.path)?;
            rustix::fs::fchmod(&opened, mode(directory.mode))
                .and_then(|()| rustix::fs::futimens(&opened, &times(directory.mtime)))
                .map_err(|e| local("setting the mode and time of", &folder.at(&directory.path), e))?;
        }
        Ok(())
    }
}

fn mode(bits: u16) -> Mode {
    // Never more than the nine permission bits, whatever a page says.
    Mode::from_raw_mode(u32::from(bits & 0o777))
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime.div_euclid(1_000_000_000), tv_nsec: mtime.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time, last_modification: time }
}
