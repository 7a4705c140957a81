//! Repository URLs: read once, normalised once, and never able to carry a secret.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::{Host, Url};

use crate::error::{Error, Result};
use crate::id::{Digest, sha256};

/// Longest accepted URL in bytes.
const MAX_LEN: usize = 2_048;

/// How a repository is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Scheme {
    /// The smart HTTP protocol over TLS.
    Https,
    /// The smart HTTP protocol in clear text: only to a loopback address, and only where a setting allows it.
    Http,
    /// A repository on this machine: only where the operator allows it.
    File,
}

/// The URL of a repository in its one normal form: lower-case scheme and host, no default port, no slash at the end, no user
/// info, query or fragment. Two texts of the same normal form are the same repository.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryUrl {
    text: String,
}

impl RepositoryUrl {
    /// Reads a URL and normalises it.
    ///
    /// # Errors
    /// `Usage` when it isn't an https, http or file URL, or has parts that could carry a secret. The message repeats the host
    /// at most, never the text, since that may hold the secret.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > MAX_LEN {
            return Err(Error::usage(format!("a repository URL has 1 to {MAX_LEN} bytes, this one has {}", text.len())));
        }
        if text.bytes().any(|b| b <= b' ' || b == 0x7f || b == b'\\') {
            return Err(Error::usage("the repository URL contains a blank, a control character or a backslash"));
        }
        let url = Url::parse(text).map_err(|error| no_url(text, &error))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let file = match url.scheme() {
            "https" | "http" => false,
            "file" => true,
            "ssh" | "git" | "git+ssh" => {
                return Err(Error::usage(format!("the repository URL's scheme is {:?}: only https is supported", url.scheme()))
                    .hint("use the repository's https URL, and a credential for a private one"));
            }
            other => return Err(Error::usage(format!("the repository URL's scheme is {other:?}: only https is supported"))),
        };
        if !url.username().is_empty() || url.password().is_some() || authority_of(text).contains('@') {
            return Err(Error::usage(format!("the repository URL for {host:?} contains user info"))
                .hint("take the user and the token out of the URL, and name a credential in the agent's entry instead"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(Error::usage(format!("the repository URL for {host:?} contains a query or a fragment"))
                .hint("leave out `?` and `#` and what follows"));
        }
        if file {
            if !host.is_empty() && host != "localhost" {
                return Err(Error::usage("a file URL names a path on this machine: file:///path/to/repository"));
            }
        } else if host.is_empty() {
            return Err(Error::usage("the repository URL has no host"));
        } else if url.port() == Some(0) {
            return Err(Error::usage(format!("the repository URL for {host:?} has the port 0")));
        }
        let path = url.path().trim_end_matches('/');
        if path.is_empty() {
            return Err(Error::usage(format!("the repository URL for {host:?} has no path")).hint("expected https://host/owner/repository"));
        }
        // `%2e%2e`, `%2f` and `%00` mean different things to different servers; no repository's name needs them.
        let lower = text.to_ascii_lowercase();
        if ["%2e", "%2f", "%5c", "%00"].iter().any(|escape| lower.contains(escape)) || path.contains("//") {
            return Err(Error::usage(format!(
                "the path of the repository URL for {host:?} contains an empty part or an escaped dot, slash or NUL"
            )));
        }
        let mut text = String::with_capacity(text.len());
        text.push_str(url.scheme());
        text.push_str("://");
        if !file {
            text.push_str(&host);
            if let Some(port) = url.port() {
                text.push(':');
                text.push_str(&port.to_string());
            }
        }
        text.push_str(path);
        // The parser writes what isn't ASCII in three bytes each. The normal form is what is stored, and has to be read again.
        if text.len() > MAX_LEN {
            return Err(Error::usage(format!(
                "a repository URL has at most {MAX_LEN} bytes, this one has {} in its normal form",
                text.len()
            )));
        }
        Ok(Self { text })
    }

    /// Returns the normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the SHA-256 of the normal form: the repository's name in object keys.
    #[must_use]
    pub fn digest(&self) -> Digest {
        sha256(self.text.as_bytes())
    }

    /// Returns how the repository is reached.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        if self.text.starts_with("https:") {
            Scheme::Https
        } else if self.text.starts_with("http:") {
            Scheme::Http
        } else {
            Scheme::File
        }
    }

    /// Returns the URL as the shared parser sees it.
    pub(super) fn to_url(&self) -> Result<Url> {
        Url::parse(&self.text).map_err(|error| Error::internal("a normalised repository URL doesn't parse").source(error))
    }

    /// Returns the IP address that the host is, when it is one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self.to_url().ok()?.host()? {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        }
    }

    /// Returns whether the host is a loopback address or `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.address() {
            Some(address) => address.is_loopback() || address.to_canonical() == IpAddr::V4(Ipv4Addr::LOCALHOST),
            None => self.to_url().is_ok_and(|url| url.host_str() == Some("localhost")),
        }
    }

    /// Returns the path of a file URL.
    pub(super) fn file_path(&self) -> Option<PathBuf> {
        (self.scheme() == Scheme::File).then(|| self.to_url().ok()?.to_file_path().ok()).flatten()
    }

    /// Makes the URL of a repository on this machine.
    ///
    /// # Errors
    /// `Usage` when the path isn't absolute or can't be a URL.
    pub fn from_path(path: &Path) -> Result<Self> {
        let url = Url::from_file_path(path).map_err(|()| Error::usage(format!("{} is not an absolute path", path.display())))?;
        Self::parse(url.as_str())
    }
}

