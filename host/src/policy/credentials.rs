//! Credentials: what the operator says of a secret, and whether the host adds it to one request.
//!
//! A guest never holds a secret and can't say where one goes: name, place and audience are the configuration's.

use std::fmt;

use http::Method;

use super::hosts::{BadPattern, HostPattern};
use super::url::{DEFAULT_PORTS, Origin, Scheme, Target};

/// Where a credential goes in a request of `fetch` or `wasi:http`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The header, in lower case.
    pub header: String,
    /// The authentication scheme before the secret (RFC 9110 11.4), such as `Bearer`; none for the secret alone.
    pub scheme: Option<String>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { header: "authorization".to_owned(), scheme: Some("Bearer".to_owned()) }
    }
}

/// Where a credential may be sent: `https://HOST[:PORT][/PATH]`, `HOST` an exact name or `*.name`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audience(HostPattern);

impl Audience {
    /// Reads an audience.
    ///
    /// # Errors
    /// For http, for `*`, for methods, and for what can't be a pattern.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad =
            |message: &str, hint: &str| BadPattern { message: format!("{text:?} can't be an audience: {message}"), hint: hint.to_owned() };
        if text.starts_with("http://") {
            return Err(bad("http would send the secret in clear", "an audience is https://host or https://host:port"));
        }
        let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let pattern = HostPattern::parse(&full).map_err(|error| bad(&error.message, &error.hint))?;
        if pattern.is_any() || pattern.names_methods() || text.contains(' ') {
            return Err(bad(
                "it has to name a host",
                "an audience is https://host or https://host:port; a wildcard is written out, https://*.example.com",
            ));
        }
        Ok(Self(pattern))
    }

    /// Returns the exact host that it names; none for a wildcard.
    #[must_use]
    pub fn exact_host(&self) -> Option<&str> {
        self.0.exact_host()
    }

    /// Whether some host is an audience of both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.hosts_overlap(&other.0) && self.port() == other.port() && self.0.path() == other.0.path()
    }

    /// Whether it covers a whole origin's host and port, whatever the path.
    #[must_use]
    pub fn covers_origin(&self, origin: &Origin) -> bool {
        origin.scheme == Scheme::Https && self.port() == origin.port && self.0.covers_host(&origin.host)
    }

    fn port(&self) -> u16 {
        self.0.port().unwrap_or(DEFAULT_PORTS[1])
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the operator says of a credential that may be added to requests of one agent. Without its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialRule {
    /// Its name.
    pub name: String,
    /// Where it may be sent.
    pub audience: Vec<Audience>,
    /// Where it goes in a request.
    pub place: Placement,
    /// The methods that it is added to; none for all.
    pub methods: Option<Vec<Method>>,
}

/// Whether a credential is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injection {
    /// The credential that is added, by its place among the rules.
    pub rule: Option<usize>,
    /// `ok` when one is added; why none is, such as `cred_chain`; `none` when the agent has none.
    pub code: &'static str,
}

/// What came before a request in its chain of redirects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    first: Origin,
    left: bool,
    hops: u32,
    secure: bool,
}

impl Chain {
    /// Begins a chain.
    #[must_use]
    pub fn begin(first: &Target) -> Self {
        let origin = first.origin().clone();
        Self { left: false, hops: 0, secure: origin.scheme == Scheme::Https, first: origin }
    }

    /// Goes on to another URL.
    pub fn follow(&mut self, next: &Target) {
        self.hops += 1;
        self.secure = next.origin().scheme == Scheme::Https;
        // Leaving is for good: coming back doesn't bring the credential back (CVE-2024-45336).
        self.left |= *next.origin() != self.first;
    }

    /// Returns how many redirects were followed.
    #[must_use]
    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// Whether the request before was made over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether a request to this URL is still at the origin that the chain never left.
    #[must_use]
    pub fn stays(&self, next: &Target) -> bool {
        !self.left && *next.origin() == self.first
    }
}

/// Decides whether a credential is added to a request, and which.
#[must_use]
pub fn choose(rules: &[CredentialRule], target: &Target, method: &Method, chain: Option<&Chain>) -> Injection {
    let mut answer = Injection { rule: None, code: "none" };
    // The reason that came nearest to an injection is the one worth telling.
    let mut reached = 0;
    for (at, rule) in rules.iter().enumerate() {
        let (code, step) = verdict(rule, target, method, chain);
        if step > reached {
            reached = step;
            answer = Injection { rule: (code == "ok").then_some(at), code };
        }
    }
    answer
}

fn verdict(rule: &CredentialRule, target: &Target, method: &Method, chain: Option<&Chain>) -> (&'static str, u32) {
    let origin = target.origin();
    let mine: Vec<&Audience> = rule.audience.iter().filter(|audience| audience.0.covers_host(&target.origin().host)).collect();
    if mine.is_empty() {
        return ("cred_host", 1);
    }
    if origin.scheme != Scheme::Https {
        return ("cred_scheme", 2);
    }
    if !mine.iter().any(|audience| audience.port() == origin.port) {
        return ("cred_port", 3);
    }
    if !mine.iter().any(|audience| audience.0.covers_place(target)) {
        return ("cred_path", 4);
    }
    if rule.methods.as_ref().is_some_and(|methods| !methods.contains(method)) {
        return ("cred_method", 5);
    }
    if chain.is_some_and(|chain| !chain.stays(target)) {
        return ("cred_chain", 6);
    }
    if names_placeholder(target, &rule.name) {
        return ("cred_place", 7);
    }
    ("ok", 8)
}

