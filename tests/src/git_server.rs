//! A git server for tests: `git http-backend` (the real one) behind a small HTTP server on loopback, with TLS by an authority of
//! its own, Basic auth, a log of what was asked, and faults that are switched on and off.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// What a server does wrong, until told otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Answers every request with this status and a body that quotes the request's Authorization.
    Status(u16),
    /// Redirects every request to the same path at another authority, such as `127.0.0.1:4000`.
    Redirect(String),
    /// Accepts the request and says nothing.
    Stall,
    /// Sends so many bytes of the answer to a POST and then nothing more.
    StallAfter(usize),
    /// Sends so many bytes of the answer to a POST and then closes.
    CutAfter(usize),
    /// Answers with a page for people.
    Html,
    /// Flips a bit of this byte of the answer to a POST that fetches.
    Damage(usize),
    /// Answers a fetch with these bytes.
    Answer(Vec<u8>),
    /// Speaks protocol version 0 and refuses commits that no ref names, as old servers do.
    NoFetchByCommit,
}

/// A request that came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The Authorization header, when there was one.
    pub authorization: Option<String>,
}

#[derive(Default)]
struct State {
    fault: Mutex<Fault>,
    seen: Mutex<Vec<Seen>>,
    auth: Mutex<Option<String>>,
}

/// A running server. It ends with its value.
pub struct GitServer {
    root: PathBuf,
    address: SocketAddr,
    ca_pem: Option<String>,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl GitServer {
    /// Serves the bare repositories below `root` over TLS with an authority of its own.
    ///
    /// # Errors
    /// When the certificate can't be made or no port can be had.
    pub async fn start(root: &Path) -> Result<Self> {
        let mut ca_parameters = rcgen::CertificateParams::new(Vec::<String>::new())?;
        ca_parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        ca_parameters.distinguished_name.push(rcgen::DnType::CommonName, "landfall test authority");
        let ca_key = rcgen::KeyPair::generate()?;
        let ca = ca_parameters.self_signed(&ca_key)?;
        let ca_pem = ca.pem();
        let issuer = rcgen::Issuer::new(ca_parameters, ca_key);
        let key = rcgen::KeyPair::generate()?;
        let certificate =
            rcgen::CertificateParams::new(vec![String::from("localhost"), String::from("127.0.0.1")])?.signed_by(&key, &issuer)?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                tokio_rustls::rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?,
            )?;
        Self::serve(root, Some((tokio_rustls::TlsAcceptor::from(Arc::new(config)), ca_pem))).await
    }

    /// Serves over clear text.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start_plain(root: &Path) -> Result<Self> {
        Self::serve(root, None).await
    }

    async fn serve(root: &Path, tls: Option<(tokio_rustls::TlsAcceptor, String)>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (acceptor, ca_pem) = tls.unzip();
        let state = Arc::new(State::default());
        let (shared, root_of_task) = (Arc::clone(&state), root.to_path_buf());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, root, acceptor) = (Arc::clone(&shared), root_of_task.clone(), acceptor.clone());
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| answer(request, Arc::clone(&state), root.clone()));
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that goes away mid-answer is part of many tests.
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                let _ = http.serve_connection(TokioIo::new(stream), service).await;
                            }
                        }
                        None => {
                            let _ = http.serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                });
            }
        });
        Ok(Self { root: root.to_path_buf(), address, ca_pem, state, task })
    }

    /// The folder whose repositories are served.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The authority, such as `127.0.0.1:4000`.
    #[must_use]
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// The URL of a repository.
    #[must_use]
    pub fn url(&self, repository: &str) -> String {
        format!("{}://{}/{repository}", if self.ca_pem.is_some() { "https" } else { "http" }, self.address)
    }

    /// The authority's certificate in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Wants Basic auth with this user and secret from now on; none wants none.
    pub fn require(&self, user_and_secret: Option<(&str, &str)>) {
        *self.state.auth.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            user_and_secret.map(|(user, secret)| format!("Basic {}", base64(format!("{user}:{secret}").as_bytes())));
    }

    /// Switches a fault on, or off with [`Fault::None`].
    pub fn fault(&self, fault: Fault) {
        *self.state.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = fault;
    }

    /// The requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, index| word << 8 | u32::from(group.get(index).copied().unwrap_or(0)));
        for index in 0..4 {
            text.push(if index <= group.len() { char::from(DIGITS[(word >> (18 - 6 * index) & 63) as usize]) } else { '=' });
        }
    }
    text
}

