//! Moves messages from one entity to another without losing any.
//!
//! These are the scheduled messages of a topic that are due, dead letters that are forwarded, and messages in a
//! queue that forwards, if they were stored before it began to forward or because it detects duplicates. All are
//! moved in the same way: a mover receives them like a client, under a lock. It sends them to their target, and
//! completes them when they are durable there. If the process ends in between, they are moved again (at least
//! once).
//!
//! A mover handles one group of messages at a time. The housekeeping thread does the work.

use std::fmt;
use std::sync::{Arc, Weak};

use barid_amqp::message::Sections;
use barid_core::entity::{
    Delivery, Incoming, LockToken, Outcome, Overlay, Part, ReceiverId, Refusal,
};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use smallvec::SmallVec;

use super::configured::Configured;
use super::group;
use super::queue::Queue;
use super::receivers::{Inbox, Told, new_receiver_id};
use super::sending::{Forward, NotForwarded, SendError, Way, hops};
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::sync::Mutex;

/// Maximum number of messages in a group.
const GROUP: usize = 64;

/// The annotation with the path of the entity that a moved dead letter comes from.
const DEAD_LETTER_SOURCE: &str = "x-opt-deadletter-source";

/// Moves messages from one part of a queue to their target.
pub struct Mover {
    id: ReceiverId,
    me: Weak<Mover>,
    queue: Weak<Queue>,
    part: Part,
    stage: Mutex<Stage>,
}

/// Progress of a group of messages.
enum Stage {
    /// There is no group.
    Idle,
    /// Bodies that are in the store only are being read.
    Loading(Vec<Delivery>),
    /// All bodies are in memory.
    Loaded(Vec<Delivery>),
    /// The messages were sent to their target, and are not durable there yet.
    Moved,
}

impl Mover {
    pub(super) fn new(queue: &Weak<Queue>, part: Part) -> Arc<Self> {
        let (id, queue) = (new_receiver_id(), Weak::clone(queue));
        Arc::new_cyclic(|me| {
            let (me, stage) = (Weak::clone(me), Mutex::new(Stage::Idle));
            Self { id, me, queue, part, stage }
        })
    }

    pub(super) fn id(&self) -> ReceiverId {
        self.id
    }

    pub(super) fn part(&self) -> Part {
        self.part
    }

    /// Schedules a run as soon as possible.
    pub(super) fn schedule(&self, queue: &Queue) {
        queue.alarm().move_on(Weak::clone(&self.me));
    }

    /// Moves the next group, if it is ready.
    pub fn run(self: &Arc<Self>, now: WallTime) {
        let Some(queue) = self.queue.upgrade() else { return };
        // The stage is not changed here: bodies that arrive in the meantime must find it `Loading`.
        let loaded = match &mut *self.stage.lock() {
            Stage::Idle => None,
            Stage::Loaded(group) => Some(std::mem::take(group)),
            Stage::Loading(_) | Stage::Moved => return,
        };
        if self.is_blocked(&queue) {
            queue.alarm().move_when_open(Weak::clone(&self.me));
            // The shard may have been opened before the mover began to wait.
            if self.is_blocked(&queue) {
                *self.stage.lock() = Stage::Idle;
                self.release(&queue, loaded.unwrap_or_default(), now);
                return;
            }
        }
        let Some(group) = loaded.or_else(|| self.take(&queue, now)) else { return };
        let mut commits = Commits::default();
        let mut done = SmallVec::new();
        for delivery in group {
            if self.move_on(&queue, &delivery, now, &mut commits) {
                done.push(delivery.token);
            }
        }
        *self.stage.lock() = Stage::Moved;
        let commits = commits.if_holds(Rule::ForwardWhenDurable);
        queue.alarm().complete(commits, Arc::clone(self), done);
    }

    /// Whether the target is in a closed shard, or forwards to one. Messages must not be taken then: each time their
    /// locks expired they would count as delivered.
    fn is_blocked(&self, queue: &Queue) -> bool {
        let configured = queue.configured();
        let target = self.target(&configured);
        let node = target.and_then(|target| queue.entities()?.find_key(target));
        node.is_some_and(|node| node.reaches_closed())
    }

