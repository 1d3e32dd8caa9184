//! Answers that must not leave before something is durable.

use std::sync::Arc;

use barid_amqp::{DeliveryState, Error, IncomingId, LinkId, OutgoingId};

use super::inbox::Inbox;
use super::refusals::condition;
use crate::durable::{Commits, Shards};
use crate::progress::{Gate, Polled, Sources};

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
    /// Messages of the entity of this link may be taken.
    Numbers(LinkId),
}

/// Answers in their order.
#[derive(Debug, Default)]
pub struct Held {
    answers: Gate<Answer>,
}

impl Held {
    /// Keeps an answer until `commits` are durable. [`Self::pop`] has to come next, or nobody is told when they are. `Some`:
    /// they are, and no other answer waits; or they never will be, and it is the answer that says so.
    pub fn push(&mut self, commits: Commits, answer: Answer, sources: &Sources) -> Option<Answer> {
        if commits.are_lost() {
            // The link of any other is about to end.
            let is_message = matches!(answer, Answer::Incoming(..));
            return is_message.then(|| refused(answer));
        }
        if self.answers.is_empty() && sources.are_done(&commits) {
            return Some(answer);
        }
        self.answers.push(commits, answer);
        None
    }

    /// The next answer that may leave; if there is none, `inbox` is told when there is. A message whose commit has failed is
    /// refused, whatever its client waits for besides: it would wait until the disk works again.
    pub fn pop(&mut self, sources: &Sources, inbox: &Arc<Inbox>) -> Option<Answer> {
        let inbox = Arc::downgrade(inbox);
        if let Polled::Ready(answer) = self.answers.poll(sources, &inbox, |_| true) {
            return Some(answer);
        }
        let is_message = |answer: &Answer| matches!(answer, Answer::Incoming(..));
        self.answers.take_failed(sources, &inbox, is_message).map(refused)
    }

    /// Whether what is waited for is more than the disk takes at a time.
    pub fn is_congested(&self, shards: &Shards) -> bool {
        self.answers.back().is_some_and(|(commits, _)| shards.are_congested(commits))
    }
}

/// What is answered to a message that cannot be made durable.
fn refused(answer: Answer) -> Answer {
    match answer {
        Answer::Incoming(id, DeliveryState::Accepted) => {
            let text = "The disk is full or broken: try again later.";
            let error = Box::new(Error::new(condition::SERVER_BUSY, text));
            Answer::Incoming(id, DeliveryState::Rejected(Some(error)))
        }
        answer => answer,
    }
}
