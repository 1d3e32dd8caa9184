//! Client links: the bytes of one client between the broker that it has reached and the one that has its session.
//!
//! The links are opened here, and accepted here. What passes over them is the business of the IO threads.

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;

use barid_auth::CertificateNames;
use barid_peers::{Client, Frame, FrameError, HandshakeError, Purpose, decode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tracing::debug;

use super::Peering;
use super::greeting::{Greeted, NoLink, dial};
use crate::cluster::{Direction, NoHome, Wanted};
use crate::event_loop::Post;
use crate::system;
use crate::transport::{Accepted, PassedOn};

/// Maximum number of links that are being opened at a time: of all brokers together, no more than one accepts.
const OPENED_TOGETHER: usize = 32;

/// Time in which a client is introduced to the other broker.
const WITHIN: Duration = Duration::from_secs(5);

/// Maximum length of the frame that introduces a client, in bytes: room for a certificate.
const FRAME_MAX: usize = 64 * 1024;

/// Opens links for clients until the broker ends.
pub async fn open_links(peering: Arc<Peering>, mut wanted: mpsc::Receiver<Wanted>) {
    let opening = Arc::new(Semaphore::new(OPENED_TOGETHER));
    while let Some(one) = wanted.recv().await {
        let Ok(permit) = Arc::clone(&opening).acquire_owned().await else { return };
        let peering = Arc::clone(&peering);
        let Wanted { home, address, certificate, reply } = one;
        tokio::spawn(async move {
            let link = open(&peering, &home, address, &certificate).await;
            drop(permit);
            reply(link);
        });
    }
}

async fn open(
    peering: &Peering,
    home: &str,
    address: SocketAddr,
    certificate: &[u8],
) -> Result<StdStream, NoHome> {
    let clustering = &peering.clustering;
    let at = clustering.address_of_up(home).ok_or_else(|| NoHome::NotUp(home.into()))?;
    let link = async {
        let me = clustering.me();
        let greeted = dial(&at, me, Purpose::Client, &clustering.secret, system::RANDOM).await?;
        if !peering.descriptors.are_enough_for_client(&greeted.stream) {
            return Err(NoLink::from(io::Error::other("too few file descriptors are left")));
        }
        let introduced = introduce(greeted, address, certificate);
        timeout(WITHIN, introduced).await.unwrap_or(Err(NoLink::TimedOut))
    };
    link.await.map_err(|error| NoHome::NoLink(home.into(), error.to_string()))
}

/// Tells the other broker who the client is, and waits until it is ready for the client's bytes.
async fn introduce(
    greeted: Greeted,
    address: SocketAddr,
    certificate: &[u8],
) -> Result<StdStream, NoLink> {
    let Greeted { mut stream, unread: mut bytes, .. } = greeted;
    let mut out = Vec::new();
    Frame::Client(Client { address: &address.to_string(), certificate }).encode(&mut out);
    stream.write_all(&out).await?;
    match only_frame(&mut stream, &mut bytes).await? {
        Frame::Ready => Ok(stream.into_std()?),
        _ => Err(HandshakeError::from(FrameError::Unexpected).into()),
    }
}

/// Takes over a client that another broker passes on, and hands it to an IO thread.
pub async fn take_over(peering: &Peering, greeted: Greeted) -> Result<(), NoLink> {
    let Greeted { mut stream, unread: mut bytes, outcome } = greeted;
    if !peering.descriptors.are_enough_for_client(&stream) {
        debug!(broker = outcome.peer.name, "no file descriptor is left for a client");
        return Ok(());
    }
    let introduced = async {
        let Frame::Client(client) = only_frame(&mut stream, &mut bytes).await? else {
            return Err(broken());
        };
        let address: SocketAddr = client.address.parse().map_err(|_| broken())?;
        let certificate = CertificateNames::of(client.certificate);
        if certificate.is_none() && !client.certificate.is_empty() {
            debug!(%address, "the names in the client's certificate cannot be read");
        }
        let mut ready = Vec::new();
        Frame::Ready.encode(&mut ready);
        stream.write_all(&ready).await?;
        Ok((address, certificate))
    };
    let introduced = timeout(WITHIN, introduced).await.unwrap_or(Err(NoLink::TimedOut));
    let (peer, certificate) = introduced?;
    let counted = peering.clustering.relays.begins(Direction::FromOther);
    let accepted = Accepted {
        socket: mio::net::TcpStream::from_std(stream.into_std()?),
        peer,
        listener: Arc::clone(&peering.passed_on),
        passed_on: Some(Box::new(PassedOn { certificate, counted })),
    };
    let thread = peering.threads.for_new_connection();
    thread.connection_comes();
    thread.mailbox().post(Post::Accept(Box::new(accepted)));
    Ok(())
}

/// Reads a frame behind which nothing comes before it is answered.
async fn only_frame<'a>(
    stream: &mut TcpStream,
    bytes: &'a mut Vec<u8>,
) -> Result<Frame<'a>, NoLink> {
    while decode(bytes, FRAME_MAX).map_err(HandshakeError::from)?.is_none() {
        if stream.read_buf(bytes).await? == 0 {
            return Err(HandshakeError::from(FrameError::CutOff).into());
        }
    }
    match decode(bytes, FRAME_MAX).map_err(HandshakeError::from)? {
        Some((frame, len)) if len == bytes.len() => Ok(frame),
        _ => Err(broken()),
    }
}

fn broken() -> NoLink {
    HandshakeError::from(FrameError::Value).into()
}
