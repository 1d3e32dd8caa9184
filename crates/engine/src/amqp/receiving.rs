//! Messages on their way from entities to clients.

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
use super::refusals::{condition, detached, error_of};
use crate::durable::Commits;
use crate::entities::Told;
use crate::faults::{IfHolds as _, Rule};
use crate::turn::Turn;

/// Messages that are taken from an entity at a time.
const TAKEN: usize = 64;

/// Bytes that wait in the engine for the client to read, or to open a window, before what comes behind them
/// gets nothing more.
const QUEUED_MAX: usize = 256 * 1024;

/// Bytes that wait in the engine for all windows of the client before no link gets anything more.
const HELD_MAX: usize = 8 * 1024 * 1024;

/// Bytes of memory for messages that is used again. A larger message gets its own.
const SCRATCH_MAX: usize = 64 * 1024;

/// Messages that were taken from an entity and have not been sent.
#[derive(Debug, Default)]
pub struct Outbound {
    waiting: VecDeque<Waiting>,
    /// How many of the first wait for the disk no more.
    free: usize,
    /// How many behind them wait for it.
    held: usize,
    /// How many are being read. Until they are here, no more are taken.
    absent: usize,
    /// What those that are neither free nor held will wait for.
    commits: Commits,
    /// Bytes of the largest of the messages that were taken last.
    size: Option<usize>,
    /// The entity may have more than it gave.
    asks: bool,
    /// The client wants to know when there is no more.
    drains: bool,
    /// The link has been told that there is something, and has to take it or to say that it cannot.
    called: bool,
    /// The numbers of the entity are not durably reserved. Nothing is taken until they are.
    unnumbered: bool,
}

impl Outbound {
    /// How many messages to take at a time, so that their bytes are not too many: the largest of those before
    /// says how large they are.
    fn fitting(&self) -> usize {
        let size = self.size.unwrap_or(QUEUED_MAX / 8);
        (4 * QUEUED_MAX / size.max(1)).clamp(1, TAKEN)
    }
}

#[derive(Debug)]
struct Waiting {
    delivery: Delivery,
    /// `None`: they are being read.
    bytes: Option<Arc<[u8]>>,
}

impl Container {
    /// A client has given credit.
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

