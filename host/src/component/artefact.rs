//! The folder of compiled components. What lies in it is native code, so nothing is run that this installation didn't write itself:
//! the folder and its files must belong to this user alone, and each artefact has a MAC under a key that never leaves the folder.
//! Whatever doesn't pass is compiled again; a folder that others can write is refused.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::id::Digest;
use crate::random::{self, SharedRandom};

/// Name of the key file.
const KEY: &str = "key";
/// Length of the key and of a MAC, in bytes.
const KEY_LEN: usize = 32;
/// Bytes per leaf of an artefact's hash tree. Leaves are hashed on several threads: a Python component's artefact has some 50 MB.
const LEAF: usize = 1 << 20;
/// Threads that hash.
const THREADS: usize = 4;
/// Domain tag of the MACs.
const TAG: &[u8] = b"landfall:artefact:1\0";

/// Where compiled components are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheOptions {
    /// The folder. Made when it doesn't exist, with mode 0700.
    pub folder: PathBuf,
    /// Most bytes that it may hold; the longest unused artefacts go first.
    pub bytes: u64,
}

impl CacheOptions {
    /// Keeps at most 4 GiB in a folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), bytes: 4 << 30 }
    }
}

/// An opened folder of artefacts.
#[derive(Debug)]
pub(super) struct ArtefactCache {
    folder: OwnedFd,
    path: PathBuf,
    bytes: u64,
    key: [u8; KEY_LEN],
    random: SharedRandom,
}

impl ArtefactCache {
    pub(super) fn open(options: &CacheOptions, random: SharedRandom) -> Result<Self> {
        let path = options.folder.clone();
        let failed =
            |error: std::io::Error| Error::local(format!("cannot use the folder of compiled components {}", path.display())).source(error);
        {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags | OFlags::RDONLY, Mode::empty()).map_err(|error| failed(error.into()))?;
        let stat = rustix::fs::fstat(&folder).map_err(|error| failed(error.into()))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(Error::local(format!(
                "the folder of compiled components {} is open to other users: it holds native code that this process runs",
                path.display()
            ))
            .code("cache_not_private")
            .hint(format!("make it yours alone (`chmod 700 {}`), or name another folder", path.display())));
        }
        let key = key(&folder, random.as_ref()).map_err(failed)?;
        Ok(Self { folder, path, bytes: options.bytes, key, random })
    }

    /// Returns an artefact whose MAC is right, opened. Anything else counts as missing.
    pub(super) fn get(&self, name: &Digest) -> Option<Artefact> {
        match self.read(name) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(folder = %self.path.display(), artefact = %name, %error, "a compiled component can't be read; it is compiled again");
                None
            }
        }
    }

    fn read(&self, name: &Digest) -> std::io::Result<Option<Artefact>> {
        let Some(mac) = self.open_private(&mac_name(name))? else { return Ok(None) };
        let Some(file) = self.open_private(&code_name(name))? else { return Ok(None) };
        let mut expected = [0; KEY_LEN];
        mac.read_exact_at(&mut expected, 0)?;
        if !equal(&expected, &self.mac(name, &file)?) {
            tracing::warn!(folder = %self.path.display(), artefact = %name, "a compiled component isn't what this installation wrote; it is compiled again");
            return Ok(None);
        }
        // The time of the last use decides what goes first when the folder is full.
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        for used in [&file, &mac] {
            rustix::fs::futimens(used, &rustix::fs::Timestamps { last_access: now, last_modification: now })?;
        }
        Ok(Some(Artefact { path: self.path.join(code_name(name)), file }))
    }

    /// Opens a file of the folder that nobody else can have written. A missing or strange one is none.
    fn open_private(&self, name: &str) -> std::io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match rustix::fs::openat(&self.folder, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let private = is_private(&rustix::fs::fstat(&fd)?);
        Ok(private.then(|| File::from(fd)))
    }

    /// Stores an artefact. A failure costs the next process a compilation, no more.
    pub(super) fn put(&self, name: &Digest, code: &[u8]) {
        let result = self.write(name, code).and_then(|()| self.prune());
        if let Err(error) = result {
            tracing::warn!(folder = %self.path.display(), %error, "a compiled component can't be kept");
        }
    }

    fn write(&self, name: &Digest, code: &[u8]) -> std::io::Result<()> {
        let leaves = leaves(code.len() as u64, |buffer, offset| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            code.get(start..start.saturating_add(buffer.len())).map(|part| buffer.copy_from_slice(part)).ok_or_else(eof)
        })?;
        let mac = self.seal(name, code.len() as u64, &leaves);
        // The MAC goes last: until it is there, and when two processes write at once, the pair doesn't match and is compiled again.
        self.write_atomically(&code_name(name), code)?;
        self.write_atomically(&mac_name(name), &mac)
    }

    fn write_atomically(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let temporary = write_temporary(&self.folder, self.random.as_ref(), bytes)?;
        let renamed = rustix::fs::renameat(&self.folder, &temporary, &self.folder, name);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, &temporary, AtFlags::empty());
        }
        Ok(renamed?)
    }

    /// Removes what was unused longest until the rest fits.
    fn prune(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.folder)? {
            let name = entry?.file_name().to_owned();
            if name.to_bytes() == KEY.as_bytes() {
                continue;
            }
            // Another process may have removed it since.
            if let Ok(stat) = rustix::fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            {
                files.push((stat.st_mtime, stat.st_mtime_nsec, u64::try_from(stat.st_size).unwrap_or(0), name));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, _, size, _)| size).sum();
        // The newest stays even when it alone is larger than the whole folder may be.
        for (_, _, size, name) in files.iter().take(files.len().saturating_sub(2)) {
            if total <= self.bytes {
                break;
            }
            if rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()).is_ok() {
                total = total.saturating_sub(*size);
            }
        }
        Ok(())
    }

    fn mac(&self, name: &Digest, file: &File) -> std::io::Result<[u8; KEY_LEN]> {
        let len = file.metadata()?.len();
        let leaves = leaves(len, |buffer, offset| file.read_exact_at(buffer, offset))?;
        Ok(self.seal(name, len, &leaves))
    }

    fn seal(&self, name: &Digest, len: u64, leaves: &[[u8; KEY_LEN]]) -> [u8; KEY_LEN] {
        let mut parts: Vec<&[u8]> = vec![TAG, name.as_bytes()];
        let len = len.to_be_bytes();
        parts.push(&len);
        parts.extend(leaves.iter().map(<[u8; KEY_LEN]>::as_slice));
        hmac_sha256(&self.key, &parts)
    }
}

