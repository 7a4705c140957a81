//! Asking hosts on the network, within what the operator listed for the agent.
//!
//! ```no_run
//! # fn ask() -> Result<(), landfall_guest::Error> {
//! use landfall_guest::fetch;
//!
//! let page = fetch::get("https://www.example.com/").readable().send()?;
//! println!("{}: {}", page.status, page.text());
//!
//! let answer = fetch::post("https://api.example.com/v1/items").header("content-type", "application/json").body(r#"{"n": 1}"#).send()?;
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::time::Duration;

use crate::Error;
use crate::bindings::landfall::agent::fetch as host;
pub use host::{Content, Form, Header};

/// A request that is being put together.
#[derive(Clone, Debug)]
pub struct Request(host::Request);

/// An answer. An HTTP error is an answer too.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status, such as 200 or 404.
    pub status: u16,
    /// The URL that answered, after redirects.
    pub url: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<Header>,
    /// The page's title; only where a readable page was asked for.
    pub title: Option<String>,
    /// The body.
    pub content: Content,
    /// Whether the body was longer and is cut.
    pub truncated: bool,
}

/// Begins a GET request.
#[must_use]
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// Begins a POST request.
#[must_use]
pub fn post(url: impl Into<String>) -> Request {
    request("POST", url)
}

/// Begins a request with a method, in capitals.
#[must_use]
pub fn request(method: &str, url: impl Into<String>) -> Request {
    Request(host::Request {
        method: method.to_owned(),
        url: url.into(),
        headers: Vec::new(),
        body: Vec::new(),
        form: Form::Text,
        timeout_ms: None,
        max_bytes: None,
    })
}

impl Request {
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.0.headers.push(Header { name: name.to_owned(), value: value.to_owned() });
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.0.body = body.into();
        self
    }

    /// Asks for the body as bytes instead of text.
    #[must_use]
    pub fn bytes(mut self) -> Self {
        self.0.form = Form::Bytes;
        self
    }

    /// Asks for the main text of an HTML page as Markdown.
    #[must_use]
    pub fn readable(mut self) -> Self {
        self.0.form = Form::Readable;
        self
    }

    /// Lets all of it take at most this long.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout_ms = u64::try_from(timeout.as_millis()).ok();
        self
    }

    /// Takes at most so many bytes of the body.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.0.max_bytes = Some(bytes);
        self
    }

    /// Sends it and waits for the answer.
    ///
    /// # Errors
    /// [`Error::Denied`] where the operator's lists, the rules for addresses or a credential are against it; [`Error::Invalid`] for a
    /// malformed method; [`Error::Limit`], [`Error::Timeout`]; [`Error::Unavailable`] when the host can't be reached or isn't who it
    /// should be.
    pub fn send(self) -> Result<Response, Error> {
        let host::Response { status, url, headers, title, content, truncated } = host::send(&self.0)?;
        Ok(Response { status, url, headers, title, content, truncated })
    }
}

impl Response {
    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match &self.content {
            Content::Text(text) => Cow::Borrowed(text),
            Content::Bytes(bytes) => String::from_utf8_lossy(bytes),
        }
    }

    /// Returns the first header of a name, in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.name == name).map(|header| header.value.as_str())
    }
}
