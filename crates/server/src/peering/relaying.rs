//! Client links: the bytes of one client between the broker that it has reached and the one that it belongs to.
//!
//! The links are opened here, and accepted here. What passes over them is the business of the IO threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barid_auth::CertificateNames;
use barid_peers::{Client, Frame, FrameError, HandshakeError, Protocol, Purpose, decode};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tracing::debug;

use super::Peering;
use super::greeting::{Greeted, NoLink, send};
use crate::cluster::{Direction, Guest, LinkStream, NoHome, Operator, Wanted};
use crate::event_loop::Post;
use crate::transport::{self, Accepted, ListenerContext, PassedOn};

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
        // Strangers who do not wait for an answer must not delay those who do.
        if !one.is_wanted() {
            continue;
        }
        let peering = Arc::clone(&peering);
        tokio::spawn(async move {
            let Wanted { client, reply, .. } = one;
            let link = open(&peering, &client).await;
            drop(permit);
            reply(link);
        });
    }
}

async fn open(peering: &Peering, guest: &Guest) -> Result<LinkStream, NoHome> {
    let (clustering, home) = (&peering.clustering, &guest.home);
    if **home == *clustering.name() {
        return Err(NoHome::Moving);
    }
    let at = clustering.address_of_up(home).ok_or_else(|| NoHome::NotUp(home.clone()))?;
    let link = async {
        let greeted = peering.dial(&at, Purpose::Client).await?;
        if !peering.descriptors.are_enough_for_client(&greeted.stream) {
            return Err(NoLink::from(io::Error::other("too few file descriptors are left")));
        }
        let introduced = introduce(greeted, guest);
        timeout(WITHIN, introduced).await.unwrap_or(Err(NoLink::TimedOut))
    };
    link.await.map_err(|error| NoHome::NoLink(home.clone(), error.to_string()))
}

/// Tells the other broker who the client is, and waits until it is ready for the client's bytes.
async fn introduce(greeted: Greeted, guest: &Guest) -> Result<LinkStream, NoLink> {
    let Greeted { mut stream, unread: mut bytes, .. } = greeted;
    let mut out = Vec::new();
    let client = Client {
        address: &guest.address.to_string(),
        protocol: guest.protocol,
        listener: &guest.listener.to_string(),
        certificate: &guest.certificate,
    };
    Frame::Client(client).encode(&mut out);
    send(&mut stream, &out).await?;
    match only_frame(&mut stream, &mut bytes).await? {
        Frame::Ready => Ok(stream),
        _ => Err(HandshakeError::from(FrameError::Unexpected).into()),
    }
}

/// Takes over a client that another broker passes on, and hands it to an IO thread; an operator to the admin API.
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
        let listener: SocketAddr = client.listener.parse().map_err(|_| broken())?;
        let protocol = client.protocol;
        let certificate = CertificateNames::of(client.certificate);
        if certificate.is_none() && !client.certificate.is_empty() {
            debug!(%address, "the names in the client's certificate cannot be read");
        }
        let mut ready = Vec::new();
        Frame::Ready.encode(&mut ready);
        send(&mut stream, &ready).await?;
        Ok((address, (protocol, listener), certificate))
    };
    let introduced = timeout(WITHIN, introduced).await.unwrap_or(Err(NoLink::TimedOut));
    let (peer, (protocol, listener), certificate) = introduced?;
    let relays = &peering.clustering.relays;
    let counted = relays.begins(Direction::FromOther);
    let protocol = match protocol {
        Protocol::Mqtt => transport::Protocol::Mqtt,
        Protocol::Amqp => transport::Protocol::Amqp,
        Protocol::Admin | Protocol::Management => {
            relays.hand_over(Operator { stream, address: peer, protocol, listener, counted });
            return Ok(());
        }
    };
    let listener = ListenerContext {
        name: "cluster",
        protocol,
        address: listener,
        proxy_protocol: false,
        websocket: None,
        tls: None,
        strangers: Arc::clone(&peering.shared.strangers),
    };
    let (socket, tls) = stream.into_parts()?;
    let accepted = Accepted {
        socket: mio::net::TcpStream::from_std(socket),
        peer,
        listener: Arc::new(listener),
        passed_on: Some(Box::new(PassedOn { certificate, counted })),
        tls,
    };
    let thread = peering.threads.for_new_connection();
    thread.connection_comes();
    thread.mailbox().post(Post::Accept(Box::new(accepted)));
    Ok(())
}

/// Reads a frame behind which nothing comes before it is answered.
async fn only_frame<'a>(
    stream: &mut LinkStream,
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
