//! A connection to a remote: handshake, the listing of a few refs, and the pack of one commit.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gix::bstr::{BString, ByteSlice as _};
use gix::progress::Discard;
use gix::protocol::fetch::{Arguments, Negotiate, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::blocking_io::http::Transport;
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::branch::BranchName;
use super::http::{Exchange, Failure, Wire};
use super::remote::{Credential, Progress, ProgressSink, RemoteOptions};
use super::url::RepositoryUrl;
use crate::error::{Error, Result};
use crate::id::CommitId;

/// Most bytes of a handshake and a listing of refs. A server of protocol version 2 sends only the refs asked for.
pub(super) const LISTING_MAX: u64 = 64 << 20;

/// A connection after the handshake: the credential was accepted.
pub(super) struct Connection {
    transport: Transport<Wire>,
    handshake: Handshake,
    exchange: Arc<Exchange>,
    url: RepositoryUrl,
    with_credential: bool,
}

/// A pack as fetched, in a directory of the caller's.
#[derive(Debug)]
pub(super) struct FetchedPack {
    pub(super) pack: PathBuf,
    pub(super) index: PathBuf,
}

/// What of the commits is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Their trees and files too.
    All,
    /// Nothing else, where the server can leave it out.
    Commits,
}

impl Connection {
    pub(super) fn open(
        client: reqwest::blocking::Client,
        url: &RepositoryUrl,
        credential: Option<&Credential>,
        exchange: Arc<Exchange>,
    ) -> Result<Self> {
        let authorization = credential.map(Credential::authorization).transpose()?;
        let parsed = gix::url::parse(url.as_str().as_bytes().as_bstr())
            .map_err(|_| Error::usage(format!("the repository URL {url} can't be used by the git client")))?;
        let wire = Wire::new(client, &url.to_url()?, authorization, Arc::clone(&exchange));
        let mut transport = Transport::new_http(wire, parsed, Protocol::V2, false);
        let refuse = |_| Err(gix::Error::from_error(std::io::Error::other("no identity beside the header")));
        let result = gix::protocol::handshake(&mut transport, Service::UploadPack, refuse, Vec::new(), &mut Discard);
        let handshake = result.map_err(|_| explain(url, credential.is_some(), &exchange))?;
        let connection = Self { transport, handshake, exchange, url: url.clone(), with_credential: credential.is_some() };
        let format = connection.handshake.capabilities.capability("object-format").and_then(|format| format.value().map(BString::from));
        match format {
            Some(format) if format != "sha1" => {
                Err(Error::remote(format!("the repository {url} has {format} object ids, which aren't supported"))
                    .code("object_format")
                    .hint("only SHA-1 repositories can be used"))
            }
            _ => Ok(connection),
        }
    }

    fn explain(&self) -> Error {
        explain(&self.url, self.with_credential, &self.exchange)
    }

    fn no_pack(&self, commit: CommitId) -> Error {
        Error::remote(format!("the repository {} sent no pack for commit {commit}", self.url)).code("bad_pack")
    }

    /// Lists the refs of these full names or prefixes; with protocol version 0 or 1 the server sent all in the handshake.
    fn refs(&mut self, prefixes: &[String]) -> Result<Vec<Ref>> {
        if let Some(refs) = &self.handshake.refs {
            return Ok(refs.clone());
        }
        let mut asked = RefPrefixes::new();
        asked.extend(prefixes.iter().map(|prefix| BString::from(prefix.as_str())));
        let command = LsRefsCommand::new(Some(asked), &self.handshake.capabilities, agent());
        command
            .invoke_blocking(&mut self.transport, &mut Discard, false)
            .map_err(|_| explain(&self.url, self.with_credential, &self.exchange))
    }

    /// Returns the branch that the remote's HEAD names, and its commit.
    pub(super) fn head(&mut self) -> Result<(Option<String>, CommitId)> {
        let refs = self.refs(&[String::from("HEAD")])?;
        let branch_of = |target: &BString| target.strip_prefix(b"refs/heads/").and_then(|name| name.to_str().ok()).map(str::to_owned);
        for found in &refs {
            match found {
                Ref::Symbolic { full_ref_name, target, object, .. } if full_ref_name == "HEAD" => {
                    return Ok((branch_of(target), commit_id(object)?));
                }
                Ref::Direct { full_ref_name, object } if full_ref_name == "HEAD" => return Ok((None, commit_id(object)?)),
                _ => {}
            }
        }
        Err(Error::not_found(format!("the repository {} has no commit that its HEAD names", self.url))
            .code("branch_not_found")
            .hint("it may be empty; name a branch or a commit"))
    }

