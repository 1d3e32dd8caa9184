//! A queue, a subscription of a topic, or what a topic keeps until its time: an entity of the core with all
//! that joins it to the outside.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use barid_core::commits::LOST;
use barid_core::durable::EntityRecord;
use barid_core::entity::{Counts, Entity, Incoming, Mode, Part, ReceiverId, Sent};
use barid_core::ids::{QueueNumber, TenantNumber};
use barid_core::time::WallTime;
use smallvec::SmallVec;

use super::alarm::Alarm;
use super::configured::{Configured, Definition, Stored};
use super::effects::QueueEffects;
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

/// Bytes that wait for the next commit, with which what is due waits as well …
const CROWDED: usize = 8 * 1024 * 1024;

/// … for so long.
const PAUSE: Duration = Duration::from_millis(5);

/// No timer is set.
const NEVER: u64 = u64::MAX;

/// One entity, with its three parts. Belongs to one shard.
pub struct Queue {
    key: Box<str>,
    path: Box<str>,
    home: Home,
    shard: Arc<DurableShard>,
    number: QueueNumber,
    me: Weak<Queue>,
    configured: RwLock<Arc<Configured>>,
    state: Mutex<State>,
    receivers: Receivers,
    /// When the entity is looked at next: the earliest time that has been told.
    wakes_at: AtomicU64,
    /// The batch of its shard with the reservation of its first numbers; 0: they are not reserved yet.
    begins_in: AtomicU64,
    /// What moves messages on, in the order of [`MOVED`].
    movers: Mutex<[Option<Arc<Mover>>; 2]>,
}

/// The parts from which messages can be moved on.
const MOVED: [Part; 2] = [Part::Main, Part::DeadLetter];

/// What all queues of a tenant have in common.
#[derive(Clone)]
pub(super) struct Home {
    pub(super) tenant: TenantNumber,
    pub(super) tenant_name: Arc<str>,
    pub(super) shards: Arc<Shards>,
    pub(super) alarm: Arc<dyn Alarm>,
    pub(super) random: Random,
    pub(super) entities: Weak<Entities>,
}

struct State {
    entity: Entity,
    standing: Standing,
}

/// Whether there is still something to do in an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is.
    Open,
    /// Its shard was closed: it is in the store only, and another has its place here when that is opened.
    Closed,
    /// It has been deleted.
    Deleted,
}

impl Queue {
    /// The source of random numbers.
    pub(super) fn random(&self) -> Random {
        self.home.random
    }

    /// An entity that is not stored yet, under a new number.
    pub(super) fn new(home: &Home, path: &str, configured: Configured) -> Arc<Self> {
        let shard = shard_of(home, &super::path::key(path));
        let number = shard.change().new_queue_number();
        Self::recover(home, path, (shard, number), configured)
    }

