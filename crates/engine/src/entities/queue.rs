//! A queue, a subscription of a topic, or the scheduled messages of a topic: an entity of the core, with its shard,
//! its timer and its receivers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use barid_core::commits::LOST;
use barid_core::durable::EntityRecord;
use barid_core::entity::{Counts, Entity, Incoming, Mode, Part, ReceiverId, Sent};
use barid_core::ids::{QueueNumber, TenantNumber};
use barid_core::time::{MonoTime, WallTime};
use smallvec::SmallVec;

use super::alarm::Alarm;
use super::configured::{Configured, Definition, Stored, Times};
use super::definition::Status;
use super::effects::QueueEffects;
use super::holding::Holding;
use super::idleness::Idleness;
use super::mover::Mover;
use super::once::Once;
use super::path::split_subscription;
use super::receivers::{Inbox, Receivers, Told};
use super::registry::Entities;
use super::sending::{Numbers, SendError, Way};
use crate::durable::{Commits, DurableShard, Shards};
use crate::faults::{IfHolds as _, Rule, holds};
use crate::random::Random;
use crate::sync::{Mutex, RwLock};

/// Bytes waiting for the next commit of the shard above which due work is postponed by [`PAUSE`]. If much expires
/// at once, the disk can then keep up, and others do not wait for one large batch.
const CROWDED: usize = 8 * 1024 * 1024;

/// Duration for which due work is postponed; see [`CROWDED`].
const PAUSE: Duration = Duration::from_millis(5);

/// The value of `wakes_at` when no timer is set.
const NEVER: u64 = u64::MAX;

/// An entity with its three parts. Belongs to one shard.
pub struct Queue {
    key: Box<str>,
    path: Box<str>,
    home: Home,
    shard: Arc<DurableShard>,
    number: QueueNumber,
    me: Weak<Queue>,
    configured: RwLock<Arc<Configured>>,
    times: Mutex<Times>,
    state: Mutex<State>,
    receivers: Receivers,
    idleness: Idleness,
    /// Time at which the timer expires, in milliseconds of wall time: the earliest time that the entity has
    /// reported. [`NEVER`]: no timer is set.
    wakes_at: AtomicU64,
    /// The batch of the shard with the reservation of the first sequence numbers; 0 if they are not reserved yet.
    begins_in: AtomicU64,
    /// The movers of messages to other entities, in the order of [`MOVED`].
    movers: Mutex<[Option<Arc<Mover>>; 2]>,
}

/// The parts from which messages can be moved to other entities.
const MOVED: [Part; 2] = [Part::Main, Part::DeadLetter];

/// Values that all queues of a tenant share.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) tenant: TenantNumber,
    pub(super) tenant_name: Arc<str>,
    pub(super) shards: Arc<Shards>,
    pub(super) alarm: Arc<dyn Alarm>,
    pub(super) random: Random,
    pub(super) entities: Weak<Entities>,
    pub(super) holding: Arc<Holding>,
}

struct State {
    entity: Entity,
    standing: Standing,
}

/// Whether an entity is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The entity is in use.
    Open,
    /// The shard was closed, and the entity is in the store only. When the shard is opened again, another `Queue`
    /// takes the place of this one.
    Closed,
    /// The entity has been deleted.
    Deleted,
}

impl Queue {
    /// The source of random numbers.
    pub(super) fn random(&self) -> Random {
        self.home.random
    }

    /// Creates an entity that is not stored yet, with a new queue number.
    pub(super) fn new(home: &Home, path: &str, configured: Configured) -> Arc<Self> {
        let shard = shard_of(home, &super::path::key(path));
        let number = shard.change().new_queue_number();
        let times = Times::created(home.alarm.wall(), &configured.definition);
        Self::recover(home, path, (shard, number), (configured, times))
    }

    /// Creates an entity that was found in the store of a shard.
    pub(super) fn recover(
        home: &Home,
        path: &str,
        (shard, number): (Arc<DurableShard>, QueueNumber),
        (configured, times): (Configured, Times),
    ) -> Arc<Self> {
        let key = super::path::key(path);
        // Lock tokens of an earlier process must be invalid, so the first lock number is one of 2^63 random
        // numbers.
        let first_lock = if holds(Rule::NumberLocksAnew) { home.random.number() >> 1 } else { 1 };
        let entity = Entity::new(configured.properties.to_core(), first_lock);
        Arc::new_cyclic(|me| Self {
            key,
            path: path.into(),
            home: home.clone(),
            shard,
            number,
            me: Weak::clone(me),
            configured: RwLock::new(Arc::new(configured)),
            times: Mutex::new(times),
            state: Mutex::new(State { entity, standing: Standing::Open }),
            receivers: Receivers::default(),
            idleness: Idleness::default(),
            wakes_at: AtomicU64::new(NEVER),
            begins_in: AtomicU64::new(0),
            movers: Mutex::default(),
        })
    }

