//! From a store's URL and options to something that keeps objects.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use super::file::FileStore;
use crate::error::{Error, Result};
use crate::random::SharedRandom;

/// Settings of a store beside its URL, such as `aws_endpoint` or `aws_access_key_id`; the names are those of `object_store`. May hold secrets.
pub type Options = BTreeMap<String, String>;

/// What a URL leads to.
pub(crate) struct Opened {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Segments before every key, joined by `/`; empty for none.
    pub(crate) prefix: String,
    pub(crate) scheme: Scheme,
    /// For messages: the URL as it was given (it never holds secrets).
    pub(crate) name: String,
}

/// The kinds of stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    File,
    Memory,
    S3,
    Google,
    Azure,
}

impl Scheme {
    fn of(url: &str) -> Result<(Self, &str)> {
        let unknown = || {
            Error::config(format!("{url:?} is not a store URL"))
                .code("store_url")
                .hint("expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///ABSOLUTE/FOLDER or memory:")
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
        let scheme = match scheme {
            "file" => Self::File,
            "memory" => Self::Memory,
            "s3" => Self::S3,
            "gs" => Self::Google,
            "az" => Self::Azure,
            _ => return Err(unknown()),
        };
        Ok((scheme, rest))
    }
}

/// Tells whether `name` (in lower case) is an option of the store that `url` names: the binary picks these from the environment.
#[must_use]
pub fn is_option(url: &str, name: &str) -> bool {
    match Scheme::of(url) {
        Ok((Scheme::S3, _)) => AmazonS3ConfigKey::from_str(name).is_ok(),
        Ok((Scheme::Google, _)) => GoogleConfigKey::from_str(name).is_ok(),
        Ok((Scheme::Azure, _)) => AzureConfigKey::from_str(name).is_ok(),
        _ => false,
    }
}

/// Opens the store that `url` names. No request is made.
pub(crate) fn open(url: &str, options: &Options, random: &SharedRandom) -> Result<Opened> {
    open_through(url, options, random, None)
}

/// As [`open`], with the HTTP connections made by `connector`: the self-test damages what it sends.
pub(crate) fn open_through(
    url: &str,
    options: &Options,
    random: &SharedRandom,
    connector: Option<Arc<dyn HttpConnector>>,
) -> Result<Opened> {
    let (scheme, rest) = Scheme::of(url)?;
    let name = url.to_owned();
    match scheme {
        Scheme::Memory => {
            if !matches!(rest, "" | "/" | "//" | "///") {
                return Err(Error::config(format!("{url:?} is not a store URL"))
                    .code("store_url")
                    .hint("a store in memory has no name: write `memory:`"));
            }
            Ok(Opened { objects: Arc::new(InMemory::new()), prefix: String::new(), scheme, name })
        }
        Scheme::File => {
            let root = folder(url)?;
            Ok(Opened { objects: Arc::new(FileStore::new(root, Arc::clone(random))), prefix: String::new(), scheme, name })
        }
        Scheme::S3 | Scheme::Google | Scheme::Azure => {
            let (bucket, prefix) = bucket_and_prefix(url)?;
            let objects = remote(scheme, &bucket, options, connector).map_err(|error| error.context(format!("opening the store {url}")))?;
            Ok(Opened { objects, prefix, scheme, name })
        }
    }
}

/// Returns the folder that a `file:` URL names.
pub(crate) fn folder(url: &str) -> Result<PathBuf> {
    let wrong =
        |why: &str| Error::config(format!("{url:?} is not a store URL: {why}")).code("store_url").hint("write file:///ABSOLUTE/FOLDER");
    let parsed = Url::parse(url).map_err(|error| wrong("it can't be parsed").source(error))?;
    if !url.starts_with("file:///") || parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("a folder's URL has three slashes, no host, no `?` and no `#`"));
    }
    parsed.to_file_path().map_err(|()| wrong("it names no folder"))
}

fn bucket_and_prefix(url: &str) -> Result<(String, String)> {
    let wrong = |why: &str| {
        Error::config(format!("the store URL isn't usable: {why}")).code("store_url").hint("write SCHEME://BUCKET/PREFIX and nothing else")
    };
    let parsed = Url::parse(url).map_err(|error| wrong("it can't be parsed").source(error))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(wrong("it holds a user or a password, which belong into the environment"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() || parsed.port().is_some() {
        return Err(wrong("it has a port, a `?` or a `#`"));
    }
    let bucket = parsed.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no bucket"))?;
    let prefix = parsed.path().strip_prefix('/').unwrap_or_default();
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let plain = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.=".contains(&b))
    };
    if !prefix.is_empty() && !prefix.split('/').all(plain) {
        return Err(wrong("the prefix may hold letters, digits and `-_.=`, in segments parted by one `/`"));
    }
    if prefix.len() > 256 {
        return Err(wrong("the prefix is longer than 256 bytes"));
    }
    Ok((bucket.to_owned(), prefix.to_owned()))
}

fn retries() -> RetryConfig {
    // Eight waits, the first of a tenth of a second, each up to twice as long as the one before: some 2 s in all, 12 s at most. A turn shouldn't hang
    // for minutes on a dead endpoint, and callers settle unknown outcomes anyway; but a server that refuses a third of its requests for a while
    // (`SlowDown`) would end one turn in forty with four.
    RetryConfig {
        backoff: BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(3), base: 2.0 },
        max_retries: 8,
        retry_timeout: Duration::from_secs(120),
    }
}

