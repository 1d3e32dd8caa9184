//! The runner of the lanes: receives from queues and subscriptions, and publishes to MQTT clients.
//!
//! For each queue without sessions that a binding names, the runner has one [`Lane`], which keeps the order
//! of the messages. For each queue with sessions it has [`LANES`]: that many sessions are handled at the same
//! time, each in its order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use barid_core::entity::ReceiverId;
use hashbrown::HashMap;

use super::lane::{Lane, Next, Press};
use crate::bindings::Bound;
use crate::budget::Budget;
use crate::context::Context;
use crate::durable::Commits;
use crate::entities::{Inbox, Queue, Told};
use crate::progress::{WaitSet, Waiter};
use crate::tenant::Tenant;

/// Number of sessions of one binding that are handled at the same time. Further sessions wait for a lane.
const LANES: usize = 16;

/// Interval at which missing entities are looked up again, lanes that are held back try again, and a full
/// disk is checked again.
const RETRY: Duration = Duration::from_millis(250);

/// Maximum time that published messages may take to become durable when the broker ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// The sending side of the runner's events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lanes(Sender<Event>);

/// The receiving side of the runner's events, from which the runner is made.
pub struct LaneEvents(Sender<Event>, Receiver<Event>);

/// An event for the runner.
#[derive(Debug)]
enum Event {
    /// The bindings of a tenant have changed.
    Changed(Arc<Tenant>),
    /// Something has happened to a receiver.
    Told(ReceiverId, Told),
    /// A batch is durable.
    Durable,
    /// The broker ends.
    End,
}

/// Forwards notifications of receivers to the runner.
struct Post(Sender<Event>);

/// Tells the runner that a batch is durable. Sends one event for all batches until the runner has handled it.
struct Waker {
    sender: Sender<Event>,
    has_told: AtomicBool,
}

/// A binding from an entity to MQTT.
struct Out {
    tenant: Arc<Tenant>,
    bound: Arc<Bound>,
    /// Whether the binding has lanes. If not, its entity is missing.
    is_open: bool,
}

/// Runs the lanes.
pub struct Runner {
    context: Context,
    events: Receiver<Event>,
    /// The event that ended the last wait.
    event: Option<Event>,
    inbox: Arc<dyn Inbox>,
    waker: Arc<Waker>,
    outs: Vec<Out>,
    lanes: HashMap<ReceiverId, Lane>,
    /// Lanes that have work to do.
    ready: Vec<ReceiverId>,
    /// Lanes whose messages are published and not durable yet.
    published: WaitSet<ReceiverId>,
    /// Lanes that are held back by a full queue of a subscriber, and the time at which they may try again.
    held_back: (Vec<ReceiverId>, Instant),
    press: Press,
    ends_at: Option<Instant>,
}

impl Lanes {
    /// Creates the two sides of the runner's events.
    pub fn new() -> (Self, LaneEvents) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender.clone()), LaneEvents(sender, receiver))
    }

    /// The bindings of a tenant have changed.
    pub fn changed(&self, tenant: &Arc<Tenant>) {
        // When the broker ends, the runner no longer receives.
        let _ = self.0.send(Event::Changed(Arc::clone(tenant)));
    }

    /// Tells the runner to end when the messages that it has published are durable.
    pub fn close(&self) {
        let _ = self.0.send(Event::End);
    }
}

impl LaneEvents {
    /// Creates the runner of the lanes.
    pub fn runner(self, context: Context) -> Runner {
        let Self(sender, events) = self;
        let waker = Waker { sender: sender.clone(), has_told: AtomicBool::new(false) };
        let now = context.engine.clock.instant();
        Runner {
            context,
            events,
            event: None,
            inbox: Arc::new(Post(sender)),
            waker: Arc::new(waker),
            outs: Vec::new(),
            lanes: HashMap::new(),
            ready: Vec::new(),
            published: WaitSet::default(),
            held_back: (Vec::new(), now),
            press: Press::default(),
            ends_at: None,
        }
    }
}

impl fmt::Debug for LaneEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneEvents")
    }
}

impl Inbox for Post {
    fn tell(&self, receiver: ReceiverId, what: Told) {
        let _ = self.0.send(Event::Told(receiver, what));
    }
}

impl Waiter for Waker {
    fn wake(&self) {
        if !self.has_told.swap(true, Ordering::AcqRel) {
            let _ = self.sender.send(Event::Durable);
        }
    }
}

