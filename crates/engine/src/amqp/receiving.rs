//! Delivery of messages from entities to clients.

use std::collections::VecDeque;
use std::sync::Arc;

use barid_amqp::{Error, LinkId};
use barid_core::entity::{Delivery, Entity, LockToken, Mode, Outcome, Refusal, SequenceNumber};
use tracing::error;

use super::container::Container;
use super::encode::{encode, tag_of};
use super::held::Answer;
use super::link::{Link, ReceiverLink};
use super::loading::For;
use super::refusals::{condition, detached, disabled, error_of};
use crate::durable::Commits;
use crate::entities::Told;
use crate::faults::{IfHolds as _, Rule};
use crate::turn::Turn;

/// Maximum number of messages that are taken from an entity at a time.
const TAKEN: usize = 64;

/// Maximum number of bytes that may wait before the next message of a link, in the output or for the window of its
/// session. With more, nothing is sent on the link.
const QUEUED_MAX: usize = 256 * 1024;

/// Approximate number of bytes that are taken from an entity at a time.
const BYTES_TAKEN: usize = 4 * QUEUED_MAX;

/// Maximum number of bytes that may wait for the client, in the output and for all windows. With more, nothing is
/// sent on any link.
const HELD_MAX: usize = 8 * 1024 * 1024;

/// Maximum capacity of the memory for encoding that is kept, in bytes. Memory that a larger message needed is
/// freed.
const SCRATCH_MAX: usize = 64 * 1024;

/// Messages that were taken from an entity and have not been sent.
#[derive(Debug, Default)]
pub struct Outbound {
    waiting: VecDeque<Waiting>,
    /// Number of messages at the front that do not wait for the disk any more.
    free: usize,
    /// Number of messages behind those that wait for the disk.
    held: usize,
    /// Number of messages that are being read from the store. While there are any, no more are taken.
    absent: usize,
    /// The commits that the messages behind `free` and `held` will wait for.
    commits: Commits,
    /// Size of the largest of the messages that were taken last, in bytes.
    size: Option<usize>,
    /// The entity may have more messages than it gave.
    asks: bool,
    /// The client wants to be told when there are no more messages (drain).
    drains: bool,
    /// The entity has told the receiver that there is a message. The receiver must take it, or say that it cannot.
    called: bool,
    /// The reservation of the entity's sequence numbers is not durable. Nothing is taken until it is.
    unnumbered: bool,
}

impl Outbound {
    /// Returns the number of messages to take at a time, so that they do not have too many bytes. Their size is
    /// estimated by the largest message taken last.
    fn fitting(&self) -> usize {
        let size = self.size.unwrap_or(QUEUED_MAX / 8);
        (BYTES_TAKEN / size.max(1)).clamp(1, TAKEN)
    }

    /// Returns the number of messages that have about so many bytes: at least one, unless `bytes` is 0.
    fn count_in(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.size.unwrap_or(bytes).max(1))
    }
}

/// A message that was taken from an entity and has not been sent.
#[derive(Debug)]
struct Waiting {
    delivery: Delivery,
    /// `None` while the bytes are being read.
    bytes: Option<Arc<[u8]>>,
}

impl Container {
    /// Handles credit from a client. `drains`: the client wants to be told when there are no more messages.
    pub(super) fn on_credit(&mut self, link: LinkId, drains: bool) {
        match self.links.get_mut(&link) {
            Some(Link::Receiver(receiver)) => {
                receiver.outbound.asks = true;
                receiver.outbound.drains |= drains;
                self.note_busy(link);
            }
            Some(Link::Responses(_)) => {
                self.send_responses(link);
                if drains {
                    self.engine.drained(link);
                }
            }
            _ => {}
        }
    }

