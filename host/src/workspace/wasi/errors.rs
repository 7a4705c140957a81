//! How a fault of the workspace reaches the guest: as the interface's code, or as a trap when it isn't the guest's.

use wasmtime::component::ResourceTableError;
use wasmtime_wasi::p2::StreamError;

use super::bindings::wasi::filesystem::types::ErrorCode;
use crate::workspace::FsError;

/// What a call ends with when it doesn't succeed.
#[derive(Debug)]
pub enum Fault {
    /// The guest is told.
    Code(ErrorCode),
    /// The guest is stopped: the host failed ([`crate::Error`] inside), or the guest broke the rules of the component model.
    Trap(wasmtime::Error),
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<ResourceTableError> for Fault {
    fn from(error: ResourceTableError) -> Self {
        match error {
            ResourceTableError::Full => Self::Code(ErrorCode::InsufficientMemory),
            other => Self::Trap(other.into()),
        }
    }
}

impl From<FsError> for Fault {
    fn from(error: FsError) -> Self {
        match code(&error) {
            Some(code) => Self::Code(code),
            None => Self::Trap(trap(error)),
        }
    }
}

impl Fault {
    /// Returns the code for the guest.
    ///
    /// # Errors
    /// The trap.
    pub(super) fn into_code(self) -> wasmtime::Result<ErrorCode> {
        match self {
            Self::Code(code) => Ok(code),
            Self::Trap(error) => Err(error),
        }
    }
}

/// Makes the error of a stream: the guest may ask `filesystem-error-code` about it, which finds the [`FsError`] inside.
pub(super) fn stream_error(error: FsError) -> StreamError {
    match code(&error) {
        Some(_) => StreamError::LastOperationFailed(wasmtime::Error::new(error)),
        None => StreamError::Trap(trap(error)),
    }
}

/// Takes the host's error out, so that whoever catches the trap finds it by its type.
fn trap(error: FsError) -> wasmtime::Error {
    match error {
        FsError::Host(error) => wasmtime::Error::new(error),
        other => wasmtime::Error::new(other),
    }
}

/// Returns the interface's code for a fault, or none when it is the host's.
pub(super) fn code(error: &FsError) -> Option<ErrorCode> {
    Some(match error {
        FsError::BadDescriptor => ErrorCode::BadDescriptor,
        FsError::Busy => ErrorCode::Busy,
        FsError::CrossDevice => ErrorCode::CrossDevice,
        FsError::Exist => ErrorCode::Exist,
        FsError::FileTooLarge => ErrorCode::FileTooLarge,
        FsError::InsufficientSpace(_) => ErrorCode::InsufficientSpace,
        FsError::Invalid => ErrorCode::Invalid,
        FsError::IsDirectory => ErrorCode::IsDirectory,
        FsError::Loop => ErrorCode::Loop,
        FsError::NameTooLong => ErrorCode::NameTooLong,
        FsError::NoEntry => ErrorCode::NoEntry,
        FsError::NotDirectory => ErrorCode::NotDirectory,
        FsError::NotEmpty => ErrorCode::NotEmpty,
        FsError::NotPermitted => ErrorCode::NotPermitted,
        FsError::TooManyLinks => ErrorCode::TooManyLinks,
        FsError::Host(_) => return None,
    })
}
