//! The smart HTTP protocol's requests (gitprotocol-http(5)) as gix asks for them: one origin, no redirects, no proxies, no cookies,
//! a deadline, a byte limit, and a typed record of what went wrong that holds nothing the server said.

use std::any::Any;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gix::protocol::transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use reqwest::blocking::{Client, Response};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::{Origin, Url};

use super::remote::{AddressRule, RemoteOptions};
use crate::clock::SharedClock;
use crate::error::{Error, Result};

/// Longest request body. Ours name one commit, so this is never met.
const REQUEST_MAX: usize = 1 << 20;

/// What went wrong in an exchange, without a byte of what the server said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// 401, 403, 404 or 410: a server that hides a private repository answers with any of these.
    Refused,
    /// A redirect, which is never followed.
    Redirect,
    /// Another status.
    Status(u16),
    /// The answer isn't of the git protocol.
    NotGit,
    /// No connection: name, address or port.
    Unreachable,
    /// The address is one that no repository may have.
    Address,
    /// The connection ended or broke.
    Broken,
    /// No byte for the longest gap, or the whole took too long.
    Timeout,
    /// More bytes than the limit.
    TooLarge,
    /// The caller gave up.
    Cancelled,
    /// A fault of ours.
    Internal,
}

/// What the requests of one exchange share: limits, count, and the first failure.
#[derive(Debug)]
pub(super) struct Exchange {
    clock: SharedClock,
    /// On the boot clock.
    deadline: Duration,
    /// The caller's interrupt: set by it, or by a limit of ours.
    pub(super) interrupt: Arc<AtomicBool>,
    /// Response bytes so far.
    pub(super) received: AtomicU64,
    limit: AtomicU64,
    failure: Mutex<Option<Failure>>,
}

impl Exchange {
    pub(super) fn new(clock: SharedClock, total: Duration, limit: u64, interrupt: Arc<AtomicBool>) -> Arc<Self> {
        let deadline = clock.boot().saturating_add(total);
        Arc::new(Self { clock, deadline, interrupt, received: AtomicU64::new(0), limit: AtomicU64::new(limit), failure: Mutex::new(None) })
    }

    /// Allows so many more response bytes from here on.
    pub(super) fn allow(&self, more: u64) {
        self.limit.store(self.received.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
    }

    /// Remembers a failure unless an earlier one explains it.
    pub(super) fn fail(&self, failure: Failure) -> io::Error {
        let mut first = lock(&self.failure);
        let first = *first.get_or_insert(failure);
        io::Error::other(format!("{first:?}"))
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        *lock(&self.failure)
    }

    /// Checks what may end an exchange at any time.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.clock.boot() >= self.deadline {
            return Err(self.fail(Failure::Timeout));
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(self.fail(Failure::Cancelled));
        }
        Ok(())
    }

    fn count(&self, bytes: usize) -> io::Result<()> {
        let before = self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.limit.load(Ordering::Relaxed) {
            return Err(self.fail(Failure::TooLarge));
        }
        Ok(())
    }

    fn classify(&self, error: &reqwest::Error) -> io::Error {
        self.fail(if error.is_timeout() {
            Failure::Timeout
        } else if refused_address(error) {
            Failure::Address
        } else if error.is_connect() {
            Failure::Unreachable
        } else if error.is_builder() {
            Failure::Internal
        } else {
            Failure::Broken
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Said by the resolver when every answer, or one of them, is refused.
#[derive(Debug)]
struct RefusedAddress;

impl std::fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused address")
    }
}

impl std::error::Error for RefusedAddress {}

fn refused_address(error: &reqwest::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<RefusedAddress>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Resolves a name and judges every answer: one bad answer refuses the name.
struct Judge(AddressRule);

impl reqwest::dns::Resolve for Judge {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let rule = Arc::clone(&self.0);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if addresses.iter().any(|address| !rule(address.ip())) {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(RefusedAddress));
            }
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

/// Makes the client that all exchanges of a set of options share.
pub(super) fn client(options: &RemoteOptions) -> Result<Client> {
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .timeout(options.gap_timeout)
        .dns_resolver(Arc::new(Judge(Arc::clone(&options.addresses))));
    if let Some(pem) = &options.ca_pem {
        let certificates = reqwest::Certificate::from_pem_bundle(pem)
            .ok()
            .filter(|certificates| !certificates.is_empty())
            .ok_or_else(|| Error::config("the CA file for repositories holds no PEM certificate"))?;
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().map_err(|error| Error::config("the HTTP client for repositories can't be set up").source(error))
}

/// One repository's end of the protocol.
pub(super) struct Wire {
    client: Client,
    origin: Origin,
    authorization: Option<HeaderValue>,
    exchange: Arc<Exchange>,
}

impl Wire {
    pub(super) fn new(client: Client, url: &Url, authorization: Option<HeaderValue>, exchange: Arc<Exchange>) -> Self {
        Self { client, origin: url.origin(), authorization, exchange }
    }

    fn request(&self, url: &str, headers: impl IntoIterator<Item = impl AsRef<str>>) -> io::Result<(Url, HeaderMap)> {
        let url = Url::parse(url).map_err(|_| self.exchange.fail(Failure::Internal))?;
        // The credential goes to the configured origin and nowhere else, whatever a later change makes of redirects.
        if url.origin() != self.origin {
            return Err(self.exchange.fail(Failure::Internal));
        }
        let mut map = HeaderMap::new();
        for line in headers {
            let Some((name, value)) = line.as_ref().split_once(':') else { continue };
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim())) {
                map.append(name, value);
            }
        }
        map.insert(reqwest::header::USER_AGENT, HeaderValue::from_static(concat!("git/landfall-", env!("CARGO_PKG_VERSION"))));
        map.remove(AUTHORIZATION);
        if let Some(value) = &self.authorization {
            map.insert(AUTHORIZATION, value.clone());
        }
        Ok((url, map))
    }
}

fn send(exchange: &Exchange, request: reqwest::blocking::RequestBuilder, kind: &str) -> io::Result<Response> {
    exchange.check()?;
    let response = request.send().map_err(|error| exchange.classify(&error.without_url()))?;
    let failure = match response.status().as_u16() {
        200 => {
            let expected = format!("application/x-git-upload-pack-{kind}");
            if response.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(expected.as_bytes())) {
                return Ok(response);
            }
            Failure::NotGit
        }
        401 | 403 | 404 | 410 => Failure::Refused,
        300..=399 => Failure::Redirect,
        other => Failure::Status(other),
    };
    Err(exchange.fail(failure))
}

