//! Which headers a guest may send: not those that the connection owns, not those that unlock metadata services, and not those that
//! a credential of the same host owns.

use super::refused::{Refused, Step};

/// Most header lines of a request, and most bytes of their names and values.
pub const REQUEST_HEADERS_MAX: usize = 100;
/// Most bytes of a request's header names and values.
pub const REQUEST_HEADER_BYTES_MAX: usize = 32 << 10;

/// Names that belong to the connection or to the host (RFC 9110 7.6.1, RFC 9112 6, RFC 9113 8.2.2), and such as unlock a cloud's
/// metadata service.
const RESERVED: [&str; 20] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "metadata",
    "metadata-flavor",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
    "x-google-metadata-request",
    "x-identity-header",
    "x-metadata-token",
];
/// Beginnings of such names.
const RESERVED_PREFIXES: [&str; 3] = [":", "proxy-", "x-aws-ec2-metadata-"];

/// Whether a header's name is one that no guest may set.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks the headers of a guest's request. `owned` are the names, in lower case, that credentials of this host own.
///
/// # Errors
/// `header_syntax`, `header_reserved`, `headers_too_large`.
pub fn check<'h>(headers: impl IntoIterator<Item = (&'h str, &'h [u8])>, owned: &[String]) -> Result<(), Refused> {
    let refuse = |code, why: String| Err(Refused::new(Step::Headers, code, why));
    let (mut count, mut bytes) = (0_usize, 0_usize);
    for (name, value) in headers {
        count += 1;
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
        if is_reserved(name) {
            return refuse("header_reserved", format!("the header {:?} is the host's to set", name.to_ascii_lowercase()));
        }
        if !is_token(name) {
            return refuse("header_syntax", format!("{name:?} is not a header name"));
        }
        if value.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return refuse("header_syntax", format!("the value of the header {name:?} has a control character in it"));
        }
        if owned.iter().any(|owned| owned.eq_ignore_ascii_case(name)) {
            let why = format!("the header {:?} belongs to a credential that the host adds here", name.to_ascii_lowercase());
            return refuse("header_reserved", why);
        }
    }
    if count > REQUEST_HEADERS_MAX || bytes > REQUEST_HEADER_BYTES_MAX {
        let why = format!("{count} headers with {bytes} bytes are over the limit of {REQUEST_HEADERS_MAX} and {REQUEST_HEADER_BYTES_MAX}");
        return refuse("headers_too_large", why);
    }
    Ok(())
}

/// Whether a text is a token (RFC 9110 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let special = b"!#$%&'*+-.^_`|~";
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || special.contains(&byte))
}

/// Whether a header goes along when a redirect leaves the origin. All others could be keys whose names nobody knows.
#[must_use]
pub fn crosses_origins(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "user-agent" | "range" | "accept" | "accept-language" | "accept-encoding" | "accept-charset")
        || matches!(name.as_str(), "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" | "if-range")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str, value: &[u8]) -> &'static str {
        check([(name, value)], &["x-api-key".to_owned()]).map_or_else(|refused| refused.code, |()| "ok")
    }

    #[test]
    fn what_the_connection_and_the_credentials_own_is_refused_in_any_case() {
        for name in
            ["Host", "HOST", ":authority", ":path", "Content-Length", "Transfer-Encoding", "TE", "Proxy-Foo", "Connection", "Upgrade"]
        {
            assert_eq!(code(name, b"x"), "header_reserved", "{name}");
        }
        for name in ["Metadata", "metadata-flavor", "X-AWS-EC2-Metadata-Token", "X-Google-Metadata-Request", "X-Api-Key", "x-api-KEY"] {
            assert_eq!(code(name, b"x"), "header_reserved", "{name}");
        }
        assert_eq!(code("Accept", b"text/html"), "ok");
        assert_eq!(code("Authorization", b"Bearer mine"), "ok");
    }

    #[test]
    fn no_header_can_become_two() {
        for (name, value) in [
            ("X-A", &b"b\r\nX-B: b"[..]),
            ("X-A", b"b\nX-B: b"),
            ("X-A", b"b\0"),
            ("X-A", b"\x7f"),
            ("X-A: b\r\nHost", b"x"),
            ("X A", b"x"),
            ("", b"x"),
            ("X-\u{e9}", b"x"),
        ] {
            assert_eq!(code(name, value), "header_syntax", "{name:?} {value:?}");
        }
        assert_eq!(code("X-A", b"tab\tand \xff bytes"), "ok");
    }

    #[test]
    fn headers_are_bounded_in_count_and_bytes() {
        let many: Vec<(&str, &[u8])> = vec![("x-a", b"1"); REQUEST_HEADERS_MAX + 1];
        assert_eq!(check(many, &[]).unwrap_err().code, "headers_too_large");
        let long = vec![b'a'; REQUEST_HEADER_BYTES_MAX];
        assert_eq!(check([("x-a", long.as_slice())], &[]).unwrap_err().code, "headers_too_large");
    }

    #[test]
    fn only_harmless_headers_leave_their_origin() {
        assert!(crosses_origins("User-Agent") && crosses_origins("if-none-match"));
        assert!(!crosses_origins("x-api-key") && !crosses_origins("authorization") && !crosses_origins("cookie"));
    }
}
