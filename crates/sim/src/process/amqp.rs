//! The broker's end of an AMQP connection.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use barid_engine::amqp::{Container, Inbox, Key, Keys, Right, Secret};
use barid_engine::ids::ConnectionId;
use barid_engine::turn::Turn;

use super::wire::{Out, Posts};
use crate::network::LinkId;

/// Name of the only key, and also its secret.
pub const KEY: &str = "all";

/// Creates the broker's end of a new connection.
pub fn accept(link: LinkId, posts: &Arc<Posts>) -> Container {
    let inbox = Inbox::new(ConnectionId(link.into()), Arc::clone(posts) as _);
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    Container::new(here, here, Arc::new(OneKey), Arc::new(inbox))
}

/// Handles the bytes that have arrived, and sends output as far as the client takes it. Returns false if the
/// connection has ended.
pub fn handle(
    turn: &mut Turn<'_>,
    out: &mut Out,
    container: &mut Container,
    unread: &mut Vec<u8>,
) -> bool {
    let was_open = container.is_open();
    container.begin_turn(turn);
    container.attend(turn);
    let handled = container.receive(turn, unread);
    unread.drain(..handled);
    if container.is_open() && !was_open {
        container.admit(turn);
    }
    loop {
        container.pump(turn);
        if container.output().is_empty() || !flush(container, out) || !container.has_more() {
            break;
        }
    }
    let is_open = !container.is_closed();
    if !is_open {
        container.abort(turn);
    }
    is_open
}

/// Ends a connection. `farewell` is the reason of the close that the client is sent; without it, the connection
/// is lost already.
pub fn end(turn: &mut Turn<'_>, out: &mut Out, container: &mut Container, farewell: Option<&str>) {
    match farewell {
        Some(reason) => {
            container.close(turn, reason);
            flush(container, out);
        }
        None => container.note_abnormal_end(turn),
    }
    container.abort(turn);
}

/// Writes the output. Returns false if the client does not take all of it.
fn flush(container: &mut Container, out: &mut Out) -> bool {
    while !container.output().is_empty() {
        match out.write(container.output()) {
            Ok(written) => container.has_written(written),
            Err(_) => return false,
        }
    }
    true
}

/// The shared access keys of the simulated broker: only [`KEY`], with all rights.
#[derive(Debug)]
struct OneKey;

impl Keys for OneKey {
    fn find(&self, _: SocketAddr, name: &str) -> Option<Key> {
        let rights = vec![Right::Manage];
        (name == KEY).then(|| Key {
            name: KEY.into(),
            secret: Secret::new(KEY),
            rights,
            entity: None,
        })
    }

    fn are_in(&self, _: &str) -> bool {
        true
    }

    fn ban(&self, _: Option<&str>, _: &str, _: &str, _: IpAddr) -> Option<String> {
        None
    }
}
