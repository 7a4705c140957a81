//! TLS: certificates are checked by name against the system's authorities and those that the operator added. Nothing that a guest
//! says weakens it.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, crypto};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::policy::url::Host;

/// The TLS of one agent. Reads the system's authorities when it is first used.
pub(super) struct Tls {
    extra: Vec<CertificateDer<'static>>,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Tls {
    pub(super) fn new(extra_ca_pem: Option<&[u8]>) -> Result<Self> {
        let extra = match extra_ca_pem {
            None => Vec::new(),
            Some(pem) => {
                let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
                read.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(|| {
                    Error::config("a ca_file holds no certificates").hint("it has to be a PEM file with BEGIN CERTIFICATE lines")
                })?
            }
        };
        Ok(Self { extra, config: OnceLock::new() })
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        self.config.get_or_init(|| build(&self.extra)).clone().map_err(Failure::Host)
    }

    /// Makes the handshake, with the name for which the certificate has to be.
    pub(super) async fn handshake(&self, host: &Host, stream: TcpStream) -> Result<TlsStream<TcpStream>, Failure> {
        let name = match host {
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_| Failure::Tls(format!("{host} can't be in a certificate")))?
            }
            Host::Address(address) => ServerName::from(*address),
        };
        TlsConnector::from(self.config()?).connect(name, stream).await.map_err(|error| explain(host, &error))
    }
}

fn build(extra: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let unusable = |error: rustls::Error| format!("this machine has no usable certificate authorities: {error}");
    let verifier = Verifier::new_with_extra_roots(extra.iter().cloned(), Arc::clone(&provider)).map_err(unusable)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous() // The name of the method that takes a verifier; this one is the platform's.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn explain(host: &Host, error: &std::io::Error) -> Failure {
    use rustls::CertificateError as Certificate;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match tls {
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => "is for another name",
            Certificate::Expired | Certificate::ExpiredContext { .. } => "has expired",
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => "isn't valid yet",
            Certificate::UnknownIssuer => "is of an authority that isn't trusted here",
            Certificate::Revoked => "was revoked",
            _ => "isn't valid",
        },
        Some(_) => return Failure::Tls(format!("the TLS handshake with {host} failed")),
        None => return Failure::Unreachable(format!("the connection to {host} was lost in the TLS handshake")),
    };
    Failure::Tls(format!("the certificate of {host} {why}"))
}
