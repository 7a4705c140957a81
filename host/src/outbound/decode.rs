//! Content codings: one layer of those that were asked for (RFC 9110 8.4). What comes out is what limits count.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::failure::Failure;

/// What is asked for.
pub(super) const ACCEPTED: &str = "gzip, br, zstd";
/// Largest window of a zstd frame, as a power of two: 8 MiB, the most that RFC 9659 lets a server use.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A content coding that is undone here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

/// Returns the coding of a response; none when it has none.
pub(super) fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Failure> {
    let mut names = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != b"identity");
    let Some(first) = names.next() else { return Ok(None) };
    let coding = match first.as_slice() {
        b"gzip" | b"x-gzip" => Some(Coding::Gzip),
        b"br" => Some(Coding::Brotli),
        b"zstd" => Some(Coding::Zstd),
        _ => None,
    };
    match (coding, names.next()) {
        (Some(coding), None) => Ok(Some(coding)),
        _ => Err(Failure::Protocol("the response is encoded in a way that wasn't asked for".to_owned())),
    }
}

/// A decoder over a body.
pub(super) type Decoder = Pin<Box<dyn AsyncRead + Send>>;

pub(super) fn decoder(coding: Coding, body: Raw) -> Decoder {
    match coding {
        Coding::Gzip => {
            let mut decoder = GzipDecoder::new(body);
            // RFC 1952 2.2: a gzip file is a series of members.
            decoder.multiple_members(true);
            Box::pin(decoder)
        }
        Coding::Brotli => Box::pin(BrotliDecoder::new(body)),
        Coding::Zstd => Box::pin(ZstdDecoder::with_params(body, &[DParameter::window_log_max(ZSTD_WINDOW_LOG)])),
    }
}

/// Tells the failures of the body below from those of the coding.
pub(super) fn failure(error: io::Error) -> Failure {
    match error.downcast::<Failure>() {
        Ok(failure) => failure,
        Err(_) => Failure::Protocol("the response's content coding is damaged".to_owned()),
    }
}

/// Counts the bytes of a body as they come over the wire.
pub(super) type Count = Box<dyn FnMut(usize) -> Result<(), Failure> + Send>;

/// A body as it comes over the wire. Trailers are dropped.
pub(super) struct Raw {
    body: Incoming,
    count: Count,
    piece: Bytes,
}

impl Raw {
    pub(super) fn new(body: Incoming, count: Count) -> Self {
        Self { body, count, piece: Bytes::new() }
    }

    /// Whether it is known to have ended before it began.
    pub(super) fn is_empty(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Returns the next piece that isn't empty; none at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a response ended early");
                    return Poll::Ready(Err(Failure::Protocol("the response ended before its end".to_owned())));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            if let Ok(piece) = frame.into_data()
                && !piece.is_empty()
            {
                (self.count)(piece.len())?;
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }
}

impl AsyncBufRead for Raw {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.piece.is_empty() {
            match this.poll_piece(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(io::Error::other(failure))),
                Poll::Ready(Ok(piece)) => this.piece = piece.unwrap_or_default(),
            }
        }
        Poll::Ready(Ok(&this.piece))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        let this = self.get_mut();
        this.piece.advance(amount.min(this.piece.len()));
    }
}

impl AsyncRead for Raw {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let piece = match self.as_mut().poll_fill_buf(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(piece) => piece?,
        };
        let amount = piece.len().min(buffer.remaining());
        buffer.put_slice(&piece[..amount]);
        self.consume(amount);
        Poll::Ready(Ok(()))
    }
}
