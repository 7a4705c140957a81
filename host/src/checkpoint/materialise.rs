//! Writes a root to a folder on disk, verified, and all at once: the folder appears by one rename after everything in it is on the disk.
//!
//! It is built beside its target, in a folder whose name begins with [`TEMP_PREFIX`] and that is locked while its maker lives. One that isn't locked was
//! left by a killed process; the next call in the same place removes it. Nothing is opened through a symbolic link: directories are opened part by
//! part without following, files are created exclusively, and links are made last. Every chunk is checked before its bytes are written.

mod disk;
pub(super) mod links;
mod plan;
mod write;

use std::path::{Path, PathBuf};

use futures::StreamExt as _;

use self::disk::Staging;
use self::plan::{Planner, Work};
use super::reader::{RANGE_MAX, Range, Reader, coalesce};
use super::writer::joined;
use crate::error::{Error, ErrorKind, Result};
use crate::workspace::page::Root;

/// What the names of folders being built begin with.
pub const TEMP_PREFIX: &str = ".landfall-restore-";
/// Unwanted bytes between two wanted ranges up to which one request is better than two.
const GAP: u32 = 128 << 10;
/// Longest range fetched at a time, in bytes.
const STEP: u32 = RANGE_MAX / 2;

/// What [`materialise`] may do.
#[derive(Clone, Debug)]
pub struct MaterialiseOptions {
    /// Makes symbolic links that lead out of the folder too; else they are an error.
    pub unsafe_links: bool,
    /// Makes entries named `.git`, in whatever disguise; else they are an error, since git runs what such a folder says.
    pub dot_git: bool,
    /// Most entries.
    pub entries_max: u64,
    /// Most bytes of all files together.
    pub bytes_max: u64,
    /// Most directories below each other.
    pub depth_max: usize,
}

impl Default for MaterialiseOptions {
    fn default() -> Self {
        Self { unsafe_links: false, dot_git: false, entries_max: 1_000_000, bytes_max: 16 << 30, depth_max: 256 }
    }
}

/// What [`materialise`] has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Materialised {
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, the top one not counted.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Writes the files of a root to `target`, which must not exist or be an empty directory. See the module's text.
///
/// # Errors
/// `Conflict` (`target_exists`) when something is there; `Damaged` when a page or a chunk is damaged or missing, or the root isn't as large
/// as it says; `Denied` (`unsafe_link`, `dot_git`) for entries that the options refuse; `Limit` above their limits; `Local` when the disk fails.
/// Nothing is left at the target then.
pub async fn materialise(reader: &Reader, root: &Root, target: &Path, options: &MaterialiseOptions) -> Result<Materialised> {
    if root.entries > options.entries_max || root.bytes > options.bytes_max {
        return Err(Error::limit(format!(
            "the folder would have {} entries and {} bytes; at most {} and {} are allowed",
            root.entries, root.bytes, options.entries_max, options.bytes_max
        )));
    }
    let nonce = hex::encode(crate::random::bytes::<8>(&**reader.store().random()));
    let path = target.to_owned();
    let staging = joined(tokio::task::spawn_blocking(move || Staging::create(&path, &nonce)).await)?;
    match fill(reader, root, &staging, options).await {
        Ok(report) => joined(tokio::task::spawn_blocking(move || staging.publish()).await).map(|()| report),
        Err(error) => {
            // What can't be removed now is removed by the next call.
            drop(tokio::task::spawn_blocking(move || staging.discard()).await);
            Err(error)
        }
    }
}

async fn fill(reader: &Reader, root: &Root, staging: &Staging, options: &MaterialiseOptions) -> Result<Materialised> {
    let mut planner = Planner::new(reader, root, options);
    planner.read_link_table().await?;
    while let Some(work) = planner.next().await? {
        run(reader, staging, work).await?;
    }
    let (report, last) = planner.finish()?;
    let (folder, unsafe_links) = (staging.folder()?, options.unsafe_links);
    joined(tokio::task::spawn_blocking(move || last.finish(&folder, unsafe_links)).await)?;
    Ok(report)
}

/// Makes the directories and small files of some planned work, then fetches and writes the content of the others, on all processors.
async fn run(reader: &Reader, staging: &Staging, work: Work) -> Result<()> {
    let Work { directories, created, pieces } = work;
    let folder = staging.folder()?;
    joined(tokio::task::spawn_blocking(move || write::create(&folder, &directories, &created)).await)?;
    let mut pieces = pieces;
    pieces.sort_by_key(|piece| (piece.at.pack, piece.at.frame, piece.at.start));
    let ranges = coalesce(pieces.iter().map(|piece| Range::of(&piece.at)), GAP, STEP);
    let mut jobs = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    for range in ranges {
        let mut mine = Vec::new();
        while let Some(piece) = pieces.next_if(|piece| piece.at.pack == range.pack && range.covers(piece.at.frame, piece.at.stored)) {
            mine.push(piece);
        }
        jobs.push((range, mine));
    }
    if pieces.next().is_some() {
        return Err(Error::internal("a planned piece of a file is in no range"));
    }
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let mut running =
        futures::stream::iter(jobs).map(|(range, mine)| write_range(reader, staging, range, mine)).buffer_unordered(threads + 2);
    let mut result = Ok(());
    // All jobs are waited for, also after one failed: none may write while the folder is being removed.
    while let Some(done) = running.next().await {
        if result.is_ok() {
            result = done;
        }
    }
    result
}

async fn write_range(reader: &Reader, staging: &Staging, range: Range, pieces: Vec<plan::Piece>) -> Result<()> {
    let bytes = reader.range_once(&range).await?;
    let folder = staging.folder()?;
    let from = range.from;
    let work = move || {
        let mut job = write::Job::new(folder, pieces);
        let result = job.run(&bytes, from);
        Ok((job, result))
    };
    let (mut job, result) = joined(tokio::task::spawn_blocking(work).await)?;
    match result {
        Err(error) if error.kind() == ErrorKind::Damaged => {
            // Perhaps only a cache is damaged. The job goes on from the frame that failed; those before it were right.
            tracing::warn!(pack = %range.pack, %error, "bytes of a pack are damaged; fetching them again");
            reader.forget(range.pack).await?;
            let bytes = reader.range_once(&range).await?;
            joined(tokio::task::spawn_blocking(move || job.run(&bytes, from)).await)
        }
        other => other,
    }
}

/// Makes the error of a failed call of the operating system.
fn local(doing: &str, path: &Path, error: rustix::io::Errno) -> Error {
    let made = Error::local(format!("{doing} {} failed", path.display())).source(std::io::Error::from(error));
    match error {
        rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
            made.code("disk_full").hint("free some space, or choose a folder on another disk")
        }
        rustix::io::Errno::EXIST => {
            made.hint("two names of the checkpoint may be one name on this file system (it ignores case or accents)")
        }
        rustix::io::Errno::NAMETOOLONG => made.hint("this file system doesn't allow so long a name"),
        _ => made,
    }
}

/// Shows a path of bytes.
fn shown(parts: &[bytes::Bytes]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    parts.iter().map(|part| Path::new(std::ffi::OsStr::from_bytes(part))).collect()
}

#[cfg(test)]
mod tests;
