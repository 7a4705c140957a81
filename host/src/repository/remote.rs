//! What a session may ask of a remote repository: which commit a branch or a given id is, with the session's own credential.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::branch::BranchName;
use super::connect::{self, Connection};
use super::http::{self, Exchange};
use super::local;
use super::url::{RepositoryUrl, Scheme};
use crate::base64;
use crate::clock::SharedClock;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::pin::{OnBranch, Pin};

/// Decides whether a repository's address may be connected to. Called for every address that a name has.
pub type AddressRule = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// What the operator allows of remote repositories. The defaults allow https only.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Further certificate authorities that repositories' servers may be certified by, in PEM. The machine's own stay trusted.
    pub ca_pem: Option<Vec<u8>>,
    /// Allows `file://`: any repository that this process can read.
    pub allow_file: bool,
    /// Allows `http://` to loopback addresses, credentials included. For demonstrations and tests.
    pub allow_http_loopback: bool,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the first and for each further byte.
    pub gap_timeout: Duration,
    /// Longest time for a whole exchange, the fetch of a pack included.
    pub total_timeout: Duration,
    /// Largest pack in bytes as received.
    pub max_pack_bytes: u64,
    /// Most objects in a pack.
    pub max_objects: u32,
    /// Largest single object in bytes, decoded. Blobs are decoded in memory.
    pub max_object_bytes: usize,
    /// How many commits of a branch are looked through for a given commit.
    pub history_depth: u32,
    /// Which addresses may be connected to. The default is [`default_addresses`].
    pub addresses: AddressRule,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            ca_pem: None,
            allow_file: false,
            allow_http_loopback: false,
            connect_timeout: Duration::from_secs(10),
            gap_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(15 * 60),
            max_pack_bytes: 8 << 30,
            max_objects: 4_000_000,
            max_object_bytes: 1 << 30,
            history_depth: 10_000,
            addresses: Arc::new(default_addresses),
        }
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("allow_file", &self.allow_file)
            .field("allow_http_loopback", &self.allow_http_loopback)
            .field("max_pack_bytes", &self.max_pack_bytes)
            .finish_non_exhaustive()
    }
}

/// Returns whether an address may be a repository's: everything but unspecified, multicast and link-local addresses (the
/// metadata services of the clouds are among the latter) and the clouds' other metadata addresses.
#[must_use]
pub fn default_addresses(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let metadata = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
            !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || v4.is_link_local() || metadata.contains(&v4))
        }
        IpAddr::V6(v6) => {
            let metadata = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];
            !(v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local() || metadata.contains(&v6))
        }
    }
}

/// What a repository's server is shown: HTTP Basic (RFC 7617). Never part of a URL, an argument, a file or an error.
#[derive(Clone)]
pub struct Credential {
    username: Arc<str>,
    secret: Arc<str>,
}

impl Credential {
    /// Makes a credential from a token: the user name is `x-access-token`, which GitHub asks for and others ignore.
    #[must_use]
    pub fn token(secret: &str) -> Self {
        Self::basic("x-access-token", secret)
    }

    /// Makes a credential from a user name and a secret.
    #[must_use]
    pub fn basic(username: &str, secret: &str) -> Self {
        Self { username: username.into(), secret: secret.into() }
    }

