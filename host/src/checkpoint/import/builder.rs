//! A tree under construction: every name is judged before it goes in.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{ImportOptions, Imported};
use crate::checkpoint::materialise::links::{Leads, directories_needed, judge};
use crate::error::{Error, Result};
use crate::workspace::page::{Content, Entry, LinkedFile, Node, Root};
use crate::workspace::path::{display, is_dot_git};
use crate::workspace::source::{Sink, Source};
use crate::workspace::{link_table, tree};

/// Mode of directories that an archive leaves out.
const DIRECTORY_MODE: u16 = 0o755;

#[derive(Default)]
struct Directory {
    entries: BTreeMap<Bytes, Child>,
    mode: u16,
    mtime: i64,
    /// Whether it was named itself, not only as a part of a path.
    named: bool,
    /// Its place among the directories below each other.
    path: Vec<Bytes>,
}

enum Child {
    Directory(usize),
    Entry(Entry),
}

pub(super) struct Builder {
    options: ImportOptions,
    /// A directory stands behind the one that it is in.
    directories: Vec<Directory>,
    linked: Vec<LinkedFile>,
    /// Links that stay inside only if these directories are real, with the link's own path.
    depends: Vec<(Vec<Vec<Bytes>>, String, Vec<u8>)>,
    done: Imported,
}

impl Builder {
    pub(super) fn new(options: &ImportOptions) -> Self {
        let top = Directory { mode: DIRECTORY_MODE, named: true, ..Directory::default() };
        Self { options: *options, directories: vec![top], linked: Vec::new(), depends: Vec::new(), done: Imported::default() }
    }

    pub(super) fn skipped(&mut self) {
        self.done.skipped += 1;
    }

    /// Checks that a file of so many bytes may come.
    pub(super) fn room(&self, path: &[u8], size: u64) -> Result<()> {
        let limits = &self.options.limits;
        if size > limits.file {
            return Err(over(path, "bytes in one file", size, limits.file));
        }
        let bytes = self.done.bytes.saturating_add(size);
        if bytes > limits.bytes { Err(over(path, "bytes in all files", bytes, limits.bytes)) } else { Ok(()) }
    }

    pub(super) fn directory(&mut self, path: &[u8], mode: u16, mtime: i64) -> Result<()> {
        let names = self.names(path)?;
        let at = self.walk(path, &names)?;
        let Some(directory) = self.directories.get_mut(at) else { return Ok(()) };
        // The top directory may be named; its mode and time aren't kept.
        if directory.named && at > 0 {
            return Err(doubled(path));
        }
        directory.named = true;
        (directory.mode, directory.mtime) = (mode & 0o777, mtime);
        Ok(())
    }

    pub(super) fn file(&mut self, path: &[u8], mode: u16, mtime: i64, size: u64, content: Content) -> Result<()> {
        self.done.bytes += size;
        self.put(path, mode & 0o777, mtime, Node::File { size, content })
    }

    pub(super) fn symlink(&mut self, path: &[u8], mtime: i64, target: Vec<u8>) -> Result<()> {
        if target.is_empty() || target.len() > self.options.limits.target || target.contains(&0) {
            return Err(hostile(path, "is a link with a target that isn't allowed"));
        }
        let names = self.names(path)?;
        let directory = names.len().saturating_sub(1);
        match judge(&target, directory) {
            Leads::Inside => {}
            _ if self.options.unsafe_links => {}
            Leads::Outside => return Err(leads_out(&display(path), &target)),
            Leads::Depends => {
                let needed = directories_needed(&target, &names[..directory]);
                self.depends.push((needed, display(path).into_owned(), target.clone()));
            }
        }
        self.put(path, 0o777, mtime, Node::Symlink(target.into()))
    }

    /// Gives a file that came before another name.
    pub(super) fn link(&mut self, path: &[u8], to: &[u8]) -> Result<()> {
        let names = self.names(to)?;
        let next = self.linked.len() as u64;
        let missing = || hostile(path, "is a hard link to something that isn't a file before it in the archive");
        let (name, parents) = names.split_last().ok_or_else(missing)?;
        let mut at = 0;
        for parent in parents {
            match self.directories.get(at).and_then(|directory| directory.entries.get(parent)) {
                Some(Child::Directory(below)) => at = *below,
                _ => return Err(missing()),
            }
        }
        let Some(Child::Entry(entry)) = self.directories.get_mut(at).and_then(|directory| directory.entries.get_mut(name)) else {
            return Err(missing());
        };
        let number = match &entry.node {
            Node::Linked(number) => *number,
            Node::File { size, content } => {
                let (mode, mtime, size, content) = (entry.mode, entry.mtime, *size, content.clone());
                self.linked.push(LinkedFile { number: next, names: 1, mode, mtime, size, content });
                *entry = Entry { name: entry.name.clone(), mode: 0, mtime: 0, node: Node::Linked(next) };
                next
            }
            _ => return Err(missing()),
        };
        self.put(path, 0, 0, Node::Linked(number))?;
        let file = usize::try_from(number).ok().and_then(|number| self.linked.get_mut(number));
        file.ok_or_else(|| Error::internal("a linked file was lost"))?.names += 1;
        Ok(())
    }

