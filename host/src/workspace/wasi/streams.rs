//! The streams of a descriptor: a file's bytes in order, and the names of a directory.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::errors::stream_error;
use super::seats::Seat;
use crate::workspace::{DirectoryStream, FsResult, Handle, READ_MAX, ReadAt};

/// A stream over the names of a directory (`wasi:filesystem/types.directory-entry-stream`).
#[derive(Debug)]
pub struct Listing {
    pub(super) names: DirectoryStream,
    pub(super) _seat: Seat,
}

/// How much `ready` reads ahead when the guest hasn't said how much it wants, in bytes.
const READ_AHEAD: usize = 64 << 10;
/// How much a guest may write in one call, in bytes.
const WRITE_PERMIT: usize = 1 << 20;

/// Reads a file from an offset to its end. Several streams on one file don't disturb each other.
pub(super) struct Input {
    file: Handle,
    position: u64,
    state: Reading,
    _seat: Seat,
}

enum Reading {
    Idle,
    /// Content is being fetched. The future owns a handle of its own.
    Waiting(Pin<Box<dyn Future<Output = FsResult<ReadAt>> + Send>>),
    /// Fetched, and not given to the guest yet.
    Ready(FsResult<ReadAt>),
    /// The end was reached, or a read failed.
    Closed,
}

impl Input {
    pub(super) fn new(file: Handle, position: u64, seat: Seat) -> Self {
        Self { file, position, state: Reading::Idle, _seat: seat }
    }

    /// Begins a read, and gives its result when nothing has to be fetched.
    fn begin(&mut self, size: usize) -> Option<FsResult<ReadAt>> {
        let (file, position) = (self.file.clone(), self.position);
        let mut read: Pin<Box<dyn Future<Output = FsResult<ReadAt>> + Send>> =
            Box::pin(async move { file.read_at(position, size.min(READ_MAX)).await });
        match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => {
                self.state = Reading::Waiting(read);
                None
            }
        }
    }

    async fn settle(&mut self) {
        if let Reading::Waiting(read) = &mut self.state {
            self.state = Reading::Ready(read.as_mut().await);
        }
    }

    fn take(&mut self, result: FsResult<ReadAt>, size: usize) -> StreamResult<Bytes> {
        self.state = Reading::Idle;
        match result {
            Ok(read) if read.bytes.is_empty() => {
                self.state = Reading::Closed;
                Err(StreamError::Closed)
            }
            Ok(mut read) => {
                read.bytes.truncate(size);
                self.position += read.bytes.len() as u64;
                Ok(read.bytes)
            }
            Err(error) => {
                self.state = Reading::Closed;
                Err(stream_error(error))
            }
        }
    }
}

#[async_trait::async_trait]
impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if matches!(self.state, Reading::Closed) {
            return Err(StreamError::Closed);
        }
        if size == 0 || matches!(self.state, Reading::Waiting(_)) {
            return Ok(Bytes::new());
        }
        // What `ready` fetched may have been overwritten since. It is good enough only when a new read would have to wait again.
        let fetched = std::mem::replace(&mut self.state, Reading::Idle);
        match (self.begin(size), fetched) {
            (Some(fresh), _) => self.take(fresh, size),
            (None, Reading::Ready(fetched)) => self.take(fetched, size),
            (None, _) => Ok(Bytes::new()),
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if matches!(self.state, Reading::Closed) {
            return Err(StreamError::Closed);
        }
        if size == 0 {
            return Ok(Bytes::new());
        }
        self.state = Reading::Idle;
        let read = self.file.read_at(self.position, size.min(READ_MAX)).await;
        self.take(read, size)
    }

    fn skip(&mut self, count: usize) -> StreamResult<usize> {
        if matches!(self.state, Reading::Closed) {
            return Err(StreamError::Closed);
        }
        // Nothing has to be fetched to pass over it.
        let left = match self.file.stat() {
            Ok(stat) => stat.size.saturating_sub(self.position),
            Err(error) => {
                self.state = Reading::Closed;
                return Err(stream_error(error));
            }
        };
        if left == 0 && count > 0 {
            self.state = Reading::Closed;
            return Err(StreamError::Closed);
        }
        self.state = Reading::Idle;
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(count);
        self.position += skipped as u64;
        Ok(skipped)
    }

    async fn blocking_skip(&mut self, count: usize) -> StreamResult<usize> {
        self.skip(count)
    }
}

#[async_trait::async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {
        if matches!(self.state, Reading::Idle)
            && let Some(result) = self.begin(READ_AHEAD)
        {
            self.state = Reading::Ready(result);
        }
        self.settle().await;
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("file", &self.file).field("position", &self.position).finish_non_exhaustive()
    }
}

/// Writes a file, from an offset on or always at its end. Writes take effect in the call: there is nothing to flush or to wait for.
#[derive(Debug)]
pub(super) struct Output {
    file: Handle,
    place: Place,
    closed: bool,
    _seat: Seat,
}

/// Where a stream writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    At(u64),
    End,
}

impl Output {
    pub(super) fn new(file: Handle, place: Place, seat: Seat) -> Self {
        Self { file, place, closed: false, _seat: seat }
    }

    fn put(&mut self, data: &[u8]) -> FsResult<()> {
        match &mut self.place {
            Place::At(position) => {
                self.file.write_at(*position, data)?;
                *position = position.saturating_add(data.len() as u64);
            }
            Place::End => {
                self.file.append(data)?;
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if self.closed {
            return Err(StreamError::Closed);
        }
        if bytes.len() > WRITE_PERMIT {
            return Err(StreamError::trap("the guest wrote more than check-write allowed"));
        }
        self.put(&bytes).map_err(|error| {
            self.closed = true;
            stream_error(error)
        })
    }

    fn flush(&mut self) -> StreamResult<()> {
        if self.closed { Err(StreamError::Closed) } else { Ok(()) }
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.closed { Err(StreamError::Closed) } else { Ok(WRITE_PERMIT) }
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.write(bytes)
    }
}

#[async_trait::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}