fn whole(status: u16, content_type: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert("content-type", value);
    }
    response
}

async fn answer(request: Request<Incoming>, state: Arc<State>, root: PathBuf) -> Result<Response<Body>, Infallible> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let seen = Seen { method: request.method().to_string(), path: request.uri().to_string(), authorization: header("authorization") };
    state.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(seen.clone());
    let fault = state.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    match &fault {
        Fault::Status(status) => {
            let text = format!("you sent {}", seen.authorization.unwrap_or_default());
            return Ok(whole(*status, "text/plain", text));
        }
        Fault::Redirect(authority) => {
            let mut response = whole(302, "text/plain", "moved");
            if let Ok(value) = format!("http://{authority}{}", seen.path).parse() {
                response.headers_mut().insert("location", value);
            }
            return Ok(response);
        }
        Fault::Stall => {
            futures::future::pending::<()>().await;
        }
        Fault::Html => return Ok(whole(200, "text/html; charset=utf-8", "<html>sign in</html>")),
        _ => {}
    }
    let wanted = state.auth.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    if wanted.is_some() && wanted != seen.authorization {
        let mut response = whole(401, "text/plain", format!("bad {}", seen.authorization.unwrap_or_default()));
        if let Ok(value) = "Basic realm=\"git\"".parse() {
            response.headers_mut().insert("www-authenticate", value);
        }
        return Ok(response);
    }
    Ok(backend(request, &fault, &root).await.unwrap_or_else(|error| whole(500, "text/plain", format!("{error:#}"))))
}

/// Runs the CGI program `git http-backend` for one request and streams what it says.
async fn backend(request: Request<Incoming>, fault: &Fault, root: &Path) -> Result<Response<Body>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let mut command = tokio::process::Command::new("git");
    command
        .arg("http-backend")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_CONFIG_KEY_1", "uploadpack.allowFilter")
        .env("GIT_CONFIG_VALUE_1", "true")
        .env("HOME", "/nonexistent")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &method)
        .env("PATH_INFO", &path)
        .env("QUERY_STRING", request.uri().query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if *fault != Fault::NoFetchByCommit {
        command.env("GIT_PROTOCOL", header("git-protocol"));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let fetching = method == "POST" && body.windows(5).any(|window| window == b"want ");
    if let (Fault::Answer(bytes), true) = (fault, fetching) {
        return Ok(whole(200, "application/x-git-upload-pack-result", bytes.clone()));
    }
    let mut child = command.env("CONTENT_LENGTH", body.len().to_string()).spawn().context("git http-backend")?;
    let mut stdin = child.stdin.take().context("stdin")?;
    let mut stdout = child.stdout.take().context("stdout")?;
    tokio::spawn(async move {
        let _ = stdin.write_all(&body).await;
    });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stdout.read_u8().await.context("the program's headers")?);
    }
    let mut response = Response::builder().status(200);
    for line in String::from_utf8_lossy(&head).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("status") {
            response = response.status(value.trim().split(' ').next().unwrap_or("500").parse::<u16>()?);
        } else {
            response = response.header(name, value.trim());
        }
    }
    let stream = futures::stream::unfold((stdout, child), |(mut stdout, child)| async move {
        let mut buffer = vec![0; 64 << 10];
        match stdout.read(&mut buffer).await {
            Ok(0) => None,
            Ok(count) => {
                buffer.truncate(count);
                Some((Ok(Bytes::from(buffer)), (stdout, child)))
            }
            Err(error) => Some((Err(error), (stdout, child))),
        }
    });
    let fault = if fetching { fault.clone() } else { Fault::None };
    let mut sent = 0usize;
    let stream = stream.flat_map(move |piece: std::io::Result<Bytes>| {
        let Ok(piece) = piece else { return futures::stream::iter(vec![piece]).boxed() };
        let (start, end) = (sent, sent + piece.len());
        sent = end;
        match &fault {
            Fault::StallAfter(at) if end > *at => {
                let first = futures::stream::iter(vec![Ok(piece.slice(..at.saturating_sub(start)))]);
                first.chain(futures::stream::pending()).boxed()
            }
            Fault::CutAfter(at) if end > *at => {
                let cut = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                futures::stream::iter(vec![Ok(piece.slice(..at.saturating_sub(start))), Err(cut)]).boxed()
            }
            Fault::Damage(at) if (start..end).contains(at) => {
                let mut bytes = piece.to_vec();
                bytes[at - start] ^= 0x10;
                futures::stream::iter(vec![Ok(Bytes::from(bytes))]).boxed()
            }
            _ => futures::stream::iter(vec![Ok(piece)]).boxed(),
        }
    });
    Ok(response.body(StreamBody::new(stream.map(|piece| piece.map(Frame::data))).boxed_unsync())?)
}