    /// Lets a receiver take messages: the sequence numbers of its entity are durably reserved.
    pub(super) fn on_numbers(&mut self, link: LinkId) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) {
            receiver.outbound.unnumbered = false;
            receiver.outbound.asks = true;
            self.note_busy(link);
        }
    }

    /// Handles news from an entity to a receiver.
    pub(super) fn on_told(&mut self, turn: &mut Turn<'_>, link: LinkId, told: Told) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        match told {
            Told::Ready => {
                receiver.outbound.asks = true;
                receiver.outbound.called = true;
                self.note_busy(link);
            }
            Told::Granted { session, locked_until } => {
                self.grant_session(link, &session, locked_until);
            }
            Told::TimedOut => {
                let text = "No session became available within the timeout of the client.";
                self.end(turn, link, Error::new(condition::TIMEOUT, text));
            }
            Told::LockLost => self.end(turn, link, error_of(Refusal::SessionLockLost)),
            Told::Deleted => {
                let text = "The messaging entity was deleted.";
                self.end(turn, link, Error::new(condition::NOT_FOUND, text));
            }
            Told::Closed => self.end(turn, link, detached()),
            Told::Disabled => {
                let error = disabled(&receiver.path);
                self.end(turn, link, error);
            }
            Told::Bodies(_) => unreachable!("bodies are asked for by the whole connection"),
        }
    }

    /// Whether links have more to send than there was room for, or events may be unhandled.
    pub fn has_more(&self) -> bool {
        !self.busy.is_empty() || self.has_events()
    }

    /// Handles events, and sends on all links that have something to send, as far as credit, room and the turn
    /// allow.
    pub fn pump(&mut self, turn: &mut Turn<'_>) {
        self.handle_events(turn);
        self.is_busy.clear();
        // A link that has used room comes after the others next time.
        let mut later = Vec::new();
        let mut busy = std::mem::take(&mut self.busy).into_iter();
        while !self.budget.is_spent()
            && let Some(link) = busy.next()
        {
            self.budget.spend(1);
            let before = self.engine.queued_bytes();
            match self.links.get(&link) {
                Some(Link::Responses(_)) => self.send_responses(link),
                _ => self.serve(turn, link),
            }
            if self.engine.queued_bytes() > before {
                later.extend(self.busy.pop_if(|last| *last == link));
            }
        }
        // Links that had no turn come first, and links that have used room last.
        let noted = std::mem::take(&mut self.busy);
        self.is_busy.clear();
        busy.chain(noted).chain(later).for_each(|link| self.note_busy(link));
        self.rest();
    }

    fn receiver(&self, link: LinkId) -> Option<&ReceiverLink> {
        match self.links.get(&link) {
            Some(Link::Receiver(receiver)) => Some(receiver),
            _ => None,
        }
    }

    fn serve(&mut self, turn: &mut Turn<'_>, link: LinkId) {
        loop {
            self.send_waiting(turn, link);
            let credit = self.engine.credit(link) as usize;
            // The client may have reduced its credit.
            self.give_back(turn, link, credit);
            let is_full = self.is_backed_up(link);
            let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
            if receiver.pending {
                return;
            }
            if receiver.outbound.unnumbered {
                if receiver.outbound.called {
                    self.take(turn, link, 0);
                }
                return;
            }
            let room = credit.saturating_sub(receiver.outbound.waiting.len());
            let mut most = room.min(receiver.outbound.fitting());
            if is_full || receiver.outbound.absent > 0 {
                most = 0;
            }
            let mut is_full = is_full;
            if most > 0 && receiver.outbound.asks {
                let granted = self.may_send(BYTES_TAKEN);
                let Some(Link::Receiver(receiver)) = self.links.get(&link) else { return };
                if granted < BYTES_TAKEN {
                    most = most.min(receiver.outbound.count_in(granted));
                    is_full = most == 0;
                }
            }
            let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
            if most == 0 {
                if std::mem::take(&mut receiver.outbound.called) {
                    self.take(turn, link, 0);
                }
                let receiver = self.receiver(link);
                if is_full && receiver.is_some_and(|it| room > 0 || it.outbound.free > 0) {
                    self.note_busy(link);
                }
                break;
            }
            if !receiver.outbound.asks {
                break;
            }
            self.take(turn, link, most);
        }
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let outbound = &mut receiver.outbound;
        let is_dry = !outbound.asks && outbound.waiting.is_empty();
        if outbound.drains && (is_dry || self.engine.credit(link) == 0) {
            outbound.drains = false;
            self.engine.drained(link);
        }
    }

    /// Keeps the order of a session after a message of it has returned. Messages with higher numbers that were
    /// taken and not sent are given back, so that they are not sent first.
    pub(super) fn came_back(&mut self, turn: &Turn<'_>, link: LinkId, number: SequenceNumber) {
        let Some(Link::Receiver(receiver)) = self.links.get(&link) else { return };
        if receiver.has_session {
            let is_before = |waiting: &Waiting| waiting.delivery.entry.number < number;
            let before = receiver.outbound.waiting.partition_point(is_before);
            self.give_back(turn, link, before);
            self.note_busy(link);
        }
    }

    /// Gives messages that were taken and not sent back to the entity, except for the first `kept`. In the mode
    /// receive-and-delete, messages that have been read are removed from the entity already, and stay here.
    fn give_back(&mut self, turn: &Turn<'_>, link: LinkId, kept: usize) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let (outbound, mode) = (&mut receiver.outbound, receiver.mode);
        if outbound.waiting.len() <= kept {
            return;
        }
        let mut tokens = Vec::new();
        while outbound.waiting.len() > kept
            && let Some(last) =
                outbound.waiting.pop_back_if(|last| mode == Mode::PeekLock || last.bytes.is_none())
        {
            outbound.absent -= usize::from(last.bytes.is_none());
            tokens.push(last.delivery.token);
        }
        outbound.free = outbound.free.min(outbound.waiting.len());
        // The entity has messages to take again, also for this receiver.
        outbound.asks |= !tokens.is_empty();
        let now = turn.context.wall();
        receiver.queue.with(&mut Commits::default(), |entity, effects| {
            for token in tokens {
                // Refused if the lock has ended: then the message has returned already.
                let _ = entity.settle(receiver.part, token, Outcome::Release, now, effects);
            }
        });
        // The messages that are left may have waited for absent ones that were given back.
        self.free(turn, link);
    }

    /// Takes messages from the entity. If `most` is 0, it only says that the receiver cannot take any now.
    fn take(&mut self, turn: &mut Turn<'_>, link: LinkId, most: usize) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let now = turn.context.wall();
        let unreserved = receiver.queue.unreserved();
        let most = if unreserved.is_some() { 0 } else { most };
        let (mut commits, mut taken) = (Commits::default(), Vec::new());
        let result = receiver.queue.with(&mut commits, |entity, effects| {
            entity.take(receiver.id, most, now, effects, &mut taken)
        });
        receiver.outbound.called = false;
        if most > 0 {
            receiver.outbound.asks = taken.len() == most;
        }
        if let Err(refusal) = result {
            let error = if receiver.queue.is_closed() { detached() } else { error_of(refusal) };
            self.end(turn, link, error);
            return;
        }
        if let Some(reservation) = unreserved {
            receiver.outbound.asks = true;
            if !std::mem::replace(&mut receiver.outbound.unnumbered, true) {
                self.answer(turn, reservation, Answer::Numbers(link));
            }
            return;
        }
        if taken.is_empty() {
            return;
        }
        self.budget.spend(taken.len());
        let queue = Arc::clone(&receiver.queue);
        let missing: Vec<_> = taken
            .iter()
            .filter(|delivery| delivery.entry.body.bytes.is_none())
            .map(|delivery| (For::Delivery(link, delivery.token), delivery.entry.body.id))
            .collect();
        receiver.outbound.size = taken.iter().map(|taken| taken.entry.body.size as usize).max();
        receiver.outbound.absent += missing.len();
        receiver.outbound.commits.join(&commits);
        receiver.outbound.waiting.extend(taken.into_iter().map(|mut delivery| {
            let bytes = delivery.entry.body.bytes.take();
            Waiting { delivery, bytes }
        }));
        self.load(&queue, missing);
        self.free(turn, link);
    }

    /// Lets messages that were taken be sent. In the mode receive-and-delete, they first wait until all have been
    /// read and their removal is durable.
    fn free(&mut self, turn: &Turn<'_>, link: LinkId) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let outbound = &mut receiver.outbound;
        if receiver.mode == Mode::PeekLock {
            outbound.free = outbound.waiting.len();
            self.note_busy(link);
        } else if outbound.absent == 0 {
            // The messages are removed from the entity. A crash must not bring back a message that a client has
            // had.
            let count = outbound.waiting.len() - outbound.free - outbound.held;
            outbound.held += count;
            let commits = std::mem::take(&mut outbound.commits);
            let commits = commits.if_holds(Rule::DeliverWhenDeleted);
            self.answer(turn, commits, Answer::Deliveries(link, count));
        }
    }

    /// Releases `count` messages whose commit is durable.
    pub(super) fn release(&mut self, link: LinkId, count: usize) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) {
            receiver.outbound.free += count;
            receiver.outbound.held -= count;
            self.note_busy(link);
        }
    }

    /// Handles the bytes of a message that was read; `None`: they are lost.
    pub(super) fn on_body(
        &mut self,
        turn: &Turn<'_>,
        link: LinkId,
        token: LockToken,
        bytes: Option<Arc<[u8]>>,
    ) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let outbound = &mut receiver.outbound;
        // The message may have been given back and taken again meanwhile, so that it was read twice.
        let of = |waiting: &Waiting| waiting.delivery.token == token && waiting.bytes.is_none();
        let Some(index) = outbound.waiting.iter().rposition(of) else { return };
        outbound.absent -= 1;
        match bytes {
            Some(bytes) => {
                outbound.waiting[index].bytes = Some(bytes);
                if receiver.mode == Mode::ReceiveAndDelete {
                    // The message was locked only until it could be read.
                    let now = turn.context.wall();
                    let completed =
                        receiver.queue.with(&mut outbound.commits, |entity, effects| {
                            entity.settle(receiver.part, token, Outcome::Complete, now, effects)
                        });
                    if completed.is_err() {
                        // The lock has ended meanwhile, so another receiver gets the message.
                        outbound.waiting.remove(index);
                    }
                }
            }
            None => {
                error!(
                    queue = &*receiver.path,
                    number = token.number(),
                    "cannot read a message back: it stays locked until its lock expires"
                );
                outbound.waiting.remove(index);
                outbound.free -= usize::from(index < outbound.free);
            }
        }
        self.free(turn, link);
        // More messages can be taken now.
        self.note_busy(link);
    }

    /// Sends released messages, as far as credit and room allow.
    fn send_waiting(&mut self, turn: &Turn<'_>, link: LinkId) {
        let now = turn.context.wall();
        let mut encoded = std::mem::take(&mut self.scratch);
        while self.engine.credit(link) > 0 && !self.is_backed_up(link) {
            let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { break };
            let outbound = &mut receiver.outbound;
            let is_free = outbound.free > 0;
            if !is_free || outbound.waiting.front().is_none_or(|waiting| waiting.bytes.is_none()) {
                break;
            }
            if self.may_send(QUEUED_MAX) == 0 {
                self.note_busy(link);
                break;
            }
            let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { break };
            let outbound = &mut receiver.outbound;
            let Some(Waiting { delivery, bytes: Some(bytes) }) = outbound.waiting.front_mut()
            else {
                break;
            };
            let settled = receiver.mode == Mode::ReceiveAndDelete;
            if !settled && delivery.locked_until <= now {
                // The message has waited for long. The lock of its session may have been renewed.
                let lock = |entity: &Entity| entity.session_of(receiver.id).map(|(_, until)| until);
                match receiver.queue.read(lock).filter(|until| *until > now) {
                    Some(until) => delivery.locked_until = until,
                    None => {
                        // The message has returned to the entity.
                        outbound.waiting.pop_front();
                        outbound.free -= 1;
                        continue;
                    }
                }
            }
            let lock = (!settled).then_some((delivery.token, delivery.locked_until));
            encoded.clear();
            let tag = tag_of(delivery.token);
            let is_whole = encode(&delivery.entry, bytes, lock, &mut encoded).is_ok();
            if !is_whole {
                // The message was checked when it was sent, so it has been damaged since.
                error!(
                    queue = &*receiver.path,
                    number = delivery.entry.number,
                    "a message is damaged and is not delivered"
                );
            } else if self.engine.send(link, &tag, settled, 0, &[&encoded]).is_err() {
                break;
            }
            outbound.waiting.pop_front();
            outbound.free -= 1;
            self.has_sent(encoded.len());
            if is_whole {
                self.count_sent(encoded.len());
            }
        }
        if encoded.capacity() <= SCRATCH_MAX {
            self.scratch = encoded;
        }
    }

    /// Whether so many bytes wait for the client, before the next message of this link, that nothing is to be sent
    /// on it now.
    pub(super) fn is_backed_up(&self, link: LinkId) -> bool {
        self.engine.queued_before(link) > QUEUED_MAX || self.engine.queued_bytes() > HELD_MAX
    }

    /// Closes a receiver whose link has ended. Messages that were taken for it and never sent return to the
    /// entity.
    pub(super) fn close_receiver(&self, turn: &mut Turn<'_>, receiver: &ReceiverLink) {
        let now = turn.context.wall();
        receiver.queue.with(&mut Commits::default(), |entity, effects| {
            if !receiver.has_session {
                let is_locked =
                    |waiting: &&Waiting| receiver.mode == Mode::PeekLock || waiting.bytes.is_none();
                for waiting in receiver.outbound.waiting.iter().rev().filter(is_locked) {
                    let token = waiting.delivery.token;
                    let _ = entity.settle(receiver.part, token, Outcome::Release, now, effects);
                }
            }
            entity.close(receiver.id, now, effects);
        });
        receiver.queue.unregister(receiver.id);
    }
}
