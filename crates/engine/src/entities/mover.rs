//! What lies in a queue and belongs elsewhere: it is moved on, and nothing is lost on the way.
//!
//! A topic keeps what is scheduled until its time. Dead letters may have to go to another entity, and so may
//! what lay in a queue before it began to forward, or was stored first because duplicates are detected. All
//! of them are moved in the same way: a mover receives like a client, under a lock. It sends what it has got
//! to where it belongs, and completes it when that is durable there. If the process ends in between, it is
//! moved once more.
//!
//! One group at a time is on its way. Housekeeping does the work.

use std::fmt;
use std::sync::{Arc, Weak};

use barid_amqp::message::Sections;
use barid_core::entity::{
    Delivery, Incoming, LockToken, Outcome, Overlay, Part, ReceiverId, Refusal,
};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use smallvec::SmallVec;

use super::group;
use super::queue::Queue;
use super::receivers::{Inbox, Told, new_receiver_id};
use super::sending::{Forward, NotForwarded, SendError, Way, hops};
use crate::durable::Commits;
use crate::faults::{IfHolds as _, Rule};
use crate::sync::Mutex;

/// Messages that are on their way at a time.
const GROUP: usize = 64;

/// The annotation that says where a dead letter that was moved comes from.
const DEAD_LETTER_SOURCE: &str = "x-opt-deadletter-source";

/// Moves messages from one part of a queue to where they belong.
pub struct Mover {
    id: ReceiverId,
    me: Weak<Mover>,
    queue: Weak<Queue>,
    part: Part,
    stage: Mutex<Stage>,
}

/// How far a group is.
enum Stage {
    /// There is none.
    Idle,
    /// Bodies are read that are in the store only.
    Loading(Vec<Delivery>),
    /// All is here.
    Loaded(Vec<Delivery>),
    /// It is not durable yet where it is now.
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

    /// Has it run as soon as possible.
    pub(super) fn schedule(&self, queue: &Queue) {
        queue.alarm().move_on(Weak::clone(&self.me));
    }

    /// Moves what can be moved.
    pub fn run(self: &Arc<Self>, now: WallTime) {
        let Some(queue) = self.queue.upgrade() else { return };
        // The stage stays as it is: bodies that come meanwhile must find it loading.
        let loaded = match &mut *self.stage.lock() {
            Stage::Idle => None,
            Stage::Loaded(group) => Some(std::mem::take(group)),
            Stage::Loading(_) | Stage::Moved => return,
        };
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

    /// The next messages with their bodies; `None`: there are none, or they are not here yet.
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

    /// Whether the message can go from here when it is durable elsewhere.
    fn move_on(
        &self,
        queue: &Arc<Queue>,
        delivery: &Delivery,
        now: WallTime,
        commits: &mut Commits,
    ) -> bool {
        let Some(message) = self.outgoing(queue, delivery) else { return true };
        let configured = queue.configured();
        let target = match self.part {
            Part::Main => &configured.forwards_to,
            _ => &configured.dead_letters_to,
        };
        // Not moved any more since a moment ago: it comes back when its lock expires.
        let Some(target) = target else { return false };
        let way = Way::forwarded(hops(message.overlay.as_deref()));
        let moved = if **target == *queue.key() {
            self.publish(queue, message.clone(), way, now, commits)
        } else {
            let forward = Forward { from: queue, target, way, messages: &[] };
            forward.try_send(&message, now, commits).map(|_| ())
        };
        let (reason, description) = match moved {
            Ok(()) => return true,
            // The shard where it belongs is closed: it comes back when its lock expires.
            Err(NotForwarded::Later) => return false,
            Err(NotForwarded::Never(reason, description)) => (reason, description),
        };
        // Both in one batch. Without room for it, or if its lock has expired, it is tried again later.
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

    /// Gives a message of a topic, whose time has come, to the subscriptions.
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
                let text = "A subscription of the topic has no room.";
                Err(NotForwarded::Never("QuotaExceeded", text.into()))
            }
            Err(error) => Err(NotForwarded::Never("ForwardingFailed", error.to_string())),
        }
    }

    /// A message as it is sent on; `None`: its body is lost.
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

    /// What was moved is durable where it is now: it goes from here, and the next group comes.
    pub fn complete(self: &Arc<Self>, done: &[LockToken], now: WallTime) {
        let Some(queue) = self.queue.upgrade() else { return };
        queue.with(&mut Commits::default(), |entity, effects| {
            for token in done {
                // One whose lock has expired meanwhile is moved once more.
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
            | Told::Closed => return,
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