    /// Returns the commit of a branch's tip.
    pub(super) fn branch(&mut self, branch: &BranchName) -> Result<CommitId> {
        let (wanted, tag) = (branch.full_ref(), format!("refs/tags/{branch}"));
        let refs = self.refs(&[wanted.clone(), tag.clone()])?;
        if let Some((_, object)) = refs.iter().filter_map(name_and_object).find(|(name, _)| name.as_bytes() == wanted.as_bytes()) {
            return commit_id(object);
        }
        let error = Error::not_found(format!("the repository {} has no branch {branch:?}", self.url, branch = branch.as_str()))
            .code("branch_not_found");
        Err(match refs.iter().filter_map(name_and_object).find(|(name, _)| name.as_bytes() == tag.as_bytes()) {
            Some((_, object)) => error.hint(format!("there is a tag of this name: give its commit, {object}")),
            None => error.hint("`git ls-remote --heads URL` lists the branches"),
        })
    }

    /// Fetches the pack of one commit and so much of its history into `directory`, with an index; `git_dir` gets the `shallow` file.
    #[expect(clippy::too_many_arguments, reason = "what is fetched, where to, and within which limits: each is used once")]
    pub(super) fn fetch_commit(
        &mut self,
        commit: CommitId,
        depth: NonZeroU32,
        what: What,
        git_dir: &Path,
        directory: &Path,
        options: &RemoteOptions,
        progress: Option<&ProgressSink>,
    ) -> Result<FetchedPack> {
        let shallow_file = git_dir.join("shallow");
        let mut pack = None;
        // A little more for what frames the pack.
        self.exchange.allow(options.max_pack_bytes.saturating_add(options.max_pack_bytes / 64 + (64 << 10)));
        let exchange = Arc::clone(&self.exchange);
        let before = exchange.received.load(Ordering::Relaxed);
        let wanted = gix::ObjectId::from_bytes_or_panic(commit.as_bytes());
        let mut too_many = None;
        let result = gix::protocol::fetch(
            &mut OneCommit { wanted, what },
            |reader, progress_of_gix, interrupt| {
                let mut header = [0; 12];
                std::io::Read::read_exact(reader, &mut header).map_err(gix::Error::from_error)?;
                let objects = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
                if objects > options.max_objects {
                    too_many = Some(objects);
                    return Err(gix::Error::from_error(exchange.fail(Failure::TooLarge)));
                }
                let counting = Counting { inner: reader, exchange: &exchange, sink: progress, shown: 0, start: before };
                let mut whole = std::io::BufReader::with_capacity(64 << 10, std::io::Read::chain(std::io::Cursor::new(header), counting));
                let written = gix_pack::Bundle::write_to_directory(
                    &mut whole,
                    Some(directory),
                    progress_of_gix,
                    interrupt,
                    None::<gix::OdbHandle>,
                    gix::hash::Kind::Sha1,
                    gix_pack::bundle::write::Options {
                        thread_limit: None,
                        iteration_mode: gix_pack::data::input::Mode::Verify,
                        index_version: gix_pack::index::Version::default(),
                        alloc_limit_bytes: Some(options.max_object_bytes),
                        ..Default::default()
                    },
                )?;
                pack = Some(written);
                Ok(true)
            },
            Discard,
            &self.exchange.interrupt,
            gix::protocol::fetch::Context {
                handshake: &mut self.handshake,
                transport: &mut self.transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            gix::protocol::fetch::Options {
                shallow_file,
                shallow: &gix::protocol::fetch::Shallow::DepthAtRemote(depth),
                tags: gix::protocol::fetch::Tags::None,
                reject_shallow_remote: false,
            },
        );
        if let Some(objects) = too_many {
            return Err(Error::limit(format!(
                "the pack of commit {commit} has {objects} objects, over the limit of {}",
                options.max_objects
            )));
        }
        match (result, pack) {
            (Ok(Some(_)), Some(written)) => {
                let (Some(pack), Some(index)) = (written.data_path, written.index_path) else {
                    return Err(self.no_pack(commit));
                };
                Ok(FetchedPack { pack, index })
            }
            (Ok(_), _) => Err(self.no_pack(commit)),
            (Err(error), _) => {
                if self.exchange.failure().is_none() {
                    // No class of its own: the refusal is told by git's fixed words.
                    let said = format!("{error:?}");
                    if said.contains("not our ref") || said.contains("unadvertised object") || said.contains("non-side channel line") {
                        return Err(commit_not_found(&self.url, commit));
                    }
                    if error.classify().any(|found| matches!(found.class(), gix::error::Class::ResourceExhaustion(_))) {
                        return Err(Error::limit(format!(
                            "an object of commit {commit} is larger than the limit of {} bytes",
                            options.max_object_bytes
                        )));
                    }
                    return Err(Error::remote(format!(
                        "the repository {} sent something that is no usable pack of commit {commit}",
                        self.url
                    ))
                    .code("bad_pack"));
                }
                Err(self.explain())
            }
        }
    }
}

pub(super) fn commit_not_found(url: &RepositoryUrl, commit: CommitId) -> Error {
    Error::not_found(format!("the repository {url} has no commit {commit}, or its server doesn't give it out"))
        .code("commit_not_found")
        .hint("give a commit that a branch of this repository contains")
}

fn commit_id(id: &gix::oid) -> Result<CommitId> {
    let bytes = id.as_bytes().try_into().map_err(|_| Error::remote("the server named an object id that isn't SHA-1"))?;
    Ok(CommitId::from_bytes(bytes))
}

fn name_and_object(found: &Ref) -> Option<(&BString, &gix::ObjectId)> {
    match found {
        Ref::Direct { full_ref_name, object } | Ref::Symbolic { full_ref_name, object, .. } | Ref::Peeled { full_ref_name, object, .. } => {
            Some((full_ref_name, object))
        }
        Ref::Unborn { .. } => None,
    }
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(String::from(concat!("git/landfall-", env!("CARGO_PKG_VERSION")))))
}

