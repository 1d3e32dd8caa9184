//! Certificates of the TLS listeners.

use std::path::Path;
use std::sync::Arc;

use barid_auth::{CertificateNames, Revocable, RevocationList};
use barid_core::time::WallTime;
use hashbrown::HashSet;
use rustls::client::verify_server_name;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use thiserror::Error;

use crate::settings::{ClusterTls, Tls};

/// Why the certificates cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read, or contains no PEM item of the expected kind.
    #[error("cannot read a {what} from {file}: {source}")]
    File {
        /// The kind of item that was expected.
        what: &'static str,
        /// The path of the file.
        file: String,
        /// The cause of the error.
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate and its key do not match, or are of a kind that is not supported.
    #[error("cannot use certificate {certificate} with key {key}: {source}")]
    Pair {
        /// The path of the certificate's file.
        certificate: String,
        /// The path of the key's file.
        key: String,
        /// The cause of the error.
        source: rustls::Error,
    },
    /// The certificate authorities cannot be used.
    #[error("cannot use the certificate authorities in {file}: {reason}")]
    Authorities {
        /// The path of their file.
        file: String,
        /// The cause of the error.
        reason: String,
    },
    /// A certificate revocation list cannot be used. The text names the file.
    #[error("cannot use a certificate revocation list: {0}")]
    RevocationList(String),
    /// `require_client_certificate` is set without `client_ca`.
    #[error("require_client_certificate needs client_ca: the trusted certificate authorities")]
    NoClientAuthorities,
}

/// Reads the certificates and creates the TLS configuration of a listener. A client that uses ALPN must offer
/// `protocol`.
///
/// # Errors
/// Fails if a file is missing or is not PEM, or if the files do not match each other.
pub fn server_config(tls: &Tls, protocol: &str) -> Result<ServerConfig, CertificateError> {
    let chain = certificates(&tls.certificate, "certificate")?;
    let key = private_key(&tls.key)?;
    let builder =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions");
    let builder = match &tls.client_ca {
        None if tls.require_client_certificate => {
            return Err(CertificateError::NoClientAuthorities);
        }
        None => builder.with_no_client_auth(),
        Some(file) => {
            let refuse = |reason: String| CertificateError::Authorities {
                file: file.display().to_string(),
                reason,
            };
            let roots = authorities(file)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                Arc::new(rustls::crypto::ring::default_provider()),
            );
            let verifier = if tls.require_client_certificate {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            let verifier = verifier
                .with_crls(revocation_lists(tls)?)
                .only_check_end_entity_revocation()
                .enforce_revocation_expiration();
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| refuse(error.to_string()))?,
            )
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|source| do_not_match(&tls.certificate, &tls.key, source))?;
    config.alpn_protocols = vec![protocol.into()];
    Ok(config)
}

/// Reads the certificates and creates the TLS configuration for links to other brokers, over which `protocol` is spoken.
///
/// # Errors
/// Fails if a file is missing or is not PEM, or if the files do not match each other.
pub fn client_config(tls: &ClusterTls, protocol: &str) -> Result<ClientConfig, CertificateError> {
    let chain = certificates(&tls.certificate, "certificate")?;
    let key = private_key(&tls.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider supports TLS 1.3")
        .with_root_certificates(authorities(&tls.ca)?)
        .with_client_auth_cert(chain, key)
        .map_err(|source| do_not_match(&tls.certificate, &tls.key, source))?;
    config.alpn_protocols = vec![protocol.into()];
    Ok(config)
}

/// What the revocation lists of a broker say together.
#[derive(Debug, Default)]
pub struct Revocations {
    /// The certificates that are revoked.
    pub certificates: HashSet<Revocable>,
    /// The time at which the first of the lists expires. From then on no client whose certificate it is about can connect.
    pub expire: Option<WallTime>,
}

/// Reads the revocation lists of `tls`.
///
/// # Errors
/// Fails if a file is missing, or has no list.
pub fn revocations(tls: &Tls) -> Result<Revocations, CertificateError> {
    let mut all = Revocations::default();
    for list in revocation_lists(tls)? {
        let list = RevocationList::of(&list).ok_or_else(|| {
            CertificateError::RevocationList("a revocation list cannot be parsed".into())
        })?;
        all.certificates.extend(list.certificates);
        all.expire = all.expire.into_iter().chain(list.expires).min();
    }
    Ok(all)
}

/// The broker's certificate.
#[derive(Debug)]
pub struct OwnCertificate(CertificateDer<'static>);

impl OwnCertificate {
    /// Reads it; `None`: the file cannot be read.
    pub fn read(tls: &Tls) -> Option<Self> {
        let chain = certificates(&tls.certificate, "certificate").ok()?;
        chain.into_iter().next().map(Self)
    }

    /// Returns when it expires; `None`: that cannot be read.
    pub fn expires(&self) -> Option<WallTime> {
        CertificateNames::of(&self.0)?.expires()
    }

    /// Whether it is for the host of this name.
    pub fn is_for(&self, host: &str) -> bool {
        is_for(&self.0, host)
    }
}

/// Whether a certificate is for the host of this name.
pub fn is_for(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let (Ok(parsed), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

fn revocation_lists(
    tls: &Tls,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateError> {
    let mut lists = Vec::new();
    for file in &tls.crl {
        let refuse = |reason: &dyn std::fmt::Display| {
            CertificateError::RevocationList(format!("{}: {reason}", file.display()))
        };
        let before = lists.len();
        for list in CertificateRevocationListDer::pem_file_iter(file).map_err(|e| refuse(&e))? {
            lists.push(list.map_err(|error| refuse(&error))?);
        }
        if lists.len() == before {
            return Err(refuse(&"there is no revocation list in it (PEM)"));
        }
    }
    Ok(lists)
}

fn do_not_match(certificate: &Path, key: &Path, source: rustls::Error) -> CertificateError {
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    CertificateError::Pair { certificate, key, source }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_file(file).map_err(|source| CertificateError::File {
        what: "private key",
        file: file.display().to_string(),
        source,
    })
}

fn authorities(file: &Path) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, "certificate authority")? {
        roots.add(certificate).map_err(|error| CertificateError::Authorities {
            file: file.display().to_string(),
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn certificates(
    file: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let error = |source| CertificateError::File { what, file: file.display().to_string(), source };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(error)?;
    if chain.is_empty() {
        return Err(error(rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(chain)
}
