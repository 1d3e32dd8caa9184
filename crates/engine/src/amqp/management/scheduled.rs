//! Requests about scheduled messages.

use barid_amqp::Error;
use barid_amqp::message::ValueRef;

use super::{Asked, Done, missing};
use crate::amqp::attach::accepts_messages;
use crate::amqp::refusals::{condition, error_of};
use crate::amqp::sending::{error_of_send, incoming};
use crate::durable::Commits;
use crate::entities::Batch;
use crate::faults::Rule;

const MESSAGES: &str = "messages";

/// `schedule-message`: sends messages that are enqueued at a later time.
pub(super) fn schedule(asked: &mut Asked<'_>) -> Result<Done, Error> {
    accepts_messages(asked.node, asked.part)?;
    let mut messages = Vec::new();
    for message in asked.elements(MESSAGES)? {
        let bytes = message.map().and_then(|map| map.get("message")?.binary());
        let bytes = bytes.ok_or_else(|| missing(MESSAGES))?;
        let message = incoming(bytes.into(), asked.random).map_err(|malformed| {
            Error::new(condition::DECODE_ERROR, format!("A message cannot be read: {malformed}."))
        })?;
        messages.push(message);
    }
    let mut commits = Commits::default();
    let numbers = asked
        .node
        .send(Batch::from_vec(messages), asked.now, &mut commits)
        .map_err(|error| error_of_send(error, asked.node))?;
    asked.wait(commits, Rule::AcceptWhenDurable);
    Ok(Done::body(move |map| {
        map.value(ValueRef::String("sequence-numbers"));
        map.longs(numbers.into_iter().map(|number| i64::try_from(number).unwrap_or(i64::MAX)));
    }))
}

/// `cancel-scheduled-message`: removes scheduled messages.
pub(super) fn cancel(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let numbers = asked.numbers()?;
    let mut commits = Commits::default();
    asked
        .queue
        .with(&mut commits, |entity, effects| entity.cancel_scheduled(&numbers, effects))
        .map_err(error_of)?;
    asked.wait(commits, Rule::CancelWhenDurable);
    Ok(Done::empty())
}
