//! A root made of files that are brought: a folder of this machine, or a tar archive that nobody vouches for.
//!
//! Reading goes on a thread of its own, a few megabytes ahead. What it finds is checked here, whatever it came from: names, kinds, limits, and that
//! nothing leads out of the tree. Nothing is written but packs; a refused archive leaves no session.

mod archive;
mod builder;
mod folder;

use std::io::Read;
use std::path::PathBuf;

use bytes::Bytes;
use tokio::sync::mpsc;

use self::builder::Builder;
use super::writer::{PackWriter, joined};
use crate::error::{Error, Result};
use crate::workspace::Limits;
use crate::workspace::list::ContentBuilder;
use crate::workspace::page::Root;
use crate::workspace::source::Source;

/// Where files come from.
pub enum From {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A tar archive: plain, or compressed by gzip or zstd.
    Archive(Box<dyn Read + Send>),
}

impl std::fmt::Debug for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
            Self::Archive(_) => f.write_str("Archive"),
        }
    }
}

/// What [`import`] may take.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// How large the root may get.
    pub limits: Limits,
    /// Takes symbolic links that lead out of the tree too; else they are an error.
    pub unsafe_links: bool,
}

/// What [`import`] has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// Entries of every kind.
    pub entries: u64,
    /// Bytes of files, each file counted once.
    pub bytes: u64,
    /// Folders named `.git` that were left out: only the host makes those.
    pub skipped: u64,
}

/// One step of reading. A file is its `File`, then `Data` until its `End`.
enum Step {
    Directory {
        path: Vec<u8>,
        mode: u16,
        mtime: i64,
    },
    File {
        path: Vec<u8>,
        mode: u16,
        mtime: i64,
        size: u64,
    },
    Data(Bytes),
    End,
    Symlink {
        path: Vec<u8>,
        mtime: i64,
        target: Vec<u8>,
    },
    /// Another name of a file that came before.
    Link {
        path: Vec<u8>,
        to: Vec<u8>,
    },
    /// A folder that was left out.
    Skipped,
}

/// Steps that a reader is ahead at most. Each holds up to [`PIECE`] bytes.
const AHEAD: usize = 16;
/// Bytes of a file read at a time.
const PIECE: usize = 256 << 10;

/// Where a reader puts its steps.
struct Out(mpsc::Sender<Step>);

impl Out {
    /// Gives a step on; fails when nobody takes it any more, since the import has failed.
    fn put(&self, step: Step) -> Result<()> {
        self.0.blocking_send(step).map_err(|_| Error::cancelled("the import has ended"))
    }
}

/// Makes a root of files. Its places are the writer's to resolve; `source` is asked for nothing that exists.
///
/// # Errors
/// `Denied` with the code `hostile_archive`, `unsafe_link` or `special_file` for what isn't taken, `Limit`, `Local` when it can't be read, `Store`.
pub async fn import(source: &dyn Source, writer: &mut PackWriter, from: From, options: &ImportOptions) -> Result<(Root, Imported)> {
    let (sender, mut steps) = mpsc::channel(AHEAD);
    let options = *options;
    let reading = tokio::task::spawn_blocking(move || {
        let out = Out(sender);
        match from {
            From::Folder(path) => folder::read(&path, &out),
            From::Archive(bytes) => archive::read(bytes, &options.limits, &out),
        }
    });
    let built = build(source, writer, &mut steps, &options).await;
    // The reader stops at its next step when nobody listens.
    drop(steps);
    match (built, joined(reading.await)) {
        // A reader that failed left the tree unfinished; its reason is the better one, unless it only saw that nobody listens.
        (Err(error), Err(cause)) if cause.kind() == crate::ErrorKind::Cancelled => Err(error),
        (_, Err(error)) | (Err(error), Ok(())) => Err(error),
        (Ok(done), Ok(())) => Ok(done),
    }
}

async fn build(
    source: &dyn Source,
    writer: &mut PackWriter,
    steps: &mut mpsc::Receiver<Step>,
    options: &ImportOptions,
) -> Result<(Root, Imported)> {
    let mut builder = Builder::new(options);
    while let Some(step) = steps.recv().await {
        match step {
            Step::Directory { path, mode, mtime } => builder.directory(&path, mode, mtime)?,
            Step::Symlink { path, mtime, target } => builder.symlink(&path, mtime, target)?,
            Step::Link { path, to } => builder.link(&path, &to)?,
            Step::Skipped => builder.skipped(),
            Step::File { path, mode, mtime, size } => {
                builder.room(&path, size)?;
                let mut content = ContentBuilder::new(writer, None);
                loop {
                    match steps.recv().await {
                        Some(Step::Data(bytes)) => content.push(&bytes).await?,
                        Some(Step::End) => break,
                        _ => return Err(Error::local("the files could not be read to their end")),
                    }
                    if content.size() > size {
                        break;
                    }
                }
                let (content, found) = content.finish().await?;
                if found != size {
                    let path = crate::workspace::path::display(&path).into_owned();
                    return Err(Error::conflict(format!("{path} has {found} bytes, not the {size} that were announced"))
                        .code("changed_while_read")
                        .hint("if something is writing there, let it end, then repeat"));
                }
                builder.file(&path, mode, mtime, size, content)?;
            }
            Step::Data(_) | Step::End => return Err(Error::internal("data of no file was read")),
        }
    }
    builder.finish(source, writer).await
}

#[cfg(test)]
mod tests;
