//! A response's body as it streams: timed, counted, decoded, and looked through for secrets before anything of it is handed over.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;

use super::audit::UnderWay;
use super::budget::Place;
use super::connect::Connection;
use super::decode::{self, Decoder, Raw};
use super::failure::Failure;
use super::pool::Key;
use super::{Outbound, limits::DoorLimits};
use crate::clock::SharedClock;
use crate::policy::refused::{Refused, Step};
use crate::secret::Scanner;

/// How long a connection may take to come to rest after the last byte of a body.
const SETTLE: Duration = Duration::from_millis(50);
/// Bytes that are decoded at once.
const PIECE: usize = 32 << 10;

pub(super) enum Source {
    Plain(Raw),
    Decoded(Decoder),
}

/// A response's body. Dropping it closes the connection, unless the body was read to its end.
pub struct Inbound {
    pub(super) source: Source,
    pub(super) scanner: Scanner,
    pub(super) clock: SharedClock,
    pub(super) limits: DoorLimits,
    pub(super) deadline: Duration,
    pub(super) under_way: UnderWay,
    pub(super) connection: Option<(Outbound, Key, Connection)>,
    pub(super) _place: Place,
    pub(super) ended: bool,
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("under_way", &self.under_way).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Inbound {
    /// Returns the next piece; none at the end. After an error there is nothing more.
    ///
    /// # Errors
    /// A limit, a broken connection or coding, or a secret in the body.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        while !self.ended {
            let read = self.read().await;
            let passed = match read {
                Ok(Some(piece)) => self.scanner.push(piece).map_err(|leak| leak_of(leak, "body")),
                Ok(None) => {
                    self.ended = true;
                    self.give_back().await;
                    Ok(self.scanner.finish())
                }
                Err(failure) => Err(failure),
            };
            match passed {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Ok(Some(piece)),
                Err(failure) => {
                    self.ended = true;
                    self.connection = None;
                    if let Failure::Refused(refused) = &failure {
                        self.under_way.denied(refused);
                    }
                    self.under_way.fail(&failure);
                    return Err(failure);
                }
            }
        }
        Ok(None)
    }

    /// Returns the address that the response comes from.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.under_way.sent.address
    }

    async fn read(&mut self) -> Result<Option<Bytes>, Failure> {
        let left = self.deadline.saturating_sub(self.clock.boot());
        let (what, limit) = if left < self.limits.gap { ("total", self.limits.total) } else { ("gap", self.limits.gap) };
        let source = &mut self.source;
        let read = async {
            match source {
                Source::Plain(raw) => std::future::poll_fn(|cx| raw.poll_piece(cx)).await,
                Source::Decoded(decoder) => {
                    let mut buffer = BytesMut::with_capacity(PIECE);
                    let read = decoder.read_buf(&mut buffer).await.map_err(decode::failure)?;
                    Ok((read > 0).then(|| buffer.freeze()))
                }
            }
        };
        tokio::select! {
            biased;
            read = read => read,
            () = self.clock.sleep(left.min(self.limits.gap)) => Err(Failure::TimedOut { what, limit }),
        }
    }

    /// Lets the connection wait for the next request.
    async fn give_back(&mut self) {
        let Some((outbound, key, connection)) = self.connection.take() else { return };
        match connection {
            Connection::H1(mut sender) => {
                // It is usable once the connection has noticed the end of the body too, which is soon, or never.
                let ready = tokio::select! {
                    biased;
                    ready = sender.ready() => ready.is_ok(),
                    () = self.clock.sleep(SETTLE) => false,
                };
                if ready {
                    outbound.shared.pool.put(key, Connection::H1(sender));
                }
            }
            // It was never taken out.
            Connection::H2(_) => {}
        }
    }
}

/// The refusal of a response that holds a secret.
pub(super) fn leak_of(_: crate::secret::Leak, place: &str) -> Failure {
    Refused::new(Step::Response, "leak", format!("the response's {place} holds a credential, so it isn't handed over")).into()
}