    /// Returns the key of the target, if the entity is declared with one.
    fn target<'c>(&self, configured: &'c Configured) -> Option<&'c str> {
        match self.part {
            Part::Main => configured.forwards_to.as_deref(),
            _ => configured.dead_letters_to.as_deref(),
        }
    }

    /// Returns messages to their places.
    fn release(&self, queue: &Queue, group: Vec<Delivery>, now: WallTime) {
        if group.is_empty() {
            return;
        }
        queue.with(&mut Commits::default(), |entity, effects| {
            for Delivery { token, .. } in group {
                // A message whose lock has expired has returned already.
                let _ = entity.settle(self.part, token, Outcome::Release, now, effects);
            }
        });
    }

    /// Takes the next messages, with their bodies. Returns `None` if there are none, or if bodies have to be read
    /// first.
    fn take(self: &Arc<Self>, queue: &Arc<Queue>, now: WallTime) -> Option<Vec<Delivery>> {
        let mut group = Vec::new();
        let taken = queue.with(&mut Commits::default(), |entity, effects| {
            entity.take(self.id, GROUP, now, effects, &mut group)
        });
        if taken.is_err() || group.is_empty() {
            return None;
        }
        let absent = group::absent(&group);
        if absent.is_empty() {
            return Some(group);
        }
        *self.stage.lock() = Stage::Loading(group);
        queue.fetch_bodies(self.id, absent, Arc::clone(self) as Arc<dyn Inbox>);
        None
    }

    /// Sends a message to its target. Returns whether it can be completed here when it is durable there.
    fn move_on(
        &self,
        queue: &Arc<Queue>,
        delivery: &Delivery,
        now: WallTime,
        commits: &mut Commits,
    ) -> bool {
        let Some(message) = self.outgoing(queue, delivery) else { return true };
        let configured = queue.configured();
        // The definition has just changed, and the message has no target any more. It returns when its lock
        // expires.
        let Some(target) = self.target(&configured) else { return false };
        let way = Way::forwarded(hops(message.overlay.as_deref()));
        let moved = if *target == *queue.key() {
            self.publish(queue, message.clone(), way, now, commits)
        } else {
            let forward = Forward { from: queue, target, way, messages: &[] };
            forward.try_send(&message, now, commits).map(|_| ())
        };
        let (reason, description) = match moved {
            Ok(()) => return true,
            // The shard of the target has just been closed. The message returns when its lock expires.
            Err(NotForwarded::Later) => return false,
            Err(NotForwarded::Never(reason, description)) => (reason, description),
        };
        // The dead letter and the completion are in one batch. If there is no room, or if the lock has expired, the
        // message is moved again later.
        queue
            .with(commits, |entity, fx| {
                let part = Part::TransferDeadLetter;
                entity.renew_message(self.part, delivery.token, now, fx)?;
                entity.dead_letter_incoming(part, message, reason, &description, now, fx)?;
                entity.settle(self.part, delivery.token, Outcome::Complete, now, fx)
            })
            .ok();
        false
    }

    /// Gives a due message of a topic to the subscriptions.
    fn publish(
        &self,
        queue: &Queue,
        message: Incoming,
        way: Way<'_>,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<(), NotForwarded> {
        let Some(topic) = queue.entities().and_then(|entities| entities.find_key(queue.key()))
        else {
            return Ok(());
        };
        let published = topic.put(SmallVec::from_buf([message]), way, now, commits);
        match published {
            Ok(_) | Err(SendError::Gone) => Ok(()),
            Err(SendError::NotStored) => Err(NotForwarded::Later),
            Err(SendError::Refused(Refusal::QuotaExceeded)) => {
                let text = "A subscription of the topic is full.";
                Err(NotForwarded::Never("QuotaExceeded", text.into()))
            }
            Err(error) => Err(NotForwarded::Never("ForwardingFailed", error.to_string())),
        }
    }

    /// Returns a message in the form in which it is sent to its target; `None` if its body is lost.
    fn outgoing(&self, queue: &Queue, delivery: &Delivery) -> Option<Incoming> {
        let entry = &delivery.entry;
        let bytes = entry.body.bytes.clone()?;
        let header = Sections::split(&bytes).ok().map(|sections| sections.header());
        let time_to_live = header.and_then(|header| header.ttl);
        let mut overlay = entry.overlay.clone();
        if self.part != Part::Main {
            let mut changed: Overlay = overlay.as_deref().cloned().unwrap_or_default();
            changed.set(Scope::Annotation, DEAD_LETTER_SOURCE, Value::from(queue.path()));
            overlay = Some(Arc::new(changed));
        }
        Some(Incoming {
            session: entry.session.clone(),
            message_id: entry.message_id.clone(),
            time_to_live: time_to_live
                .map(|millis| std::time::Duration::from_millis(millis.into())),
            scheduled_at: None,
            bytes,
            overlay,
        })
    }

    /// Completes messages that are durable at their target, and schedules the next group.
    pub fn complete(self: &Arc<Self>, done: &[LockToken], now: WallTime) {
        let Some(queue) = self.queue.upgrade() else { return };
        queue.with(&mut Commits::default(), |entity, effects| {
            for token in done {
                // A message whose lock has expired in the meantime is moved again.
                let _ = entity.settle(self.part, *token, Outcome::Complete, now, effects);
            }
        });
        *self.stage.lock() = Stage::Idle;
        self.schedule(&queue);
    }

    fn loaded(&self, bodies: Vec<(u64, Option<Arc<[u8]>>)>) {
        let mut stage = self.stage.lock();
        let Stage::Loading(group) = &mut *stage else { return };
        let mut group = std::mem::take(group);
        group::fill(&mut group, bodies);
        *stage = Stage::Loaded(group);
    }
}

impl Inbox for Mover {
    fn tell(&self, _: ReceiverId, what: Told) {
        match what {
            Told::Ready => {}
            Told::Bodies(bodies) => self.loaded(bodies),
            Told::Granted { .. }
            | Told::TimedOut
            | Told::LockLost
            | Told::Deleted
            | Told::Closed
            | Told::Disabled => return,
        }
        if let Some(queue) = self.queue.upgrade() {
            self.schedule(&queue);
        }
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover")
            .field("id", &self.id)
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}
