//! The broker's end of an MQTT connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use barid_engine::ids::ConnectionId;
use barid_engine::mqtt::{Arrival, Client, End, admit, refuse};
use barid_engine::turn::Turn;
use barid_engine::wire::Wire;
use mqtt_proto::{Connect, FixedHeader, MAX_PACKET_LEN};

use super::wire::{Out, Posts};
use crate::network::LinkId;

/// Handles the complete packets that have arrived. `client` is `None` until a client is admitted. Returns false
/// if the connection has ended.
pub fn handle(
    turn: &mut Turn<'_>,
    out: &mut Out,
    client: &mut Option<Box<Client>>,
    unread: &mut Vec<u8>,
    (link, posts): (LinkId, &Arc<Posts>),
) -> bool {
    let mut result = Ok(());
    if client.is_none() {
        let arrived = arrive(turn, out, unread, (link, posts));
        result = arrived.map(|arrived| *client = arrived.map(Box::new));
    }
    while let (Ok(()), Some(client)) = (&result, &mut *client) {
        let mut bytes = std::mem::take(unread);
        result =
            client.handle(turn, out, &mut bytes).map(|handled| *unread = bytes.split_off(handled));
        if !client.is_interrupted() || client.is_paused() || client.is_held_back() {
            break;
        }
    }
    match (&result, client) {
        (Ok(()), _) => true,
        (Err(end), Some(client)) => !client.end(turn, out, end),
        (Err(_), None) => false,
    }
}

/// Handles the first packet of a connection. Returns `None` if it is incomplete.
fn arrive(
    turn: &mut Turn<'_>,
    out: &mut Out,
    unread: &mut Vec<u8>,
    (link, posts): (LinkId, &Arc<Posts>),
) -> Result<Option<Client>, End> {
    let header = FixedHeader::read(unread, MAX_PACKET_LEN)?;
    let Some(header) = header.filter(|header| header.packet_len() <= unread.len()) else {
        return Ok(None);
    };
    let rest = unread.split_off(header.packet_len());
    let packet = std::mem::replace(unread, rest);
    let body = &packet[header.header_len..];
    let connect = Connect::decode(header, body)?;
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let wire: Arc<dyn Wire> = Arc::clone(&out.0) as _;
    let arrival = Arrival {
        id: ConnectionId(link.into()),
        peer,
        listener: "simulated",
        owner: Arc::clone(posts) as _,
        wire: Some(wire),
        user: None,
        enhanced: None,
        permissions: None,
        assigned: None,
    };
    match admit(turn, out, arrival, &connect, body.len()) {
        Ok(client) => Ok(Some(client)),
        Err(refusal) => Err(refuse(turn.context, out, peer, &connect, &refusal, |_| false)),
    }
}
