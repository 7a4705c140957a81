//! The folder being built: made beside its target, locked, and at last renamed to it or removed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{TEMP_PREFIX, local, shown};
use crate::error::{Error, Result};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder being built.
#[derive(Debug)]
pub(super) struct Staging {
    parent: OwnedFd,
    name: String,
    path: PathBuf,
    target: PathBuf,
    target_name: std::ffi::OsString,
    /// Locked while this process lives.
    top: Arc<OwnedFd>,
}

impl Staging {
    /// Checks the target, removes what killed processes left beside it, and makes a folder there.
    pub(super) fn create(target: &Path, nonce: &str) -> Result<Self> {
        let Some(target_name) = target.file_name() else {
            return Err(Error::usage(format!("{} can't be the name of a new folder", target.display())));
        };
        let parent_path = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let parent = rustix::fs::open(&parent_path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| local("opening the folder", &parent_path, e).hint("make it first, or name another target"))?;
        check_free(&parent, target, target_name)?;
        remove_leftovers(&parent, &parent_path);
        let name = format!("{TEMP_PREFIX}{nonce}");
        let path = parent_path.join(&name);
        rustix::fs::mkdirat(&parent, &name, Mode::RWXU).map_err(|e| local("making the folder", &path, e))?;
        let top = rustix::fs::openat(&parent, &name, DIRECTORY, Mode::empty()).map_err(|e| local("opening the folder", &path, e))?;
        // Between these two calls another process may take it for a leftover and remove it. Then making the first entry fails; nothing worse.
        rustix::fs::flock(&top, FlockOperation::NonBlockingLockExclusive).map_err(|e| local("locking the folder", &path, e))?;
        // The mask of the process may have taken bits.
        rustix::fs::fchmod(&top, Mode::RWXU).map_err(|e| local("setting the mode of", &path, e))?;
        Ok(Self { parent, name, path, target: target.to_owned(), target_name: target_name.to_owned(), top: Arc::new(top) })
    }

    /// Returns the folder, for threads that write into it.
    pub(super) fn folder(&self) -> Result<Folder> {
        Ok(Folder { top: Arc::clone(&self.top), path: self.path.clone() })
    }

    /// Waits until everything is on the disk and gives the folder its name.
    pub(super) fn publish(self) -> Result<()> {
        let published = rustix::fs::syncfs(&self.top).map_err(|e| local("writing to disk", &self.path, e)).and_then(|()| {
            // An empty directory is replaced; anything else is refused by the kernel, however late it came.
            rustix::fs::renameat(&self.parent, &self.name, &self.parent, &self.target_name).map_err(|e| match e {
                Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR => exists(&self.target),
                other => local("renaming the finished folder to", &self.target, other),
            })
        });
        match published {
            Ok(()) => rustix::fs::fsync(&self.parent).map_err(|e| local("writing to disk the folder of", &self.target, e)),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Removes the folder.
    pub(super) fn discard(self) {
        remove_tree(&self.path);
    }
}

fn exists(target: &Path) -> Error {
    Error::new(crate::error::ErrorKind::Conflict, format!("{} exists", target.display()))
        .code("target_exists")
        .hint("name a folder that isn't there yet, or an empty one: nothing is overwritten")
}

fn check_free(parent: &OwnedFd, target: &Path, name: &std::ffi::OsStr) -> Result<()> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(local("looking at", target, e)),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => return Err(exists(target)),
        Ok(_) => {}
    }
    let dir = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).map_err(|e| local("opening", target, e))?;
    for entry in rustix::fs::Dir::read_from(&dir).map_err(|e| local("listing", target, e))? {
        let entry = entry.map_err(|e| local("listing", target, e))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Err(exists(target));
        }
    }
    Ok(())
}

/// Removes folders that were being built by processes that no longer live: their lock is free.
fn remove_leftovers(parent: &OwnedFd, parent_path: &Path) {
    let Ok(entries) = rustix::fs::Dir::read_from(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.to_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            continue;
        }
        let Ok(dir) = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) else { continue };
        let mine = rustix::fs::fstat(&dir).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
        if mine && rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            use std::os::unix::ffi::OsStrExt as _;
            remove_tree(&parent_path.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
        }
    }
}

/// Removes a folder that we made, as far as that is possible.
fn remove_tree(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        // Directories without write permission keep what is in them. Links aren't followed.
        make_writable(path);
        if let Err(error) = std::fs::remove_dir_all(path) {
            tracing::warn!(path = %path.display(), %error, "a half-made folder can't be removed; the next call tries again");
        }
    }
}

fn make_writable(path: &Path) {
    if let Ok(dir) = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()) {
        let _ = rustix::fs::fchmod(&dir, Mode::RWXU);
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                make_writable(&entry.path());
            }
        }
    } else if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        // Not even readable. The path holds no link: its parents were opened above, and all are ours.
        let _ = rustix::fs::chmodat(CWD, path, Mode::RWXU, AtFlags::empty());
        if rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty()).is_ok() {
            make_writable(path);
        }
    }
}

/// The folder being built, as the threads that fill it see it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    top: Arc<OwnedFd>,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory in it, part by part and never through a link.
    pub(super) fn open(&self, parts: &[Bytes]) -> Result<OwnedFd> {
        let mut dir: Option<OwnedFd> = None;
        for part in parts {
            let from = dir.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
            let next = rustix::fs::openat(from, &part[..], DIRECTORY, Mode::empty()).map_err(|e| local("opening", &self.at(parts), e))?;
            dir = Some(next);
        }
        match dir {
            Some(dir) => Ok(dir),
            None => rustix::fs::openat(&*self.top, ".", DIRECTORY, Mode::empty()).map_err(|e| local("opening", &self.path, e)),
        }
    }

    /// Returns whether a real directory, not a link to one, is at this path.
    pub(super) fn is_directory(&self, parts: &[Bytes]) -> bool {
        self.open(parts).is_ok()
    }

    /// Returns the path of something in it, to be shown.
    pub(super) fn at(&self, parts: &[Bytes]) -> PathBuf {
        self.path.join(shown(parts))
    }
}
