//! TLS between brokers: each side shows a certificate, and the authority of the cluster must have issued both.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::greeting::NoLink;
use crate::cluster::LinkStream;
use crate::settings::ClusterTls;
use crate::transport::{CertificateError, client_config, is_for, server_config};

/// The protocol of links in ALPN.
const ALPN: &str = "barid-link";

/// First bytes of a connection over TLS: a handshake (RFC 8446, 5.1). A frame that begins like this would be too long.
const HANDSHAKE: [u8; 2] = [22, 3];

/// First bytes of an alert.
const ALERT: [u8; 2] = [21, 3];

/// TLS on the links of a broker; `None` inside: links are in plain text. Cheap to clone.
#[derive(Clone)]
pub struct LinkEncryption(Option<Arc<RwLock<Configs>>>);

#[derive(Clone)]
struct Configs {
    dialing: Arc<ClientConfig>,
    accepting: Arc<ServerConfig>,
}

impl LinkEncryption {
    /// Reads the certificates. Without settings, links are in plain text.
    ///
    /// # Errors
    /// Fails if a file is missing or is not PEM, or if the files do not match each other.
    pub fn of(tls: Option<&ClusterTls>) -> Result<Self, CertificateError> {
        let configs = tls.map(Configs::read).transpose()?;
        Ok(Self(configs.map(|configs| Arc::new(RwLock::new(configs)))))
    }

    /// Reads the certificates again, for links that are opened from now on.
    ///
    /// # Errors
    /// Fails as [`Self::of`] does, and then the old ones stay.
    pub fn renew(&self, tls: &ClusterTls) -> Result<(), CertificateError> {
        if let Some(configs) = &self.0 {
            *configs.write() = Configs::read(tls)?;
        }
        Ok(())
    }

    /// Encrypts a connection to the broker at an address, whose certificate must be for the host in it.
    pub async fn dial(&self, socket: TcpStream, address: &str) -> Result<LinkStream, NoLink> {
        let Some(configs) = self.configs() else { return Ok(LinkStream::Plain(socket)) };
        let name = ServerName::try_from(host_of(address)).map_err(io::Error::other)?.to_owned();
        match TlsConnector::from(configs.dialing).connect(name, socket).await {
            Ok(stream) => Ok(LinkStream::Tls(Box::new(TlsStream::Client(stream)))),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Err(NoLink::OtherIsPlain),
                _ => Err(error.into()),
            },
        }
    }

    /// Encrypts a connection that another broker has opened.
    pub async fn accept(&self, socket: TcpStream) -> Result<LinkStream, NoLink> {
        let Some(configs) = self.configs() else { return Ok(LinkStream::Plain(socket)) };
        let stream = TlsAcceptor::from(configs.accepting).accept(socket).await?;
        Ok(LinkStream::Tls(Box::new(TlsStream::Server(stream))))
    }

    fn configs(&self) -> Option<Configs> {
        self.0.as_ref().map(|configs| configs.read().clone())
    }
}

impl Configs {
    fn read(tls: &ClusterTls) -> Result<Self, CertificateError> {
        let dialing = Arc::new(client_config(tls, ALPN)?);
        let accepting = Arc::new(server_config(&tls.of_listener(), ALPN)?);
        Ok(Self { dialing, accepting })
    }
}

/// The certificate that another broker has shown; `None`: the link is in plain text.
pub struct Shown(Option<CertificateDer<'static>>);

impl Shown {
    /// Takes the certificate from a link.
    pub fn on(stream: &LinkStream) -> Self {
        let LinkStream::Tls(stream) = stream else { return Self(None) };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Self(chain.first().cloned().map(CertificateDer::into_owned))
    }

    /// Whether the certificate, if one is needed, is for the host of this address.
    pub fn is_for(&self, address: &str) -> bool {
        self.0.as_ref().is_none_or(|certificate| is_for(certificate, host_of(address)))
    }
}

fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether bytes that have arrived in plain text are the beginning of TLS.
pub fn is_tls(arrived: &[u8]) -> bool {
    arrived.starts_with(&HANDSHAKE) || arrived.starts_with(&ALERT)
}