/// An artefact that passed.
#[derive(Debug)]
pub(super) struct Artefact {
    path: PathBuf,
    file: File,
}

impl Artefact {
    /// Returns a path that names the very file whose MAC was checked, where the system has one: the folder is this user's alone,
    /// but another process of this user may be replacing the artefact.
    pub(super) fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let open = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        if cfg!(target_os = "linux") && open.exists() { open } else { self.path.clone() }
    }
}

fn code_name(name: &Digest) -> String {
    format!("{name}.cwasm")
}

fn mac_name(name: &Digest) -> String {
    format!("{name}.mac")
}

fn is_private(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & 0o077 == 0
        && stat.st_nlink == 1
}

fn eof() -> std::io::Error {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof)
}

/// Writes a new file under a name that nobody knows and returns the name.
fn write_temporary(folder: impl AsFd, random: &dyn random::Random, bytes: &[u8]) -> std::io::Result<String> {
    let name = format!("tmp-{}", hex::encode(random::bytes::<16>(random)));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    // A full disk must not keep a part of it.
    File::from(fd).write_all(bytes).inspect_err(|_| {
        let _ = rustix::fs::unlinkat(&folder, &name, AtFlags::empty());
    })?;
    Ok(name)
}

/// Reads the key, or makes one. A key that others could have read is replaced, and with it goes the trust in every artefact.
fn key(folder: &OwnedFd, random: &dyn random::Random) -> std::io::Result<[u8; KEY_LEN]> {
    for _ in 0..10 {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(folder, KEY, flags, Mode::empty()) {
            Ok(fd) => {
                let usable = is_private(&rustix::fs::fstat(&fd)?);
                let mut key = Vec::new();
                File::from(fd).take(KEY_LEN as u64 + 1).read_to_end(&mut key)?;
                if let (true, Ok(key)) = (usable, key.try_into()) {
                    return Ok(key);
                }
                rustix::fs::unlinkat(folder, KEY, AtFlags::empty())?;
            }
            Err(Errno::LOOP) => rustix::fs::unlinkat(folder, KEY, AtFlags::empty())?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let temporary = write_temporary(folder, random, &random::bytes::<KEY_LEN>(random))?;
        // A link fails where a rename would replace the key that another process has just made.
        let linked = rustix::fs::linkat(folder, &temporary, folder, KEY, AtFlags::empty());
        rustix::fs::unlinkat(folder, &temporary, AtFlags::empty())?;
        match linked {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(std::io::Error::other("its key changes all the time"))
}

/// Hashes a file's leaves on several threads.
fn leaves(len: u64, read: impl Fn(&mut [u8], u64) -> std::io::Result<()> + Sync) -> std::io::Result<Vec<[u8; KEY_LEN]>> {
    let count = usize::try_from(len.div_ceil(LEAF as u64)).map_err(|_| eof())?;
    let mut leaves = vec![[0; KEY_LEN]; count];
    let threads = THREADS.min(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)).min(count.max(1));
    let per_thread = count.div_ceil(threads).max(1);
    let hash = |first: usize, leaves: &mut [[u8; KEY_LEN]]| -> std::io::Result<()> {
        let mut buffer = vec![0; LEAF];
        for (index, leaf) in leaves.iter_mut().enumerate() {
            let offset = ((first + index) as u64).saturating_mul(LEAF as u64);
            let part = usize::try_from(len.saturating_sub(offset)).unwrap_or(LEAF).min(LEAF);
            let part = buffer.get_mut(..part).ok_or_else(eof)?;
            read(part, offset)?;
            *leaf = Sha256::digest(&*part).into();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hash = &hash;
        let workers: Vec<_> = leaves
            .chunks_mut(per_thread)
            .enumerate()
            .map(|(thread, leaves)| scope.spawn(move || hash(thread * per_thread, leaves)))
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(std::io::Error::other("a hashing thread failed"))))
    })?;
    Ok(leaves)
}

/// HMAC with SHA-256 (RFC 2104) over the parts one after the other.
fn hmac_sha256(key: &[u8; KEY_LEN], parts: &[&[u8]]) -> [u8; KEY_LEN] {
    const BLOCK: usize = 64;
    let pad = |with: u8| {
        let mut block = [with; BLOCK];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let mut inner = Sha256::new();
    inner.update(pad(0x36));
    parts.iter().for_each(|part| inner.update(part));
    let mut outer = Sha256::new();
    outer.update(pad(0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// Compares without an early end, so that the time says nothing of where two MACs differ.
fn equal(a: &[u8; KEY_LEN], b: &[u8; KEY_LEN]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests;
