//! `landfall:agent/fetch`: one call, bounded, redirects followed through the gate.

mod host;
mod readable;
mod text;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;

pub(crate) use host::{HasFetch, View};

use super::refusal::{LimitReached, Refusal};
use crate::error::Error;
use crate::outbound::Door;
use crate::outbound::exchange::{Outgoing, Received, known_body};
use crate::outbound::failure::Failure;
use crate::policy::credentials::Chain;
use crate::policy::redirects;
use crate::policy::refused::{Refused, Step};
use crate::policy::url::Target;

/// The name of the door in denials and audits.
pub(crate) const NAME: &str = "fetch";
/// What a request says of itself where its guest says nothing: some servers answer nobody else.
const USER_AGENT: &str = concat!("landfall/", env!("CARGO_PKG_VERSION"));

/// The form in which a body is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As bytes.
    Bytes,
    /// As text.
    Text,
    /// As Markdown of a page's main text.
    Readable,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
    /// The form of the answer's body.
    pub form: Form,
    /// How long all of it may take.
    pub timeout: Option<Duration>,
    /// Most bytes of the answer's body.
    pub max_bytes: Option<u64>,
}

/// A body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// As bytes.
    Bytes(Bytes),
    /// As text.
    Text(String),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// The URL that answered.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// A page's title.
    pub title: Option<String>,
    /// The body.
    pub content: Content,
    /// Whether the body is cut.
    pub truncated: bool,
}

/// Sends a request, follows redirects, and reads the answer.
///
/// # Errors
/// As `wit/fetch.wit` says.
pub async fn send(door: &Door, request: FetchRequest) -> Result<FetchResponse, Refusal> {
    let limits = door.limits().clone();
    let upper = request.method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let method = Method::from_bytes(request.method.as_bytes()).ok().filter(|_| upper);
    let method = method.ok_or_else(|| Refusal::Invalid(format!("{:?} is not a method such as GET", request.method)))?;
    if request.body.len() as u64 > limits.request {
        return Err(Refusal::Limit(LimitReached::new("request", limits.request, request.body.len() as u64)));
    }
    let mut door_limits = limits.fetch.clone();
    door_limits.total = request.timeout.map_or(door_limits.total, |timeout| timeout.min(door_limits.total));
    let mut hop = Hop { url: request.url, method, headers: prepared(request.headers, request.form), body: request.body };
    let deadline = door.now() + door_limits.total;
    let mut from: Option<(Target, Chain)> = None;
    let received = loop {
        let outgoing = Outgoing {
            capability: NAME,
            url: &hop.url,
            method: hop.method.clone(),
            headers: &hop.headers,
            length: None,
            from: from.as_ref().map(|(page, chain)| (page, chain)),
            decode: true,
            limits: door_limits.clone(),
            deadline,
        };
        let received = door.send(outgoing, known_body(hop.body.clone())).await.map_err(|failure| refusal(door, &hop.url, failure))?;
        let chain = match from {
            None => Chain::begin(&received.target),
            Some((_, mut chain)) => {
                chain.follow(&received.target);
                chain
            }
        };
        let Some(redirect) = redirects::of_response(received.status, &received.headers, &hop.method) else { break received };
        let stays = received.target.join(redirect.location).is_ok_and(|next| chain.stays(&next));
        if redirect.keeps_body && !hop.body.is_empty() && !stays {
            let refused = Refused::new(Step::Redirect, "redirect_body", "a redirect asks to send the body to another origin");
            return Err(refusal(door, &hop.url, door.refuse(NAME, redirect.location, refused)));
        }
        hop.url = redirect.location.to_owned();
        hop.method = redirect.method;
        if !redirect.keeps_body {
            hop.body = Bytes::new();
            hop.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
        from = Some((received.target, chain));
    };
    answer(door, received, request.form, request.max_bytes.map_or(limits.response, |max| max.min(limits.response))).await
}

/// One request of a chain.
struct Hop {
    url: String,
    method: Method,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

fn prepared(mut headers: Vec<(String, Vec<u8>)>, form: Form) -> Vec<(String, Vec<u8>)> {
    // The host asks for what it can decode, and hands over the decoded body.
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("accept-encoding"));
    let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let accept = if form == Form::Readable { "text/html, text/*;q=0.9, */*;q=0.5" } else { "*/*" };
    let missing: Vec<_> = [("user-agent", USER_AGENT), ("accept", accept)].into_iter().filter(|(name, _)| !has(name)).collect();
    headers.extend(missing.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())));
    headers
}

async fn answer(door: &Door, mut received: Received, form: Form, max: u64) -> Result<FetchResponse, Refusal> {
    let url = received.target.to_string();
    let (mut body, mut truncated) = (BytesMut::new(), false);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    while let Some(piece) = received.body.piece().await.map_err(|failure| refusal(door, &url, failure))? {
        let room = max - body.len();
        if piece.len() > room {
            body.extend_from_slice(&piece[..room]);
            truncated = true;
            break;
        }
        body.extend_from_slice(&piece);
    }
    let body = body.freeze();
    let kind = received.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (title, content) = match form {
        Form::Bytes => (None, Content::Bytes(body)),
        Form::Text => (None, Content::Text(text::decode(kind, &body))),
        Form::Readable => {
            let page = text::decode(kind, &body);
            let article = if text::is_html(kind, &page) { readable::extract(&page, &url).await } else { None };
            match article {
                Some(article) => (article.title, Content::Text(article.markdown)),
                None => (None, Content::Text(page)),
            }
        }
    };
    // Another charset and the entities of HTML can hold what the bytes didn't show.
    if let Content::Text(text) = &content
        && (door.holds_secret(text) || title.as_deref().is_some_and(|title| door.holds_secret(title)))
    {
        let refused = Refused::new(Step::Response, "leak", "the response's text holds a credential, so it isn't handed over");
        return Err(refusal(door, &url, door.refuse(NAME, &url, refused)));
    }
    let headers = received
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Ok(FetchResponse { status: received.status.as_u16(), url, headers, title, content, truncated })
}

fn refusal(door: &Door, url: &str, failure: Failure) -> Refusal {
    match failure {
        Failure::Refused(refused) => Refusal::Denied(Box::new(refused.denial(door.agent(), NAME, &door.masked(url)))),
        Failure::TimedOut { limit, .. } => Refusal::Timeout(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        Failure::TooMuch { name, allowed } => Refusal::Limit(LimitReached { name: name.to_owned(), allowed, value: None }),
        Failure::Unreachable(why) | Failure::Tls(why) | Failure::Protocol(why) => Refusal::Unavailable(door.masked(&why)),
        Failure::Host(why) => Refusal::Host(Error::local(why).code("outbound")),
    }
}
