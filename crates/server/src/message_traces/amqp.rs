//! Frames of AMQP that messages and their outcomes are in.

use barid_amqp::frame::{
    Body, DeliveryState, Disposition, Frame, Performative, Role, Transfer, decode,
};

use super::context::TraceContext;
use super::span::{Direction, Value};
use super::tap::{Key, Message, Seen};

/// Reads a frame that passes in this direction; `head` may be only the beginning of it.
pub fn read(direction: Direction, head: &[u8]) -> Option<Seen<'_>> {
    let Frame { channel, body: Body::Amqp(performative, payload) } = decode(head).ok()? else {
        return None;
    };
    let key = |id: u32| Key::from(channel) << 32 | Key::from(id);
    match performative {
        Performative::Attach(attach) if attach.role == Role::Sender => {
            // The other end is the client.
            let entity = match direction {
                Direction::Received => attach.target,
                Direction::Sent => attach.source,
            };
            let address = without_host(entity.as_ref()?.address()?).into();
            Some(Seen::Link { channel, handle: attach.handle, address })
        }
        Performative::Transfer(transfer) => {
            let Transfer { handle, delivery_id, settled, aborted, .. } = transfer;
            // Later pieces of a message have no id, or go on behind its properties.
            let id = delivery_id.filter(|_| !aborted)?;
            Some(Seen::Transfer {
                channel,
                handle,
                message: Message {
                    context: TraceContext::find_in_amqp(payload),
                    alias: None,
                    destination: "",
                    key: (settled != Some(true)).then(|| key(id)),
                    fact: ("messaging.amqp.delivery", Value::Number(i64::from(id))),
                },
            })
        }
        Performative::Disposition(Disposition {
            role: Role::Receiver,
            first,
            last,
            settled,
            state,
        }) => {
            let outcome = match &state {
                Some(DeliveryState::Accepted) => "accepted",
                Some(DeliveryState::Rejected(_)) => "rejected",
                Some(DeliveryState::Released) => "released",
                Some(DeliveryState::Modified(_)) => "modified",
                _ if settled => "settled",
                _ => return None,
            };
            let (first, last) = (key(first), key(last.unwrap_or(first)));
            let error = (outcome == "rejected").then_some(outcome);
            let outcome = ("messaging.amqp.outcome", Value::Text(outcome));
            Some(Seen::Answer { first, last, error, outcome })
        }
        _ => None,
    }
}

/// Returns the path of an address that may be a URL.
fn without_host(address: &str) -> &str {
    match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    }
}