pub(super) fn refused_address(url: &RepositoryUrl) -> Error {
    Error::denied(format!("the repository {url} has an address that no repository may have")).code("address_refused")
}

/// Puts a failure into words. Nothing of the server's own text is in them, and a refusal looks like a repository that isn't there.
fn explain(url: &RepositoryUrl, with_credential: bool, exchange: &Exchange) -> Error {
    match exchange.failure() {
        Some(Failure::Refused) => {
            let error = if with_credential {
                Error::not_found(format!("the repository {url} doesn't exist, or the credential isn't accepted for it"))
                    .hint("check the URL, and that the credential may read the repository and hasn't expired")
            } else {
                Error::not_found(format!("the repository {url} doesn't exist, or needs a credential"))
                    .hint("check the URL; for a private repository name a credential in the agent's entry")
            };
            error.code("repository_not_found")
        }
        Some(Failure::Redirect) => Error::remote(format!("the repository {url} answered with a redirect, and redirects aren't followed"))
            .code("redirected")
            .hint("give the URL that the repository has now; some servers want `.git` at its end"),
        Some(Failure::Status(status)) => {
            Error::remote(format!("the repository {url} answered with HTTP status {status}")).code("remote_status")
        }
        Some(Failure::NotGit) => Error::remote(format!("the server of {url} doesn't answer as a git repository"))
            .code("not_git")
            .hint("check the URL: a page for people has another address than the repository"),
        Some(Failure::Unreachable) => Error::remote(format!("the server of {url} can't be reached"))
            .code("remote_unreachable")
            .hint("check the name, the network and the server's certificate; the operator can name a CA of their own"),
        Some(Failure::Address) => refused_address(url),
        Some(Failure::Broken) | None => {
            Error::remote(format!("the exchange with {url} broke off or made no sense")).code("remote_broken").hint("repeat it later")
        }
        Some(Failure::Timeout) => Error::remote(format!("the server of {url} took too long")).code("remote_timeout"),
        Some(Failure::TooLarge) => Error::limit(format!("the repository {url} sent more than the limit allows")).code("remote_too_large"),
        Some(Failure::Cancelled) => Error::cancelled(format!("the exchange with {url} was cancelled")),
        Some(Failure::Internal) => Error::internal(format!("the request to {url} couldn't be made")),
    }
}

/// Counts what of a pack has come, for progress.
struct Counting<'a, R: ?Sized> {
    inner: &'a mut R,
    exchange: &'a Exchange,
    sink: Option<&'a ProgressSink>,
    start: u64,
    shown: u64,
}

impl<R: std::io::Read + ?Sized> std::io::Read for Counting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(sink) = self.sink {
            let received = self.exchange.received.load(Ordering::Relaxed).saturating_sub(self.start);
            if received - self.shown >= 1 << 20 {
                self.shown = received;
                sink(Progress::Received(received));
            }
        }
        Ok(count)
    }
}

/// Asks for one commit and has nothing to offer.
struct OneCommit {
    wanted: gix::ObjectId,
    what: What,
}

impl Negotiate for OneCommit {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _known: &[bool]) -> bool {
        if self.what == What::Commits && arguments.can_use_filter() {
            arguments.filter("tree:0");
        }
        arguments.want(self.wanted);
        true
    }

    fn one_round(
        &mut self,
        _state: &mut negotiate::one_round::State,
        _arguments: &mut Arguments,
        _previous: Option<&gix::protocol::fetch::Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        let round = negotiate::Round { haves_sent: 0, in_vain: 0, haves_to_send: 0, previous_response_had_at_least_one_in_common: false };
        Ok((round, true))
    }
}
