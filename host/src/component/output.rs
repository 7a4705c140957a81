//! What a guest writes to stdout and stderr: lines of the run's log, and for a command its output.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

use super::failure::{GuestFailure, Stop};
use crate::capability::progress::{EventSink, GuestEvent, LogStream};

/// Longest line of the log, in bytes. A longer one comes in pieces.
const LINE: usize = 16 << 10;
/// How much of the end of stderr a failure shows, in bytes.
const TAIL: usize = 4 << 10;
/// How much a guest may write in one call of the stream, in bytes.
const WRITE: usize = 1 << 20;

/// The log of a run: both streams share its limit.
#[derive(Debug)]
pub(super) struct Log {
    inner: Mutex<Inner>,
    events: Arc<dyn EventSink>,
    limit: u64,
}

#[derive(Debug, Default)]
struct Inner {
    used: u64,
    truncated: bool,
    stdout: BytesMut,
    stderr: BytesMut,
    tail: Vec<u8>,
}

impl Log {
    pub(super) fn new(events: Arc<dyn EventSink>, limit: u64) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), events, limit })
    }

    fn write(&self, stream: LogStream, bytes: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        if stream == LogStream::Stderr {
            // The end is kept even where the log is full: it tells why the guest failed.
            keep_tail(&mut inner.tail, bytes);
        }
        if inner.truncated {
            return;
        }
        let room = usize::try_from(self.limit.saturating_sub(inner.used)).unwrap_or(usize::MAX);
        let kept = bytes.get(..room).unwrap_or(bytes);
        inner.used = inner.used.saturating_add(kept.len() as u64);
        let pending = match stream {
            LogStream::Stdout => &mut inner.stdout,
            LogStream::Stderr => &mut inner.stderr,
        };
        pending.extend_from_slice(kept);
        while let Some(line) = next_line(pending) {
            self.emit(stream, &line);
        }
        if kept.len() < bytes.len() {
            inner.truncated = true;
            self.flush(inner);
            self.events.emit(GuestEvent::LogTruncated { limit: self.limit });
        }
    }

    fn emit(&self, stream: LogStream, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.events.emit(GuestEvent::Log { stream, line: String::from_utf8_lossy(line).into_owned() });
    }

    /// Emits lines that have no end.
    fn flush(&self, inner: &mut Inner) {
        for (stream, pending) in [(LogStream::Stdout, &mut inner.stdout), (LogStream::Stderr, &mut inner.stderr)] {
            if !pending.is_empty() {
                self.emit(stream, &pending.split());
            }
        }
    }

    /// Ends the log. Returns its bytes, whether something was dropped, and the end of stderr.
    pub(super) fn finish(&self) -> (u64, bool, String) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush(&mut inner);
        (inner.used, inner.truncated, String::from_utf8_lossy(&inner.tail).into_owned())
    }
}

/// Takes a line, without its end, from what was written so far.
fn next_line(pending: &mut BytesMut) -> Option<BytesMut> {
    match pending.iter().take(LINE + 1).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = pending.split_to(end);
            // The line feed itself.
            drop(pending.split_to(1));
            Some(line)
        }
        None if pending.len() > LINE => Some(pending.split_to(whole_characters(pending, LINE))),
        None => None,
    }
}

/// Returns the largest length up to `most` at which no UTF-8 character is cut; `most` where it isn't UTF-8.
fn whole_characters(bytes: &[u8], most: usize) -> usize {
    (most.saturating_sub(3)..=most).rev().find(|at| bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80)).unwrap_or(most)
}

fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    tail.extend_from_slice(bytes.get(bytes.len().saturating_sub(TAIL)..).unwrap_or(bytes));
    let over = tail.len().saturating_sub(TAIL);
    tail.drain(..over);
}

/// The output of a command: all that it wrote to stdout.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Mutex<BytesMut>,
    limit: u64,
}

impl Output {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::default(), limit })
    }

    pub(super) fn take(&self) -> Bytes {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).split().freeze()
    }

    fn write(&self, more: &[u8]) -> Result<(), GuestFailure> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let total = (bytes.len() + more.len()) as u64;
        if total > self.limit {
            return Err(GuestFailure::OutputTooLarge { limit: self.limit, size: total });
        }
        bytes.extend_from_slice(more);
        Ok(())
    }
}

/// Where a stream's bytes go.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Log(LogStream, Arc<Log>),
    Output(Arc<Output>),
}

impl IsTerminal for Target {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Target {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only preview 3 asks for this one, and it isn't linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl OutputStream for Target {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        match self {
            Self::Log(stream, log) => log.write(*stream, &bytes),
            Self::Output(output) => output.write(&bytes).map_err(|failure| StreamError::Trap(wasmtime::Error::new(Stop(failure))))?,
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(WRITE)
    }
}

#[async_trait::async_trait]
impl Pollable for Target {
    async fn ready(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::progress::CollectedEvents;

    fn log(limit: u64) -> (Arc<CollectedEvents>, Arc<Log>) {
        let events = Arc::new(CollectedEvents::default());
        let sink: Arc<dyn EventSink> = Arc::<CollectedEvents>::clone(&events);
        let log = Log::new(sink, limit);
        (events, log)
    }

    fn lines(events: &CollectedEvents) -> Vec<(LogStream, String)> {
        let only_lines = |event| match event {
            GuestEvent::Log { stream, line } => Some((stream, line)),
            _ => None,
        };
        events.take().into_iter().filter_map(only_lines).collect()
    }

    #[test]
    fn lines_come_whole_however_they_are_written() {
        let (events, log) = log(1000);
        log.write(LogStream::Stdout, b"one\ntw");
        log.write(LogStream::Stderr, b"oops\r\n");
        log.write(LogStream::Stdout, b"o\n\nend");
        log.finish();
        let expected = [
            (LogStream::Stdout, "one"),
            (LogStream::Stderr, "oops"),
            (LogStream::Stdout, "two"),
            (LogStream::Stdout, ""),
            (LogStream::Stdout, "end"),
        ];
        assert_eq!(lines(&events), expected.map(|(stream, line)| (stream, line.to_owned())));
    }

    #[test]
    fn a_full_log_says_so_once_and_goes_on_with_the_end_of_stderr() {
        let (events, log) = log(10);
        for _ in 0..5 {
            log.write(LogStream::Stderr, b"12345678\n");
        }
        log.write(LogStream::Stderr, b"the reason");
        let (used, truncated, tail) = log.finish();
        assert_eq!((used, truncated), (10, true));
        assert!(tail.ends_with("the reason"));
        let events = events.take();
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(events.last(), Some(&GuestEvent::LogTruncated { limit: 10 }));
    }

    #[test]
    fn a_long_line_comes_in_pieces_that_cut_no_character() {
        let (events, log) = log(1 << 20);
        let text = format!("a{}", "ö".repeat(LINE));
        log.write(LogStream::Stdout, text.as_bytes());
        log.finish();
        let lines = lines(&events);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|(_, line)| line.len() <= LINE && !line.contains('\u{fffd}')));
        assert_eq!(lines.iter().map(|(_, line)| line.as_str()).collect::<String>(), text);
    }

    #[test]
    fn output_over_its_limit_is_refused_whole() {
        let output = Output::new(10);
        assert!(output.write(b"12345").is_ok());
        assert_eq!(output.write(b"123456"), Err(GuestFailure::OutputTooLarge { limit: 10, size: 11 }));
        assert_eq!(&output.take()[..], b"12345");
    }
}
