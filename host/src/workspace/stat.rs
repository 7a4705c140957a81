//! What can be asked of an object without reading it.

use crate::clock::UnixNanos;

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// The attributes of an object. Access and status-change time aren't kept: answer [`Stat::modified`] for all three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Length in bytes of a file or of a symbolic link's target; zero for a directory.
    pub size: u64,
    /// Time of the last modification, nanoseconds since 1970.
    pub modified: UnixNanos,
    /// How many names a file has: zero once it is unlinked; 1 for everything else.
    pub links: u64,
    /// Permission bits, 0 to 0o777: kept and checkpointed, but nothing is refused by them.
    pub mode: u16,
    /// Tells the objects of a turn's filesystems apart, as an inode number does; the same for all names of a file. Stays while the object
    /// is open or unchanged; a rename keeps it.
    pub inode: u64,
}

impl Stat {
    /// Returns the value for `metadata-hash`: lower and upper half, made of the object's identity alone, because
    /// C libraries answer it as `st_ino`.
    #[must_use]
    pub fn metadata_hash(&self) -> (u64, u64) {
        (self.inode, super::node::mix(&[self.inode, 0]))
    }
}

/// What a timestamp is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTime {
    /// Left as it is.
    Keep,
    /// The clock's time.
    Now,
    /// This time, nanoseconds since 1970.
    At(UnixNanos),
}

/// Whether a symbolic link at the end of a path is followed. Links before the end always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// The link's target is meant.
    Yes,
    /// The link itself is meant.
    No,
}

/// How [`super::Handle::open_at`] opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenHow {
    /// Make an empty file when there is nothing of that name.
    pub create: bool,
    /// With `create`: fail with `Exist` when there is something.
    pub exclusive: bool,
    /// Fail with `NotDirectory` when it isn't a directory. With `create` this is `Invalid`.
    pub directory: bool,
    /// Empty the file. A directory answers `IsDirectory`.
    pub truncate: bool,
    /// The caller means to write to it: a directory answers `IsDirectory`. The handle itself holds no rights; who holds it keeps
    /// account of them.
    pub write: bool,
}
