//! A checkpoint's files as a tar archive: the same checkpoint gives the same bytes, whoever makes it and wherever.
//!
//! The form is that of POSIX.1-2001 (pax): ustar headers, and an extended header where a path, a link's target, a time or a length doesn't fit.
//! Entries come depth first, each directory before what is in it, names in the order of their bytes. Owners are 0 and have no names.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::inspect::{Body, OpenCheckpoint};
use crate::error::{Error, Result};
use crate::workspace::page::{Content, Entry, LinkedFile, Node, Part};
use crate::workspace::source::Source;
use crate::workspace::walk::join;
use crate::workspace::{link_table, list, tree};

/// Bytes of a file read at a time.
const STEP: u64 = 4 << 20;
/// Length of a tar block in bytes.
const BLOCK: usize = 512;
/// Directories below each other that are followed: more than any workspace has.
const DEPTH_MAX: usize = 1024;

/// What [`export`] has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exported {
    /// Entries of every kind.
    pub entries: u64,
    /// Bytes of files, each file counted once.
    pub bytes: u64,
    /// Bytes of the archive.
    pub archive: u64,
}

/// Writes what is below a directory of a checkpoint, such as `/workspace`, as a tar archive. Paths in it begin below that directory.
///
/// # Errors
/// `Usage` and `NotFound` for a path that is no directory, `Damaged`, `Store`, and `Local` when the archive can't be written.
pub async fn export(checkpoint: &OpenCheckpoint, path: &str, out: &mut (dyn AsyncWrite + Send + Unpin)) -> Result<Exported> {
    let Body::Directory(top) = checkpoint.stat(path).await?.body else {
        return Err(Error::usage(format!("{path} isn't a directory")).hint("`landfall checkpoint cat` writes one file"));
    };
    let source = &**checkpoint.source();
    let root = match path.trim_start_matches('/').split('/').next() {
        Some("state") => &checkpoint.checkpoint().root.state,
        _ => &checkpoint.checkpoint().root.workspace,
    };
    let table: HashMap<u64, LinkedFile> = match &root.links {
        Some(table) => link_table::list(source, table).await?.into_iter().map(|file| (file.number, file)).collect(),
        None => HashMap::new(),
    };
    let mut archive = Archive { out, done: Exported::default(), most: root.entries };
    let mut first_names: HashMap<u64, Bytes> = HashMap::new();
    let mut stack = vec![(Bytes::new(), sorted(source, &top).await?)];
    while let Some((directory, entries)) = stack.last_mut() {
        let Some(entry) = entries.next() else {
            stack.pop();
            continue;
        };
        let path = join(directory, &entry.name)?;
        let meta = Meta { path: &path, mode: entry.mode, mtime: entry.mtime };
        match &entry.node {
            Node::Directory(page) => {
                let page = page.clone();
                archive.entry(&meta, b'5', 0, &[]).await?;
                if stack.len() >= DEPTH_MAX {
                    return Err(Error::damaged(format!("a tree has more than {DEPTH_MAX} directories below each other")));
                }
                stack.push((path, sorted(source, &page).await?));
            }
            Node::Symlink(target) => archive.entry(&meta, b'2', 0, target).await?,
            Node::File { size, content } => archive.file(source, &meta, *size, content).await?,
            Node::Linked(number) => {
                let file = table.get(number).ok_or_else(|| {
                    Error::damaged(format!("{} names linked file {number}, which isn't in the root's table", shown(&path)))
                        .code("page_damaged")
                })?;
                let meta = Meta { path: &path, mode: file.mode, mtime: file.mtime };
                match first_names.get(number) {
                    Some(first) => archive.entry(&meta, b'1', 0, first).await?,
                    None => {
                        archive.file(source, &meta, file.size, &file.content).await?;
                        first_names.insert(*number, path);
                    }
                }
            }
        }
    }
    archive.put(&[0; 2 * BLOCK]).await?;
    archive.out.flush().await.map_err(unwritable)?;
    Ok(archive.done)
}