    /// The numbers of a link's entity are reserved.
    pub(super) fn on_numbers(&mut self, link: LinkId) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) {
            receiver.outbound.unnumbered = false;
            receiver.outbound.asks = true;
            self.note_busy(link);
        }
    }

    /// An entity has told a receiver something.
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
                let text = "No session came free within the time that the client waits.";
                self.end(turn, link, Error::new(condition::TIMEOUT, text));
            }
            Told::LockLost => self.end(turn, link, error_of(Refusal::SessionLockLost)),
            Told::Deleted => {
                let text = "The messaging entity was deleted.";
                self.end(turn, link, Error::new(condition::NOT_FOUND, text));
            }
            Told::Closed => self.end(turn, link, detached()),
            Told::Bodies(_) => unreachable!("bodies are asked for by the whole connection"),
        }
    }

    /// Whether links have more to send than there was room for.
    pub fn has_more(&self) -> bool {
        !self.busy.is_empty() || self.has_events()
    }

    /// Sends what there is, as far as clients want it and take it.
    pub fn pump(&mut self, turn: &mut Turn<'_>) {
        self.handle_events(turn);
        self.is_busy.clear();
        // Whoever has used room comes after the others next time.
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
        // Those that had no turn come first, and those that have used room last.
        let noted = std::mem::take(&mut self.busy);
        self.is_busy.clear();
        busy.chain(noted).chain(later).for_each(|link| self.note_busy(link));
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
            // The client may have taken credit back.
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
            let waits = is_full || receiver.outbound.absent > 0;
            let most = if waits { 0 } else { room.min(receiver.outbound.fitting()) };
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

    /// A message is back in its session. What comes behind it there and has not been sent is given back, so that it does
    /// not come first.
    pub(super) fn came_back(&mut self, turn: &Turn<'_>, link: LinkId, number: SequenceNumber) {
        let Some(Link::Receiver(receiver)) = self.links.get(&link) else { return };
        if receiver.has_session {
            let is_before = |waiting: &Waiting| waiting.delivery.entry.number < number;
            let before = receiver.outbound.waiting.partition_point(is_before);
            self.give_back(turn, link, before);
            self.note_busy(link);
        }
    }

    /// Gives back what was taken and not sent, except for the first `kept`. What is received and deleted is gone from the
    /// entity already, and stays.
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
        // There is something to take again, for this one, too.
        outbound.asks |= !tokens.is_empty();
        let now = turn.context.wall();
        receiver.queue.with(&mut Commits::default(), |entity, effects| {
            for token in tokens {
                // Refused if its lock has ended: then it is back already.
                let _ = entity.settle(receiver.part, token, Outcome::Release, now, effects);
            }
        });
        // Those that are left may have waited for those that have gone.
        self.free(turn, link);
    }

    /// Takes messages from the entity. With `most` 0 it says only that it cannot.
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

    /// Lets messages go that have come from the entity.
    fn free(&mut self, turn: &Turn<'_>, link: LinkId) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let outbound = &mut receiver.outbound;
        if receiver.mode == Mode::PeekLock {
            outbound.free = outbound.waiting.len();
            self.note_busy(link);
        } else if outbound.absent == 0 {
            // They are gone from the entity; a crash must not bring back what a client has had.
            let count = outbound.waiting.len() - outbound.free - outbound.held;
            outbound.held += count;
            let commits = std::mem::take(&mut outbound.commits);
            let commits = commits.if_holds(Rule::DeliverWhenDeleted);
            self.answer(turn, commits, Answer::Deliveries(link, count));
        }
    }

    /// So many more messages on a link wait for the disk no more.
    pub(super) fn release(&mut self, link: LinkId, count: usize) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) {
            receiver.outbound.free += count;
            receiver.outbound.held -= count;
            self.note_busy(link);
        }
    }

    /// The bytes of a message have been read; `None`: they are lost.
    pub(super) fn on_body(
        &mut self,
        turn: &Turn<'_>,
        link: LinkId,
        token: LockToken,
        bytes: Option<Arc<[u8]>>,
    ) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        let outbound = &mut receiver.outbound;
        // It may have been given back and taken again meanwhile, and have been read twice.
        let of = |waiting: &Waiting| waiting.delivery.token == token && waiting.bytes.is_none();
        let Some(index) = outbound.waiting.iter().rposition(of) else { return };
        outbound.absent -= 1;
        match bytes {
            Some(bytes) => {
                outbound.waiting[index].bytes = Some(bytes);
                if receiver.mode == Mode::ReceiveAndDelete {
                    // It was locked only until it could be read.
                    let now = turn.context.wall();
                    let completed =
                        receiver.queue.with(&mut outbound.commits, |entity, effects| {
                            entity.settle(receiver.part, token, Outcome::Complete, now, effects)
                        });
                    if completed.is_err() {
                        // The lock has ended meanwhile, and somebody else gets it.
                        outbound.waiting.remove(index);
                    }
                }
            }
            None => {
                error!(
                    queue = &*receiver.path,
                    number = token.number(),
                    "a message cannot be read back: it stays locked until its lock expires"
                );
                outbound.waiting.remove(index);
                outbound.free -= usize::from(index < outbound.free);
            }
        }
        self.free(turn, link);
        // The next can be taken.
        self.note_busy(link);
    }

    /// Sends what was taken.
    fn send_waiting(&mut self, turn: &Turn<'_>, link: LinkId) {
        let now = turn.context.wall();
        let mut encoded = std::mem::take(&mut self.scratch);
        while self.engine.credit(link) > 0 && !self.is_backed_up(link) {
            let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { break };
            let outbound = &mut receiver.outbound;
            let is_free = outbound.free > 0;
            let Some(Waiting { delivery, bytes: Some(bytes) }) =
                outbound.waiting.front_mut().filter(|_| is_free)
            else {
                break;
            };
            let settled = receiver.mode == Mode::ReceiveAndDelete;
            if !settled && delivery.locked_until <= now {
                // It has waited for long. The lock of its session may have been renewed.
                let lock = |entity: &Entity| entity.session_of(receiver.id).map(|(_, until)| until);
                match receiver.queue.read(lock).filter(|until| *until > now) {
                    Some(until) => delivery.locked_until = until,
                    None => {
                        // It is back in the entity.
                        outbound.waiting.pop_front();
                        outbound.free -= 1;
                        continue;
                    }
                }
            }
            let lock = (!settled).then_some((delivery.token, delivery.locked_until));
            encoded.clear();
            let tag = tag_of(delivery.token);
            if encode(&delivery.entry, bytes, lock, &mut encoded).is_err() {
                // It was looked at when it came, so this is damage.
                error!(
                    queue = &*receiver.path,
                    number = delivery.entry.number,
                    "a message is damaged"
                );
            } else if self.engine.send(link, &tag, settled, 0, &[&encoded]).is_err() {
                break;
            }
            outbound.waiting.pop_front();
            outbound.free -= 1;
        }
        if encoded.capacity() <= SCRATCH_MAX {
            self.scratch = encoded;
        }
    }

    /// Whether enough waits for the client, before what is for this link, for now.
    pub(super) fn is_backed_up(&self, link: LinkId) -> bool {
        self.engine.queued_before(link) > QUEUED_MAX || self.engine.queued_bytes() > HELD_MAX
    }

    /// A receiver has gone. What was taken for it and never sent goes back.
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
