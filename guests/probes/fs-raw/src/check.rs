//! Counting checks, and short names for the calls that they make.

use std::fmt::Debug;

use crate::bindings::wasi::filesystem::preopens::get_directories;
use crate::bindings::wasi::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};
use crate::bindings::wasi::io::streams::StreamError;

pub(crate) const NOFOLLOW: PathFlags = PathFlags::empty();
pub(crate) const FOLLOW: PathFlags = PathFlags::SYMLINK_FOLLOW;
pub(crate) const NEW: OpenFlags = OpenFlags::CREATE.union(OpenFlags::EXCLUSIVE);
pub(crate) const READ: DescriptorFlags = DescriptorFlags::READ;
pub(crate) const WRITE: DescriptorFlags = DescriptorFlags::WRITE;
pub(crate) const BOTH: DescriptorFlags = READ.union(WRITE);

#[derive(Default)]
pub(crate) struct Checks {
    topic: &'static str,
    done: u32,
    failed: u32,
}

impl Checks {
    pub(crate) fn topic(&mut self, name: &'static str) {
        self.topic = name;
    }

    /// Counts a check, and says so when the answer isn't the wanted one.
    #[track_caller]
    pub(crate) fn is<T: PartialEq + Debug>(&mut self, what: &str, got: T, wanted: T) {
        self.done += 1;
        if got != wanted {
            self.failed += 1;
            println!("FAILED {} (line {}): {what}: got {got:?}, wanted {wanted:?}", self.topic, std::panic::Location::caller().line());
        }
    }

    /// Counts a check of a result that must be this error.
    #[track_caller]
    pub(crate) fn refused<T: Debug>(&mut self, what: &str, got: Result<T, ErrorCode>, wanted: ErrorCode) {
        self.is(what, got.map(|value| format!("{value:?}")), Err(wanted));
    }

    /// Counts a check of a result that must be one of these errors.
    #[track_caller]
    pub(crate) fn refused_as<T: Debug>(&mut self, what: &str, got: Result<T, ErrorCode>, wanted: &[ErrorCode]) {
        self.done += 1;
        if !matches!(&got, Err(code) if wanted.contains(code)) {
            self.failed += 1;
            println!(
                "FAILED {} (line {}): {what}: got {got:?}, wanted one of {wanted:?}",
                self.topic,
                std::panic::Location::caller().line()
            );
        }
    }

    pub(crate) fn finish(self) {
        println!("{} checks, {} failed", self.done, self.failed);
        if self.failed > 0 {
            std::process::exit(1);
        }
    }
}

/// Returns a new, empty directory below a preopen, so that topics don't meet.
pub(crate) fn scratch(name: &str) -> Descriptor {
    let root = preopen("/workspace");
    root.create_directory_at(name).expect("scratch directory");
    root.open_at(NOFOLLOW, name, OpenFlags::DIRECTORY, READ | DescriptorFlags::MUTATE_DIRECTORY).expect("scratch directory")
}

pub(crate) fn preopen(path: &str) -> Descriptor {
    get_directories().into_iter().find(|(_, name)| name == path).expect("preopen").0
}

pub(crate) fn open(dir: &Descriptor, path: &str, flags: DescriptorFlags) -> Result<Descriptor, ErrorCode> {
    dir.open_at(NOFOLLOW, path, OpenFlags::empty(), flags)
}

pub(crate) fn make(dir: &Descriptor, path: &str, content: &[u8]) -> Descriptor {
    let file = dir.open_at(NOFOLLOW, path, OpenFlags::CREATE | OpenFlags::TRUNCATE, BOTH).expect("make a file");
    if !content.is_empty() {
        assert_eq!(file.write(content, 0).expect("write"), content.len() as u64);
    }
    file
}

/// Reads everything from an offset on by a stream.
pub(crate) fn drain(file: &Descriptor, offset: u64) -> Result<Vec<u8>, ErrorCode> {
    let stream = file.read_via_stream(offset)?;
    let mut all = Vec::new();
    loop {
        match stream.blocking_read(1 << 20) {
            Ok(bytes) => all.extend(bytes),
            Err(StreamError::Closed) => return Ok(all),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(crate::bindings::wasi::filesystem::types::filesystem_error_code(&error).unwrap_or(ErrorCode::Io));
            }
        }
    }
}

/// Returns the error code of a stream's error, or none when it was closed.
pub(crate) fn stream_code(error: StreamError) -> Option<ErrorCode> {
    match error {
        StreamError::Closed => None,
        StreamError::LastOperationFailed(error) => crate::bindings::wasi::filesystem::types::filesystem_error_code(&error),
    }
}

pub(crate) fn names(dir: &Descriptor) -> Vec<String> {
    let stream = dir.read_directory().expect("read-directory");
    let mut names = Vec::new();
    while let Some(entry) = stream.read_directory_entry().expect("read-directory-entry") {
        names.push(entry.name);
    }
    names.sort();
    names
}