/// Returns a directory's entries in order, and has the content of its small files fetched together.
async fn sorted(source: &dyn Source, page: &crate::workspace::page::PageLink) -> Result<std::vec::IntoIter<Entry>> {
    let entries = tree::list(source, page).await?;
    let chunks: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.node {
            Node::File { content: Content::Parts(parts), .. } => match parts.as_slice() {
                [Part::Chunk(chunk, _)] => Some(chunk.clone()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    if chunks.len() > 1 {
        source.prefetch(&chunks);
    }
    Ok(entries.into_iter())
}

struct Meta<'a> {
    path: &'a Bytes,
    mode: u16,
    mtime: i64,
}

struct Archive<'a> {
    out: &'a mut (dyn AsyncWrite + Send + Unpin),
    done: Exported,
    most: u64,
}

impl Archive<'_> {
    async fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.done.archive += bytes.len() as u64;
        self.out.write_all(bytes).await.map_err(unwritable)
    }

    /// Writes an entry's headers.
    async fn entry(&mut self, meta: &Meta<'_>, kind: u8, size: u64, target: &[u8]) -> Result<()> {
        self.done.entries += 1;
        if self.done.entries > self.most {
            return Err(Error::damaged(format!("a tree has more than the {} entries that its record says", self.most)));
        }
        let mut path = meta.path.to_vec();
        if kind == b'5' {
            path.push(b'/');
        }
        let seconds = meta.mtime.div_euclid(1_000_000_000);
        let nanos = meta.mtime.rem_euclid(1_000_000_000);
        let mut extended = Vec::new();
        if path.len() > 100 || !path.is_ascii() {
            record(&mut extended, b"path", &path);
        }
        if target.len() > 100 || !target.is_ascii() {
            record(&mut extended, b"linkpath", target);
        }
        if size > OCTAL_MAX {
            record(&mut extended, b"size", size.to_string().as_bytes());
        }
        let plain_time = u64::try_from(seconds).ok().filter(|seconds| nanos == 0 && *seconds <= OCTAL_MAX);
        if plain_time.is_none() {
            record(&mut extended, b"mtime", time(meta.mtime).as_bytes());
        }
        if !extended.is_empty() {
            let length = extended.len() as u64;
            let first = header(b"././@PaxHeader", b'x', 0o644, length, 0, &[])?;
            self.put(&first).await?;
            self.put(&extended).await?;
            self.pad(length).await?;
        }
        let time = plain_time.unwrap_or_else(|| u64::try_from(seconds).unwrap_or(0).min(OCTAL_MAX));
        let block = header(&path, kind, meta.mode, size.min(OCTAL_MAX), time, target)?;
        self.put(&block).await
    }

    async fn pad(&mut self, length: u64) -> Result<()> {
        let over = usize::try_from(length % BLOCK as u64).unwrap_or(0);
        if over > 0 { self.put(&[0; BLOCK][over..]).await } else { Ok(()) }
    }

    async fn file(&mut self, source: &dyn Source, meta: &Meta<'_>, size: u64, content: &Content) -> Result<()> {
        self.entry(meta, b'0', size, &[]).await?;
        let mut offset = 0;
        while offset < size {
            let bytes = list::read(source, content, size, offset..offset.saturating_add(STEP)).await?;
            if bytes.is_empty() {
                return Err(Error::damaged(format!("{} has fewer bytes than its size says", shown(meta.path))));
            }
            offset += bytes.len() as u64;
            self.put(&bytes).await?;
        }
        self.done.bytes += size;
        self.pad(size).await
    }
}

/// Largest number in a field of eleven octal digits.
const OCTAL_MAX: u64 = 0o77_777_777_777;

/// Makes a ustar header (POSIX.1-2001, pax, "ustar Interchange Format"). What is too long for its field is cut: the extended header has it whole.
fn header(path: &[u8], kind: u8, mode: u16, size: u64, mtime: u64, target: &[u8]) -> Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = block.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, &path[..path.len().min(100)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{size:011o}\0{mtime:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &target[..target.len().min(100)]);
    put(257, b"ustar\x0000");
    put(329, b"0000000\x000000000\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    block.get_mut(148..156).ok_or_else(|| Error::internal("a tar header is too short"))?.copy_from_slice(text.as_bytes());
    Ok(block)
}

/// Adds a record to an extended header: its own length in decimal, a blank, the key, `=`, the value, a line feed.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Writes nanoseconds since 1970 as decimal seconds, without zeros at the end.
fn time(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let text = format!("{sign}{seconds}.{rest:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn shown(path: &[u8]) -> String {
    crate::workspace::path::display(path).into_owned()
}

fn unwritable(error: std::io::Error) -> Error {
    Error::local("the archive can't be written").source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        let made = |key: &[u8], value: &[u8]| {
            let mut out = Vec::new();
            record(&mut out, key, value);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(made(b"path", b"a"), "9 path=a\n");
        for len in 0..2000 {
            let text = made(b"path", &vec![b'x'; len]);
            let (said, _) = text.split_once(' ').unwrap();
            assert_eq!(said.parse::<usize>().unwrap(), text.len(), "{len}");
        }
    }

    #[test]
    fn times_are_decimal_seconds() {
        let all = [(0, "0"), (1_500_000_000, "1.5"), (-1, "-0.000000001"), (-1_500_000_000, "-1.5"), (20_000_000_000, "20")];
        for (nanos, text) in all {
            assert_eq!(time(nanos), text);
        }
        assert_eq!(time(i64::MIN), "-9223372036.854775808");
    }
}