    /// The entity's path, as it was declared.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The entity's canonical key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether clients may send to it and receive from it.
    pub fn status(&self) -> Status {
        self.configured.read().properties.status
    }

    /// The entity's definition, and what is derived from it.
    pub fn configured(&self) -> Arc<Configured> {
        Arc::clone(&self.configured.read())
    }

    /// Whether the entity is a subscription of a topic.
    pub fn is_subscription(&self) -> bool {
        matches!(self.configured.read().definition, Definition::Subscription(_))
    }

    /// Whether the entity forwards its messages, so that no client can receive them here.
    pub fn forwards(&self) -> bool {
        self.configured.read().forwards_to.is_some()
    }

    /// The tenant's number.
    pub fn tenant(&self) -> TenantNumber {
        self.home.tenant
    }

    /// The tenant's name.
    pub fn tenant_name(&self) -> &str {
        &self.home.tenant_name
    }

    /// The queue number, which identifies the entity in its shard.
    pub fn number(&self) -> QueueNumber {
        self.number
    }

    /// The entity's shard, in the tenure in which this `Queue` was created or recovered.
    pub fn shard(&self) -> &Arc<DurableShard> {
        &self.shard
    }

    pub(super) fn shards(&self) -> &Shards {
        &self.home.shards
    }

    pub(super) fn alarm(&self) -> &dyn Alarm {
        &*self.home.alarm
    }

    pub(super) fn entities(&self) -> Option<Arc<Entities>> {
        self.home.entities.upgrade()
    }

    /// Whether the entities of the tenant may hold `more` bytes than they do. A refusal is counted.
    pub fn tenant_has_room(&self, more: usize) -> bool {
        self.home.holding.has_room(more)
    }

    /// Counts the contents of the entity, in constant time.
    pub fn counts(&self) -> Counts {
        self.read(Entity::counts)
    }

    /// Maximum size of a message, and of the state of a session, in bytes.
    pub fn max_message_size(&self) -> usize {
        self.read(|entity| entity.properties().max_message_size)
    }

    /// Number of registered receivers.
    pub fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// Registers a receiver for notifications, until [`unregister`](Self::unregister). Must be called before the
    /// receiver is opened. Returns false if the entity has been deleted or its shard closed.
    pub fn register(&self, receiver: ReceiverId, inbox: Arc<dyn Inbox>) -> bool {
        self.mark_used();
        self.receivers.add(receiver, inbox)
    }

    /// Ends the notifications of a receiver. Must be called after the receiver was closed.
    pub fn unregister(&self, receiver: ReceiverId) {
        self.receivers.remove(receiver);
    }

    /// Whether the entity has been deleted. A later entity of the same name is another `Queue`.
    pub fn is_deleted(&self) -> bool {
        self.state.lock().standing == Standing::Deleted
    }

    /// Whether the entity's shard is not open. When it is open again, another `Queue` has taken the place of this
    /// one.
    pub fn is_closed(&self) -> bool {
        !self.shard.is_open()
    }

    /// Returns commits that never become durable. An answer about a closed entity waits for them, so that success
    /// is never reported.
    pub fn lost(&self) -> Commits {
        Commits::one(self.shard.index(), LOST)
    }

    /// Reads the entity under its lock.
    pub fn read<R>(&self, look: impl FnOnce(&Entity) -> R) -> R {
        look(&self.state.lock().entity)
    }

    /// When the entity was created and changed.
    pub fn times(&self) -> Times {
        self.times.lock().clone()
    }

    /// Notes that the entity is used, as every command of a client does.
    pub fn mark_used(&self) {
        self.idleness.mark();
    }

    /// Time at which a client has last used the entity, with the accuracy of a sweep; `None`: not since the broker
    /// has started.
    pub fn used_at(&self) -> Option<WallTime> {
        self.idleness.used_at()
    }

