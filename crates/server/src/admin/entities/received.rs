//! `POST …/messages/receive`: messages are received and removed.

use axum::Json;
use axum::body::Bytes;
use barid_core::entity::{
    self, Accept, Accepted, Delivery, Entity, Mode, Outcome, Part, ReceiverId,
};
use barid_core::time::WallTime;
use barid_engine::durable::Commits;
use barid_engine::entities::{Queue, QueueEffects, new_receiver_id};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::body;
use super::super::changing::change;
use super::message::Described;
use super::messages::{BYTES_MAX, PartName, stored};
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};

/// Maximum number of messages in one answer.
const LIMIT_MAX: usize = 100;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = WantedMessages)]
pub(super) struct Wanted {
    /// Maximum number of messages, 1 to 100; 1 if it is not given.
    limit: usize,
    /// `main` (the default), `dead-letter` or `transfer-dead-letter`.
    part: PartName,
    /// The session to receive from; `None`: the free one that has waited longest, if there are sessions.
    session: Option<String>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { limit: 1, part: PartName::Main, session: None }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReceivedMessages)]
pub struct Received {
    messages: Vec<Described>,
}

/// Receives messages that wait, and removes them. The answer comes when they are removed durably; if it does not reach
/// the requester, they are lost.
pub async fn receive(served: &Served, queue: &Queue, bytes: &Bytes) -> Answer<Received> {
    let Wanted { limit, part, session } = body::properties(bytes)?;
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Refusal::bad_request(format!("limit must be from 1 to {LIMIT_MAX}")));
    }
    if !queue.status().may_receive() {
        return Err(Refusal::conflict("the entity is disabled (Status)"));
    }
    let now = served.shared.engine.clock.wall();
    let receiver = Receiver { id: new_receiver_id(), part: part.into(), now };
    let receive = |commits: &mut Commits| {
        let taken = queue.with(commits, |entity, fx| receiver.take(entity, session, limit, fx));
        let taken = taken.map_err(|refusal| Refusal::conflict(refusal.to_string()))?;
        let (mut messages, mut total) = (Vec::new(), 0);
        let outcomes = taken.iter().map(|Delivery { token, entry, .. }| {
            match entry.body.bytes.clone().or_else(|| stored(queue, entry)) {
                Some(bytes) if messages.is_empty() || total + bytes.len() <= BYTES_MAX => {
                    total += bytes.len();
                    messages.push(Described::of(entry, Some(&bytes), usize::MAX));
                    (*token, Outcome::Complete)
                }
                // It cannot be read, or the answer is full. It stays.
                _ => (*token, Outcome::Release),
            }
        });
        let outcomes: Vec<_> = outcomes.collect();
        queue.with(commits, |entity, fx| {
            for (token, outcome) in outcomes {
                // A lock that has ended meanwhile has given the message back, and it comes twice.
                let _ = entity.settle(receiver.part, token, outcome, now, fx);
            }
            entity.close(receiver.id, now, fx);
        });
        Ok(messages)
    };
    Ok(Json(Received { messages: change(served, receive).await? }))
}

/// A receiver for one request.
struct Receiver {
    id: ReceiverId,
    part: Part,
    now: WallTime,
}

impl Receiver {
    /// Locks the messages that are next.
    fn take(
        &self,
        entity: &mut Entity,
        session: Option<String>,
        limit: usize,
        fx: &mut QueueEffects<'_>,
    ) -> Result<Vec<Delivery>, entity::Refusal> {
        let mut taken = Vec::new();
        match entity.open(self.id, self.part, Mode::PeekLock) {
            Ok(()) if session.is_none() => {}
            Ok(()) => {
                entity.close(self.id, self.now, fx);
                return Err(entity::Refusal::SessionsNotSupported);
            }
            Err(entity::Refusal::SessionsRequired) => {
                let next = Accept::Next { until: self.now };
                let accept = session.map_or(next, |session| Accept::Session(session.into()));
                let accepted = entity.accept(self.id, Mode::PeekLock, accept, self.now, fx)?;
                if accepted == Accepted::Waiting {
                    entity.close(self.id, self.now, fx);
                    return Ok(taken);
                }
            }
            Err(refusal) => return Err(refusal),
        }
        entity.take(self.id, limit, self.now, fx, &mut taken)?;
        Ok(taken)
    }
}