    /// An entity that was found in the store of a shard.
    pub(super) fn recover(
        home: &Home,
        path: &str,
        (shard, number): (Arc<DurableShard>, QueueNumber),
        configured: Configured,
    ) -> Arc<Self> {
        let key = super::path::key(path);
        // Tokens of an earlier process must not fit: the first number is any of 2^63.
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
            state: Mutex::new(State { entity, standing: Standing::Open }),
            receivers: Receivers::default(),
            wakes_at: AtomicU64::new(NEVER),
            begins_in: AtomicU64::new(0),
            movers: Mutex::default(),
        })
    }

    /// Its path, as it was declared.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its canonical key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it is declared as.
    pub fn configured(&self) -> Arc<Configured> {
        Arc::clone(&self.configured.read())
    }

    /// Whether it is a subscription of a topic.
    pub fn is_subscription(&self) -> bool {
        matches!(self.configured.read().definition, Definition::Subscription(_))
    }

    /// Whether it sends its messages on, so that nobody can receive them here.
    pub fn forwards(&self) -> bool {
        self.configured.read().forwards_to.is_some()
    }

    /// Its tenant's number.
    pub fn tenant(&self) -> TenantNumber {
        self.home.tenant
    }

    /// Its tenant's name.
    pub fn tenant_name(&self) -> &str {
        &self.home.tenant_name
    }

    /// Names it in its shard.
    pub fn number(&self) -> QueueNumber {
        self.number
    }

    /// Its shard, in the tenure in which it was made or found.
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

    /// How much is in it. Costs the same whatever that is.
    pub fn counts(&self) -> Counts {
        self.read(Entity::counts)
    }

    /// The longest message, and the longest state of a session, in bytes.
    pub fn max_message_size(&self) -> usize {
        self.read(|entity| entity.properties().max_message_size)
    }

    /// How many receivers are open.
    pub fn receivers(&self) -> usize {
        self.receivers.len()
    }

    /// Has a receiver told what happens to it, until it is [forgotten](Self::unregister). Comes before it is
    /// opened. False: the entity has been deleted, or its shard closed.
    pub fn register(&self, receiver: ReceiverId, inbox: Arc<dyn Inbox>) -> bool {
        self.receivers.add(receiver, inbox)
    }

    /// Nobody has to be told any more. Comes after the receiver was closed.
    pub fn unregister(&self, receiver: ReceiverId) {
        self.receivers.remove(receiver);
    }

    /// Whether it has been deleted. One of the same name is another.
    pub fn is_deleted(&self) -> bool {
        self.state.lock().standing == Standing::Deleted
    }

    /// Whether its shard is not open. When it is again, another has this one's place.
    pub fn is_closed(&self) -> bool {
        !self.shard.is_open()
    }

    /// What whoever is told something of a closed entity waits for in vain.
    pub fn lost(&self) -> Commits {
        Commits::one(self.shard.index(), LOST)
    }

    /// Looks at the entity under its lock.
    pub fn read<R>(&self, look: impl FnOnce(&Entity) -> R) -> R {
        look(&self.state.lock().entity)
    }

    /// Does something to the entity under its lock.
    ///
    /// What follows is noted in its shard, and the batch added to `commits`: whoever is told that it is done
    /// has to wait for that; in vain, if the shard of the entity is closed. When the lock is free again, receivers are
    /// told and the next timer is set. The shard's write set is locked from the first note to the end, so nothing else
    /// may be locked meanwhile.
    pub fn with<R>(
        &self,
        commits: &mut Commits,
        change: impl FnOnce(&mut Entity, &mut QueueEffects<'_>) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let mut effects = QueueEffects::new(self, state.standing);
        let answer = change(&mut state.entity, &mut effects);
        let due = state.entity.due();
        let news = effects.finish(commits);
        drop(state);
        self.wake_at(due);
        self.receivers.tell(news);
        answer
    }

    /// Does something to the entity that gives it a copy of a message, unless it has that already (`None`).
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

    /// Has everything done whose time has come.
    pub fn on_time(&self, now: WallTime, commits: &mut Commits) {
        self.with(commits, |entity, effects| entity.on_time(now, effects));
    }

    /// Whether it is to be looked at that time, and not at another.
    pub fn wakes_at(&self, at: WallTime) -> bool {
        self.wakes_at.load(Ordering::Acquire) == at.as_millis()
    }

    /// A timer has run down.
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

    /// For when a timer was set that should have run down by now, if there is one.
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

    /// Puts messages into the entity itself, all or none: their numbers. 0: it was a duplicate, or is here already.
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
            // The one that it repeats may not be durable yet.
            let first = Commits::one(self.shard.index(), self.shard.last_change());
            commits.join(&first.if_holds(Rule::AcceptDuplicatesWhenDurable));
        }
        Ok(numbers.unwrap_or_else(|| std::iter::repeat_n(0, count).collect()))
    }

    /// Whether [`put`](Self::put) would take them.
    pub(super) fn check(&self, messages: &[Incoming]) -> Result<(), SendError> {
        let state = self.state.lock();
        check(&state.entity, &QueueEffects::new(self, state.standing), messages)
    }

    /// Notes that it has come into being, and what it is declared as.
    pub(super) fn begin(&self, commits: &mut Commits) {
        self.start(commits);
        let configured = Configured::clone(&self.configured());
        self.configure(configured, commits);
    }

    /// All that was stored of it is here. Its numbers are reserved.
    pub(super) fn start(&self, commits: &mut Commits) {
        let mut reserved = Commits::default();
        self.with(&mut reserved, |entity, effects| entity.start(effects));
        let batch = reserved.iter().map(|(_, batch)| batch).max();
        self.begins_in.store(batch.unwrap_or_default(), Ordering::Release);
        commits.join(&reserved);
    }

    /// What has to be durable before a message of it leaves: that its numbers are reserved. After a crash another message
    /// could have the same number otherwise. `None`: it is durable.
    pub fn unreserved(&self) -> Option<Commits> {
        let batch = self.begins_in.load(Ordering::Acquire);
        let wait = (!self.shard.is_durable(batch)).then(|| Commits::one(self.shard.index(), batch));
        wait.if_holds(Rule::DeliverWhenReserved)
    }

    /// Notes what it is declared as, and does as it says from now on.
    pub(super) fn configure(&self, configured: Configured, commits: &mut Commits) {
        let record = EntityRecord { queue: self.number, definition: Stored::encode(&configured) };
        self.with(commits, |_, effects| {
            if !effects.is_void() {
                effects.shard().put_entity(self.home.tenant, &self.path, record);
            }
        });
        self.adopt(configured);
        self.move_on();
    }

    /// Does as its definition says from now on, which is stored already.
    pub(super) fn adopt(&self, configured: Configured) {
        let properties = configured.properties.to_core();
        self.with(&mut Commits::default(), |entity, _| entity.set_properties(properties));
        *self.configured.write() = Arc::new(configured);
    }

    /// Begins to move on what is to be moved on, or ends that.
    pub(super) fn move_on(&self) {
        let configured = self.configured();
        let targets = [&configured.forwards_to, &configured.dead_letters_to];
        let mut ended = SmallVec::<[Arc<Mover>; 2]>::new();
        let mut begun = SmallVec::<[Arc<Mover>; 2]>::new();
        {
            let mut movers = self.movers.lock();
            for ((mover, part), target) in movers.iter_mut().zip(MOVED).zip(targets) {
                match (mover.is_some(), target) {
                    (false, Some(_)) => {
                        begun.push(Arc::clone(mover.insert(Mover::new(&self.me, part))));
                    }
                    (true, None) => ended.extend(mover.take()),
                    _ => {}
                }
            }
        }
        for mover in ended {
            self.with(&mut Commits::default(), |entity, effects| {
                entity.close(mover.id(), WallTime::default(), effects);
            });
            self.unregister(mover.id());
        }
        for mover in begun {
            self.register(mover.id(), Arc::clone(&mover) as Arc<dyn Inbox>);
            // Refused only where there are sessions, and these do not forward.
            let opened =
                self.read_mut(|entity| entity.open(mover.id(), mover.part(), Mode::PeekLock));
            debug_assert_eq!(opened, Ok(()));
            mover.schedule(self);
        }
    }

    fn read_mut<R>(&self, change: impl FnOnce(&mut Entity) -> R) -> R {
        change(&mut self.state.lock().entity)
    }

    /// Has it gone, with all that is in it. Its receivers are told.
    pub(super) fn delete(&self, commits: &mut Commits) {
        let mut state = self.state.lock();
        let mut effects = QueueEffects::new(self, state.standing);
        if state.standing == Standing::Open {
            state.entity.delete_all(&mut effects);
            effects.shard().remove_entity(self.home.tenant, &self.path, self.number);
            state.standing = Standing::Deleted;
        }
        effects.finish(commits);
        drop(state);
        *self.movers.lock() = [None, None];
        self.receivers.end(&Told::Deleted);
    }

    /// Its shard is closed: what is in it is in the store only. Its receivers are told.
    pub(super) fn leave(&self) {
        self.note_numbers(&mut Commits::default());
        {
            let mut state = self.state.lock();
            if state.standing != Standing::Open {
                return;
            }
            state.standing = Standing::Closed;
            let empty = Entity::new(state.entity.properties().clone(), 0);
            let left = std::mem::replace(&mut state.entity, empty);
            self.home.shards.count_in_memory(left.bytes_in_memory(), 0);
        }
        *self.movers.lock() = [None, None];
        self.receivers.end(&Told::Closed);
    }

    /// Notes the exact numbers to go on with: the shard is about to close.
    pub(super) fn note_numbers(&self, commits: &mut Commits) {
        self.with(commits, |entity, effects| entity.note_numbers(effects));
    }

    /// Gives back a message, a state or a number that was found in the store, before anybody comes.
    pub(super) fn restore(&self, restore: impl FnOnce(&mut Entity)) {
        restore(&mut self.state.lock().entity);
    }
}

/// The shard that an entity with this canonical key belongs to. A subscription is in the shard of its topic: no crash leaves it
/// without that.
pub(super) fn shard_of(home: &Home, key: &str) -> Arc<DurableShard> {
    let of_shard = split_subscription(key).map_or(key, |(topic, _)| topic);
    home.shards.of(&home.tenant_name, of_shard)
}

/// Whether an entity takes messages, one after the other.
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
