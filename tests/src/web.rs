//! Web servers on loopback that behave as badly as a test wants: they write raw bytes, and count who came.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto, pki_types};

/// A stream to a client.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Serve = Arc<dyn Fn(Box<dyn Stream>, Arc<Seen>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What a server saw.
#[derive(Debug, Default)]
pub struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

/// A running server. It ends with its value.
pub struct Web {
    port: u16,
    seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An authority that signs certificates for tests.
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    /// When there is no key to be had.
    pub fn new(name: &str) -> Result<Self> {
        let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate()?;
        let pem = parameters.self_signed(&key)?.pem();
        Ok(Self { issuer: rcgen::Issuer::new(parameters, key), pem })
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Makes a server's TLS for these names; `expired` makes the certificate one of the last century.
    ///
    /// # Errors
    /// When the certificate can't be made.
    pub fn tls(&self, names: &[&str], expired: bool, protocols: &[&str]) -> Result<TlsAcceptor> {
        let mut parameters = rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        if expired {
            parameters.not_before = rcgen::date_time_ymd(1998, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(1999, 1, 1);
        }
        let key = rcgen::KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        acceptor(certificate.der().clone(), &key, protocols)
    }
}

/// Makes a server's TLS with a certificate that signs itself.
///
/// # Errors
/// When the certificate can't be made.
pub fn self_signed(names: &[&str]) -> Result<TlsAcceptor> {
    let parameters = rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
    let key = rcgen::KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    acceptor(certificate.der().clone(), &key, &[])
}

fn acceptor(certificate: pki_types::CertificateDer<'static>, key: &rcgen::KeyPair, protocols: &[&str]) -> Result<TlsAcceptor> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], pki_types::PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?)?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Web {
    /// Serves each connection with a function of the test.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start<F, S>(tls: Option<TlsAcceptor>, serve: S) -> Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(Box<dyn Stream>, Arc<Seen>) -> F + Send + Sync + 'static,
    {
        let serve: Serve = Arc::new(move |stream, seen| Box::pin(serve(stream, seen)));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (serve, seen, tls) = (Arc::clone(&serve), Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(Box::new(stream), seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(Box::new(stream), seen).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { port, seen, task })
    }

    /// Answers each request by its head with bytes, and keeps the connection.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn answering(tls: Option<TlsAcceptor>, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Result<Self> {
        let answer = Arc::new(answer);
        Self::start(tls, move |mut stream, seen| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    let bytes = answer(&request);
                    seen.note(request);
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections came.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The requests that came, head and body.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Seen {
    /// Notes a request.
    pub fn note(&self, request: String) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

/// Reads one request with its body, of a known length or in chunks; none when the client has gone.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        bytes.push(stream.read_u8().await.ok()?);
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    if text.contains("\r\ntransfer-encoding: chunked\r\n") {
        loop {
            let mut size = String::new();
            while !size.ends_with("\r\n") {
                size.push(char::from(stream.read_u8().await.ok()?));
            }
            let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).ok()? + 2];
            stream.read_exact(&mut chunk).await.ok()?;
            if chunk.len() == 2 {
                break;
            }
            bytes.extend_from_slice(&chunk[..chunk.len() - 2]);
        }
    } else {
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        bytes.extend_from_slice(&body);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A plain answer with a body of a known length.
#[must_use]
pub fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
