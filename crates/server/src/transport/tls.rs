//! Certificates of the TLS listeners.

use std::path::Path;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use crate::settings::Tls;

/// Why the certificates cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read, or has no PEM of the kind in it.
    #[error("cannot read a {what} from {file}: {source}")]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        file: String,
        /// Why it was not found.
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate and its key do not go together, or are of a kind that is not supported.
    #[error("cannot use certificate {certificate} with key {key}: {source}")]
    Pair {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
        /// Why.
        source: rustls::Error,
    },
    /// The client authorities cannot be used.
    #[error("cannot use the client authorities in {file}: {reason}")]
    ClientAuthorities {
        /// Their file.
        file: String,
        /// Why.
        reason: String,
    },
    /// `require_client_certificate` without `client_ca`.
    #[error("require_client_certificate needs client_ca: the authorities that are trusted")]
    NoClientAuthorities,
}

/// Reads the certificates and makes of them what a listener needs; `protocol` is what ALPN must agree on
/// when a client uses it.
///
/// # Errors
/// When a file is missing, is no PEM, or does not fit the others.
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
