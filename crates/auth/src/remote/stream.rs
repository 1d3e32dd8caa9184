//! Connections to servers, with or without TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::remote::look_up::LookUp;
use crate::remote::url::read;

/// Bytes in both directions.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytes for S {}

/// A connection to a server.
pub(crate) type Stream = Box<dyn Bytes>;

/// Opens a TCP connection to one of the addresses of a host.
pub(crate) async fn connect(names: &LookUp, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses = names.addresses(host).await?;
    addresses.iter_mut().for_each(|address| address.set_port(port));
    let stream = TcpStream::connect(&*addresses).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TLS to one server, whose certificate must be valid for its name.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Prepares TLS to a host. `authorities`: a PEM file of the authorities whose certificates are trusted;
    /// `None`: those of the system.
    pub(crate) fn new(host: &str, authorities: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let certificates = match authorities {
            Some(path) => CertificateDer::pem_slice_iter(&read(path)?)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("{}: {error}", path.display()))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let (trusted, _) = roots.add_parsable_certificates(certificates);
        if trusted == 0 {
            return Err(match authorities {
                Some(path) => format!("{}: contains no certificate", path.display()),
                None => "the system trusts no authority: name one with `ca_file`".into(),
            });
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| "the host of the URL cannot be the name of a certificate".to_owned())?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Begins TLS on a connection.
    pub(crate) async fn begin(&self, stream: TcpStream) -> io::Result<Stream> {
        Ok(Box::new(self.connector.connect(self.name.clone(), stream).await?))
    }
}
