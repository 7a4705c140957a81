//! Making, moving and removing names.

use bytes::Bytes;

use super::content::FileData;
use super::fault::{FsError, FsResult};
use super::node::{Body, Directory, Edit, Home, Node, NodeId, TOP};
use super::resolve::{Place, Resolved};
use super::stat::{Follow, Kind, NewTime, OpenHow};
use super::state::{Child, DIRECTORY_MODE, FILE_MODE, SYMLINK_MODE, State, Step};

impl State {
    /// Opens what a path names, or makes a file of that name, and counts a handle on it.
    pub(super) fn open_at(&mut self, start: NodeId, path: &[u8], follow: Follow, how: OpenHow) -> Step<NodeId> {
        if how.create && how.directory {
            return Err(FsError::Invalid.into());
        }
        // An exclusive open makes the very name it is given, and so never follows a link there.
        let follow = if how.create && how.exclusive { Follow::No } else { follow };
        let id = match self.resolve(start, path, follow)? {
            Resolved::Directory(_) if how.create && how.exclusive => return Err(FsError::Exist.into()),
            Resolved::Directory(id) => id,
            Resolved::Named(place) if place.child.is_none() && how.create => {
                if place.slash {
                    return Err(FsError::IsDirectory.into());
                }
                let data = FileData::empty(&self.setup.spool);
                let id = self.make(&place, FILE_MODE, Body::File { data, number: None })?;
                self.open(id)?;
                return Ok(id);
            }
            Resolved::Named(place) => {
                if place.child.is_some() && how.create && how.exclusive {
                    return Err(FsError::Exist.into());
                }
                let child = self.existing(&place)?;
                match self.child_kind(&child)? {
                    Kind::Symlink => return Err(FsError::Loop.into()),
                    Kind::File if how.directory => return Err(FsError::NotDirectory.into()),
                    _ => self.load(place.directory, child)?,
                }
            }
        };
        if self.node(id)?.kind() == Kind::Directory {
            if how.create || how.truncate || how.write {
                return Err(FsError::IsDirectory.into());
            }
        } else if how.truncate {
            self.set_size(id, 0)?;
        }
        self.open(id)?;
        Ok(id)
    }

    /// Makes an object of one name.
    fn make(&mut self, place: &Place, mode: u16, body: Body) -> Step<NodeId> {
        self.growable()?;
        self.vacant(place)?;
        self.usage.room(&self.setup.limits, 1, 0)?;
        let inode = self.new_inode();
        let mut node = Node::new(inode, mode, self.now(), body);
        node.names = 1;
        node.home = Some(Home { directory: place.directory, name: place.name.clone() });
        node.edited = true;
        let id = self.add_node(node);
        self.insert_name(place.directory, &place.name, Edit::Node(id))?;
        Ok(id)
    }

    /// Resolves the name for something new.
    fn place_for_new(&mut self, start: NodeId, path: &[u8]) -> Step<Place> {
        match self.resolve(start, path, Follow::No)? {
            Resolved::Directory(_) => Err(FsError::Exist.into()),
            Resolved::Named(place) => Ok(place),
        }
    }

    /// Makes a directory.
    pub(super) fn create_directory_at(&mut self, start: NodeId, path: &[u8]) -> Step<()> {
        let place = self.place_for_new(start, path)?;
        self.make(&place, DIRECTORY_MODE, Body::Directory(Directory::default()))?;
        Ok(())
    }

    /// Makes a symbolic link.
    pub(super) fn symlink_at(&mut self, target: &[u8], start: NodeId, path: &[u8]) -> Step<()> {
        match target {
            [] => return Err(FsError::NoEntry.into()),
            [b'/', ..] => return Err(FsError::NotPermitted.into()),
            _ if target.len() > self.setup.limits.target => return Err(FsError::NameTooLong.into()),
            _ if target.contains(&0) => return Err(FsError::Invalid.into()),
            _ => {}
        }
        let place = self.place_for_new(start, path)?;
        if place.slash && place.child.is_none() {
            return Err(FsError::NoEntry.into());
        }
        self.make(&place, SYMLINK_MODE, Body::Symlink(Bytes::copy_from_slice(target)))?;
        Ok(())
    }

    /// Gives a file one more name.
    pub(super) fn link_at(&mut self, start: NodeId, path: &[u8], follow: Follow, new_start: NodeId, new_path: &[u8]) -> Step<()> {
        self.growable()?;
        let Resolved::Named(old) = self.resolve(start, path, follow)? else { return Err(FsError::NotPermitted.into()) };
        let child = self.existing(&old)?;
        if self.child_kind(&child)? != Kind::File {
            return Err(FsError::NotPermitted.into());
        }
        let new = self.place_for_new(new_start, new_path)?;
        if new.slash && new.child.is_none() {
            return Err(FsError::NoEntry.into());
        }
        self.vacant(&new)?;
        self.usage.room(&self.setup.limits, 1, 0)?;
        let id = self.load(old.directory, child)?;
        let node = self.node(id)?;
        let number = node.number();
        let names = node.names.checked_add(1).ok_or(FsError::TooManyLinks)?;
        // Its entry stops being a file's own: that is a change of the old name too.
        self.mark(id)?;
        let node = self.node_mut(id)?;
        node.names = names;
        node.home = None;
        let edit = number.map_or(Edit::Node(id), Edit::Linked);
        self.insert_name(new.directory, &new.name, edit)?;
        Ok(())
    }

