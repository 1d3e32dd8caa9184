//! A lane: one receiver of an entity, either of a queue without sessions or of one session after the other.

use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Accepted, Delivery, LockToken, Mode, Outcome, Part, ReceiverId, Refusal,
};
use barid_core::message::Publication;
use barid_core::time::WallTime;
use mqtt_proto::QoS;

use crate::bindings::{Bound, Passage, outgoing};
use crate::budget::Budget;
use crate::context::Context;
use crate::durable::Commits;
use crate::entities::{Inbox, Queue, group, new_receiver_id};
use crate::limits::QueueOverflow;
use crate::publishing::Source;
use crate::router::Publisher;
use crate::run::Run;
use crate::tenant::Tenant;

/// Maximum number of messages that a lane takes at a time.
const GROUP: usize = 64;

/// Size, in bytes, from which a run is published before another message is added. Also the memory that the
/// buffer keeps afterwards.
const RUN_BYTES: usize = 1024 * 1024;

/// Number of messages of one session after which a lane takes another session, so that others are not kept
/// waiting.
const TURN: usize = 4 * GROUP;

/// Time for which a lane waits for a session before it asks again.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The publisher of messages that come from no client.
const NOBODY: Publisher<'static> = Publisher { session: 0, client_id: "", holder: None };

/// A lane: receives messages from a queue or subscription, and publishes them.
pub struct Lane {
    receiver: ReceiverId,
    tenant: Arc<Tenant>,
    bound: Arc<Bound>,
    queue: Arc<Queue>,
    has_sessions: bool,
    /// Number of messages that were published so far.
    taken: usize,
    stage: Stage,
    /// Whether the lane must close when the messages that it has published are durable.
    pub is_ending: bool,
}

/// The stage of a lane's work.
enum Stage {
    /// The lane has no messages.
    Idle,
    /// Message bodies that are in the store only are being read back.
    Loading(Vec<Delivery>),
    /// All message bodies are in memory.
    Loaded(Vec<Delivery>),
    /// The messages are published, and will be settled when their commits are durable.
    Published(Published),
}

/// The result of publishing the messages that were taken together.
#[derive(Debug, Default)]
struct Published {
    /// The commits that must be durable before the messages are settled.
    commits: Commits,
    settled: Vec<(LockToken, Outcome)>,
    /// Whether a subscriber's queue is full. The remaining messages go back to the entity, and are tried
    /// again later.
    is_held_back: bool,
}

/// The action that a lane needs after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// None, until the lane's receiver is notified.
    Wait,
    /// Another step.
    Again,
    /// A wait until the commits of the published messages are durable.
    Commit,
    /// Replacement: the lane needs a new receiver, so it closes and a new lane takes its place.
    Renew,
}

/// The run and the buffer with which lanes publish, one lane after the other.
#[derive(Debug, Default)]
pub struct Press {
    run: Run,
    buffer: Vec<u8>,
}

impl Lane {
    /// Opens a receiver. Returns `None` if the entity has gone or does not accept the receiver.
    pub fn open(
        tenant: &Arc<Tenant>,
        bound: &Arc<Bound>,
        queue: &Arc<Queue>,
        inbox: Arc<dyn Inbox>,
        now: WallTime,
    ) -> Option<(Self, Next)> {
        let receiver = new_receiver_id();
        if !queue.register(receiver, inbox) {
            return None;
        }
        let has_sessions = queue.configured().properties.requires_session;
        let opened = queue.with(&mut Commits::default(), |entity, effects| {
            if !has_sessions {
                return entity.open(receiver, Part::Main, Mode::PeekLock).map(|()| Next::Again);
            }
            let next = Accept::Next { until: now.after(PATIENCE) };
            let accepted = entity.accept(receiver, Mode::PeekLock, next, now, effects)?;
            Ok::<_, Refusal>(match accepted {
                Accepted::Now { .. } => Next::Again,
                Accepted::Waiting => Next::Wait,
            })
        });
        let Ok(next) = opened else {
            queue.unregister(receiver);
            return None;
        };
        let lane = Self {
            receiver,
            tenant: Arc::clone(tenant),
            bound: Arc::clone(bound),
            queue: Arc::clone(queue),
            has_sessions,
            taken: 0,
            stage: Stage::Idle,
            is_ending: false,
        };
        Some((lane, next))
    }

    /// The lane's receiver.
    pub fn receiver(&self) -> ReceiverId {
        self.receiver
    }

    /// The lane's binding.
    pub fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// Whether the lane receives one session after the other. If not, it receives from a queue without
    /// sessions.
    pub fn has_sessions(&self) -> bool {
        self.has_sessions
    }

