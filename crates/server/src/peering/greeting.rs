//! The handshake over a socket.

use std::io;
use std::time::Duration;

use barid_engine::random::Random;
use barid_peers::{
    Accepting, Dialing, Frame, FrameError, HandshakeError, Identity, Outcome, Proofs, Purpose,
    Refusal, Reply, decode,
};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::encryption::{LinkEncryption, Shown, is_tls};
use crate::cluster::LinkStream;

/// Time for a connection and its handshake.
const WITHIN: Duration = Duration::from_secs(5);

/// Time after which a connection ends on which sent bytes are not acknowledged by the other host.
const SILENT: Duration = Duration::from_secs(5);

/// Maximum length of a frame of the handshake.
const FRAME_MAX: usize = 2 * 1024;

/// Told to a broker whose certificate is not for its address.
const NOT_CERTIFIED: &str =
    "the certificate is not for the host of the address by which others reach the broker";

/// Why there is no link.
#[derive(Debug, Error)]
pub enum NoLink {
    /// The connection failed.
    #[error("{0}")]
    Io(io::Error),
    /// The handshake failed.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The other broker uses TLS, and this one does not.
    #[error("the other broker uses TLS, and this one has no [cluster.tls]")]
    OtherUsesTls,
    /// The other broker has not answered in TLS.
    #[error("the other broker does not answer in TLS: it may have no [cluster.tls]")]
    OtherIsPlain,
    /// Nothing has answered in time.
    #[error("no answer within {} s", WITHIN.as_secs())]
    TimedOut,
}

/// A link whose handshake is over.
pub struct Greeted {
    /// The byte stream.
    pub stream: LinkStream,
    /// The other broker, and what the link is for.
    pub outcome: Outcome,
    /// What has arrived behind the handshake.
    pub unread: Vec<u8>,
}

impl NoLink {
    /// Whether the host has refused the connection: no process listens.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether the settings of the two brokers do not fit, so that it does not help to try again at once.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Handshake(_) | Self::Tls(_) | Self::OtherUsesTls | Self::OtherIsPlain)
    }

    /// Whether the address is that of this broker.
    pub fn is_itself(&self) -> bool {
        matches!(self, Self::Handshake(HandshakeError::Refused(Refusal::Itself)))
    }

    /// Whether this broker has opened the link to itself.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Handshake(HandshakeError::Refuses(Refusal::Itself)))
    }

    /// Whether the other broker holds this one to be down.
    pub fn is_condemned(&self) -> bool {
        matches!(self, Self::Handshake(HandshakeError::Refused(Refusal::Down)))
    }
}

impl From<io::Error> for NoLink {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => Self::Tls(rustls::Error::clone(tls)),
            None => Self::Io(error),
        }
    }
}

/// Opens a link.
pub async fn dial(
    (address, encryption): (&str, &LinkEncryption),
    me: Identity,
    purpose: Purpose,
    proofs: &(dyn Proofs + Sync),
    random: Random,
) -> Result<Greeted, NoLink> {
    let shake = async {
        let socket = TcpStream::connect(address).await?;
        prepare(&socket)?;
        let stream = encryption.dial(socket, address).await?;
        let (mut dialing, hello) = Dialing::begin(me, purpose, random.bytes());
        exchange(stream, &hello, |frame| Ok(dialing.on_frame(frame, proofs)?)).await
    };
    timeout(WITHIN, shake).await.unwrap_or(Err(NoLink::TimedOut))
}

/// Answers a broker that has opened a link.
pub async fn answer(
    (socket, encryption): (TcpStream, &LinkEncryption),
    me: Identity,
    proofs: &(dyn Proofs + Sync),
    random: Random,
    admit: impl Fn(&Outcome) -> Result<(), Refusal>,
) -> Result<Greeted, NoLink> {
    let shake = async {
        prepare(&socket)?;
        let stream = encryption.accept(socket).await?;
        let mut accepting = Accepting::new(me, random.bytes());
        let shown = Shown::on(&stream);
        let admit = |outcome: &Outcome| match shown.is_for(&outcome.peer.address) {
            true => admit(outcome),
            false => Err(Refusal::Other(NOT_CERTIFIED.into())),
        };
        exchange(stream, &[], |frame| Ok(accepting.on_frame(frame, proofs, admit)?)).await
    };
    timeout(WITHIN, shake).await.unwrap_or(Err(NoLink::TimedOut))
}

/// Has the operating system end a connection over which nothing gets through.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(SILENT).with_interval(Duration::from_secs(1));
    socket.set_tcp_keepalive(&keepalive.with_retries(3))?;
    socket.set_tcp_user_timeout(Some(SILENT))
}

/// Sends bytes on a link.
pub async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Sends the first bytes, then handles frames until the link is open.
async fn exchange(
    mut stream: LinkStream,
    first: &[u8],
    mut on_frame: impl FnMut(Frame<'_>) -> Result<Reply, NoLink>,
) -> Result<Greeted, NoLink> {
    send(&mut stream, first).await?;
    let mut unread = Vec::new();
    loop {
        if matches!(stream, LinkStream::Plain(_)) && is_tls(&unread) {
            return Err(NoLink::OtherUsesTls);
        }
        let decoded = decode(&unread, FRAME_MAX).map_err(HandshakeError::from)?;
        let Some((frame, len)) = decoded else {
            if stream.read_buf(&mut unread).await? == 0 {
                return Err(HandshakeError::from(FrameError::CutOff).into());
            }
            continue;
        };
        let reply = on_frame(frame)?;
        unread.drain(..len);
        match reply {
            Reply::Send(bytes) => send(&mut stream, &bytes).await?,
            Reply::Open(bytes, outcome) => {
                send(&mut stream, &bytes).await?;
                return Ok(Greeted { stream, outcome, unread });
            }
            Reply::Refuse(bytes, error) => {
                send(&mut stream, &bytes).await?;
                let _ = stream.shutdown().await;
                return Err(error.into());
            }
        }
    }
}
