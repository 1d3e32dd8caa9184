//! Answers that are held until a commit is durable.

use std::sync::Arc;

use barid_amqp::{DeliveryState, Error, IncomingId, LinkId, OutgoingId};

use super::inbox::Inbox;
use super::refusals::condition;
use crate::durable::{Commits, Shards};
use crate::progress::{Gate, Polled, Sources};

/// An answer to the client that may have to wait for a commit.
#[derive(Debug)]
pub enum Answer {
    /// The outcome of a message that the client sent.
    Incoming(IncomingId, DeliveryState),
    /// The answer to a disposition of the client for a message that it received.
    Outgoing(OutgoingId, DeliveryState),
    /// A response, and the link on which it leaves.
    Response(LinkId, Vec<u8>),
    /// No answer, because the client has settled the delivery itself. It is held all the same, so that such a
    /// client is also held back when the disk is [congested](Held::is_congested).
    Nothing,
    /// The number of messages on this link that may leave.
    Deliveries(LinkId, usize),
    /// The sequence numbers of the entity of this link are durably reserved: its messages may be taken.
    Numbers(LinkId),
}

/// The held answers of one connection, in their order.
#[derive(Debug, Default)]
pub struct Held {
    answers: Gate<Answer>,
}

impl Held {
    /// Keeps an answer until `commits` are durable. Call [`Self::pop`] next: it sets the wake-up.
    ///
    /// Returns the answer if it can leave at once: `commits` are durable and no other answer is held; or `commits`
    /// are lost, and the answer tells the client that its message is refused.
    pub fn push(&mut self, commits: Commits, answer: Answer, sources: &Sources) -> Option<Answer> {
        if commits.are_lost() {
            // Any other answer is dropped, because its link is about to end.
            let is_message = matches!(answer, Answer::Incoming(..));
            return is_message.then(|| refused(answer));
        }
        if self.answers.is_empty() && sources.are_done(&commits) {
            return Some(answer);
        }
        self.answers.push(commits, answer);
        None
    }

    /// Takes the next answer that may leave. If there is none, `inbox` is woken when there is one. A message whose
    /// commit has failed is refused even if other answers are held before it: otherwise its client would wait
    /// until the disk works again.
    pub fn pop(&mut self, sources: &Sources, inbox: &Arc<Inbox>) -> Option<Answer> {
        let inbox = Arc::downgrade(inbox);
        if let Polled::Ready(answer) = self.answers.poll(sources, &inbox, |_| true) {
            return Some(answer);
        }
        let is_message = |answer: &Answer| matches!(answer, Answer::Incoming(..));
        self.answers.take_failed(sources, &inbox, is_message).map(refused)
    }

    /// Whether the commits that the last answer waits for are [congested](Shards::are_congested).
    pub fn is_congested(&self, shards: &Shards) -> bool {
        self.answers.back().is_some_and(|(commits, _)| shards.are_congested(commits))
    }
}

/// Turns the acceptance of a message that cannot be made durable into a refusal. Other answers stay.
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
