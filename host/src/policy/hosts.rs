//! Lists of hosts: the patterns of `allowed_outbound_hosts`.
//!
//! A pattern is `[METHODS ][SCHEME://]HOST[:PORT][/PATH]`. `HOST` is an exact name or address, `*.name` for all names below `name`
//! (not `name` itself), or `*` for every name (never an address). `METHODS` are names with commas between. `PATH` covers itself and
//! what is below it.

use std::fmt;

use http::Method;

use super::url::{DEFAULT_PORTS, Host, Scheme, Target, host_key};

/// One entry of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    text: String,
    methods: Option<Vec<Method>>,
    scheme: Option<Scheme>,
    host: Wanted,
    port: Option<u16>,
    path: Option<String>,
}

/// The host of a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wanted {
    /// Every name.
    Any,
    /// Names that end in this, which begins with a dot.
    Below(String),
    /// This name or address.
    Exact(String),
}

/// A pattern that can't be meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPattern {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl HostPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad = |message: &str, hint: &str| BadPattern { message: format!("{text:?}: {message}"), hint: hint.to_owned() };
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (Some(methods), rest),
            None => (None, text),
        };
        let methods = methods.map(|methods| parse_methods(methods).map_err(|message| bad(&message, METHODS_HINT))).transpose()?;
        let (scheme, rest) = match rest.split_once("://") {
            None => (None, rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some((other, _)) => {
                return Err(bad(&format!("the scheme {other:?} can't be allowed"), "write https://host, or leave the scheme out"));
            }
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(&rest[at..])),
            None => (rest, None),
        };
        if let Some(path) = path
            && (path.contains(['?', '#', '\\', '*']) || path.bytes().any(|byte| byte <= b' ' || byte >= 0x7f))
        {
            return Err(bad("a path is a plain beginning of the URL's path", "leave out query, fragment, stars and blanks"));
        }
        // A path of only a slash covers all, as no path does.
        let path = path.filter(|path| *path != "/").map(str::to_owned);
        let (host, port) = split_port(authority).map_err(|message| bad(&message, "write host:8443, with a port from 1 to 65535"))?;
        let host = Wanted::parse(host).map_err(|(message, hint)| bad(&message, &hint))?;
        Ok(Self { text: text.to_owned(), methods, scheme, host, port, path })
    }

    /// Whether it covers a request; `any_method` where only the place counts.
    #[must_use]
    pub fn covers(&self, target: &Target, method: &Method) -> bool {
        self.covers_place(target) && self.methods.as_ref().is_none_or(|methods| methods.contains(method))
    }

    /// Whether it covers a request's URL, for some method.
    #[must_use]
    pub fn covers_place(&self, target: &Target) -> bool {
        let origin = target.origin();
        let port = match (self.port, self.scheme) {
            (Some(port), _) => port == origin.port,
            (None, Some(scheme)) => scheme.default_port() == origin.port,
            (None, None) => DEFAULT_PORTS.contains(&origin.port),
        };
        port && self.scheme.is_none_or(|scheme| scheme == origin.scheme)
            && self.host.covers(&origin.host)
            && self.path.as_deref().is_none_or(|path| path_is_under(target.path(), path))
    }

    /// Whether it covers a host, whatever else it names.
    #[must_use]
    pub fn covers_host(&self, host: &Host) -> bool {
        self.host.covers(host)
    }

    /// Returns the port that it names.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the exact host that it names; none for a wildcard.
    #[must_use]
    pub fn exact_host(&self) -> Option<&str> {
        match &self.host {
            Wanted::Exact(host) => Some(host),
            Wanted::Any | Wanted::Below(_) => None,
        }
    }

    /// Returns the path that it names.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the scheme that it names.
    #[must_use]
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// Whether it names methods.
    #[must_use]
    pub fn names_methods(&self) -> bool {
        self.methods.is_some()
    }

    /// Whether it covers every name.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.host == Wanted::Any
    }

    /// Whether some host is covered by both.
    #[must_use]
    pub fn hosts_overlap(&self, other: &Self) -> bool {
        let below = |suffix: &str, host: &str| host.len() > suffix.len() && host.ends_with(suffix);
        match (&self.host, &other.host) {
            (Wanted::Any, _) | (_, Wanted::Any) => true,
            (Wanted::Exact(a), Wanted::Exact(b)) => a == b,
            (Wanted::Below(suffix), Wanted::Exact(host)) | (Wanted::Exact(host), Wanted::Below(suffix)) => below(suffix, host),
            (Wanted::Below(a), Wanted::Below(b)) => a == b || below(a, b) || below(b, a),
        }
    }

    /// Returns it as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const METHODS_HINT: &str = "write methods before the host: \"GET,HEAD https://host\"";

