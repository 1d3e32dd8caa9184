//! Messages that clients send to entities.

use std::sync::Arc;
use std::time::Duration;

use barid_amqp::message::{BATCH, Malformed, Sections, batch};
use barid_amqp::{Delivery, DeliveryState, Error};
use barid_core::entity::Incoming;
use barid_core::time::WallTime;

use super::container::Container;
use super::held::Answer;
use super::link::Link;
use super::refusals::{condition, disabled, error_of, no_entity};
use crate::durable::Commits;
use crate::entities::{Batch, Node, SendError};
use crate::faults::{IfHolds as _, Rule};
use crate::random::Random;
use crate::turn::Turn;

/// The annotation with the time at which a message is to be enqueued.
const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// Maximum number of messages in one batch, as in Service Bus. A larger batch is rejected.
const BATCH_MAX: usize = 4_500;

impl Container {
    /// Passes a message, or a batch of messages, to the entity of its link.
    pub(super) fn on_message(&mut self, turn: &mut Turn<'_>, delivery: &Delivery) {
        let Some(Link::Sender(sender)) = self.links.get_mut(&delivery.link) else { return };
        sender.node.look_up();
        let mut commits = Commits::default();
        let now = turn.context.wall();
        let mut count = 1;
        let sent = messages_of(delivery, turn.context.engine.random).and_then(|messages| {
            count = messages.len();
            send(&sender.node, messages, now, &mut commits)
        });
        self.count_batched(count.saturating_sub(1));
        self.count_received(count, delivery.message.len());
        if let Err(error) = &sent
            && error.condition == condition::NOT_FOUND
        {
            // The entity has been deleted, so the link ends: an entity that is created under the same name later
            // is another one.
            let refused = DeliveryState::Rejected(Some(Box::new(error.clone())));
            self.engine.settle_incoming(delivery.id, &refused);
            self.end(turn, delivery.link, error.clone());
            return;
        }
        let commits = commits.if_holds(Rule::AcceptWhenDurable);
        let answer = match sent {
            _ if delivery.settled => Answer::Nothing,
            Ok(()) => Answer::Incoming(delivery.id, DeliveryState::Accepted),
            Err(error) => {
                Answer::Incoming(delivery.id, DeliveryState::Rejected(Some(Box::new(error))))
            }
        };
        self.answer(turn, commits, answer);
    }
}

/// Sends messages to an entity: all of them, or none.
pub fn send(
    node: &Node,
    messages: Vec<Incoming>,
    now: WallTime,
    commits: &mut Commits,
) -> Result<(), Error> {
    let sent = node.send(Batch::from_vec(messages), now, commits);
    sent.map(drop).map_err(|error| error_of_send(error, node))
}

/// Returns the error that a client is told when its message is not taken.
pub fn error_of_send(error: SendError, node: &Node) -> Error {
    match error {
        SendError::Gone => no_entity(node.path()),
        SendError::Disabled => disabled(node.path()),
        SendError::Refused(refusal) => error_of(refusal),
        SendError::TenantFull | SendError::TooMuchWork | SendError::TooManyCopies => {
            Error::new(condition::RESOURCE_LIMIT, error.to_string())
        }
        other => Error::new(condition::SERVER_BUSY, other.to_string()),
    }
}

fn messages_of(delivery: &Delivery, random: Random) -> Result<Vec<Incoming>, Error> {
    if let Some(DeliveryState::Transactional { .. }) = delivery.state {
        let text = "Transactions are not supported.";
        return Err(Error::new(condition::NOT_IMPLEMENTED, text));
    }
    if delivery.message_format != BATCH {
        return Ok(vec![incoming(Arc::clone(&delivery.message), random).map_err(malformed)?]);
    }
    let mut messages = Vec::new();
    for message in batch(&delivery.message) {
        if messages.len() == BATCH_MAX {
            let text = format!("A batch has at most {BATCH_MAX} messages.");
            return Err(Error::new(condition::SIZE_EXCEEDED, text));
        }
        messages.push(incoming(message.map_err(malformed)?.into(), random).map_err(malformed)?);
    }
    Ok(messages)
}

fn malformed(malformed: Malformed) -> Error {
    Error::new(condition::DECODE_ERROR, format!("The message cannot be read: {malformed}."))
}

/// Parses a message into the form that entities take. A message without an id gets one: some clients cannot settle
/// a message that has none.
pub fn incoming(mut bytes: Arc<[u8]>, random: Random) -> Result<Incoming, Malformed> {
    let sections = Sections::split(&bytes)?;
    // Checked here, because the receiver of the message reads the body as well.
    sections.body_value()?;
    let properties = sections.properties();
    let session = properties.group_id().map(Arc::from);
    let time_to_live = sections.header().ttl.map(|ms| Duration::from_millis(u64::from(ms)));
    let scheduled_at = sections
        .annotations()
        .get(SCHEDULED)
        .and_then(|at| at.timestamp())
        .map(|at| WallTime::from_millis(u64::try_from(at).unwrap_or(0)));
    let sent = properties.message_id();
    let message_id: Arc<str> = match &sent {
        Some(id) => Arc::from(&**id),
        None => random.uuid().simple().to_string().into(),
    };
    let mut written = Vec::new();
    if sent.is_none() && !sections.has_message_id() {
        sections.with_message_id(&message_id, &mut written);
    } else if !sections.in_order() {
        // Stored with its sections in the order of the standard, as later readers expect.
        sections.reordered(&mut written);
    }
    drop(sent);
    if !written.is_empty() {
        bytes = written.into();
    }
    Ok(Incoming {
        session,
        message_id: Some(message_id),
        time_to_live,
        scheduled_at,
        bytes,
        overlay: None,
    })
}
