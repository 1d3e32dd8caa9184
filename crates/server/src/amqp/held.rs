//! Answers that must not leave before something is durable.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use barid_amqp::{DeliveryState, Error, IncomingId, LinkId, OutgoingId};

use super::inbox::Inbox;
use super::refusals::condition;
use crate::durable::{Commits, Shards};

/// What a client is told when something is durable.
#[derive(Debug)]
pub enum Answer {
    /// What became of a message that it sent.
    Incoming(IncomingId, DeliveryState),
    /// What became of its decision about a message that it received.
    Outgoing(OutgoingId, DeliveryState),
    /// A response, and on which link.
    Response(LinkId, Vec<u8>),
    /// Nothing: it does not want to hear. What it sends is held up by the disk all the same.
    Nothing,
    /// So many messages on this link may leave.
    Deliveries(LinkId, usize),
}

/// Answers in their order.
#[derive(Debug, Default)]
pub struct Held {
    answers: VecDeque<(Commits, Answer)>,
}

impl Held {
    /// Keeps an answer until `commits` are durable, and has `inbox` told when they are. `Some`: they are, and
    /// no other answer waits.
    pub fn push(
        &mut self,
        commits: Commits,
        answer: Answer,
        shards: &Shards,
        inbox: &Arc<Inbox>,
    ) -> Option<Answer> {
        let mut waits = false;
        if !commits.is_empty() {
            let inbox: Weak<Inbox> = Arc::downgrade(inbox);
            for (shard, batch) in commits.iter() {
                waits |= shards.get(shard).wake_when_durable(batch, &inbox);
            }
        }
        if !waits && self.answers.is_empty() {
            return Some(answer);
        }
        self.answers.push_back((commits, answer));
        None
    }

    /// The next answer that may leave. A message whose commit has failed is refused, whatever its client waits for
    /// besides: it would wait until the disk works again.
    pub fn pop(&mut self, shards: &Shards) -> Option<Answer> {
        let (commits, _) = self.answers.front()?;
        if shards.have_committed(commits) {
            return self.answers.pop_front().map(|(_, answer)| answer);
        }
        let has_failed = |(commits, answer): &(Commits, Answer)| {
            matches!(answer, Answer::Incoming(..)) && shards.have_failed(commits)
        };
        let index = self.answers.iter().position(has_failed)?;
        match self.answers.remove(index)? {
            (_, Answer::Incoming(id, DeliveryState::Accepted)) => {
                let text = "The disk is full or broken: try again later.";
                let error = Box::new(Error::new(condition::SERVER_BUSY, text));
                Some(Answer::Incoming(id, DeliveryState::Rejected(Some(error))))
            }
            (_, answer) => Some(answer),
        }
    }

    /// Whether what is waited for is more than the disk takes at a time.
    pub fn is_congested(&self, shards: &Shards) -> bool {
        self.answers.back().is_some_and(|(commits, _)| shards.are_congested(commits))
    }
}