fn headers_of(kind: &str) -> Cursor<Vec<u8>> {
    Cursor::new(format!("content-type: application/x-git-upload-pack-{kind}\n").into_bytes())
}

impl Http for Wire {
    type Headers = BufReader<Box<dyn Read>>;
    type ResponseBody = BufReader<Box<dyn Read>>;
    type PostBody = RequestBody;

    fn get(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Self::Headers, Self::ResponseBody>> {
        let (url, headers) = self.request(url, headers).map_err(gix::Error::from_error)?;
        let response = send(&self.exchange, self.client.get(url).headers(headers), "advertisement").map_err(gix::Error::from_error)?;
        Ok(GetResponse {
            headers: BufReader::new(Box::new(headers_of("advertisement"))),
            body: BufReader::with_capacity(64 << 10, Box::new(ResponseBody { response, exchange: Arc::clone(&self.exchange) })),
        })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _kind: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>> {
        let (url, headers) = self.request(url, headers).map_err(gix::Error::from_error)?;
        let pending = Arc::new(Mutex::new(Pending {
            body: Vec::new(),
            request: Some(self.client.post(url).headers(headers)),
            response: None,
            exchange: Arc::clone(&self.exchange),
        }));
        Ok(PostResponse {
            post_body: RequestBody(Arc::clone(&pending)),
            headers: BufReader::new(Box::new(LateHeaders { pending: Arc::clone(&pending), line: None })),
            body: BufReader::with_capacity(64 << 10, Box::new(LateBody(pending))),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }
}

/// A POST whose body is being written: sent when its answer is first read.
struct Pending {
    body: Vec<u8>,
    request: Option<reqwest::blocking::RequestBuilder>,
    response: Option<ResponseBody>,
    exchange: Arc<Exchange>,
}

impl Pending {
    fn response(&mut self) -> io::Result<&mut ResponseBody> {
        if let Some(request) = self.request.take() {
            let response = send(&self.exchange, request.body(std::mem::take(&mut self.body)), "result")?;
            self.response = Some(ResponseBody { response, exchange: Arc::clone(&self.exchange) });
        }
        let exchange = &self.exchange;
        self.response.as_mut().ok_or_else(|| exchange.fail(Failure::Broken))
    }
}

/// Where gix writes a request's body.
pub(super) struct RequestBody(Arc<Mutex<Pending>>);

impl Write for RequestBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pending = lock(&self.0);
        if pending.body.len() + bytes.len() > REQUEST_MAX || pending.request.is_none() {
            return Err(pending.exchange.fail(Failure::Internal));
        }
        pending.body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct LateHeaders {
    pending: Arc<Mutex<Pending>>,
    line: Option<Cursor<Vec<u8>>>,
}

impl Read for LateHeaders {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.is_none() {
            lock(&self.pending).response()?;
        }
        self.line.get_or_insert_with(|| headers_of("result")).read(buffer)
    }
}

struct LateBody(Arc<Mutex<Pending>>);

impl Read for LateBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        lock(&self.0).response()?.read(buffer)
    }
}

struct ResponseBody {
    response: Response,
    exchange: Arc<Exchange>,
}

impl Read for ResponseBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.exchange.check()?;
        let count = self.response.read(buffer).map_err(|error| {
            let timeout = error.kind() == io::ErrorKind::TimedOut
                || error.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>()).is_some_and(reqwest::Error::is_timeout);
            self.exchange.fail(if timeout { Failure::Timeout } else { Failure::Broken })
        })?;
        self.exchange.count(count)?;
        Ok(count)
    }
}
