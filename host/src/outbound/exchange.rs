//! One request and its response: budget, gate, credential, connection, head. The order is the gate's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::Door;
use super::audit::{Sent, UnderWay};
use super::budget::Counters;
pub use super::connect::RequestBody;
use super::connect::{self, Connection, within};
use super::decode::{self, Raw};
use super::failure::Failure;
use super::inbound::{Inbound, Source, leak_of};
use super::limits::{DoorLimits, RESPONSE_HEAD_BYTES, RESPONSE_HEADERS_MAX, SETUP};
use super::pool::Key;
use crate::policy::credentials::Chain;
use crate::policy::egress::{Admitted, Ask};
use crate::policy::refused::{Refused, Step};
use crate::policy::url::{Scheme, Target};

/// A request that wants to leave.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The door: `fetch` or `http`.
    pub capability: &'static str,
    /// The URL, or what a `Location` header held.
    pub url: &'a str,
    /// The method.
    pub method: Method,
    /// The guest's headers, as it gave them.
    pub headers: &'a [(String, Vec<u8>)],
    /// The body's length, where the guest has said it (`wasi:http`) and the body keeps to it.
    pub length: Option<u64>,
    /// The page that redirects, and the chain so far; none for a first request.
    pub from: Option<(&'a Target, &'a Chain)>,
    /// Whether the response's content coding is undone in any case. Where a credential was added it always is.
    pub decode: bool,
    /// The door's limits.
    pub limits: DoorLimits,
    /// When all has to be over, on the clock since boot.
    pub deadline: Duration,
}

/// A response, up to its body.
#[derive(Debug)]
pub struct Received {
    /// What was asked for.
    pub target: Target,
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Inbound,
}