/// How long a test lets a stalled server be before it gives up: short, since nothing is to come.
pub const SHORT: Duration = Duration::from_secs(2);

/// A bare repository and a work tree beside it, both driven by the real git.
pub struct TestRepository {
    bare: PathBuf,
    work: PathBuf,
    name: String,
}

impl TestRepository {
    /// Makes `<root>/<name>` (bare, empty, HEAD on `main`) and a work tree for it.
    ///
    /// # Errors
    /// When git fails.
    pub fn create(root: &Path, name: &str) -> Result<Self> {
        let (bare, work) = (root.join(name), root.join(format!("{name}.work")));
        run(root, &["init", "-q", "--bare", "-b", "main", name])?;
        run(root, &["init", "-q", "-b", "main", &format!("{name}.work")])?;
        Ok(Self { bare, work, name: name.to_owned() })
    }

    /// The repository's name below the server's root.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The work tree.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// The bare repository.
    #[must_use]
    pub fn bare(&self) -> &Path {
        &self.bare
    }

    /// Writes a file of the work tree.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.work.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        Ok(std::fs::write(path, bytes)?)
    }

    /// Runs git in the work tree and returns its output without the last newline.
    ///
    /// # Errors
    /// When git fails; its stderr is in the error.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        run(&self.work, arguments)
    }

    /// Commits all that is in the work tree at a fixed time, pushes it to the bare repository's branch of the same name, and returns the
    /// commit's id.
    ///
    /// # Errors
    /// When git fails.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "-A", "-f"])?;
        self.commit_index(message)
    }

    /// As [`TestRepository::commit`], of what was put into the index by hand.
    ///
    /// # Errors
    /// When git fails.
    pub fn commit_index(&self, message: &str) -> Result<String> {
        self.git(&["commit", "-q", "--allow-empty", "-m", message])?;
        self.git(&["push", "-q", "-f", self.bare.to_str().context("path")?, "HEAD"])?;
        self.git(&["rev-parse", "HEAD"])
    }
}

/// Runs git in a folder, away from the machine's config, with fixed names and times.
///
/// # Errors
/// When git fails; its stderr is in the error.
pub fn run(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = git_command(folder).args(arguments).output().context("git")?;
    anyhow::ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// Returns a git command that knows nothing of this machine.
#[must_use]
pub fn git_command(folder: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("git");
    command
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "3")
        .env("GIT_CONFIG_KEY_0", "protocol.file.allow")
        .env("GIT_CONFIG_VALUE_0", "always")
        .env("GIT_CONFIG_KEY_1", "core.autocrlf")
        .env("GIT_CONFIG_VALUE_1", "false")
        .env("GIT_CONFIG_KEY_2", "core.quotePath")
        .env("GIT_CONFIG_VALUE_2", "true")
        .env("GIT_AUTHOR_NAME", "A U Thor")
        .env("GIT_AUTHOR_EMAIL", "author@example.com")
        .env("GIT_AUTHOR_DATE", "1700000000 +0100")
        .env("GIT_COMMITTER_NAME", "C O Mitter")
        .env("GIT_COMMITTER_EMAIL", "committer@example.com")
        .env("GIT_COMMITTER_DATE", "1700000000 +0100")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    command
}
