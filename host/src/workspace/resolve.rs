//! From a path to what it names.

use std::borrow::Cow;

use bytes::Bytes;

use super::fault::FsError;
use super::node::{NodeId, TOP};
use super::path::{self, Path};
use super::stat::{Follow, Kind};
use super::state::{Child, State, Step};

/// Symbolic links followed on the way of one path, as on Linux.
const LINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Debug)]
pub(super) enum Resolved {
    /// To a directory, by `.` or `..`: as a name it can't be made, moved or removed.
    Directory(NodeId),
    /// To a name.
    Named(Place),
}

/// A name in a directory that exists, and what it names.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory.
    pub(super) directory: NodeId,
    /// The name.
    pub(super) name: Bytes,
    /// What it names, if anything.
    pub(super) child: Option<Child>,
    /// Whether the path ended in `/`, so that only a directory will do.
    pub(super) slash: bool,
}

impl State {
    /// Follows a path from a directory.
    pub(super) fn resolve(&mut self, start: NodeId, path: &[u8], follow: Follow) -> Step<Resolved> {
        let limits = self.setup.limits;
        self.directory(start)?;
        let mut text = Cow::Borrowed(path);
        let mut at = 0;
        let mut directory = start;
        // How far below `start` the way is: it may not leave `start` upwards.
        let mut level = 0_usize;
        let mut links = 0;
        Path::check(path, &limits)?;
        loop {
            let Some(part) = Path::part(&text, at) else { return Ok(Resolved::Directory(directory)) };
            let (range, last) = (part.range, part.last);
            let slash = last && text.ends_with(b"/");
            at = range.end;
            let name = &text[range];
            match name {
                b"." => continue,
                b".." => {
                    level = level.checked_sub(1).ok_or(FsError::NotPermitted)?;
                    directory = self.node(directory)?.home.as_ref().map_or(TOP, |home| home.directory);
                    continue;
                }
                _ => {}
            }
            if name.len() > limits.name {
                return Err(FsError::NameTooLong.into());
            }
            let mut child = self.child(directory, name)?;
            let mut name = Cow::Borrowed(name);
            if child.is_none()
                && let Some(escaped) = path::undisplay(&name)
            {
                child = self.child(directory, &escaped)?;
                if child.is_some() {
                    name = Cow::Owned(escaped);
                }
            }
            let target = match &child {
                Some(child) if !last || slash || follow == Follow::Yes => self.child_target(child)?,
                _ => None,
            };
            if let Some(target) = target {
                links += 1;
                if links > LINKS_MAX {
                    return Err(FsError::Loop.into());
                }
                if target.is_empty() {
                    return Err(FsError::NoEntry.into());
                }
                if target.starts_with(b"/") {
                    return Err(FsError::NotPermitted.into());
                }
                let mut joined = Vec::with_capacity(target.len() + text.len() - at);
                joined.extend_from_slice(&target);
                joined.extend_from_slice(&text[at..]);
                (text, at) = (Cow::Owned(joined), 0);
                continue;
            }
            if last {
                return Ok(Resolved::Named(Place { directory, name: Bytes::copy_from_slice(&name), child, slash }));
            }
            let child = child.ok_or(FsError::NoEntry)?;
            if self.child_kind(&child)? != Kind::Directory {
                return Err(FsError::NotDirectory.into());
            }
            directory = self.load(directory, child)?;
            level += 1;
        }
    }

    /// Follows a path to something that exists and brings it into memory.
    pub(super) fn resolve_node(&mut self, start: NodeId, path: &[u8], follow: Follow) -> Step<NodeId> {
        match self.resolve(start, path, follow)? {
            Resolved::Directory(id) => Ok(id),
            Resolved::Named(place) => {
                let child = self.existing(&place)?;
                self.load(place.directory, child)
            }
        }
    }

    /// Returns what a place names, or why it doesn't.
    pub(super) fn existing(&self, place: &Place) -> Step<Child> {
        let child = place.child.clone().ok_or(FsError::NoEntry)?;
        if place.slash && self.child_kind(&child)? != Kind::Directory {
            return Err(FsError::NotDirectory.into());
        }
        Ok(child)
    }

    /// Checks that something may be made under a place's name.
    pub(super) fn vacant(&self, place: &Place) -> Step<()> {
        if place.child.is_some() {
            return Err(FsError::Exist.into());
        }
        self.nameable(place)
    }

    /// Checks that a place's name may be given to something.
    pub(super) fn nameable(&self, place: &Place) -> Step<()> {
        if self.setup.refuse_dot_git && path::is_dot_git(&place.name) {
            return Err(FsError::NotPermitted.into());
        }
        let limits = &self.setup.limits;
        let (mut depth, mut len) = (1, place.name.len());
        let mut id = place.directory;
        while id != TOP {
            // A removed directory has no home: nothing can be made in it.
            let home = self.node(id)?.home.as_ref().ok_or(FsError::NoEntry)?;
            depth += 1;
            len += home.name.len() + 1;
            id = home.directory;
        }
        if depth > limits.depth || len > limits.path {
            return Err(FsError::NameTooLong.into());
        }
        Ok(())
    }
}
