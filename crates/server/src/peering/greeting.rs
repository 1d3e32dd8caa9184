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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time for a connection and its handshake.
const WITHIN: Duration = Duration::from_secs(5);

/// Time after which a connection ends on which sent bytes are not acknowledged by the other host.
const SILENT: Duration = Duration::from_secs(5);

/// Maximum length of a frame of the handshake.
const FRAME_MAX: usize = 2 * 1024;

/// Why there is no link.
#[derive(Debug, Error)]
pub enum NoLink {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The handshake failed.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// Nothing has answered in time.
    #[error("no answer within {} s", WITHIN.as_secs())]
    TimedOut,
}

/// A link whose handshake is over.
pub struct Greeted {
    /// The socket.
    pub stream: TcpStream,
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

/// Opens a link.
pub async fn dial(
    address: &str,
    me: Identity,
    purpose: Purpose,
    proofs: &(dyn Proofs + Sync),
    random: Random,
) -> Result<Greeted, NoLink> {
    let shake = async {
        let stream = TcpStream::connect(address).await?;
        let (mut dialing, hello) = Dialing::begin(me, purpose, random.bytes());
        exchange(stream, &hello, |frame| Ok(dialing.on_frame(frame, proofs)?)).await
    };
    timeout(WITHIN, shake).await.unwrap_or(Err(NoLink::TimedOut))
}

/// Answers a broker that has opened a link.
pub async fn answer(
    stream: TcpStream,
    me: Identity,
    proofs: &(dyn Proofs + Sync),
    random: Random,
    admit: impl Fn(&Outcome) -> Result<(), Refusal>,
) -> Result<Greeted, NoLink> {
    let mut accepting = Accepting::new(me, random.bytes());
    let shake = exchange(stream, &[], |frame| Ok(accepting.on_frame(frame, proofs, &admit)?));
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

/// Sends the first bytes, then handles frames until the link is open.
async fn exchange(
    mut stream: TcpStream,
    first: &[u8],
    mut on_frame: impl FnMut(Frame<'_>) -> Result<Reply, NoLink>,
) -> Result<Greeted, NoLink> {
    prepare(&stream)?;
    stream.write_all(first).await?;
    let mut unread = Vec::new();
    loop {
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
            Reply::Send(bytes) => stream.write_all(&bytes).await?,
            Reply::Open(bytes, outcome) => {
                stream.write_all(&bytes).await?;
                return Ok(Greeted { stream, outcome, unread });
            }
            Reply::Refuse(bytes, error) => {
                stream.write_all(&bytes).await?;
                let _ = stream.shutdown().await;
                return Err(error.into());
            }
        }
    }
}
