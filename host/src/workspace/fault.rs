//! What a filesystem call answers when it doesn't succeed.

use crate::error::Error;

/// Why a filesystem call failed. The names and meanings are those of `wasi:filesystem` 0.2 `error-code`, of which these are the
/// ones that a workspace can answer; [`FsError::Host`] alone is no fault of the caller.
#[derive(Debug)]
pub enum FsError {
    /// The handle's tree was replaced as a whole (see `Filesystem::reset`), or the handle isn't of the kind the call needs (`EBADF`).
    BadDescriptor,
    /// The tree is being captured and can't change until that is done (`EBUSY`); also a top directory that can't be moved or removed.
    Busy,
    /// The two names lie in different filesystems (`EXDEV`).
    CrossDevice,
    /// The name exists already (`EEXIST`).
    Exist,
    /// The file would be longer than the limit for one file (`EFBIG`).
    FileTooLarge,
    /// A limit of the filesystem would be exceeded, or the spool is full (`ENOSPC`).
    InsufficientSpace(Exceeded),
    /// An argument makes no sense: a directory moved into itself, a NUL in a path, an offset out of range (`EINVAL`).
    Invalid,
    /// The call needs something that isn't a directory (`EISDIR`).
    IsDirectory,
    /// More than 40 symbolic links on the way, or a symbolic link where following is refused (`ELOOP`).
    Loop,
    /// A name, a path, a symbolic link's target or the depth is over its limit (`ENAMETOOLONG`).
    NameTooLong,
    /// There is nothing of that name (`ENOENT`).
    NoEntry,
    /// A part of the path that has to be a directory isn't one (`ENOTDIR`).
    NotDirectory,
    /// The directory isn't empty (`ENOTEMPTY`).
    NotEmpty,
    /// The path is absolute or leaves the directory it starts from, the name is a form of `.git`, or the object can't have another
    /// name (`EPERM`).
    NotPermitted,
    /// The file has as many names as it may have (`EMLINK`).
    TooManyLinks,
    /// The store or this machine failed: the call may work later. The guest sees `io`; the host logs the error.
    Host(Error),
}

/// The limit that a change would have exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exceeded {
    /// Entries of the filesystem, of every kind.
    Entries {
        /// The most there may be.
        limit: u64,
    },
    /// Bytes in all files together.
    Bytes {
        /// The most there may be.
        limit: u64,
    },
    /// Bytes of memory that objects and changed names take in one turn.
    Tables {
        /// The most they may take.
        limit: u64,
    },
    /// Bytes of edits that wait in the spool of this machine.
    Spool {
        /// The most there may be; less when the machine's disk is full.
        limit: u64,
    },
}

/// The result of a filesystem call.
pub type FsResult<T> = Result<T, FsError>;

impl From<Error> for FsError {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

impl std::fmt::Display for FsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BadDescriptor => "the handle is no longer valid or is of another kind",
            Self::Busy => "the object is in use and can't be changed now",
            Self::CrossDevice => "the names lie in different filesystems",
            Self::Exist => "the name exists already",
            Self::FileTooLarge => "the file would be over the limit for one file",
            Self::InsufficientSpace(exceeded) => return exceeded.fmt(f),
            Self::Invalid => "an argument is not valid",
            Self::IsDirectory => "it is a directory",
            Self::Loop => "too many symbolic links",
            Self::NameTooLong => "a name, path, link target or depth is over its limit",
            Self::NoEntry => "there is nothing of that name",
            Self::NotDirectory => "a part of the path is not a directory",
            Self::NotEmpty => "the directory is not empty",
            Self::NotPermitted => "the path, name or object is not permitted",
            Self::TooManyLinks => "the file has too many names",
            Self::Host(error) => return error.fmt(f),
        })
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entries { limit } => write!(f, "the limit of {limit} entries is reached"),
            Self::Bytes { limit } => write!(f, "the limit of {limit} bytes in files is reached"),
            Self::Tables { limit } => {
                write!(f, "the names and attributes changed in this turn take {limit} bytes of memory, the most they may")
            }
            Self::Spool { limit } => write!(f, "the spool for edits ({limit} bytes) is full"),
        }
    }
}

impl std::error::Error for FsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Host(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<FsError> for Error {
    /// For host code that edits a workspace itself: says the fault in words.
    fn from(fault: FsError) -> Self {
        match fault {
            FsError::Host(error) => error,
            FsError::NoEntry => Self::not_found(fault.to_string()),
            FsError::InsufficientSpace(_) | FsError::FileTooLarge | FsError::NameTooLong | FsError::TooManyLinks => {
                Self::limit(fault.to_string())
            }
            other => Self::usage(other.to_string()),
        }
    }
}
