//! The broker's end of an AMQP connection.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use barid_engine::amqp::{Container, Inbox, Key, Keys, Right, Secret};
use barid_engine::ids::ConnectionId;
use barid_engine::turn::Turn;

use super::wire::{Out, Posts};
use crate::network::LinkId;

/// The name of the one key, which is its text, too.
pub const KEY: &str = "all";

/// A connection on which nothing has been said.
pub fn accept(link: LinkId, posts: &Arc<Posts>) -> Container {
    let inbox = Inbox::new(ConnectionId(link.into()), Arc::clone(posts) as _);
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    Container::new(here, here, Arc::new(OneKey), Arc::new(inbox))
}

/// Handles what has come, and sends what there is as far as the client takes it. False: the connection has ended.
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

/// Ends a connection; with a farewell, if the client is still there to hear it.
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

/// False: the client does not take all.
fn flush(container: &mut Container, out: &mut Out) -> bool {
    let output = container.output();
    while !output.is_empty() {
        match out.write(output) {
            Ok(written) => _ = output.drain(..written),
            Err(_) => return false,
        }
    }
    true
}

/// The keys of the simulated broker.
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
}
