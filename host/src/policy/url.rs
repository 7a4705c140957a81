//! The rules for URLs: what is refused before and after parsing, without any list and without asking a name server.
//!
//! One parser is used, the `url` crate (the WHATWG URL Standard). From the moment of parsing only the parsed value counts:
//! backslashes, missing slashes, odd digits, full-width letters and percent-encoded hosts are judged by what they became.

use std::fmt;
use std::net::IpAddr;

use url::Url;

use super::addresses;
use super::refused::{Refused, Step};

/// Longest URL, in bytes.
pub const URL_MAX: usize = 8 << 10;
/// Longest host name and longest label of one, in bytes (RFC 1035 2.3.4).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
/// Ports that need not be named in a list.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Top-level names that are for special use, or that private networks use for themselves (RFC 6761 and its registry, RFC 6762,
/// RFC 8375, RFC 9476, ICANN's name-collision list, and what home routers and container runtimes hand out).
const SPECIAL: [&str; 17] = [
    "alt",
    "arpa",
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "onion",
    "private",
    "svc",
    "test",
];

/// A scheme that can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl Scheme {
    /// Returns the scheme's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port that an URL without one means.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host after parsing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Host {
    /// A name: lower case, A-labels, no dot at the end.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
            Self::Address(IpAddr::V4(v4)) => write!(f, "{v4}"),
        }
    }
}

/// Scheme, host and port: what a connection and a credential belong to (RFC 6454 4).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Origin {
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, also where the URL leaves it out.
    pub port: u16,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        if self.port == self.scheme.default_port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// An URL that was parsed and has one of the forms that can be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    origin: Origin,
    /// The parsed URL without its fragment, with the host as in `origin`.
    url: Url,
}

impl Target {
    /// Parses an URL and applies the rules that need no list: length and bytes, scheme, user info.
    ///
    /// # Errors
    /// `bad_url`, `scheme`, `userinfo`.
    pub fn parse(raw: &str) -> Result<Self, Refused> {
        check_raw(raw)?;
        let url = Url::parse(raw).map_err(|error| bad_url(raw, &error))?;
        Self::of(url)
    }

    /// Parses what a `Location` header holds, relative to this URL, by the same rules.
    ///
    /// # Errors
    /// As [`Target::parse`].
    pub fn join(&self, location: &str) -> Result<Self, Refused> {
        check_raw(location)?;
        let url = self.url.join(location).map_err(|error| bad_url(location, &error))?;
        Self::of(url)
    }

    fn of(mut url: Url) -> Result<Self, Refused> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => {
                return Err(Refused::new(Step::Scheme, "scheme", format!("the scheme {other:?} can't be asked for: only https and http")));
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::new(Step::UserInfo, "userinfo", "the URL has a user name or a password in it"));
        }
        let no_host = || Refused::new(Step::Url, "bad_url", "the URL has no host");
        let host = match url.host().ok_or_else(no_host)? {
            url::Host::Ipv4(v4) => Host::Address(v4.into()),
            url::Host::Ipv6(v6) => Host::Address(v6.into()),
            url::Host::Domain(name) => Host::Name(name.strip_suffix('.').unwrap_or(name).to_owned()),
        };
        let port = url.port_or_known_default().ok_or_else(no_host)?;
        url.set_fragment(None);
        if let Host::Name(name) = &host
            && url.host_str() != Some(name)
            && !name.is_empty()
            && url.set_host(Some(name)).is_err()
        {
            return Err(Refused::new(Step::Host, "host_syntax", "the host has an empty label"));
        }
        Ok(Self { origin: Origin { scheme, host, port }, url })
    }

    /// Applies the rules for host names, and judges a host that is an address by the tables.
    ///
    /// # Errors
    /// `host_syntax`, `host_single_label`, `host_special`, or the code of an address such as `ip_private`.
    pub fn check_host(&self) -> Result<(), Refused> {
        match &self.origin.host {
            Host::Name(name) => check_name(name),
            Host::Address(address) => {
                let judged = addresses::classify(*address);
                if judged.is_allowed() {
                    return Ok(());
                }
                let why = format!("the host is an address that no agent is connected to: {}", judged.why());
                Err(Refused::new(Step::Host, judged.code(), why).seen(&[*address]))
            }
        }
    }

    /// Returns scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the URL as it is sent.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the path, as it is sent.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// Returns path and query, as they are sent.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// Returns the host and, where it isn't the scheme's own, the port: what goes into `Host` or `:authority`.
    #[must_use]
    pub fn authority(&self) -> String {
        let Origin { scheme, host, port } = &self.origin;
        if *port == scheme.default_port() { host.to_string() } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

/// Returns a host in the form in which hosts are compared: lower case, A-labels, no dot at the end, addresses in their usual form
/// and IPv6 in brackets; none for what can't be a host.
#[must_use]
pub fn host_key(host: &str) -> Option<String> {
    if host.is_empty() || host.contains(['/', '\\', '?', '#', '@', '%', '*']) || host.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let bracketed = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let target = Target::parse(&format!("https://{bracketed}/")).ok()?;
    if target.origin.port != 443 || target.url.path() != "/" {
        return None;
    }
    match &target.origin.host {
        Host::Name(name) => check_syntax(name).ok().map(|()| name.clone()),
        host @ Host::Address(_) => Some(host.to_string()),
    }
}

/// Refuses bytes that the parser would drop or take as they are.
fn check_raw(raw: &str) -> Result<(), Refused> {
    let why = if raw.len() > URL_MAX {
        format!("the URL has {} bytes, over the limit of {URL_MAX}", raw.len())
    } else if raw.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        "the URL has a blank or a control character in it".to_owned()
    } else {
        return Ok(());
    };
    Err(Refused::new(Step::Url, "bad_url", why))
}

