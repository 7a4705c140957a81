//! `wasi:http/outgoing-handler`: ordinary HTTP clients of guests, through the same gate as `fetch`. Redirects are the client's own to
//! follow: each is a request that the gate sees.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Request, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use wasmtime_wasi_http::{Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use crate::outbound::Door;
use crate::outbound::exchange::Outgoing;
use crate::outbound::failure::Failure;
use crate::outbound::inbound::Inbound;
use crate::policy::headers;
use crate::policy::refused::Step;

/// The name of the door in denials and audits.
pub(crate) const NAME: &str = "http";
/// Most bytes of a denied upload that are taken from the guest before it gets the answer: it may only listen once it has written.
const DENIED_UPLOAD: usize = 64 << 20;

/// What `wasi:http` asks of its host.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) door: Option<Door>,
}

type Sent = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Hooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        // The length of a body is checked against the body, and is the one framing header that clients set by themselves.
        Arc::new(|name: &HeaderName| name != header::CONTENT_LENGTH && headers::is_reserved(name.as_str()))
    }

    fn set_host_header(&mut self) -> bool {
        false
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let door = self.door.clone();
        Box::new(async move {
            match door {
                Some(door) => send(&door, request, options.unwrap_or_default()).await,
                None => {
                    drain(request.into_body()).await;
                    Err(Error::HttpRequestDenied)
                }
            }
        })
    }
}

async fn send(door: &Door, request: Request<WasiBody>, options: RequestOptions) -> Sent {
    let (mut parts, body) = request.into_parts();
    let mut limits = door.limits().http.clone();
    let lower = |limit: std::time::Duration, asked: Option<std::time::Duration>| asked.map_or(limit, |asked| asked.min(limit));
    limits.connect = lower(limits.connect, options.connect_timeout);
    limits.first_byte = lower(limits.first_byte, options.first_byte_timeout);
    limits.gap = lower(limits.gap, options.between_bytes_timeout);
    let length = parts.headers.remove(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let headers: Vec<(String, Vec<u8>)> =
        parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    // The body stays here while the gate decides: it is needed for the answer to a denied upload.
    let (upload, kept) = Upload::new(body);
    let outgoing = Outgoing {
        capability: NAME,
        url: &parts.uri.to_string(),
        method: parts.method,
        headers: &headers,
        length,
        from: None,
        decode: false,
        deadline: door.now() + limits.total,
        limits,
    };
    match door.send(outgoing, upload.boxed_unsync()).await {
        Ok(received) => {
            let mut response = Response::new(stream(received.body));
            *response.status_mut() = received.status;
            *response.headers_mut() = received.headers;
            Ok((response, Box::new(std::future::ready(Ok(())))))
        }
        Err(failure) => {
            if let Some(body) = kept.take() {
                drain(body).await;
            }
            Err(error(failure))
        }
    }
}

/// Takes what a guest still writes, so that it comes to the answer instead of to a closed stream.
async fn drain(mut body: WasiBody) {
    let mut taken = 0;
    while let Some(Ok(frame)) = body.frame().await {
        taken += frame.data_ref().map_or(0, Bytes::len);
        if taken > DENIED_UPLOAD {
            return;
        }
    }
}

/// The guest's body, shared with who has to empty it when the request never leaves.
struct Upload(Kept);

#[derive(Clone)]
struct Kept(Arc<std::sync::Mutex<Option<WasiBody>>>);

impl Kept {
    fn take(&self) -> Option<WasiBody> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl Upload {
    fn new(body: WasiBody) -> (Self, Kept) {
        let kept = Kept(Arc::new(std::sync::Mutex::new(Some(body))));
        (Self(kept.clone()), kept)
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let mut body = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match body.as_mut() {
            // Given up: an end here would pass for the whole body.
            None => std::task::Poll::Ready(Some(Err(Failure::Protocol("the request was given up".to_owned())))),
            Some(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|_| Failure::Protocol("the guest broke off the request's body".to_owned())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let body = self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        body.as_ref().map_or_else(http_body::SizeHint::default, http_body::Body::size_hint)
    }
}

fn stream(body: Inbound) -> WasiBody {
    let pieces = futures::stream::unfold(body, |mut body| async move {
        let piece = body.piece().await.transpose()?;
        Some((piece.map(Frame::data).map_err(error), body))
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// The nearest of the errors that `wasi:http` has. Its denial has no text: what a person needs is in the run's events.
fn error(failure: Failure) -> Error {
    match failure {
        Failure::Refused(refused) => match refused.step {
            Step::Address | Step::Host => Error::DestinationIpProhibited,
            Step::Resolve => Error::DnsError { rcode: None, info_code: None },
            Step::Url => Error::HttpRequestUriInvalid,
            Step::Method => Error::HttpRequestMethodInvalid,
            Step::Response => Error::InternalError(Some(refused.to_string())),
            _ => Error::HttpRequestDenied,
        },
        Failure::TimedOut { what: "resolve", .. } => Error::DnsTimeout,
        Failure::TimedOut { what: "connect" | "tls", .. } => Error::ConnectionTimeout,
        Failure::TimedOut { what: "gap", .. } => Error::ConnectionReadTimeout,
        Failure::TimedOut { .. } => Error::HttpResponseTimeout,
        Failure::TooMuch { name: "response-headers", allowed } => Error::HttpResponseHeaderSectionSize(u32::try_from(allowed).ok()),
        Failure::TooMuch { name: "egress", allowed } => Error::HttpResponseBodySize(Some(allowed)),
        Failure::TooMuch { .. } => Error::ConnectionLimitReached,
        Failure::Unreachable(_) => Error::ConnectionRefused,
        Failure::Tls(_) => Error::TlsCertificateError,
        Failure::Protocol(_) => Error::HttpProtocolError,
        Failure::Host(why) => Error::InternalError(Some(why)),
    }
}