impl Runner {
    /// Waits until there is work for [`Self::act`]. Returns false if the broker ends and nothing is left to
    /// do.
    pub fn wait(&mut self) -> bool {
        let patience = if let Some(ends_at) = self.ends_at {
            let left = ends_at.saturating_duration_since(self.context.engine.clock.instant());
            if self.lanes.is_empty() || left.is_zero() {
                return false;
            }
            Some(left.min(RETRY))
        } else if self.ready.is_empty() {
            let waits = self.outs.iter().any(|out| !out.is_open) || !self.held_back.0.is_empty();
            waits.then_some(RETRY)
        } else if !self.may_publish() {
            Some(RETRY)
        } else {
            return true;
        };
        self.event = match patience {
            Some(patience) => self.events.recv_timeout(patience).ok(),
            None => self.events.recv().ok(),
        };
        true
    }

    /// Does the work that is due now.
    pub fn act(&mut self) {
        self.context.worker.now = self.context.engine.clock.now();
        while let Some(event) = self.event.take().or_else(|| self.events.try_recv().ok()) {
            self.on_event(event);
        }
        self.settle_durable();
        self.try_again();
        self.open_missing();
        let engine = Arc::clone(&self.context.engine);
        let _round = engine.rounds.begin(self.context.worker.id);
        if self.may_publish() {
            self.work();
        }
    }

    /// Whether messages may be published now: no shard is closed or full, and no slot is being moved.
    fn may_publish(&self) -> bool {
        let engine = &self.context.engine;
        !engine.shards.any_refuses() && !engine.must_not_publish()
    }