fn bad_url(raw: &str, error: &url::ParseError) -> Refused {
    let why = match error {
        url::ParseError::RelativeUrlWithoutBase if !raw.contains("://") => {
            "the URL doesn't start with a scheme such as https://".to_owned()
        }
        error => format!("the URL can't be parsed: {error}"),
    };
    Refused::new(Step::Url, "bad_url", why)
}

/// The syntax of host names (RFC 1123 2.1): the parser lets more through than can be asked of a name server.
fn check_syntax(name: &str) -> Result<(), Refused> {
    let refuse = |why: &str| Err(Refused::new(Step::Host, "host_syntax", why));
    if name.is_empty() || name.len() > NAME_MAX {
        return refuse("the host name is empty or longer than 253 bytes");
    }
    for label in name.split('.') {
        if label.is_empty() {
            return refuse("the host name has an empty label");
        }
        if label.len() > LABEL_MAX {
            return refuse("a label of the host name is longer than 63 bytes");
        }
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !label.bytes().all(inner) || label.starts_with('-') || label.ends_with('-') {
            return refuse("the host name has other characters than letters, digits and inner hyphens");
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Refused> {
    check_syntax(name)?;
    let Some((_, top)) = name.rsplit_once('.') else {
        let why = "the host is a single label, which a search domain or a local table could complete";
        return Err(Refused::new(Step::Host, "host_single_label", why));
    };
    if SPECIAL.contains(&top) {
        return Err(Refused::new(Step::Host, "host_special", format!("names under .{top} don't belong to the public name system")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(raw: &str) -> &'static str {
        match Target::parse(raw).and_then(|target| target.check_host()) {
            Ok(()) => "ok",
            Err(refused) => refused.code,
        }
    }

    #[test]
    fn what_the_parser_would_drop_is_refused_before_it() {
        for raw in [
            "http://exam\tple.com/",
            "http://example.com/\n",
            "http://example.com/a b",
            " http://example.com/",
            "http://example.com/\u{7f}",
            "http://example.com/\0",
        ] {
            assert_eq!(code(raw), "bad_url", "{raw:?}");
        }
        let long = |len: usize| format!("http://example.com/{}", "a".repeat(len - 19));
        assert_eq!((code(&long(URL_MAX)), code(&long(URL_MAX + 1))), ("ok", "bad_url"));
    }

    #[test]
    fn host_names_follow_the_rules_of_the_name_system() {
        let (label63, label64) = ("a".repeat(63), "a".repeat(64));
        for (host, expected) in [
            (format!("{label63}.com"), "ok"),
            (format!("{label64}.com"), "host_syntax"),
            (format!("{}.com", [label63.as_str(); 4].join(".")), "host_syntax"),
            ("-a.example.com".to_owned(), "host_syntax"),
            ("a-.example.com".to_owned(), "host_syntax"),
            ("a_b.example.com".to_owned(), "host_syntax"),
            ("*.example.com".to_owned(), "host_syntax"),
            (".example.com".to_owned(), "host_syntax"),
            ("xn--e1afmkfd.com".to_owned(), "ok"),
            ("a.localhost.".to_owned(), "host_special"),
            ("metadata.google.internal".to_owned(), "host_special"),
            ("10.in-addr.arpa".to_owned(), "host_special"),
            ("internal".to_owned(), "host_single_label"),
            ("internal.example.com".to_owned(), "ok"),
        ] {
            assert_eq!(code(&format!("https://{host}/")), expected, "{host}");
        }
    }

    #[test]
    fn user_info_is_refused_in_every_form_that_has_any() {
        for raw in ["https://a@example.com/", "https://:b@example.com/", "https://a:b@example.com/", "https:a@example.com"] {
            assert_eq!(code(raw), "userinfo", "{raw}");
        }
        // Nothing before the @ is nothing.
        assert_eq!(code("https://@example.com/"), "ok");
    }

    #[test]
    fn what_is_sent_has_the_compared_host_and_no_fragment() {
        let target = Target::parse("HTTPS://Example.COM.:443/a/../b%2e?q=%zz#part").unwrap();
        assert_eq!(target.to_string(), "https://example.com/b%2e?q=%zz");
        assert_eq!((target.authority(), target.path_and_query()), ("example.com".to_owned(), "/b%2e?q=%zz"));
        let target = Target::parse("http://[2606:4700::1]:8080").unwrap();
        assert_eq!(target.authority(), "[2606:4700::1]:8080");
        assert_eq!(target.origin().to_string(), "http://[2606:4700::1]:8080");
    }

    #[test]
    fn locations_are_read_relative_to_their_page_by_the_same_rules() {
        let base = Target::parse("https://a.example.com/x/y?z").unwrap();
        assert_eq!(base.join("../w").unwrap().to_string(), "https://a.example.com/w");
        assert_eq!(base.join("//b.example.com/").unwrap().origin().to_string(), "https://b.example.com");
        assert_eq!(base.join("\\\\127.0.0.1\\").unwrap().check_host().unwrap_err().code, "ip_loopback");
        assert_eq!(base.join("https://b.example.com/\r\nx").unwrap_err().code, "bad_url");
        assert_eq!(base.join("javascript:alert(1)").unwrap_err().code, "scheme");
    }

    #[test]
    fn hosts_are_compared_in_one_form() {
        for (host, expected) in [
            ("API.GitHub.com.", Some("api.github.com")),
            ("пример.com", Some("xn--e1afmkfd.com")),
            ("0x7f.1", Some("127.0.0.1")),
            ("::1", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("a/b", None),
            ("a:80", None),
            ("", None),
            ("a..b", None),
        ] {
            assert_eq!(host_key(host).as_deref(), expected, "{host}");
        }
    }
}