fn client() -> ClientOptions {
    // The time for a whole request: a pack of 32 MiB on a slow line takes its while.
    ClientOptions::new().with_timeout(Duration::from_secs(120)).with_connect_timeout(Duration::from_secs(5))
}

fn remote(scheme: Scheme, bucket: &str, options: &Options, connector: Option<Arc<dyn HttpConnector>>) -> Result<Arc<dyn ObjectStore>> {
    let built = |error: object_store::Error| {
        Error::config("its options don't fit together")
            .code("store_options")
            .hint("`landfall doctor` shows which options were found")
            .source(error)
    };
    macro_rules! configured {
        ($builder:expr, $key:ty) => {{
            let mut builder = $builder.with_retry(retries()).with_client_options(client());
            for (name, value) in options {
                let key: $key = name.parse().map_err(|_| {
                    Error::config(format!("{name:?} is not an option of this store"))
                        .code("store_options")
                        .hint("names are as in object_store, such as aws_endpoint")
                })?;
                builder = builder.with_config(key, value);
            }
            if let Some(connector) = connector {
                builder = builder.with_http_connector(Through(connector));
            }
            builder
        }};
    }
    Ok(match scheme {
        Scheme::S3 => {
            let mut builder =
                configured!(AmazonS3Builder::new().with_checksum_algorithm(Checksum::SHA256), AmazonS3ConfigKey).with_bucket_name(bucket);
            if ["aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url", "aws_endpoint_url_s3"]
                .iter()
                .filter_map(|name| options.get(*name))
                .any(|url| is_loopback(url))
            {
                builder = builder.with_allow_http(true);
            }
            Arc::new(builder.build().map_err(built)?)
        }
        Scheme::Google => {
            Arc::new(configured!(GoogleCloudStorageBuilder::new(), GoogleConfigKey).with_bucket_name(bucket).build().map_err(built)?)
        }
        Scheme::Azure => {
            Arc::new(configured!(MicrosoftAzureBuilder::new(), AzureConfigKey).with_container_name(bucket).build().map_err(built)?)
        }
        Scheme::File | Scheme::Memory => return Err(Error::internal("a local store was opened as a remote one")),
    })
}

/// Plain HTTP to this machine itself needs no permission.
fn is_loopback(endpoint: &str) -> bool {
    match Url::parse(endpoint).ok().as_ref().and_then(Url::host) {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[derive(Debug)]
struct Through(Arc<dyn HttpConnector>);

impl HttpConnector for Through {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<object_store::client::HttpClient> {
        self.0.connect(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_open(url: &str, options: &[(&str, &str)]) -> Result<Opened> {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let random: SharedRandom = Arc::new(crate::random::SystemRandom);
        open(url, &options, &random)
    }

    #[test]
    fn urls_that_name_no_store_are_refused_with_the_forms_that_do() {
        for bad in [
            "",
            "x",
            "http://a/b",
            "s3:",
            "s3://",
            "s3:///x",
            "s3://user:pass@b/p",
            "s3://b/p?x=1",
            "s3://b//p",
            "s3://b/a b",
            "file://host/x",
            "file:x",
            "memory:x",
        ] {
            let error = try_open(bad, &[]).map(|_| ()).unwrap_err();
            assert_eq!(error.stable_code(), "store_url", "{bad}: {error:?}");
            assert!(error.next_step().is_some(), "{bad}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_repeated() {
        let error = try_open("s3://user:hunter2@b/p", &[]).map(|_| ()).unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn bucket_and_prefix_come_from_the_url() {
        let opened = try_open("s3://bucket/a/b/", &[("aws_region", "eu-west-1")]).unwrap();
        assert_eq!((opened.prefix.as_str(), opened.scheme), ("a/b", Scheme::S3));
    }

    #[test]
    fn unknown_options_are_errors_and_known_ones_are_told_apart() {
        assert_eq!(try_open("s3://bucket", &[("aws_regoin", "x")]).map(|_| ()).unwrap_err().stable_code(), "store_options");
        assert!(is_option("s3://b", "aws_endpoint") && is_option("s3://b", "allow_http") && !is_option("s3://b", "aws_profile"));
        assert!(!is_option("file:///x", "aws_endpoint"));
    }
}
