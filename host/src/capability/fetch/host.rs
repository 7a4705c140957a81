//! The generated trait over the agent's way out.

use std::time::Duration;

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{fetch as wit, types};
use super::super::refusal::Refusal;
use super::{Content, FetchRequest, FetchResponse, Form};
use crate::outbound::Door;
use crate::policy::grants::Grants;

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) grants: &'a Grants,
    pub(crate) door: Option<&'a Door>,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasFetch;

impl HasData for HasFetch {
    type Data<'a> = View<'a>;
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        refusal.into_wit()
    }
}

impl wit::Host for View<'_> {
    async fn send(&mut self, request: wit::Request) -> Result<wit::Response, Refusal> {
        let door = self.door.ok_or_else(|| Refusal::Denied(Box::new(self.grants.no_hosts(&request.url))))?;
        let request = FetchRequest {
            method: request.method,
            url: request.url,
            headers: request.headers.into_iter().map(|header| (header.name, header.value.into_bytes())).collect(),
            body: request.body.into(),
            form: match request.form {
                wit::Form::Bytes => Form::Bytes,
                wit::Form::Text => Form::Text,
                wit::Form::Readable => Form::Readable,
            },
            timeout: request.timeout_ms.map(Duration::from_millis),
            max_bytes: request.max_bytes,
        };
        let FetchResponse { status, url, headers, title, content, truncated } = super::send(door, request).await?;
        Ok(wit::Response {
            status,
            url,
            headers: headers.into_iter().map(|(name, value)| wit::Header { name, value }).collect(),
            title,
            content: match content {
                Content::Bytes(bytes) => wit::Content::Bytes(bytes.into()),
                Content::Text(text) => wit::Content::Text(text),
            },
            truncated,
        })
    }
}