/// Whether an URL asks for the credential to be written into it. Nothing is ever written into a guest's text; a request that was
/// made in the hope of it goes without.
fn names_placeholder(target: &Target, name: &str) -> bool {
    let text = target.url().as_str();
    [format!("{{{name}}}"), format!("%7B{name}%7D"), format!("%7b{name}%7d")].iter().any(|form| text.contains(form))
}

/// Returns the headers, in lower case, that credentials own at an URL's host: a guest may not send them there, even where the
/// credential itself isn't added, or it could try out guesses.
#[must_use]
pub fn owned_headers(rules: &[CredentialRule], target: &Target) -> Vec<String> {
    rules
        .iter()
        .filter(|rule| rule.audience.iter().any(|audience| audience.0.covers_host(&target.origin().host)))
        .map(|rule| rule.place.header.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, audience: &[&str]) -> CredentialRule {
        CredentialRule {
            name: name.to_owned(),
            audience: audience.iter().map(|text| Audience::parse(text).unwrap()).collect(),
            place: Placement::default(),
            methods: None,
        }
    }

    fn code(rules: &[CredentialRule], url: &str) -> &'static str {
        choose(rules, &Target::parse(url).unwrap(), &Method::GET, None).code
    }

    #[test]
    fn a_credential_goes_only_to_its_audience() {
        let rules = [rule("T", &["https://api.example.com", "https://*.example.org:8443", "https://forge.example.net/acme"])];
        for (url, expected) in [
            ("https://api.example.com/x", "ok"),
            ("https://API.example.com.:443/x", "ok"),
            ("https://api.example.com:8443/x", "cred_port"),
            ("http://api.example.com/x", "cred_scheme"),
            ("http://api.example.com:443/x", "cred_scheme"),
            ("https://api.example.com.evil.com/x", "cred_host"),
            ("https://xapi.example.com/x", "cred_host"),
            ("https://a.example.org:8443/", "ok"),
            ("https://example.org:8443/", "cred_host"),
            ("https://a.example.org/", "cred_port"),
            ("https://forge.example.net/acme/x", "ok"),
            ("https://forge.example.net/other", "cred_path"),
            ("https://api.example.com/?key={T}", "cred_place"),
        ] {
            assert_eq!(code(&rules, url), expected, "{url}");
        }
        assert_eq!(code(&[], "https://api.example.com/"), "none");
    }

    #[test]
    fn a_chain_that_left_never_gets_the_credential_back() {
        let rules = [rule("T", &["https://a.example.com", "https://b.example.com"])];
        let target = |url: &str| Target::parse(url).unwrap();
        let (a, a2, b) = (target("https://a.example.com/"), target("https://a.example.com/2"), target("https://b.example.com/"));
        let mut chain = Chain::begin(&a);
        assert_eq!(choose(&rules, &a2, &Method::GET, Some(&chain)).code, "ok");
        chain.follow(&a2);
        assert_eq!(choose(&rules, &b, &Method::GET, Some(&chain)).code, "cred_chain");
        chain.follow(&b);
        assert_eq!(choose(&rules, &a, &Method::GET, Some(&chain)).code, "cred_chain");
        assert_eq!(chain.hops(), 2);
    }

    #[test]
    fn methods_narrow_a_credential_and_its_header_stays_its_own() {
        let mut narrow = rule("T", &["https://api.example.com"]);
        narrow.methods = Some(vec![Method::GET, Method::HEAD]);
        let target = Target::parse("https://api.example.com/").unwrap();
        assert_eq!(choose(std::slice::from_ref(&narrow), &target, &Method::POST, None).code, "cred_method");
        assert_eq!(owned_headers(std::slice::from_ref(&narrow), &target), ["authorization"]);
        assert!(owned_headers(&[narrow], &Target::parse("https://example.com/").unwrap()).is_empty());
    }

    #[test]
    fn audiences_name_hosts_over_tls() {
        for text in ["*", "https://*", "http://api.example.com", "GET https://api.example.com", "https://*.com", "ftp://x.example.com", ""]
        {
            assert!(Audience::parse(text).is_err(), "{text}");
        }
        let audience = |text| Audience::parse(text).unwrap();
        assert!(audience("*.example.com").overlaps(&audience("https://a.example.com")));
        assert!(!audience("https://a.example.com:8443").overlaps(&audience("https://a.example.com")));
        let origin = |text| Target::parse(text).unwrap().origin().clone();
        assert!(audience("https://git.example.com:8443").covers_origin(&origin("https://git.example.com:8443/x")));
        assert!(!audience("https://git.example.com").covers_origin(&origin("http://git.example.com/x")));
    }
}
