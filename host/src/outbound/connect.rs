//! A connection to one of the judged addresses, and to nothing else: no name is looked up here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::failure::Failure;
use super::limits::{RESPONSE_HEAD_BYTES, RESPONSE_HEADERS_MAX, SETUP};
use super::tls::Tls;
use crate::clock::SharedClock;
use crate::policy::url::{Host, Origin, Scheme};

/// The body of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, Failure>;

/// How long an address is tried before the next one is tried beside it (RFC 8305 5).
const STAGGER: Duration = Duration::from_millis(250);
/// Bytes that a server may send ahead on one stream and on one connection of HTTP/2.
const H2_WINDOW: u32 = 1 << 20;

/// A connection that can carry a request.
pub(super) enum Connection {
    H1(http1::SendRequest<RequestBody>),
    H2(http2::SendRequest<RequestBody>),
}

impl Connection {
    /// Whether another request can be sent now.
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::H1(sender) => sender.is_ready(),
            Self::H2(sender) => sender.is_ready() && !sender.is_closed(),
        }
    }

    pub(super) fn is_h2(&self) -> bool {
        matches!(self, Self::H2(_))
    }

    /// Sends a request. One of which nothing went over the wire comes back with the error, to be sent over another connection.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Box<Request<RequestBody>>>)> {
        let sent = match self {
            Self::H1(sender) => sender.try_send_request(request).await,
            Self::H2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let request = error.take_message().map(Box::new);
            (error.into_error(), request)
        })
    }
}

/// Runs a future until a limit.
pub(super) async fn within<T>(
    clock: &SharedClock,
    what: &'static str,
    limit: Duration,
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = future => done,
        () = clock.sleep(limit) => Err(Failure::TimedOut { what, limit }),
    }
}

/// Connects to one of these addresses, makes the handshakes, and says which address it was.
pub(super) async fn connect(
    clock: &SharedClock,
    tls: &Tls,
    origin: &Origin,
    addresses: &[IpAddr],
    limit: Duration,
) -> Result<(Connection, IpAddr), Failure> {
    let (stream, address) = within(clock, "connect", limit, open(clock, origin, addresses)).await?;
    let connection = within(clock, "tls", SETUP, async {
        match origin.scheme {
            Scheme::Http => h1(stream, &origin.host).await,
            Scheme::Https => {
                let stream = tls.handshake(&origin.host, stream).await?;
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => h2(stream, &origin.host).await,
                    _ => h1(stream, &origin.host).await,
                }
            }
        }
    })
    .await?;
    Ok((connection, address))
}

/// Tries the addresses in their order, each a little after the one before.
async fn open(clock: &SharedClock, origin: &Origin, addresses: &[IpAddr]) -> Result<(TcpStream, IpAddr), Failure> {
    let mut tries: FuturesUnordered<_> = addresses
        .iter()
        .enumerate()
        .map(|(turn, address)| async move {
            if let Ok(turn) = u32::try_from(turn)
                && turn > 0
            {
                clock.sleep(STAGGER * turn).await;
            }
            let wanted = SocketAddr::new(*address, origin.port);
            let stream = TcpStream::connect(wanted).await?;
            // The address was judged; the connection has to be to that one and no other.
            if stream.peer_addr()? != wanted {
                return Err(std::io::Error::other("the connection leads to another address"));
            }
            stream.set_nodelay(true)?;
            Ok((stream, *address))
        })
        .collect();
    while let Some(tried) = tries.next().await {
        match tried {
            Ok(opened) => return Ok(opened),
            Err(error) => tracing::debug!(%origin, %error, "an address can't be connected to"),
        }
    }
    Err(Failure::Unreachable(format!("{origin} can't be connected to")))
}

async fn h1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, host: &Host) -> Result<Connection, Failure> {
    let handshake =
        http1::Builder::new().max_headers(RESPONSE_HEADERS_MAX).max_header_size(RESPONSE_HEAD_BYTES).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|_| Failure::Protocol(format!("{host} doesn't speak HTTP")))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
    Ok(Connection::H1(sender))
}

async fn h2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, host: &Host) -> Result<Connection, Failure> {
    let handshake = http2::Builder::new(TokioExecutor::new())
        .max_header_list_size(u32::try_from(RESPONSE_HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(H2_WINDOW)
        .initial_connection_window_size(H2_WINDOW)
        .handshake(TokioIo::new(stream))
        .await;
    let (sender, connection) = handshake.map_err(|_| Failure::Protocol(format!("{host} doesn't speak HTTP/2")))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    });
    Ok(Connection::H2(sender))
}