/// Returns what stands between `://` and the next slash: user info hides only there.
fn authority_of(text: &str) -> &str {
    let rest = text.split_once(':').map_or("", |(_, rest)| rest.trim_start_matches('/'));
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn no_url(text: &str, error: &url::ParseError) -> Error {
    // `git@host:owner/repository`, the form that ssh users know.
    if !text.contains("://") && text.contains(':') && text.contains('@') {
        return Error::usage("the repository is given in the ssh form user@host:path: only https is supported")
            .hint("write it as https://host/path");
    }
    Error::usage(format!("the repository URL can't be read: {error}")).hint("expected https://host/owner/repository")
}

impl fmt::Display for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RepositoryUrl({})", self.text)
    }
}

impl std::str::FromStr for RepositoryUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl Serialize for RepositoryUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for RepositoryUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_form() {
        for (given, normal) in [
            ("https://GitHub.com/acme/App", "https://github.com/acme/App"),
            ("HTTPS://github.com:443/acme/app/", "https://github.com/acme/app"),
            ("https://github.com/acme/app.git", "https://github.com/acme/app.git"),
            ("https://git.example:8443/a/b//", "https://git.example:8443/a/b"),
            ("https://[2001:DB8::1]/a", "https://[2001:db8::1]/a"),
            ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
            ("https://host/a/../b", "https://host/b"),
            ("file:///srv/git/a.git/", "file:///srv/git/a.git"),
            ("file://localhost/srv/a", "file:///srv/a"),
            ("http://127.0.0.1:80/a", "http://127.0.0.1/a"),
        ] {
            assert_eq!(RepositoryUrl::parse(given).unwrap().as_str(), normal, "{given}");
            assert_eq!(RepositoryUrl::parse(normal).unwrap().as_str(), normal);
        }
    }

    #[test]
    fn what_could_hold_a_secret_is_refused_and_not_repeated() {
        for bad in [
            "https://s3cr3t@github.com/a/b",
            "https://x:s3cr3t@github.com/a/b",
            "https://@github.com/a/b",
            "https://:@github.com/a/b",
            "https://github.com/a/b?token=s3cr3t",
            "https://github.com/a/b#s3cr3t",
            "https://github.com/a b/s3cr3t",
            "https://s3cr3t:bad port/",
            "https:s3cr3t@github.com/a",
            "s3cr3t@github.com:a/b.git",
            "x:s3cr3t@[/a",
            "ssh://s3cr3t@github.com/a",
            "https://github.com\\s3cr3t@evil/a",
        ] {
            let error = RepositoryUrl::parse(bad).unwrap_err();
            assert!(!format!("{error:?} {}", error.chain()).contains("s3cr3t"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn what_is_no_repository_is_refused() {
        for bad in [
            "",
            "github.com/a/b",
            "https://",
            "https:///",
            "https://github.com",
            "https://github.com/",
            "ftp://a/b",
            "data:,x",
            "file://other/a",
            "file:///",
            "https://h:0/a",
            "https://h/a/%2e%2E/b",
            "https://h/a%2Fb",
            "https://h/a//b",
        ] {
            assert!(RepositoryUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(RepositoryUrl::parse(&format!("https://h/{}", "a".repeat(MAX_LEN))).is_err());
        // Short enough as it is typed, and too long to be read again as it would be stored.
        assert!(RepositoryUrl::parse(&format!("https://h/{}", "ö".repeat(MAX_LEN / 4))).is_err());
        assert!(RepositoryUrl::parse(&format!("https://h/{}", "ö".repeat(MAX_LEN / 8))).is_ok());
    }

    #[test]
    fn loopback_is_told_from_its_lookalikes() {
        for (url, loopback) in [
            ("http://127.0.0.1:3/a", true),
            ("http://127.9.9.9/a", true),
            ("http://[::1]/a", true),
            ("http://[::ffff:127.0.0.1]/a", true),
            ("http://localhost/a", true),
            ("http://localhost.evil/a", false),
            ("http://10.0.0.1/a", false),
        ] {
            assert_eq!(RepositoryUrl::parse(url).unwrap().is_loopback(), loopback, "{url}");
        }
    }
}