    /// Removes a name that isn't a directory's.
    pub(super) fn unlink_file_at(&mut self, start: NodeId, path: &[u8]) -> Step<()> {
        self.writable()?;
        let Resolved::Named(place) = self.resolve(start, path, Follow::No)? else { return Err(FsError::IsDirectory.into()) };
        let child = self.existing(&place)?;
        if self.child_kind(&child)? == Kind::Directory {
            return Err(FsError::IsDirectory.into());
        }
        self.remove(&place, child)
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory_at(&mut self, start: NodeId, path: &[u8]) -> Step<()> {
        self.writable()?;
        let place = match self.resolve(start, path, Follow::No)? {
            Resolved::Directory(id) if id == TOP => return Err(FsError::Busy.into()),
            Resolved::Directory(_) => return Err(FsError::Invalid.into()),
            Resolved::Named(place) => place,
        };
        let child = self.existing(&place)?;
        if self.child_kind(&child)? != Kind::Directory {
            return Err(FsError::NotDirectory.into());
        }
        let id = self.load(place.directory, child.clone())?;
        if self.count(id)? > 0 {
            return Err(FsError::NotEmpty.into());
        }
        self.remove(&place, child)
    }

    /// Removes a name and, with its last name, the object.
    pub(super) fn remove(&mut self, place: &Place, child: Child) -> Step<()> {
        let in_base = self.in_base(place.directory, &place.name)?;
        if in_base {
            // That a stored name is gone has to be noted; a new one's removal makes room.
            self.growable()?;
        }
        let id = self.load(place.directory, child)?;
        self.remove_name(place.directory, &place.name, in_base)?;
        self.drop_name(id)?;
        Ok(())
    }

    /// Gives an object another name, in place of what had it.
    pub(super) fn rename_at(&mut self, start: NodeId, path: &[u8], new_start: NodeId, new_path: &[u8]) -> Step<()> {
        self.growable()?;
        let Resolved::Named(old) = self.resolve(start, path, Follow::No)? else { return Err(FsError::Busy.into()) };
        let child = self.existing(&old)?;
        let Resolved::Named(new) = self.resolve(new_start, new_path, Follow::No)? else { return Err(FsError::Busy.into()) };
        let is_directory = self.child_kind(&child)? == Kind::Directory;
        if new.slash && !is_directory {
            return Err(FsError::NotDirectory.into());
        }
        if old.directory == new.directory && old.name == new.name {
            return Ok(());
        }
        self.nameable(&new)?;
        let id = self.load(old.directory, child.clone())?;
        if is_directory && self.is_within(new.directory, id)? {
            return Err(FsError::Invalid.into());
        }
        let replaced = match &new.child {
            None => None,
            Some(there) => {
                let there_is_directory = self.child_kind(there)? == Kind::Directory;
                let there_id = self.load(new.directory, there.clone())?;
                match (is_directory, there_is_directory) {
                    _ if there_id == id => return Ok(()),
                    (true, false) => return Err(FsError::NotDirectory.into()),
                    (false, true) => return Err(FsError::IsDirectory.into()),
                    (true, true) if self.count(there_id)? > 0 => return Err(FsError::NotEmpty.into()),
                    _ => Some(there_id),
                }
            }
        };
        let old_in_base = self.in_base(old.directory, &old.name)?;
        let new_in_base = self.in_base(new.directory, &new.name)?;
        if is_directory {
            self.deep_enough(id, &new)?;
        }
        // From here on nothing can fail for want of a page.
        if let Some(replaced) = replaced {
            self.remove_name(new.directory, &new.name, new_in_base)?;
            self.drop_name(replaced)?;
        }
        self.remove_name(old.directory, &old.name, old_in_base)?;
        let node = self.node_mut(id)?;
        let edit = match node.number() {
            Some(number) => Edit::Linked(number),
            None => {
                node.edited = true;
                if node.home.is_some() {
                    node.home = Some(Home { directory: new.directory, name: new.name.clone() });
                }
                Edit::Node(id)
            }
        };
        self.insert_name(new.directory, &new.name, edit)?;
        Ok(())
    }

    /// Says whether a directory is `top` or lies below it.
    fn is_within(&self, directory: NodeId, top: NodeId) -> FsResult<bool> {
        let mut id = directory;
        loop {
            if id == top {
                return Ok(true);
            }
            match &self.node(id)?.home {
                Some(home) => id = home.directory,
                None => return Ok(false),
            }
        }
    }

    /// Sets the time of the last modification.
    pub(super) fn set_times(&mut self, id: NodeId, modified: NewTime) -> FsResult<()> {
        let modified = match modified {
            NewTime::Keep => return Ok(()),
            NewTime::Now => self.now(),
            NewTime::At(time) => time,
        };
        self.editable(id)?;
        self.node_mut(id)?.modified = modified;
        self.mark(id)
    }

    /// Returns the target of a symbolic link.
    pub(super) fn readlink_at(&mut self, start: NodeId, path: &[u8]) -> Step<Bytes> {
        let Resolved::Named(place) = self.resolve(start, path, Follow::No)? else { return Err(FsError::Invalid.into()) };
        let child = self.existing(&place)?;
        Ok(self.child_target(&child)?.ok_or(FsError::Invalid)?)
    }
}