    /// Returns the header's value, marked so that no debug output shows it.
    pub(super) fn authorization(&self) -> Result<reqwest::header::HeaderValue> {
        let encoded = base64::encode_padded(format!("{}:{}", self.username, self.secret).as_bytes());
        let mut value = reqwest::header::HeaderValue::try_from(format!("Basic {encoded}"))
            .map_err(|_| Error::internal("a credential doesn't fit into a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// Which commit a first turn asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Revision {
    /// The branch that the remote's HEAD names.
    Default,
    /// A branch's tip.
    Branch(BranchName),
    /// A commit by its id, and the branch that it is expected on.
    Commit(CommitId, Option<BranchName>),
}

/// Proof that the remote accepted a session's credential for a repository, and the commit it then named. Only
/// [`Git::resolve`] makes one, so an import that another session paid for can't be opened without it.
#[derive(Clone, Debug)]
pub struct Access {
    pub(super) url: RepositoryUrl,
    pub(super) credential: Option<Credential>,
    pin: Pin,
}

impl Access {
    /// Returns the commit that the session is to stand on.
    #[must_use]
    pub fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The same with the branch that the commit was found on.
    pub(super) fn on_branch(mut self, branch: Option<String>) -> Self {
        self.pin.branch = branch;
        self.pin.on_branch = OnBranch::Yes;
        self
    }
}

/// A stage of a fetch or an import, for progress displays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Bytes of the pack received so far.
    Received(u64),
    /// Files imported so far, and their bytes.
    Imported {
        /// Files so far.
        files: u64,
        /// Bytes so far.
        bytes: u64,
    },
}

/// Takes progress. Called from several threads; must return at once.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// The host's git client. Cheap to clone.
#[derive(Clone)]
pub struct Git {
    inner: Arc<Inner>,
}

struct Inner {
    options: RemoteOptions,
    clock: SharedClock,
    client: Mutex<Option<reqwest::blocking::Client>>,
}

impl fmt::Debug for Git {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Git").field(&self.inner.options).finish()
    }
}

impl Git {
    /// Makes a client. Nothing is read or connected to yet.
    #[must_use]
    pub fn new(options: RemoteOptions, clock: SharedClock) -> Self {
        Self { inner: Arc::new(Inner { options, clock, client: Mutex::new(None) }) }
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &RemoteOptions {
        &self.inner.options
    }

    /// Asks the remote, with this credential, which commit a revision is. This is the one remote check of a session whose
    /// commit was imported before.
    ///
    /// # Errors
    /// `NotFound` (`repository_not_found`, `branch_not_found`, `commit_not_found`) where there is none or the credential isn't accepted, `Denied`
    /// where the operator doesn't allow such a URL, `Remote` when the server can't be reached or doesn't speak the protocol,
    /// `Cancelled` never (drop the future instead).
    pub async fn resolve(&self, url: &RepositoryUrl, credential: Option<&Credential>, revision: &Revision) -> Result<Access> {
        self.allowed(url)?;
        let (url, credential, revision) = (url.clone(), credential.cloned(), revision.clone());
        self.blocking(move |git, interrupt| {
            let pin = match url.file_path() {
                Some(path) => local::resolve(&url, &path, &revision)?,
                None => {
                    let mut connection = git.connect(&url, credential.as_ref(), interrupt)?;
                    resolve(&mut connection, &url, &revision)?
                }
            };
            Ok(Access { url, credential, pin })
        })
        .await
    }

    /// Refuses URLs that the operator's settings rule out.
    ///
    /// # Errors
    /// `Denied`, naming the setting.
    pub fn allowed(&self, url: &RepositoryUrl) -> Result<()> {
        let options = &self.inner.options;
        match url.scheme() {
            Scheme::File if !options.allow_file => {
                return Err(Error::denied(format!("the repository {url} is a path of this machine, which isn't allowed"))
                    .code("file_not_allowed")
                    .hint("the operator can allow it with `allow_file_repositories = true`"));
            }
            Scheme::Http if !url.is_loopback() => {
                return Err(Error::denied(format!("the repository {url} would be read over clear text"))
                    .code("http_not_allowed")
                    .hint("use its https URL"));
            }
            Scheme::Http if !options.allow_http_loopback => {
                return Err(Error::denied(format!("the repository {url} would be read over clear text"))
                    .code("http_not_allowed")
                    .hint("the operator can allow it for loopback addresses"));
            }
            Scheme::Https | Scheme::Http | Scheme::File => {}
        }
        if url.address().is_some_and(|address| !(options.addresses)(address)) {
            return Err(connect::refused_address(url));
        }
        Ok(())
    }

    /// Opens a connection: one request, which shows whether the credential is accepted.
    pub(super) fn connect(&self, url: &RepositoryUrl, credential: Option<&Credential>, interrupt: Arc<AtomicBool>) -> Result<Connection> {
        let client = {
            let mut client = self.inner.client.lock().unwrap_or_else(PoisonError::into_inner);
            match &*client {
                Some(client) => client.clone(),
                None => client.insert(http::client(&self.inner.options)?).clone(),
            }
        };
        let exchange = Exchange::new(Arc::clone(&self.inner.clock), self.inner.options.total_timeout, connect::LISTING_MAX, interrupt);
        Connection::open(client, url, credential, exchange)
    }

    /// Runs blocking git work on its own thread; dropping the future interrupts it.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, Arc<AtomicBool>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let interrupt = Arc::new(AtomicBool::new(false));
        let mut guard = InterruptOnDrop(Some(Arc::clone(&interrupt)));
        let git = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&git, interrupt)).await;
        // What the work returned may still hold the flag, and goes on.
        guard.0 = None;
        done.map_err(|error| Error::internal("the git client's thread failed").source(error))?
    }
}

/// Interrupts the thread when its caller goes away.
struct InterruptOnDrop(Option<Arc<AtomicBool>>);

impl Drop for InterruptOnDrop {
    fn drop(&mut self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

fn resolve(connection: &mut Connection, url: &RepositoryUrl, revision: &Revision) -> Result<Pin> {
    let pin = |branch: Option<String>, commit, on_branch| Pin { url: url.to_string(), branch, commit, on_branch };
    match revision {
        Revision::Default => {
            let (branch, commit) = connection.head()?;
            // A detached HEAD of the remote names no branch, so there is none to be on.
            let on_branch = if branch.is_some() { OnBranch::Yes } else { OnBranch::Unchecked };
            Ok(pin(branch, commit, on_branch))
        }
        Revision::Branch(branch) => Ok(pin(Some(branch.to_string()), connection.branch(branch)?, OnBranch::Yes)),
        // The handshake has shown that the credential is accepted; whether the commit exists, the fetch shows.
        Revision::Commit(commit, branch) => Ok(pin(branch.as_ref().map(ToString::to_string), *commit, OnBranch::Unchecked)),
    }
}

/// A place for temporary git directories: a folder of this process that nobody else reads.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    root: PathBuf,
    made: Arc<OnceLock<()>>,
}

impl Scratch {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, made: Arc::new(OnceLock::new()) }
    }

    /// Makes a directory that goes away with its value.
    pub(super) fn directory(&self) -> Result<tempfile::TempDir> {
        use std::os::unix::fs::DirBuilderExt as _;
        let failed = |error| Error::local(format!("the cache folder {} can't be used", self.root.display())).source(error);
        if self.made.get().is_none() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root).map_err(failed)?;
            let _ = self.made.set(());
        }
        tempfile::Builder::new().prefix("git-").tempdir_in(&self.root).map_err(failed)
    }
}