    /// Takes a path apart. `.` and empty parts are nothing; everything else that isn't a plain name is refused.
    fn names(&self, path: &[u8]) -> Result<Vec<Bytes>> {
        let limits = &self.options.limits;
        if path.starts_with(b"/") {
            return Err(hostile(path, "is an absolute path"));
        }
        let names: Vec<Bytes> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(Bytes::copy_from_slice).collect();
        for name in &names {
            if &name[..] == b".." {
                return Err(hostile(path, "has .. in it"));
            }
            if name.contains(&0) {
                return Err(hostile(path, "has a zero byte in it"));
            }
            if is_dot_git(name) {
                return Err(
                    hostile(path, "is or is in a folder that some system takes for .git").hint("leave it out: only the host makes those")
                );
            }
            if name.len() > limits.name.min(255) {
                return Err(over(path, "bytes in one name", name.len() as u64, limits.name as u64));
            }
        }
        if path.len() > limits.path {
            return Err(over(path, "bytes in one path", path.len() as u64, limits.path as u64));
        }
        if names.len() > limits.depth {
            return Err(over(path, "directories below each other", names.len() as u64, limits.depth as u64));
        }
        Ok(names)
    }

    /// Returns the directory of these names; missing ones are made.
    fn walk(&mut self, path: &[u8], names: &[Bytes]) -> Result<usize> {
        let mut at = 0;
        for (depth, name) in names.iter().enumerate() {
            let next = self.directories.len();
            let directory = self.directories.get_mut(at).ok_or_else(|| Error::internal("a directory was lost"))?;
            match directory.entries.get(name) {
                Some(Child::Directory(below)) => at = *below,
                Some(Child::Entry(_)) => return Err(hostile(path, "goes through a name that isn't a directory")),
                None => {
                    directory.entries.insert(name.clone(), Child::Directory(next));
                    self.count(path)?;
                    let path = names[..=depth].to_vec();
                    self.directories.push(Directory { mode: DIRECTORY_MODE, path, ..Directory::default() });
                    at = next;
                }
            }
        }
        Ok(at)
    }

    fn put(&mut self, path: &[u8], mode: u16, mtime: i64, node: Node) -> Result<()> {
        let names = self.names(path)?;
        let Some((name, parents)) = names.split_last() else { return Err(hostile(path, "names the top directory, and is none")) };
        let at = self.walk(path, parents)?;
        self.count(path)?;
        let directory = self.directories.get_mut(at).ok_or_else(|| Error::internal("a directory was lost"))?;
        let entry = Entry { name: name.clone(), mode, mtime, node };
        match directory.entries.insert(name.clone(), Child::Entry(entry)) {
            None => Ok(()),
            Some(_) => Err(doubled(path)),
        }
    }

    fn count(&mut self, path: &[u8]) -> Result<()> {
        self.done.entries += 1;
        let limit = self.options.limits.entries;
        if self.done.entries > limit { Err(over(path, "entries", self.done.entries, limit)) } else { Ok(()) }
    }

    /// Stores the directories, each behind those in it.
    pub(super) async fn finish(mut self, source: &dyn Source, sink: &mut dyn Sink) -> Result<(Root, Imported)> {
        let real: std::collections::HashSet<&[Bytes]> = self.directories.iter().map(|directory| &directory.path[..]).collect();
        for (needed, path, target) in &self.depends {
            if !needed.iter().all(|directory| real.contains(&directory[..])) {
                return Err(leads_out(path, target));
            }
        }
        let mut pages = vec![None; self.directories.len()];
        while let Some(directory) = self.directories.pop() {
            let mut changes = BTreeMap::new();
            for (name, child) in directory.entries {
                let entry = match child {
                    Child::Entry(entry) => entry,
                    Child::Directory(below) => {
                        let made = pages.get_mut(below).and_then(Option::take);
                        let (page, mode, mtime) = made.ok_or_else(|| Error::internal("a directory was stored before what is in it"))?;
                        Entry { name: name.clone(), mode, mtime, node: Node::Directory(page) }
                    }
                };
                changes.insert(name, Some(entry));
            }
            let page = tree::update(source, sink, None, changes).await?;
            if let Some(slot) = pages.get_mut(self.directories.len()) {
                *slot = Some((page, directory.mode, directory.mtime));
            }
        }
        let table = self.linked.into_iter().map(|file| (file.number, Some(file))).collect();
        let links = link_table::update(source, sink, None, table).await?;
        let top = pages.first_mut().and_then(Option::take).ok_or_else(|| Error::internal("a tree has no top"))?.0;
        Ok((Root { page: top, links, entries: self.done.entries, bytes: self.done.bytes }, self.done))
    }
}

fn hostile(path: &[u8], why: &str) -> Error {
    Error::denied(format!("{} {why}", display(path))).code("hostile_archive")
}

fn doubled(path: &[u8]) -> Error {
    hostile(path, "is there twice")
}

fn leads_out(path: &str, target: &[u8]) -> Error {
    Error::denied(format!("the link {path} leads out of the tree, to {:?}", String::from_utf8_lossy(target)))
        .code("unsafe_link")
        .hint("--unsafe-links takes such links too; a guest can't follow them out")
}

fn over(path: &[u8], what: &str, value: u64, limit: u64) -> Error {
    Error::limit(format!("at {}: {what}: {value} is over the limit of {limit}", display(path))).code("import_too_large")
}
