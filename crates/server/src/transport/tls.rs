//! Certificates of the TLS listeners.

use std::path::Path;
use std::sync::Arc;

use barid_auth::{CertificateNames, Revocable, RevocationList};
use barid_core::time::WallTime;
use hashbrown::HashSet;
use rustls::client::verify_server_name;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use thiserror::Error;

use crate::settings::Tls;

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
    /// The client certificate authorities cannot be used.
    #[error("cannot use the client certificate authorities in {file}: {reason}")]
    ClientAuthorities {
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
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|source| CertificateError::File {
        what: "private key",
        file: tls.key.display().to_string(),
        source,
    })?;
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
            let refuse = |reason: String| CertificateError::ClientAuthorities {
                file: file.display().to_string(),
                reason,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file, "certificate authority")? {
                roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
            }
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
    let mut config =
        builder.with_single_cert(chain, key).map_err(|source| CertificateError::Pair {
            certificate: tls.certificate.display().to_string(),
            key: tls.key.display().to_string(),
            source,
        })?;
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
        let (Ok(parsed), Ok(name)) =
            (ParsedCertificate::try_from(&self.0), ServerName::try_from(host))
        else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }
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