    /// Time since which nobody has used the entity; `None`: no sweep has seen it.
    pub(super) fn idle_since(&self) -> Option<MonoTime> {
        self.idleness.since()
    }

    /// Whether the entity was used since the last sweep.
    pub(super) fn is_used(&self) -> bool {
        self.idleness.is_used()
    }

    /// Notes the time of the uses since the last sweep.
    pub(super) fn sweep(&self, now: MonoTime, wall: WallTime) {
        let movers = self.movers.lock().iter().flatten().count();
        let is_held = self.receivers.len() > movers || self.counts().scheduled > 0;
        self.idleness.sweep(is_held, now, wall);
    }

    /// Runs a command of a client on the entity under its lock.
    ///
    /// The consequences are noted in the entity's shard, and the batch is added to `commits`. An answer that
    /// reports success must wait for `commits`; if the shard is closed, they never become durable. When the lock is
    /// released, receivers are notified and the next timer is set. The shard's write set stays locked from the
    /// first note to the end of the command, so `change` must not take any other lock.
    pub fn with<R>(
        &self,
        commits: &mut Commits,
        change: impl FnOnce(&mut Entity, &mut QueueEffects<'_>) -> R,
    ) -> R {
        self.run(commits, |entity, effects| {
            // Under the lock, under which the entity is deleted if it is not used.
            self.mark_used();
            change(entity, effects)
        })
    }

    /// Runs a command as [`with`](Self::with), which is no use of the entity.
    fn run<R>(
        &self,
        commits: &mut Commits,
        change: impl FnOnce(&mut Entity, &mut QueueEffects<'_>) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let before = state.entity.footprint();
        let mut effects = QueueEffects::new(self, state.standing);
        let answer = change(&mut state.entity, &mut effects);
        self.home.holding.count(before, state.entity.footprint());
        let due = state.entity.due();
        let news = effects.finish(commits);
        drop(state);
        self.wake_at(due);
        self.receivers.tell(news);
        answer
    }

    /// Runs a command that gives the entity a copy of a message. Returns `None` without running it if the entity
    /// already has the copy.
    pub(super) fn take_once<R, E>(
        &self,
        once: Option<&Once>,
        commits: &mut Commits,
        take: impl FnOnce(&mut Entity, &mut QueueEffects<'_>) -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        self.with(commits, |entity, effects| {
            let once = once.filter(|_| !effects.is_void());
            if once.is_some_and(|once| once.visit(self.number, effects.shard())) {
                return Ok(None);
            }
            let taken = take(entity, effects)?;
            if let Some(once) = once {
                once.note(self.number, effects.shard());
            }
            Ok(Some(taken))
        })
    }

    /// Does everything that is due.
    pub fn on_time(&self, now: WallTime, commits: &mut Commits) {
        self.run(commits, |entity, effects| entity.on_time(now, effects));
    }

    /// Whether the timer is set to this time.
    pub fn wakes_at(&self, at: WallTime) -> bool {
        self.wakes_at.load(Ordering::Acquire) == at.as_millis()
    }

    /// Handles the expiry of a timer. Does nothing if the timer has been set to another time since.
    pub fn wake(&self, at: WallTime, now: WallTime) {
        let (at, order) = (at.as_millis(), Ordering::AcqRel);
        if self.wakes_at.compare_exchange(at, NEVER, order, Ordering::Relaxed).is_err() {
            return;
        }
        if self.shard.pending_bytes() > CROWDED {
            // Much expires at once: the disk must keep up, or others wait for one large batch.
            self.wake_at(Some(now.after(PAUSE)));
        } else {
            self.on_time(now, &mut Commits::default());
        }
    }

    /// Returns the time that the timer is set to, if that time has come.
    pub(super) fn overdue(&self, now: WallTime) -> Option<WallTime> {
        let at = WallTime::from_millis(self.wakes_at.load(Ordering::Acquire));
        (at <= now).then_some(at)
    }

    fn wake_at(&self, due: Option<WallTime>) {
        let Some(due) = due else { return };
        if due.as_millis() < self.wakes_at.fetch_min(due.as_millis(), Ordering::AcqRel) {
            self.home.alarm.wake(Weak::clone(&self.me), due);
        }
    }

    /// Puts messages into the entity itself, all or none, and returns their sequence numbers. The number is 0 for a
    /// duplicate, or for a message that the entity already has.
    pub(super) fn put(
        &self,
        messages: SmallVec<[Incoming; 1]>,
        way: Way<'_>,
        now: WallTime,
        commits: &mut Commits,
    ) -> Result<Numbers, SendError> {
        let (count, mut has_duplicate) = (messages.len(), false);
        let numbers = self.take_once(way.once, commits, |entity, effects| {
            check(entity, effects, &messages)?;
            let mut numbers = Numbers::new();
            for message in messages {
                numbers.push(match entity.send(message, now, effects)? {
                    Sent::Enqueued(number) | Sent::Scheduled(number) => number,
                    Sent::Duplicate => 0,
                });
                has_duplicate |= numbers.last() == Some(&0);
            }
            Ok::<_, SendError>(numbers)
        })?;
        if has_duplicate {
            // The first message with this id may not be durable yet.
            let first = Commits::one(self.shard.index(), self.shard.last_change());
            commits.join(&first.if_holds(Rule::AcceptDuplicatesWhenDurable));
        }
        Ok(numbers.unwrap_or_else(|| std::iter::repeat_n(0, count).collect()))
    }

    /// Checks whether [`put`](Self::put) would accept these messages.
    pub(super) fn check(&self, messages: &[Incoming]) -> Result<(), SendError> {
        let state = self.state.lock();
        check(&state.entity, &QueueEffects::new(self, state.standing), messages)
    }

    /// Starts a new entity, and stores its definition.
    pub(super) fn begin(&self, commits: &mut Commits) {
        self.start(commits);
        let configured = Configured::clone(&self.configured());
        self.store(configured, self.times(), commits);
    }

    /// Starts the entity when it is new, or when all its records have been recovered. Reserves its sequence
    /// numbers.
    pub(super) fn start(&self, commits: &mut Commits) {
        let mut reserved = Commits::default();
        self.run(&mut reserved, |entity, effects| entity.start(effects));
        let batch = reserved.iter().map(|(_, batch)| batch).max();
        self.begins_in.store(batch.unwrap_or_default(), Ordering::Release);
        commits.join(&reserved);
    }

    /// Returns what must be durable before a message of the entity is delivered: the reservation of its sequence
    /// numbers. Otherwise another message could get the same number after a crash. Returns `None` if the
    /// reservation is durable.
    pub fn unreserved(&self) -> Option<Commits> {
        let batch = self.begins_in.load(Ordering::Acquire);
        let wait = (!self.shard.is_durable(batch)).then(|| Commits::one(self.shard.index(), batch));
        wait.if_holds(Rule::DeliverWhenReserved)
    }

    /// Stores a changed definition and puts it into effect.
    pub(super) fn configure(&self, configured: Configured, commits: &mut Commits) {
        let times = {
            let (before, mut times) = (self.configured(), self.times.lock());
            let now = self.home.alarm.wall();
            *times = times.changed(now, &before.definition, &configured.definition);
            times.clone()
        };
        self.store(configured, times, commits);
    }

    fn store(&self, configured: Configured, times: Times, commits: &mut Commits) {
        let definition = Stored::encode(&configured, times);
        let record = EntityRecord { queue: self.number, definition };
        self.with(commits, |_, effects| {
            if !effects.is_void() {
                effects.shard().put_entity(self.home.tenant, &self.path, record);
            }
        });
        self.adopt(configured);
        if !self.status().may_receive() {
            self.receivers.tell_all(&Told::Disabled);
        }
        self.move_on();
    }

    /// Puts into effect a definition that is already stored.
    pub(super) fn adopt(&self, configured: Configured) {
        let properties = configured.properties.to_core();
        self.run(&mut Commits::default(), |entity, _| entity.set_properties(properties));
        *self.configured.write() = Arc::new(configured);
    }

    /// Starts and stops movers as the definition requires.
    pub(super) fn move_on(&self) {
        let configured = self.configured();
        let targets = [&configured.forwards_to, &configured.dead_letters_to];
        let mut ended = SmallVec::<[Arc<Mover>; 2]>::new();
        let mut begun = SmallVec::<[Arc<Mover>; 2]>::new();
        let mut changed = SmallVec::<[Arc<Mover>; 2]>::new();
        {
            let mut movers = self.movers.lock();
            for ((mover, part), target) in movers.iter_mut().zip(MOVED).zip(targets) {
                match (mover.is_some(), target) {
                    (false, Some(_)) => {
                        begun.push(Arc::clone(mover.insert(Mover::new(&self.me, part))));
                    }
                    (true, None) => ended.extend(mover.take()),
                    // It may wait for the previous target.
                    (true, Some(_)) => changed.extend(mover.clone()),
                    (false, None) => {}
                }
            }
        }
        for mover in ended {
            self.with(&mut Commits::default(), |entity, effects| {
                entity.close(mover.id(), WallTime::default(), effects);
            });
            self.unregister(mover.id());
        }
        for mover in changed {
            mover.schedule(self);
        }
        for mover in begun {
            self.register(mover.id(), Arc::clone(&mover) as Arc<dyn Inbox>);
            // Opening is refused only for the main part of an entity with sessions, and such an entity does not
            // forward.
            let opened =
                self.read_mut(|entity| entity.open(mover.id(), mover.part(), Mode::PeekLock));
            debug_assert_eq!(opened, Ok(()));
            mover.schedule(self);
        }
    }

    fn read_mut<R>(&self, change: impl FnOnce(&mut Entity) -> R) -> R {
        change(&mut self.state.lock().entity)
    }

    /// Deletes the entity and its messages, and notifies its receivers.
    pub(super) fn delete(&self, commits: &mut Commits) {
        self.delete_if(|| true, commits);
    }

    /// Deletes the entity like [`delete`](Self::delete) if nobody has used it since the last sweep. Returns whether it
    /// did.
    pub(super) fn delete_unused(&self, commits: &mut Commits) -> bool {
        self.delete_if(|| !self.is_used(), commits)
    }

    fn delete_if(&self, is_wanted: impl FnOnce() -> bool, commits: &mut Commits) -> bool {
        let mut state = self.state.lock();
        if !is_wanted() {
            return false;
        }
        let mut effects = QueueEffects::new(self, state.standing);
        if state.standing == Standing::Open {
            self.home.holding.count(state.entity.footprint(), 0);
            state.entity.delete_all(&mut effects);
            effects.shard().remove_entity(self.home.tenant, &self.path, self.number);
            state.standing = Standing::Deleted;
        }
        effects.finish(commits);
        drop(state);
        *self.movers.lock() = [None, None];
        self.receivers.end(&Told::Deleted);
        true
    }

    /// Empties the entity in memory because its shard is being closed: its contents stay in the store only.
    /// Notifies its receivers.
    pub(super) fn leave(&self) {
        {
            let mut state = self.state.lock();
            if state.standing != Standing::Open {
                return;
            }
            // Under the same lock: no message may get a number after the exact next ones were noted.
            let mut effects = QueueEffects::new(self, state.standing);
            state.entity.note_numbers(&mut effects);
            effects.finish(&mut Commits::default());
            state.standing = Standing::Closed;
            let empty = Entity::new(state.entity.properties().clone(), 0);
            let left = std::mem::replace(&mut state.entity, empty);
            self.home.holding.count(left.footprint(), 0);
            self.home.shards.count_in_memory(left.bytes_in_memory(), 0);
        }
        *self.movers.lock() = [None, None];
        self.receivers.end(&Told::Closed);
    }

    /// Stores the exact next sequence numbers, so that none are skipped: the shard is about to close.
    pub(super) fn note_numbers(&self, commits: &mut Commits) {
        self.run(commits, |entity, effects| entity.note_numbers(effects));
    }

    /// Restores a message, a state or a number that was found in the store, before the entity is used.
    pub(super) fn restore(&self, restore: impl FnOnce(&mut Entity)) {
        let entity = &mut self.state.lock().entity;
        let before = entity.footprint();
        restore(entity);
        self.home.holding.count(before, entity.footprint());
    }
}

/// Returns the shard of the entity with this canonical key. A subscription is in the shard of its topic, so that no
/// crash keeps the subscription and loses the topic.
pub(super) fn shard_of(home: &Home, key: &str) -> Arc<DurableShard> {
    let of_shard = split_subscription(key).map_or(key, |(topic, _)| topic);
    home.shards.of(&home.tenant_name, of_shard)
}

/// Checks whether an entity accepts these messages, one after the other.
fn check(
    entity: &Entity,
    effects: &QueueEffects<'_>,
    messages: &[Incoming],
) -> Result<(), SendError> {
    match effects.standing() {
        Standing::Open => Ok(entity.check(messages)?),
        Standing::Closed => Err(SendError::NotStored),
        Standing::Deleted => Err(SendError::Gone),
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("path", &self.path).finish_non_exhaustive()
    }
}