/// A body of known bytes.
#[must_use]
pub fn known_body(bytes: Bytes) -> RequestBody {
    http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

impl Door {
    /// Sends a request and returns the head of its response. Follows no redirect.
    ///
    /// # Errors
    /// Why there is none. A refusal was noted in the run.
    pub async fn send(&self, outgoing: Outgoing<'_>, body: RequestBody) -> Result<Received, Failure> {
        let shown = shown(&outgoing);
        let capability = outgoing.capability;
        let sent = self.send_noted(outgoing, body).await;
        if let Err(Failure::Refused(refused)) = &sent {
            self.audit.denied(capability, &shown, refused);
        }
        sent
    }

    async fn send_noted(&self, outgoing: Outgoing<'_>, body: RequestBody) -> Result<Received, Failure> {
        let (limits, deadline, clock) = (outgoing.limits.clone(), outgoing.deadline, self.clock());
        let left = deadline.saturating_sub(clock.boot());
        let over = || Failure::TimedOut { what: "total", limit: limits.total };
        tokio::select! {
            biased;
            done = self.exchange(outgoing, body) => done,
            () = clock.sleep(left) => Err(over()),
        }
    }

    async fn exchange(&self, outgoing: Outgoing<'_>, body: RequestBody) -> Result<Received, Failure> {
        let (agent, clock) = (&self.agent, self.clock());
        agent.budget.count()?;
        let own = agent.outbound.own().map_err(|error| Failure::Host(error.message().to_owned()))?;
        let admitted = {
            let headers: Vec<(&str, &[u8])> = outgoing.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
            let ask = Ask { url: outgoing.url, method: &outgoing.method, headers: &headers, from: outgoing.from };
            let resolver = &*agent.outbound.shared.resolver;
            within(clock, "resolve", SETUP, async { Ok(agent.egress.admit(&ask, resolver, &own).await?) }).await?
        };
        let mut head = self.head(&outgoing, &admitted)?;
        let credential = admitted.injection.rule.map(|rule| agent.egress.credentials[rule].name.clone());
        let decode = outgoing.decode || credential.is_some();
        if decode {
            head.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(decode::ACCEPTED));
        }
        let target = admitted.target;
        let origin = target.origin();
        let place = agent.budget.place(&origin.to_string()).await?;
        let mut under_way = UnderWay::new(
            self.audit.clone(),
            Arc::clone(clock),
            Sent {
                capability: outgoing.capability,
                method: outgoing.method.to_string(),
                origin: origin.to_string(),
                address: None,
                status: None,
                outcome: "ok",
                credential,
                sent: 0,
                received: 0,
                elapsed: Duration::ZERO,
            },
        );
        let counted = Counted { body, counters: Arc::clone(&self.counters), bytes: under_way.sent_bytes() };
        let counted = counted.boxed_unsync();
        let sent = self.over_wire(&target, &admitted.addresses, &outgoing, head, counted, &mut under_way).await;
        let (response, connection, key) = match sent {
            Ok(sent) => sent,
            Err(failure) => {
                under_way.fail(&failure);
                return Err(failure);
            }
        };
        under_way.sent.status = Some(response.status().as_u16());
        let received = self.receive(target, response, decode, &outgoing, &under_way);
        let (target, status, headers, source) = match received {
            Ok(received) => received,
            Err(failure) => {
                under_way.fail(&failure);
                return Err(failure);
            }
        };
        let body = Inbound {
            source,
            scanner: agent.outbound.shared.mask.scanner(),
            clock: Arc::clone(clock),
            limits: outgoing.limits,
            deadline: outgoing.deadline,
            under_way,
            connection: Some((agent.outbound.clone(), key, connection)),
            _place: place,
            ended: false,
        };
        Ok(Received { target, status, headers, body })
    }

    /// Makes the headers that go over the wire: the guest's, without those that stay at the origin, and the credential.
    fn head(&self, outgoing: &Outgoing<'_>, admitted: &Admitted) -> Result<HeaderMap, Failure> {
        let stays = outgoing.from.is_none_or(|(_, chain)| chain.stays(&admitted.target));
        let mut head = HeaderMap::new();
        for (name, value) in outgoing.headers {
            if !stays && !crate::policy::headers::crosses_origins(name) {
                continue;
            }
            let malformed = || Refused::new(Step::Headers, "header_syntax", format!("the header {name:?} can't be sent"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
            head.append(name, HeaderValue::from_bytes(value).map_err(|_| malformed())?);
        }
        if let Some(rule) = admitted.injection.rule {
            let rule = &self.agent.egress.credentials[rule];
            let missing = || {
                let why = format!("the credential {} has no value on this machine", rule.name);
                Refused::new(Step::Credential, "credential_missing", why)
            };
            let secret = self.agent.secrets.get(&rule.name).ok_or_else(missing)?;
            let text = match &rule.place.scheme {
                Some(scheme) => zeroize::Zeroizing::new(format!("{scheme} {}", secret.expose())),
                None => zeroize::Zeroizing::new(secret.expose().to_owned()),
            };
            let mut value = HeaderValue::from_str(&text).map_err(|_| missing())?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(rule.place.header.as_bytes()).map_err(|_| missing())?;
            head.insert(name, value);
        }
        if let Some(length) = outgoing.length {
            head.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(head)
    }

    async fn over_wire(
        &self,
        target: &Target,
        addresses: &[std::net::IpAddr],
        outgoing: &Outgoing<'_>,
        head: HeaderMap,
        body: RequestBody,
        under_way: &mut UnderWay,
    ) -> Result<(Response<Incoming>, Connection, Key), Failure> {
        let (agent, clock, origin) = (&self.agent, self.clock(), target.origin());
        let pool = &agent.outbound.shared.pool;
        let (mut head, mut body) = (head, body);
        let mut waiting = pool.take(&agent.egress.agent, origin, addresses);
        loop {
            let was_waiting = waiting.is_some();
            let (mut connection, address) = match waiting.take() {
                Some(waiting) => waiting,
                None => connect::connect(clock, &agent.tls, origin, addresses, outgoing.limits.connect).await?,
            };
            under_way.sent.address = Some(address);
            let key = Key { agent: agent.egress.agent.clone(), origin: origin.clone(), address };
            if let Connection::H2(sender) = &connection {
                pool.put(key.clone(), Connection::H2(sender.clone()));
            }
            let request = request(target, &outgoing.method, head, body, connection.is_h2())?;
            let sent = within(clock, "first-byte", outgoing.limits.first_byte, async { Ok(connection.send(request).await) }).await?;
            match sent {
                Ok(response) => return Ok((response, connection, key)),
                // The other side closed a waiting connection before the request got out: nothing was asked of it yet.
                Err((_, Some(unsent))) if was_waiting => {
                    let (parts, unsent) = unsent.into_parts();
                    (head, body) = (parts.headers, unsent);
                }
                Err((error, _)) => return Err(explain(target, &error)),
            }
        }
    }

    /// Looks at a response's head.
    fn receive(
        &self,
        target: Target,
        response: Response<Incoming>,
        decode: bool,
        outgoing: &Outgoing<'_>,
        under_way: &UnderWay,
    ) -> Result<(Target, StatusCode, HeaderMap, Source), Failure> {
        let (parts, body) = response.into_parts();
        let (status, mut headers) = (parts.status, parts.headers);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Protocol(format!("{} wants to speak another protocol", target.origin())));
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if headers.len() > RESPONSE_HEADERS_MAX || bytes > RESPONSE_HEAD_BYTES {
            return Err(Failure::TooMuch { name: "response-headers", allowed: RESPONSE_HEAD_BYTES as u64 });
        }
        let mask = &self.agent.outbound.shared.mask;
        for (name, value) in &headers {
            let mut scanner = mask.scanner();
            for text in [name.as_str().as_bytes(), value.as_bytes()] {
                scanner.push(Bytes::copy_from_slice(text)).map_err(|leak| leak_of(leak, "header"))?;
                let _ = scanner.finish();
            }
        }
        let raw = {
            let (counters, received) = (Arc::clone(&self.counters), under_way.received_bytes());
            Raw::new(
                body,
                Box::new(move |bytes| {
                    received.fetch_add(bytes as u64, Ordering::Relaxed);
                    counters.add_received(bytes)
                }),
            )
        };
        let empty =
            raw.is_empty() || outgoing.method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let coding = if decode && !empty { decode::coding(&headers)? } else { None };
        let source = match coding {
            None => Source::Plain(raw),
            Some(coding) => {
                // What is handed over is neither encoded nor of that length any more.
                headers.remove(header::CONTENT_ENCODING);
                headers.remove(header::CONTENT_LENGTH);
                Source::Decoded(decode::decoder(coding, raw))
            }
        };
        Ok((target, status, headers, source))
    }
}

/// A request's body that counts what goes out, and breaks off above the run's limit.
struct Counted {
    body: RequestBody,
    counters: Arc<Counters>,
    bytes: Arc<AtomicU64>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            if let Err(failure) = self.counters.add_sent(data.len()) {
                return Poll::Ready(Some(Err(failure)));
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What denials and logs call a request before it was parsed: never with what could be a secret of the guest's own.
fn shown(outgoing: &Outgoing<'_>) -> String {
    let parsed = match outgoing.from {
        None => Target::parse(outgoing.url),
        Some((page, _)) => page.join(outgoing.url),
    };
    match parsed {
        Ok(target) => format!("{}{}", target.origin(), target.path()),
        Err(_) => outgoing.url.chars().take(200).collect(),
    }
}

fn request(target: &Target, method: &Method, head: HeaderMap, body: RequestBody, h2: bool) -> Result<Request<RequestBody>, Failure> {
    let malformed = |_| Failure::from(Refused::new(Step::Url, "bad_url", "the URL can't be written into a request"));
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.headers_mut() = head;
    if h2 {
        let origin = target.origin();
        let scheme = if origin.scheme == Scheme::Https { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(target.authority()).path_and_query(target.path_and_query()).build();
        *request.uri_mut() = uri.map_err(malformed)?;
        *request.version_mut() = Version::HTTP_2;
    } else {
        *request.uri_mut() = Uri::builder().path_and_query(target.path_and_query()).build().map_err(malformed)?;
        let host = HeaderValue::from_str(&target.authority())
            .map_err(|_| Failure::from(Refused::new(Step::Host, "host_syntax", "the host can't be written into a request")))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

fn explain(target: &Target, error: &hyper::Error) -> Failure {
    tracing::debug!(origin = %target.origin(), error = ?error, "an exchange failed");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(failure) = inner.downcast_ref::<Failure>() {
            return failure.clone();
        }
        cause = inner.source();
    }
    let origin = target.origin();
    if error.is_parse_too_large() {
        return Failure::TooMuch { name: "response-headers", allowed: RESPONSE_HEAD_BYTES as u64 };
    }
    if error.is_parse() || error.is_parse_status() {
        return Failure::Protocol(format!("{origin} doesn't speak HTTP as it should"));
    }
    Failure::Unreachable(format!("the connection to {origin} was lost before the response"))
}
