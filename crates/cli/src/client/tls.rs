//! TLS for a client: trusted authorities and the client's certificate.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::args::TlsArgs;

/// Builds the TLS configuration from `args`; `alpn` names the protocol inside TLS.
pub fn config(args: &TlsArgs, alpn: Option<&str>) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = if args.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
    } else {
        builder.with_root_certificates(roots(args)?)
    };
    let mut config = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("--key {}", key.display()))?;
            builder.with_client_auth_cert(certificates(cert, "--cert")?, key)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.map(|name| name.as_bytes().to_vec()).into_iter().collect();
    Ok(Arc::new(config))
}

fn roots(args: &TlsArgs) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &args.cafile {
        for certificate in certificates(file, "--cafile")? {
            roots.add(certificate).with_context(|| format!("--cafile {}", file.display()))?;
        }
    }
    if let Some(directory) = &args.capath {
        let context = || format!("--capath {}", directory.display());
        for entry in directory.read_dir().with_context(context)? {
            let path = entry.with_context(context)?.path();
            // A directory of authorities also holds other things; only PEM files count.
            roots.add_parsable_certificates(certificates(&path, "--capath").unwrap_or_default());
        }
    }
    if args.cafile.is_none() && args.capath.is_none() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        bail!("no certificate authority is trusted; name one with --cafile");
    }
    Ok(roots)
}

fn certificates(path: &Path, flag: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("{flag} {}", path.display());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect())
        .with_context(context)?;
    if certificates.is_empty() {
        bail!("{}: there is no certificate in the file", context());
    }
    Ok(certificates)
}

/// Accepts any certificate: the connection is encrypted, the peer is not authenticated.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