fn parse_methods(text: &str) -> Result<Vec<Method>, String> {
    text.split(',')
        .map(|name| match name {
            "CONNECT" | "TRACE" => Err(format!("the method {name} is never allowed")),
            _ if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') => {
                Method::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a method"))
            }
            _ => Err(format!("{name:?} is not a method")),
        })
        .collect()
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    // The colons of an address in brackets are not before a port.
    let start = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = authority[start..].find(':').map(|at| at + start) else { return Ok((authority, None)) };
    let text = &authority[colon + 1..];
    match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok((&authority[..colon], Some(port))),
        _ => Err(format!("{text:?} is not a port")),
    }
}

impl Wanted {
    fn parse(host: &str) -> Result<Self, (String, String)> {
        if host == "*" {
            return Ok(Self::Any);
        }
        let no_host = |host: &str| (format!("{host:?} can't be a host"), "write a name such as api.example.com".to_owned());
        let Some(base) = host.strip_prefix("*.") else {
            if host.contains('*') {
                return Err((
                    "a star stands only for the whole leftmost label".to_owned(),
                    "write *.example.com, or list the hosts one by one".to_owned(),
                ));
            }
            return host_key(host).map(Self::Exact).ok_or_else(|| no_host(host));
        };
        if base.contains('*') {
            return Err(("there is more than one star".to_owned(), "only the leftmost label can be a star".to_owned()));
        }
        let key = host_key(base).filter(|key| !key.starts_with('[') && key.parse::<std::net::Ipv4Addr>().is_err());
        let Some(key) = key else { return Err(no_host(base)) };
        if is_public_suffix(&key) {
            return Err((
                format!("everybody can register names below {key}"),
                format!("name the owner's domain, such as *.example.{key}, or exact hosts"),
            ));
        }
        Ok(Self::Below(format!(".{key}")))
    }

    fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, Host::Name(_)) => true,
            (Self::Below(suffix), Host::Name(name)) => name.len() > suffix.len() && name.ends_with(suffix.as_str()),
            (Self::Exact(wanted), Host::Name(name)) => wanted == name,
            (Self::Exact(wanted), host @ Host::Address(_)) => *wanted == host.to_string(),
            // A wildcard means names.
            (Self::Any | Self::Below(_), Host::Address(_)) => false,
        }
    }
}

/// Whether names directly below it belong to different owners: the Public Suffix List, with its private part.
fn is_public_suffix(name: &str) -> bool {
    !name.contains('.') || psl::suffix_str(name) == Some(name)
}

