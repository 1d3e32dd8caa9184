//! Message links: opened here, and handed to IO threads.

use std::sync::Arc;
use std::time::Duration;

use barid_engine::links::Side;
use barid_peers::{Identity, Purpose};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::debug;

use super::Peering;
use super::greeting::{Greeted, NoLink};
use crate::cluster::LinkStream;
use crate::connection::{Lost, MemberConnection};
use crate::event_loop::{Peer, Post};
use crate::transport::{Tcp, Transport};

/// Time between two attempts to open a message link.
const AGAIN: Duration = Duration::from_millis(250);

/// Keeps the message link of an IO thread to another broker open, as long as that is a member.
pub async fn carry(peering: Arc<Peering>, peer: Identity, thread: u16) {
    let mut lives = peering.clustering.lives.subscribe();
    while peering.clustering.is_member(&peer) {
        match peering.dial(&peer.address, Purpose::Messages(thread)).await {
            // Its next life must not get what was sent to this one, and may have been stored: that is given up first.
            Ok(greeted) if greeted.outcome.peer.incarnation != peer.incarnation => {}
            Ok(greeted) => {
                let (lost, is_lost) = oneshot::channel();
                match hand_out(&peering, &peer, thread, greeted, Lost::to(lost)) {
                    Ok(()) => {
                        tokio::select! {
                            _ = is_lost => {}
                            _ = lives.changed() => {}
                        }
                    }
                    Err(error) => debug!(%error, "cannot use a link to another broker"),
                }
            }
            Err(error) => debug!(broker = peer.name, %error, "no message link"),
        }
        sleep(AGAIN).await;
    }
}

/// Gives a link for messages to another broker to its IO thread.
fn hand_out(
    peering: &Peering,
    peer: &Identity,
    thread: u16,
    greeted: Greeted,
    lost: Lost,
) -> Result<(), NoLink> {
    let place = peering.clustering.place(&peer.name).expect("a member has a place");
    let link = Arc::clone(peering.clustering.engine().link(usize::from(thread), place));
    let side = Side::Outgoing(link);
    give(peering, usize::from(thread), (greeted.stream, greeted.unread), side, lost)
}

/// Gives a link for messages from another broker to an IO thread: always the same one for the same thread of that broker,
/// so that a new connection does not overtake the one before.
pub fn hand_in(peering: &Peering, thread: u16, greeted: Greeted) -> Result<(), NoLink> {
    let name = &greeted.outcome.peer.name;
    let place = peering.clustering.place(name).expect("a member has a place");
    let inbound = peering.clustering.engine().inbound(place, thread);
    let at = usize::from(thread) % peering.threads.iter().count();
    let side = Side::Incoming(inbound);
    give(peering, at, (greeted.stream, greeted.unread), side, Lost::ignored())
}

fn give(
    peering: &Peering,
    thread: usize,
    (stream, unread): (LinkStream, Vec<u8>),
    side: Side,
    lost: Lost,
) -> Result<(), NoLink> {
    let (socket, tls) = stream.into_parts()?;
    let socket = Arc::new(Tcp(mio::net::TcpStream::from_std(socket)));
    let transport = Transport::of_link(Arc::clone(&socket), tls);
    let id = peering.shared.next_connection_id();
    let connection = MemberConnection::new(id, (socket, transport), side, unread, lost);
    let thread = peering.threads.get(thread);
    thread.connection_comes();
    thread.mailbox().post(Post::Adopt(Peer::Member(Box::new(connection))));
    Ok(())
}
