//! Requests for deferred messages.

use barid_amqp::Error;
use barid_core::entity::Mode;

use super::messages::Page;
use super::{Asked, Done};
use crate::amqp::refusals::error_of;

/// `receive-by-sequence-number`: receives deferred messages.
pub(super) fn receive(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let numbers = asked.numbers()?;
    let mode = match asked.integer("receiver-settle-mode")? {
        0 => Mode::ReceiveAndDelete,
        _ => Mode::PeekLock,
    };
    let names_session = !asked.request.argument("session-id").is_null();
    let receiver = match names_session || asked.session_of_link().is_some() {
        true => Some(asked.holder()?.0),
        false => None,
    };
    let (now, part) = (asked.now, asked.part);
    let mut taken = Vec::new();
    asked
        .queue
        .with(asked.commits, |entity, effects| {
            entity.receive_deferred(part, receiver, &numbers, mode, now, effects, &mut taken)
        })
        .map_err(error_of)?;
    Ok(Done::Messages(Page::of_deliveries(taken, mode)))
}
