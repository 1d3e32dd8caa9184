//! Entities and their queues through random histories of changes, commits, failed commits and
//! crashes, compared with plain maps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::durable::keys::{self, EntityKey, ManagedKey, QueueBodyKey};
use barid_core::durable::records::decode_body;
use barid_core::durable::{
    EntityRecord, Homes, ManagedRecord, Recovery, RetainedRecord, SessionRecord,
    SessionStateRecord, Shard, SubscriptionRecord, recover, shard_of,
};
use barid_core::entity::{Body, Entry, Part, SequenceNumber, State};
use barid_core::ids::{EntryNumber, QueueNumber, SessionNumber, TenantNumber};
use barid_core::session::EntryRecord;
use barid_core::state_store::StateRecord;
use barid_core::time::WallTime;
use barid_store::memory::{Disk, Fault, MemoryStore};
use barid_store::{Batch, Keyspace, Store};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_proto::Version;

const TENANTS: [&str; 2] = ["acme", "zeta"];
const PATHS: [&str; 3] = ["a", "a/b", "b"];
const IDS: [&str; 3] = ["", "one", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"];

type Queue = (TenantNumber, QueueNumber);

/// The contents of a shard as plain maps.
#[derive(Clone, Debug, Default, PartialEq)]
struct World {
    entities: BTreeMap<(TenantNumber, String), EntityRecord>,
    numbers: BTreeMap<(Queue, Part), SequenceNumber>,
    states: BTreeMap<(Queue, String), SessionStateRecord>,
    entries: BTreeMap<(Queue, Part, SequenceNumber), Entry>,
    seen: BTreeMap<(Queue, String), WallTime>,
}

impl World {
    fn has_queue(&self, (tenant, queue): Queue) -> bool {
        self.entities.iter().any(|((of, _), record)| (*of, record.queue) == (tenant, queue))
    }

    /// Returns the contents without the records of entities that no longer exist.
    fn without_orphans(&self) -> Self {
        let mut world = self.clone();
        world.numbers.retain(|(queue, _), _| self.has_queue(*queue));
        world.states.retain(|(queue, _), _| self.has_queue(*queue));
        world.entries.retain(|(queue, ..), _| self.has_queue(*queue));
        world.seen.retain(|(queue, _), _| self.has_queue(*queue));
        world
    }
}

impl Recovery for World {
    fn tenant(&mut self, name: &str) -> TenantNumber {
        tenant(TENANTS.iter().position(|tenant| *tenant == name).expect("one of ours"))
    }

    fn entity(&mut self, tenant: TenantNumber, path: &str, record: EntityRecord) {
        assert_eq!(self.entities.insert((tenant, path.into()), record), None);
    }

    fn queue_numbers(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        part: Part,
        reserved: SequenceNumber,
    ) {
        assert!(self.has_queue((tenant, queue)), "entities come first");
        assert_eq!(self.numbers.insert(((tenant, queue), part), reserved), None);
    }

    fn queue_state(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        session: Arc<str>,
        record: SessionStateRecord,
    ) {
        assert!(self.has_queue((tenant, queue)), "entities come first");
        assert_eq!(self.states.insert(((tenant, queue), (*session).into()), record), None);
    }

    fn queue_entry(&mut self, tenant: TenantNumber, queue: QueueNumber, part: Part, entry: Entry) {
        assert!(self.has_queue((tenant, queue)), "entities come first");
        let key = ((tenant, queue), part, entry.number);
        assert!(self.entries.last_key_value().is_none_or(|(last, _)| *last < key), "in order");
        self.entries.insert(key, entry);
    }

    fn queue_seen(
        &mut self,
        tenant: TenantNumber,
        queue: QueueNumber,
        message_id: Arc<str>,
        until: WallTime,
    ) {
        assert!(self.has_queue((tenant, queue)), "entities come first");
        assert_eq!(self.seen.insert(((tenant, queue), (*message_id).into()), until), None);
    }

    fn managed(&mut self, _: ManagedKey<'_>, _: ManagedRecord) {
        unreachable!("nobody has put one");
    }

    fn session(&mut self, _: TenantNumber, _: &str, _: SessionRecord) {
        unreachable!("nobody has put one");
    }

    fn subscription(&mut self, _: TenantNumber, _: SessionNumber, _: &str, _: SubscriptionRecord) {
        unreachable!("nobody has put one");
    }

    fn entry(&mut self, _: TenantNumber, _: SessionNumber, _: EntryNumber, _: EntryRecord) {
        unreachable!("nobody has put one");
    }

    fn retained(&mut self, _: TenantNumber, _: RetainedRecord) {
        unreachable!("nobody has put one");
    }

    fn state_clock(&mut self, _: TenantNumber, _: Version) {
        unreachable!("nobody has put one");
    }

    fn state(&mut self, _: TenantNumber, _: &[u8], _: StateRecord) {
        unreachable!("nobody has put one");
    }
}

/// A step of a history. Numbers choose among existing things, or give values of new ones.
#[derive(Clone, Copy, Debug)]
enum Step {
    Define {
        tenant: usize,
        path: usize,
        definition: u8,
    },
    /// Removes the entity with the contents of its queue, or only with the first batch of the
    /// removal.
    Remove {
        which: usize,
        at_once: bool,
    },
    Send {
        which: usize,
        session: usize,
    },
    /// Raises the delivery count of a message, or defers it.
    Update {
        which: usize,
        deferred: bool,
    },
    Complete {
        which: usize,
    },
    DeadLetter {
        which: usize,
    },
    SetState {
        which: usize,
        session: usize,
        state: u8,
    },
    ClearState {
        which: usize,
    },
    See {
        which: usize,
        id: usize,
        until: u8,
    },
    Forget {
        which: usize,
    },
    Reserve {
        which: usize,
        part: Part,
        count: u8,
    },
    Commit,
    FailedCommit {
        fault: Fault,
    },
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = any::<usize>;
    let id = || 0..IDS.len();
    let faults = select(&[Fault::Full, Fault::Io, Fault::IoButWritten][..]);
    vec(
        prop_oneof![
            3 => (0..TENANTS.len(), 0..PATHS.len(), any::<u8>())
                .prop_map(|(tenant, path, definition)| Step::Define { tenant, path, definition }),
            1 => (which(), any::<bool>())
                .prop_map(|(which, at_once)| Step::Remove { which, at_once }),
            6 => (which(), id()).prop_map(|(which, session)| Step::Send { which, session }),
            3 => (which(), any::<bool>())
                .prop_map(|(which, deferred)| Step::Update { which, deferred }),
            4 => which().prop_map(|which| Step::Complete { which }),
            2 => which().prop_map(|which| Step::DeadLetter { which }),
            2 => (which(), id(), any::<u8>())
                .prop_map(|(which, session, state)| Step::SetState { which, session, state }),
            1 => which().prop_map(|which| Step::ClearState { which }),
            2 => (which(), id(), any::<u8>())
                .prop_map(|(which, id, until)| Step::See { which, id, until }),
            1 => which().prop_map(|which| Step::Forget { which }),
            1 => (which(), crate::samples::part(), any::<u8>())
                .prop_map(|(which, part, count)| Step::Reserve { which, part, count }),
            4 => Just(Step::Commit),
            2 => faults.prop_map(|fault| Step::FailedCommit { fault }),
            1 => Just(Step::Crash),
        ],
        1..120,
    )
}

fn tenant(at: usize) -> TenantNumber {
    TenantNumber(u32::try_from(at).unwrap())
}

/// Chooses one of `all`, if there is any.
fn choose<T: Clone>(mut all: impl Iterator<Item = T> + Clone, which: usize) -> Option<T> {
    let count = all.clone().count();
    if count == 0 { None } else { all.nth(which % count) }
}

/// The shard, its disk, and the contents that both must have.
struct Node {
    disk: Disk,
    store: MemoryStore,
    shard: Shard,
    now: World,
    /// The contents after a crash.
    durable: World,
    /// The batch that could not be committed, and the contents once it is.
    failed: Option<(Batch, World)>,
    /// Assigned like the numbers of entities: never twice.
    next_number: SequenceNumber,
}

impl Node {
    fn new() -> Self {
        let disk = Disk::new();
        let store = disk.open(keys::NAMES.len());
        let (now, durable) = Default::default();
        let shard = named(Shard::new(0));
        Self { disk, store, shard, now, durable, failed: None, next_number: 1 }
    }

    fn define(&mut self, tenant: TenantNumber, path: &str, definition: u8) {
        let definition = vec![definition; 3].into();
        let known = self.now.entities.get(&(tenant, path.into()));
        let queue = known.map_or_else(|| self.shard.new_queue_number(), |known| known.queue);
        assert_eq!(shard_of(queue), self.shard.index());
        let record = EntityRecord { queue, definition };
        self.shard.put_entity(tenant, path, record.clone());
        self.now.entities.insert((tenant, path.into()), record);
    }

    fn queue(&self, which: usize) -> Option<Queue> {
        let entities = self.now.entities.iter();
        choose(entities.map(|((tenant, _), record)| (*tenant, record.queue)), which)
    }

    fn remove(&mut self, which: usize, at_once: bool) {
        let Some(((tenant, path), record)) = choose(self.now.entities.iter(), which) else {
            return;
        };
        let (tenant, path, of) = (*tenant, path.clone(), (*tenant, record.queue));
        self.shard.remove_entity(tenant, &path, of.1);
        self.now.numbers.retain(|(queue, _), _| *queue != of);
        self.now.entities.remove(&(tenant, path));
        if !at_once {
            return;
        }
        for ((queue, part, number), entry) in &self.now.entries {
            if *queue == of {
                self.shard.remove_queue_entry(tenant, of.1, *part, *number);
                self.shard.remove_queue_body(tenant, of.1, entry.body.id);
            }
        }
        self.now.entries.retain(|(queue, ..), _| *queue != of);
        for (queue, session) in self.now.states.keys().filter(|(queue, _)| *queue == of) {
            self.shard.remove_queue_state(tenant, queue.1, &Arc::from(&**session));
        }
        self.now.states.retain(|(queue, _), _| *queue != of);
        for (queue, id) in self.now.seen.keys().filter(|(queue, _)| *queue == of) {
            self.shard.remove_queue_seen(tenant, queue.1, &Arc::from(&**id));
        }
        self.now.seen.retain(|(queue, _), _| *queue != of);
    }

    fn send(&mut self, which: usize, session: &str) {
        let Some((tenant, queue)) = self.queue(which) else { return };
        let number = self.next_number;
        self.next_number += 1;
        let bytes: Arc<[u8]> = number.to_be_bytes().into();
        let entry = Entry {
            number,
            session: Some(session.into()),
            message_id: None,
            enqueued_number: number,
            enqueued_at: WallTime::from_millis(number),
            expires_at: None,
            delivery_count: 0,
            state: State::Active,
            body: Body { id: number, size: 8, bytes: None },
            overlay: None,
        };
        let body = Body { id: number, size: 8, bytes: Some(Arc::clone(&bytes)) };
        self.shard.put_queue_body(tenant, queue, number, bytes);
        let in_memory = Entry { body, ..entry.clone() };
        self.shard.put_queue_entry(tenant, queue, Part::Main, &in_memory);
        self.now.entries.insert(((tenant, queue), Part::Main, number), entry);
    }

    /// Chooses a message of an existing entity.
    fn entry(&self, which: usize) -> Option<(Queue, Part, SequenceNumber)> {
        let keys = self.now.entries.keys().filter(|(queue, ..)| self.now.has_queue(*queue));
        choose(keys, which).copied()
    }

    fn update(&mut self, which: usize, deferred: bool) {
        let Some(key) = self.entry(which) else { return };
        let entry = self.now.entries.get_mut(&key).unwrap();
        match deferred {
            true => entry.state = State::Deferred,
            false => entry.delivery_count += 1,
        }
        self.shard.put_queue_entry(key.0.0, key.0.1, key.1, entry);
    }

    fn complete(&mut self, which: usize) {
        let Some(key) = self.entry(which) else { return };
        let entry = self.now.entries.remove(&key).unwrap();
        let ((tenant, queue), part, number) = key;
        self.shard.remove_queue_entry(tenant, queue, part, number);
        self.shard.remove_queue_body(tenant, queue, entry.body.id);
    }

    fn dead_letter(&mut self, which: usize) {
        let Some(key) = self.entry(which) else { return };
        let ((tenant, queue), part, number) = key;
        if part != Part::Main {
            return;
        }
        let entry = self.now.entries.remove(&key).unwrap();
        self.shard.remove_queue_entry(tenant, queue, part, number);
        let entry = Entry { number: self.next_number, ..entry };
        self.next_number += 1;
        self.shard.put_queue_entry(tenant, queue, Part::DeadLetter, &entry);
        self.now.entries.insert(((tenant, queue), Part::DeadLetter, entry.number), entry);
    }

    fn set_state(&mut self, which: usize, session: &str, state: u8) {
        let Some((tenant, queue)) = self.queue(which) else { return };
        let state = vec![state; usize::from(state)].into();
        let record = SessionStateRecord { state, updated_at: WallTime::from_millis(5) };
        self.shard.put_queue_state(tenant, queue, &session.into(), record.clone());
        self.now.states.insert(((tenant, queue), session.into()), record);
    }

    fn clear_state(&mut self, which: usize) {
        let states = self.now.states.keys().filter(|(queue, _)| self.now.has_queue(*queue));
        let Some(key) = choose(states, which).cloned() else { return };
        self.shard.remove_queue_state(key.0.0, key.0.1, &Arc::from(&*key.1));
        self.now.states.remove(&key);
    }

    fn see(&mut self, which: usize, id: &str, until: u8) {
        let Some((tenant, queue)) = self.queue(which) else { return };
        let until = WallTime::from_millis(until.into());
        self.shard.put_queue_seen(tenant, queue, &id.into(), until);
        self.now.seen.insert(((tenant, queue), id.into()), until);
    }

    fn forget(&mut self, which: usize) {
        let seen = self.now.seen.keys().filter(|(queue, _)| self.now.has_queue(*queue));
        let Some(key) = choose(seen, which).cloned() else { return };
        self.shard.remove_queue_seen(key.0.0, key.0.1, &Arc::from(&*key.1));
        self.now.seen.remove(&key);
    }

    fn reserve(&mut self, which: usize, part: Part, count: u8) {
        let Some((tenant, queue)) = self.queue(which) else { return };
        let reserved = self.next_number + u64::from(count);
        self.shard.put_queue_numbers(tenant, queue, part, reserved);
        self.now.numbers.insert(((tenant, queue), part), reserved);
    }

    /// Commits the failed batch, if any, and then the current one.
    fn commit(&mut self, fault: Option<Fault>) {
        if let Some((batch, then)) = self.failed.take()
            && !self.commit_batch(batch, then, fault)
        {
            return;
        }
        let (_, set) = self.shard.take();
        let mut batch = Batch::new();
        set.encode(&self.shard.tenant_names(), &mut batch);
        assert_eq!(batch.len(), set.len());
        assert_eq!(set.has_puts(), !batch.only_removes());
        self.commit_batch(batch, self.now.clone(), fault);
    }

    fn commit_batch(&mut self, batch: Batch, then: World, fault: Option<Fault>) -> bool {
        self.disk.fail(fault);
        let done = self.store.commit(&batch);
        if done.is_ok() || fault == Some(Fault::IoButWritten) {
            self.durable = then.clone();
        }
        if done.is_err() {
            self.failed = Some((batch, then));
        }
        self.disk.fail(None);
        done.is_ok()
    }

    /// Checks that the store has the contents of the world: no body is missing, and none is left
    /// over.
    fn check_store(&self) {
        let mut bodies = BTreeMap::new();
        let scanned = self.store.scan(keys::QUEUE_BODIES, &[], &[], &mut |key, value| {
            let QueueBodyKey { queue, id, .. } = QueueBodyKey::decode(key).unwrap();
            bodies.insert((queue, id), decode_body(value).unwrap().to_vec());
            ControlFlow::Continue(())
        });
        scanned.unwrap();
        let named = self.now.entries.iter().map(|(((_, queue), ..), entry)| {
            ((*queue, entry.body.id), entry.body.id.to_be_bytes().to_vec())
        });
        assert_eq!(bodies, named.collect());
        assert_eq!(records(&self.store, keys::ENTITIES), self.now.entities.len());
        assert_eq!(records(&self.store, keys::QUEUE_ENTRIES), self.now.entries.len());
        assert_eq!(records(&self.store, keys::QUEUE_SESSIONS), self.now.states.len());
        assert_eq!(records(&self.store, keys::QUEUE_SEEN), self.now.seen.len());
        assert_eq!(records(&self.store, keys::QUEUE_NUMBERS), self.now.numbers.len());
    }

    /// Crashes the process and starts it again.
    fn crash(&mut self) {
        self.disk.crash();
        self.failed = None;
        self.store = self.disk.open(keys::NAMES.len());
        let mut world = World::default();
        let recovered = recover(0, &self.store, &mut world).unwrap();
        assert_eq!(world, self.durable.without_orphans());
        let (shard, _) = Homes::default().open(recovered);
        self.shard = named(shard);
        assert!(!self.shard.pending().has_puts(), "only orphans are to be removed");
        self.now = world;
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Define { tenant: at, path, definition } => {
                self.define(tenant(at), PATHS[path], definition);
            }
            Step::Remove { which, at_once } => self.remove(which, at_once),
            Step::Send { which, session } => self.send(which, IDS[session]),
            Step::Update { which, deferred } => self.update(which, deferred),
            Step::Complete { which } => self.complete(which),
            Step::DeadLetter { which } => self.dead_letter(which),
            Step::SetState { which, session, state } => self.set_state(which, IDS[session], state),
            Step::ClearState { which } => self.clear_state(which),
            Step::See { which, id, until } => self.see(which, IDS[id], until),
            Step::Forget { which } => self.forget(which),
            Step::Reserve { which, part, count } => self.reserve(which, part, count),
            Step::Commit => {
                self.commit(None);
                self.check_store();
            }
            Step::FailedCommit { fault } => self.commit(Some(fault)),
            Step::Crash => self.crash(),
        }
    }
}

