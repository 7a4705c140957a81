//! From the library's results to HTTP answers. Every error is a document with a stable code.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use landfall::trigger::http::error_document;
use landfall::{Error, ErrorKind};

/// An error as an answer.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    error: Error,
}

impl Refused {
    /// Answers a request without a token, or with one that isn't known.
    pub(crate) fn unauthorized() -> Self {
        let error = Error::denied("a bearer token is needed").code("token_needed").hint("send it as `Authorization: Bearer TOKEN`");
        Self { status: StatusCode::UNAUTHORIZED, error }
    }

    /// Answers a request that may be repeated elsewhere, or later here.
    pub(crate) fn unavailable(error: Error) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, error }
    }

    /// Answers a body that is none.
    pub(crate) fn with(status: StatusCode, error: Error) -> Self {
        Self { status, error }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Usage if error.stable_code() == "unknown_agent" => StatusCode::NOT_FOUND,
            ErrorKind::Usage => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Denied => StatusCode::FORBIDDEN,
            ErrorKind::Conflict | ErrorKind::Cancelled => StatusCode::CONFLICT,
            ErrorKind::Limit => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Component | ErrorKind::Config => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Remote => StatusCode::BAD_GATEWAY,
            ErrorKind::Store => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, error }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(error_document(&self.error))).into_response();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
            }
            _ => {}
        }
        response
    }
}