/// Whether a request's path is `prefix` or below it. Paths in which a server may see other segments than we do are below nothing.
fn path_is_under(path: &str, prefix: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    if ["%2f", "%5c", "%2e", "%00", "%25", "\\", "//", "/..;", "/.;"].iter().any(|trick| lower.contains(trick)) {
        return false;
    }
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

/// A list of hosts. An empty one covers nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostList(Vec<HostPattern>);

impl HostList {
    /// Reads a list.
    ///
    /// # Errors
    /// The first pattern that can't be meant.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, BadPattern> {
        texts.into_iter().map(HostPattern::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the entry that covers a request.
    #[must_use]
    pub fn covering(&self, target: &Target, method: &Method) -> Option<&HostPattern> {
        self.0.iter().find(|pattern| pattern.covers(target, method))
    }

    /// Whether an entry covers the URL for some other method.
    #[must_use]
    pub fn covers_place(&self, target: &Target) -> bool {
        self.0.iter().any(|pattern| pattern.covers_place(target))
    }

    /// Returns its entries.
    #[must_use]
    pub fn patterns(&self) -> &[HostPattern] {
        &self.0
    }
}

impl FromIterator<HostPattern> for HostList {
    fn from_iter<I: IntoIterator<Item = HostPattern>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, url: &str) -> bool {
        HostPattern::parse(pattern).unwrap().covers(&Target::parse(url).unwrap(), &Method::GET)
    }

    #[test]
    fn hosts_match_whole_and_wildcards_at_label_borders() {
        for (pattern, url, expected) in [
            ("example.com", "https://example.com/", true),
            ("EXAMPLE.com.", "http://example.com./", true),
            ("example.com", "https://www.example.com/", false),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.example.com", "https://aexample.com/", false),
            ("*", "https://anything.example.org/", true),
            ("*", "https://[2606:4700::1]/", false),
            ("[2606:4700:0::1]", "https://[2606:4700::1]/", true),
            ("8.8.8.8", "https://134744072/", true),
            ("bücher.example.com", "https://xn--bcher-kva.example.com/", true),
        ] {
            assert_eq!(covers(pattern, url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn schemes_and_ports_narrow() {
        for (pattern, url, expected) in [
            ("example.com", "http://example.com/", true),
            ("https://example.com", "http://example.com/", false),
            ("https://example.com", "https://example.com:80/", false),
            ("example.com", "https://example.com:8443/", false),
            ("example.com:8443", "https://example.com:8443/", true),
            ("example.com:8443", "https://example.com/", false),
            ("http://example.com:443", "http://example.com:443/", true),
        ] {
            assert_eq!(covers(pattern, url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn paths_cover_what_is_below_them_and_no_trick_gets_out() {
        for (pattern, url, expected) in [
            ("example.com/repos/acme", "https://example.com/repos/acme", true),
            ("example.com/repos/acme", "https://example.com/repos/acme/x?y", true),
            ("example.com/repos/acme", "https://example.com/repos/acme-evil", false),
            ("example.com/repos/acme", "https://example.com/repos/acme/../other", false),
            ("example.com/repos/acme", "https://example.com/repos/acme/%2e%2e/other", false),
            ("example.com/repos/acme", "https://example.com/repos/acme/..%2fother", false),
            ("example.com/repos/acme", "https://example.com/repos/acme/..;/other", false),
            ("example.com/repos/acme", "https://example.com/repos/acme/%252e%252e%252fother", false),
            ("example.com/repos/acme", "https://example.com/repos/acme\\..\\other", false),
            ("example.com/repos/", "https://example.com/repos", false),
            ("example.com/", "https://example.com/anything", true),
        ] {
            assert_eq!(covers(pattern, url), expected, "{pattern} {url}");
        }
    }

    #[test]
    fn methods_narrow() {
        let pattern = HostPattern::parse("GET,HEAD https://example.com/v1").unwrap();
        let target = Target::parse("https://example.com/v1/x").unwrap();
        assert!(pattern.covers(&target, &Method::HEAD) && !pattern.covers(&target, &Method::POST));
        assert!(pattern.covers_place(&target));
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_refused_with_a_hint() {
        for text in [
            "",
            "*.com",
            "*.co.uk",
            "*.github.io",
            "ex*mple.com",
            "*example.com",
            "a.*.example.com",
            "*.*.example.com",
            "*.",
            "**",
            "*.1.2.3.4",
            "*.[::1]",
            "ftp://example.com",
            "https://",
            "https://user@example.com",
            "example.com:0",
            "example.com:99999",
            "example.com:",
            "example.com:+80",
            "example.com?x",
            "example.com/a?b",
            "exa mple.com",
            "CONNECT example.com",
            "get example.com",
            "a..b",
            "::1",
            "[example.com]",
        ] {
            let error = HostPattern::parse(text).expect_err(text);
            assert!(!error.hint.is_empty() && error.message.contains(&format!("{text:?}")), "{error:?}");
        }
    }

    #[test]
    fn overlaps_are_seen() {
        let pattern = |text| HostPattern::parse(text).unwrap();
        for (a, b, expected) in [
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "*.api.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.example.org", false),
            ("*", "x.example.org", true),
        ] {
            assert_eq!(pattern(a).hosts_overlap(&pattern(b)), expected, "{a} {b}");
            assert_eq!(pattern(b).hosts_overlap(&pattern(a)), expected, "{b} {a}");
        }
    }
}