    /// Closes all lanes, which gives their messages back.
    pub fn end(mut self) {
        let now = self.context.wall();
        self.lanes.drain().for_each(|(_, lane)| lane.close(now));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Changed(tenant) => self.change(&tenant),
            Event::Told(receiver, what) => self.on_told(receiver, what),
            Event::Durable => self.waker.has_told.store(false, Ordering::Release),
            Event::End => {
                self.ends_at = Some(self.context.engine.clock.instant() + FAREWELL);
                self.outs.clear();
                self.end_lanes(|_| true);
            }
        }
    }

    fn on_told(&mut self, receiver: ReceiverId, what: Told) {
        let Some(lane) = self.lanes.get_mut(&receiver) else { return };
        match what {
            // The lane is also notified of messages that it has given back itself, but it has to wait.
            Told::Ready if self.held_back.0.contains(&receiver) => {}
            Told::Ready | Told::Granted { .. } => self.ready.push(receiver),
            Told::Bodies(bodies) => {
                lane.loaded(bodies, self.context.wall());
                self.ready.push(receiver);
            }
            Told::TimedOut | Told::LockLost => self.renew(receiver),
            // That is about clients.
            Told::Disabled => {}
            Told::Deleted | Told::Closed => {
                let bound = Arc::clone(lane.bound());
                self.lanes.remove(&receiver);
                let of_it = |out: &&mut Out| Arc::ptr_eq(&out.bound, &bound);
                self.outs.iter_mut().filter(of_it).for_each(|out| out.is_open = false);
            }
        }
    }

    /// Adopts the bindings of a tenant after a change: closes the lanes of bindings that are no longer in
    /// force, and adds new bindings.
    fn change(&mut self, tenant: &Arc<Tenant>) {
        if self.ends_at.is_some() {
            return;
        }
        let wanted: Vec<_> =
            tenant.bindings.all().into_iter().filter(|bound| !bound.is_in()).collect();
        let is_wanted = |bound: &Arc<Bound>| wanted.iter().any(|one| Arc::ptr_eq(one, bound));
        let is_old = |out: &Out| Arc::ptr_eq(&out.tenant, tenant) && !is_wanted(&out.bound);
        let (old, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.outs).into_iter().partition(is_old);
        self.outs = kept;
        self.end_lanes(|bound| old.iter().any(|out| Arc::ptr_eq(&out.bound, bound)));
        for bound in wanted {
            if !self.outs.iter().any(|out| Arc::ptr_eq(&out.bound, &bound)) {
                self.outs.push(Out { tenant: Arc::clone(tenant), bound, is_open: false });
            }
        }
    }

    /// Closes the lanes of the bindings for which `of` returns true. Lanes that have published messages close
    /// when these are durable.
    fn end_lanes(&mut self, of: impl Fn(&Arc<Bound>) -> bool) {
        let now = self.context.wall();
        let ended = self.lanes.extract_if(|_, lane| {
            lane.is_ending |= of(lane.bound());
            lane.is_ending && lane.waits_for().is_none()
        });
        ended.for_each(|(_, lane)| lane.close(now));
    }

    /// Makes the lanes that were held back try again, if it is time.
    fn try_again(&mut self) {
        if self.held_back.1 <= self.context.engine.clock.instant() {
            self.ready.append(&mut self.held_back.0);
        }
    }

    /// Opens lanes for entities that were missing before.
    fn open_missing(&mut self) {
        let now = self.context.wall();
        for out in self.outs.iter_mut().filter(|out| !out.is_open) {
            let Some(queue) = queue_of(out) else { continue };
            let mut lanes = 1;
            while lanes > 0 {
                let inbox = Arc::clone(&self.inbox);
                let Some((lane, next)) = Lane::open(&out.tenant, &out.bound, &queue, inbox, now)
                else {
                    break;
                };
                if !out.is_open && lane.has_sessions() {
                    lanes = LANES;
                }
                out.is_open = true;
                lanes -= 1;
                if next == Next::Again {
                    self.ready.push(lane.receiver());
                }
                self.lanes.insert(lane.receiver(), lane);
            }
        }
    }

    /// Replaces a lane that needs a new receiver by a new lane.
    fn renew(&mut self, receiver: ReceiverId) {
        let Some(lane) = self.lanes.remove(&receiver) else { return };
        let bound = Arc::clone(lane.bound());
        let (now, is_ending) = (self.context.wall(), lane.is_ending);
        lane.close(now);
        let of_it = |out: &&mut Out| Arc::ptr_eq(&out.bound, &bound);
        let Some(out) = self.outs.iter_mut().find(of_it).filter(|_| !is_ending) else { return };
        let inbox = Arc::clone(&self.inbox);
        let queue = queue_of(out);
        let lane = queue.and_then(|queue| Lane::open(&out.tenant, &bound, &queue, inbox, now));
        match lane {
            Some((lane, next)) => {
                if next == Next::Again {
                    self.ready.push(lane.receiver());
                }
                self.lanes.insert(lane.receiver(), lane);
            }
            // Other lanes of the binding are notified as well, or were already.
            None => out.is_open = self.lanes.values().any(|lane| Arc::ptr_eq(lane.bound(), &bound)),
        }
    }

    /// Takes a step with each lane that has work to do.
    fn work(&mut self) {
        let ready = std::mem::take(&mut self.ready);
        let (mut renewed, mut durable) = (Vec::new(), Vec::new());
        for receiver in ready {
            let Some(lane) = self.lanes.get_mut(&receiver) else { continue };
            match lane.step(&mut self.context, &mut self.press, &self.inbox) {
                Next::Wait => {}
                Next::Again => self.ready.push(receiver),
                Next::Commit if lane.waits_for().is_some_and(Commits::are_lost) => {
                    renewed.push(receiver);
                }
                Next::Commit => {
                    let commits = lane.waits_for().cloned().unwrap_or_default();
                    let sources = self.context.engine.shards.sources();
                    let waker = Arc::downgrade(&self.waker);
                    durable.extend(self.published.push(commits, receiver, sources, &waker));
                }
                Next::Renew => renewed.push(receiver),
            }
        }
        self.context.router.flush(&self.context.worker, &mut Budget::unbounded());
        renewed.into_iter().for_each(|receiver| self.renew(receiver));
        durable.into_iter().for_each(|receiver| self.settle(receiver));
    }

    /// Settles the published messages whose commits are durable.
    fn settle_durable(&mut self) {
        let sources = self.context.engine.shards.sources();
        let durable = self.published.take(sources, &Arc::downgrade(&self.waker), |_| false);
        durable.into_iter().for_each(|receiver| self.settle(receiver));
    }

    /// Settles the messages that a lane has published.
    fn settle(&mut self, receiver: ReceiverId) {
        let Some(lane) = self.lanes.get_mut(&receiver) else { return };
        let is_held_back = lane.settle(self.context.wall());
        if lane.is_ending {
            if let Some(lane) = self.lanes.remove(&receiver) {
                lane.close(self.context.wall());
            }
        } else if is_held_back {
            let (lanes, until) = &mut self.held_back;
            if lanes.is_empty() {
                *until = self.context.engine.clock.instant() + RETRY;
            }
            lanes.push(receiver);
        } else {
            self.ready.push(receiver);
        }
    }
}

/// Returns the queue or subscription from which a binding receives, if it exists.
fn queue_of(out: &Out) -> Option<Arc<Queue>> {
    Some(Arc::clone(out.bound.node(out.tenant.used_entities()).ok()?.entity()))
}