fn named(mut shard: Shard) -> Shard {
    for (number, name) in TENANTS.into_iter().enumerate() {
        shard.name_tenant(tenant(number), name);
    }
    shard
}

fn records(store: &MemoryStore, keyspace: Keyspace) -> usize {
    let mut count = 0;
    let scanned = store.scan(keyspace, &[], &[], &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    scanned.map(|()| count).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_crash_leaves_of_queues_what_was_committed(steps in steps()) {
        let mut node = Node::new();
        for step in steps {
            node.apply(step);
        }
        node.crash();
        node.commit(None);
        node.check_store();
    }
}

#[test]
fn a_message_that_is_taken_before_the_commit_is_not_written() {
    let mut node = Node::new();
    node.define(tenant(0), "a", 1);
    node.commit(None);
    for _ in 0..2 {
        node.send(0, "one");
        let ((tenant, queue), _, number) = node.entry(0).unwrap();
        assert_eq!(
            **node.shard.pending().queue_body(tenant, queue, number).unwrap(),
            number.to_be_bytes()
        );
        assert_eq!(node.shard.pending().len(), 2);
        node.update(0, false);
        node.complete(0);
        assert!(node.shard.pending().is_empty());
        assert_eq!(node.shard.pending().bytes(), 0);
        node.crash();
    }
}

#[test]
fn a_message_that_was_written_is_removed() {
    let mut node = Node::new();
    node.define(tenant(0), "a", 1);
    node.send(0, "one");
    node.commit(None);
    node.crash();
    node.update(0, false);
    node.complete(0);
    assert_eq!(node.shard.pending().len(), 2, "the entry and its body");
    node.commit(None);
    node.check_store();
}

#[test]
fn a_queue_that_was_moved_keeps_the_number_that_another_shard_has_given_it() {
    let mut node = Node::new();
    node.define(tenant(0), "a", 1);
    node.send(0, "one");
    node.commit(None);
    let mut moved = World::default();
    let recovered = recover(1, &node.store, &mut moved).unwrap();
    assert_eq!((moved.entities.len(), moved.entries.len()), (1, 1));
    let (mut shard, _) = Homes::default().open(recovered);
    let (given, queue) = (shard.new_queue_number(), node.queue(0).unwrap().1);
    assert_eq!((shard_of(given), shard_of(queue)), (1, 0));
}

#[test]
fn two_entities_never_have_one_queue() {
    let mut node = Node::new();
    node.define(tenant(0), "a", 1);
    let record = node.now.entities.values().next().unwrap().clone();
    node.shard.put_entity(tenant(1), "b", record);
    node.commit(None);
    let mut key = Vec::new();
    EntityKey { tenant: "zeta", path: "b" }.encode(&mut key);
    assert!(node.store.get(keys::ENTITIES, &key).unwrap().is_some());
    let error = recover(0, &node.store, &mut World::default()).unwrap_err();
    assert!(error.to_string().contains("two entities have the same queue"), "{error}");
}

#[test]
fn a_queue_number_that_left_something_behind_is_not_given_again() {
    let mut node = Node::new();
    node.define(tenant(0), "a", 1);
    node.send(0, "one");
    let (_, queue) = node.queue(0).unwrap();
    node.remove(0, false);
    node.commit(None);
    node.crash();
    assert!(node.shard.new_queue_number() > queue);
    node.commit(None);
    node.check_store();
}