    /// Carries out the next step of the lane: takes messages, requests missing bodies, or publishes.
    pub fn step(
        &mut self,
        context: &mut Context,
        press: &mut Press,
        inbox: &Arc<dyn Inbox>,
    ) -> Next {
        let now = context.wall();
        let group = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Loaded(group) => group,
            Stage::Idle if self.has_sessions && self.taken >= TURN => return Next::Renew,
            Stage::Idle => match self.take(now) {
                Ok(group) if group.is_empty() && self.has_sessions => return Next::Renew,
                Ok(group) if group.is_empty() => return Next::Wait,
                Ok(group) => group,
                Err(_) => return Next::Renew,
            },
            busy @ (Stage::Loading(_) | Stage::Published(..)) => {
                self.stage = busy;
                return Next::Wait;
            }
        };
        let absent = group::absent(&group);
        if !absent.is_empty() {
            self.stage = Stage::Loading(group);
            self.queue.fetch_bodies(self.receiver, absent, Arc::clone(inbox));
            return Next::Wait;
        }
        self.taken += group.len();
        self.stage = Stage::Published(self.publish(context, press, &group));
        Next::Commit
    }

    /// The commits that must be durable before the published messages are settled. `None`: the lane has
    /// published none.
    pub fn waits_for(&self) -> Option<&Commits> {
        match &self.stage {
            Stage::Published(published) => Some(&published.commits),
            _ => None,
        }
    }

    /// Settles the messages that were published, because their commits are durable. Returns true if the next
    /// step is to be taken later, because a subscriber's queue is full.
    pub fn settle(&mut self, now: WallTime) -> bool {
        let Stage::Published(published) = std::mem::replace(&mut self.stage, Stage::Idle) else {
            return false;
        };
        let (mut passed, mut refused) = (0, 0);
        self.queue.with(&mut Commits::default(), |entity, effects| {
            for (token, outcome) in published.settled {
                let is_passed = matches!(outcome, Outcome::Complete);
                let is_refused = matches!(outcome, Outcome::DeadLetter { .. });
                // A message whose lock has ended in the meantime is delivered again.
                if entity.settle(Part::Main, token, outcome, now, effects).is_ok() {
                    passed += usize::from(is_passed);
                    refused += usize::from(is_refused);
                }
            }
        });
        self.bound.counts.pass(passed);
        self.bound.counts.refuse(refused);
        published.is_held_back
    }

    /// Continues with the message bodies that were read back.
    pub fn loaded(&mut self, bodies: Vec<(u64, Option<Arc<[u8]>>)>, now: WallTime) {
        let Stage::Loading(group) = &mut self.stage else { return };
        let mut group = std::mem::take(group);
        group::fill(&mut group, bodies);
        // A message whose body cannot be read is lost, and is removed.
        let is_there = |delivery: &Delivery| delivery.entry.body.bytes.is_some();
        let (group, lost): (Vec<_>, Vec<_>) = group.into_iter().partition(is_there);
        self.queue.with(&mut Commits::default(), |entity, effects| {
            for Delivery { token, .. } in lost {
                let _ = entity.settle(Part::Main, token, Outcome::Complete, now, effects);
            }
        });
        self.stage = Stage::Loaded(group);
    }

    /// Closes the lane. The entity gets back the messages that are not published yet. Messages that are
    /// published and not settled return, too: those of a session at once, others when their locks end.
    pub fn close(self, now: WallTime) {
        self.queue.with(&mut Commits::default(), |entity, effects| {
            if let Stage::Loading(group) | Stage::Loaded(group) = &self.stage {
                for delivery in group {
                    let _ =
                        entity.settle(Part::Main, delivery.token, Outcome::Release, now, effects);
                }
            }
            entity.close(self.receiver, now, effects);
        });
        self.queue.unregister(self.receiver);
    }

    fn take(&self, now: WallTime) -> Result<Vec<Delivery>, Refusal> {
        let mut group = Vec::new();
        self.queue.with(&mut Commits::default(), |entity, effects| {
            entity.take(self.receiver, GROUP, now, effects, &mut group)
        })?;
        Ok(group)
    }

    /// Publishes messages. Consecutive messages to the same topic form one run.
    fn publish(&self, context: &mut Context, press: &mut Press, group: &[Delivery]) -> Published {
        let Passage::Out { publish, qos, retain } = &self.bound.passage else {
            unreachable!("lanes are of bindings to MQTT")
        };
        let qos = match qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        };
        let durability = self.tenant.durability();
        // Entities use wall time, MQTT messages mono time.
        let (clock, wall) = (context.worker.now, context.wall());
        let expires_at = |at: WallTime| clock.after(at.since(wall));
        let overflow = self.tenant.limits().queue_overflow;
        let holds_back = matches!(overflow, QueueOverflow::Reject | QueueOverflow::Block);
        let mut published = Published::default();
        let Published { commits, settled, is_held_back } = &mut published;
        for Delivery { token, entry, .. } in group {
            if *is_held_back {
                settled.push((*token, Outcome::Release));
                continue;
            }
            let bytes = entry.body.bytes.as_deref().expect("what is missing has been read");
            let found = match outgoing(entry, bytes, publish) {
                Ok(found) => found,
                Err(why) => {
                    settled.push((*token, why.into()));
                    continue;
                }
            };
            if press.run.topic() != found.topic || press.buffer.len() >= RUN_BYTES {
                press.print(context, &self.tenant, commits);
            }
            if press.run.is_empty() {
                if holds_back && context.router.is_any_full(&self.tenant, &found.topic, qos) {
                    *is_held_back = true;
                    settled.push((*token, Outcome::Release));
                    continue;
                }
                let class = durability.of(&found.topic);
                press.run.begin(&found.topic, qos, *retain, true, class);
            }
            let publication = Publication {
                topic: &found.topic,
                payload: &found.payload,
                properties: found.properties.as_properties().as_bytes(),
                qos,
                retain: *retain,
                expires_at: entry.expires_at.map(expires_at),
            };
            press.run.put(&publication, context.worker.now, &mut press.buffer);
            settled.push((*token, Outcome::Complete));
        }
        press.print(context, &self.tenant, commits);
        published
    }
}

impl Press {
    /// Publishes the messages in the run, if there are any.
    fn print(&mut self, context: &mut Context, tenant: &Arc<Tenant>, commits: &mut Commits) {
        if !self.run.is_empty() {
            let source = Source {
                // The messages must not enter an entity: it could be the one that they come from.
                enters_entities: false,
                ..Source::unattended(tenant, NOBODY)
            };
            let mut budget = Budget::from_now(context.engine.clock);
            context.publish(&source, &mut self.run, &mut self.buffer, &mut budget);
            commits.join(&self.run.commits);
            self.run.clear();
            self.buffer.clear();
            self.buffer.shrink_to(RUN_BYTES);
        }
    }
}
