//! Two shards and their stores through random histories of changes, commits, failed commits and
//! crashes, compared with plain maps.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::durable::keys::{self, ManagedKey, ManagedKind, MessageKey};
use barid_core::durable::records::{decode_message, encode_message};
use barid_core::durable::{
    EntityRecord, Homes, ManagedRecord, ReceivedRecord, Recovery, RetainedRecord, SessionRecord,
    SessionStateRecord, Shard, SubscriptionRecord, Trace, WriteSet, recover, shard_of,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::PacketId;
use barid_core::ids::{
    EntryNumber, QueueNumber, SessionNumber, ShardIndex, StoredAs, TenantNumber,
};
use barid_core::message::{Message, Publication};
use barid_core::session::{EntryRecord, Phase};
use barid_core::stamp::Stamp;
use barid_core::state_store::{AnsweredRecord, StateRecord, Verdict};
use barid_core::time::{MonoTime, WallTime};
use barid_store::memory::{Disk, Fault, MemoryStore};
use barid_store::{Batch, Keyspace, Store};
use mqtt_proto::QoS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_proto::Version;

const TENANTS: [&str; 2] = ["acme", "zeta"];
const TOPICS: [&str; 3] = ["a", "a/b", "b"];
/// Names of managed objects; that of a tenant is one of settings.
const OBJECTS: [(ManagedKind, &str); 4] = [
    (ManagedKind::User, "acme/a"),
    (ManagedKind::User, "other/a/b"),
    (ManagedKind::Tenant, "acme"),
    (ManagedKind::Ban, "x"),
];
const KEYS: [&[u8]; 3] = [b"\0", b"key", b"\xFF\xFF"];

/// The contents of one shard as plain maps.
#[derive(Clone, Debug, Default, PartialEq)]
struct World {
    sessions: BTreeMap<(TenantNumber, String), SessionRecord>,
    subscriptions: BTreeMap<(TenantNumber, SessionNumber, String), SubscriptionRecord>,
    entries: BTreeMap<(TenantNumber, SessionNumber, EntryNumber), EntryRecord>,
    received: BTreeMap<(TenantNumber, SessionNumber, PacketId), ReceivedRecord>,
    retained: BTreeMap<(TenantNumber, String), Vec<u8>>,
    state: BTreeMap<(TenantNumber, Vec<u8>), StateRecord>,
    clocks: BTreeMap<TenantNumber, Version>,
    answered: BTreeMap<(TenantNumber, SessionNumber, PacketId), AnsweredRecord>,
    managed: BTreeMap<(ManagedKind, String), String>,
}

impl World {
    fn has_session(&self, tenant: TenantNumber, session: SessionNumber) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.any(|((of, _), record)| (*of, record.number) == (tenant, session))
    }

    fn references(&self) -> BTreeMap<u64, u32> {
        let mut references = BTreeMap::new();
        for message in self.entries.values().filter_map(EntryRecord::refers_to) {
            *references.entry(message).or_default() += 1;
        }
        references
    }

    /// Returns the contents without the records of sessions that no longer exist; `all` includes
    /// the other shards.
    fn without_orphans(&self, all: &[World]) -> World {
        let mut world = self.clone();
        world.subscriptions.retain(|(tenant, session, _), _| self.has_session(*tenant, *session));
        world.entries.retain(|(tenant, session, _), _| self.has_session(*tenant, *session));
        let lives = |tenant, session| all.iter().any(|world| world.has_session(tenant, session));
        world.received.retain(|(tenant, session, _), _| lives(*tenant, *session));
        world.answered.retain(|(tenant, session, _), _| lives(*tenant, *session));
        world
    }
}

impl Recovery for World {
    fn tenant(&mut self, name: &str) -> TenantNumber {
        tenant(TENANTS.iter().position(|tenant| *tenant == name).expect("one of ours"))
    }

    fn session(&mut self, tenant: TenantNumber, client_id: &str, record: SessionRecord) {
        assert_eq!(self.sessions.insert((tenant, client_id.into()), record), None);
    }

    fn subscription(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    ) {
        assert!(self.has_session(tenant, session), "sessions come first");
        assert_eq!(self.subscriptions.insert((tenant, session, filter.into()), record), None);
    }

    fn entry(
        &mut self,
        tenant: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
    ) {
        assert!(self.has_session(tenant, session), "sessions come first");
        let key = (tenant, session, entry);
        assert!(self.entries.last_key_value().is_none_or(|(last, _)| *last < key), "in order");
        self.entries.insert(key, record);
    }

    fn retained(&mut self, tenant: TenantNumber, record: RetainedRecord) {
        let Publication { topic, payload, .. } = record.message.publication();
        assert_eq!(self.retained.insert((tenant, topic.into()), payload.to_vec()), None);
    }

    fn state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        assert_eq!(self.clocks.insert(tenant, latest), None);
    }

    fn state(&mut self, tenant: TenantNumber, key: &[u8], record: StateRecord) {
        assert_eq!(self.state.insert((tenant, key.into()), record), None);
    }

    fn entity(&mut self, _: TenantNumber, _: &str, _: EntityRecord) {
        unreachable!("nobody has put one");
    }

    fn queue_numbers(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: SequenceNumber) {
        unreachable!("nobody has put one");
    }

    fn queue_state(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: SessionStateRecord) {
        unreachable!("nobody has put one");
    }

    fn queue_entry(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: Entry) {
        unreachable!("nobody has put one");
    }

    fn queue_seen(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: WallTime) {
        unreachable!("nobody has put one");
    }

    fn managed(&mut self, key: ManagedKey<'_>, record: ManagedRecord) {
        let text = (*record.text).into();
        assert_eq!(self.managed.insert((key.kind, key.full_name()), text), None);
    }
}

/// A step of a history. Numbers choose among existing things, or give values of new ones.
#[derive(Clone, Copy, Debug)]
enum Step {
    BeginSession {
        shard: usize,
        tenant: usize,
        client: u8,
    },
    /// Ends the session with its subscriptions and entries, or only with the first batch of the
    /// removal.
    EndSession {
        shard: usize,
        which: usize,
        at_once: bool,
    },
    Subscribe {
        shard: usize,
        which: usize,
        topic: usize,
    },
    Unsubscribe {
        shard: usize,
        which: usize,
    },
    /// Publishes to some sessions of one tenant.
    Publish {
        shard: usize,
        tenant: usize,
        sessions: u8,
    },
    Send {
        shard: usize,
        which: usize,
        id: u8,
    },
    Release {
        shard: usize,
        which: usize,
        id: u8,
    },
    Remove {
        shard: usize,
        which: usize,
    },
    Receive {
        shard: usize,
        home: usize,
        which: usize,
        id: u8,
        by: u8,
    },
    ReleaseReceived {
        shard: usize,
        which: usize,
    },
    Retain {
        shard: usize,
        tenant: usize,
        topic: usize,
        payload: u8,
    },
    RemoveRetained {
        shard: usize,
        tenant: usize,
        topic: usize,
    },
    SetState {
        shard: usize,
        tenant: usize,
        key: usize,
        value: u8,
    },
    RemoveState {
        shard: usize,
        tenant: usize,
        key: usize,
    },
    Answer {
        shard: usize,
        home: usize,
        which: usize,
        id: u8,
        correlation: u8,
    },
    ForgetAnswer {
        shard: usize,
        which: usize,
    },
    /// Puts a managed object, and the mark of its kind.
    PutManaged {
        shard: usize,
        object: usize,
        text: u8,
    },
    RemoveManaged {
        shard: usize,
        object: usize,
    },
    Seal {
        shard: usize,
    },
    Commit {
        shard: usize,
    },
    FailedCommit {
        shard: usize,
        fault: Fault,
    },
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shard = || 0..2_usize;
    let which = any::<usize>;
    let number = any::<u8>;
    let tenant = || 0..TENANTS.len();
    let topic = || 0..TOPICS.len();
    let fault = select(&[Fault::Full, Fault::Io, Fault::IoButWritten][..]);
    vec(
        prop_oneof![
            3 => (shard(), tenant(), 0..4_u8)
                .prop_map(|(shard, tenant, client)| Step::BeginSession { shard, tenant, client }),
            1 => (shard(), which(), any::<bool>())
                .prop_map(|(shard, which, at_once)| Step::EndSession { shard, which, at_once }),
            1 => (shard(), which(), topic())
                .prop_map(|(shard, which, topic)| Step::Subscribe { shard, which, topic }),
            1 => (shard(), which()).prop_map(|(shard, which)| Step::Unsubscribe { shard, which }),
            6 => (shard(), tenant(), number())
                .prop_map(|(shard, tenant, sessions)| Step::Publish { shard, tenant, sessions }),
            3 => (shard(), which(), 1..=u8::MAX)
                .prop_map(|(shard, which, id)| Step::Send { shard, which, id }),
            2 => (shard(), which(), 1..=u8::MAX)
                .prop_map(|(shard, which, id)| Step::Release { shard, which, id }),
            5 => (shard(), which()).prop_map(|(shard, which)| Step::Remove { shard, which }),
            2 => (shard(), shard(), which(), 1..4_u8, any::<u8>()).prop_map(
                |(shard, home, which, id, by)| Step::Receive { shard, home, which, id, by }
            ),
            1 => (shard(), which()).prop_map(|(shard, which)| Step::ReleaseReceived { shard, which }),
            2 => (shard(), tenant(), topic(), number()).prop_map(|(shard, tenant, topic, payload)| {
                Step::Retain { shard, tenant, topic, payload }
            }),
            1 => (shard(), tenant(), topic())
                .prop_map(|(shard, tenant, topic)| Step::RemoveRetained { shard, tenant, topic }),
            3 => (shard(), tenant(), 0..KEYS.len(), number())
                .prop_map(|(shard, tenant, key, value)| Step::SetState { shard, tenant, key, value }),
            2 => (shard(), tenant(), 0..KEYS.len())
                .prop_map(|(shard, tenant, key)| Step::RemoveState { shard, tenant, key }),
            3 => (shard(), shard(), which(), 1..4_u8, number())
                .prop_map(|(shard, home, which, id, correlation)| {
                    Step::Answer { shard, home, which, id, correlation }
                }),
            1 => (shard(), which()).prop_map(|(shard, which)| Step::ForgetAnswer { shard, which }),
            2 => (shard(), 0..OBJECTS.len(), number())
                .prop_map(|(shard, object, text)| Step::PutManaged { shard, object, text }),
            1 => (shard(), 0..OBJECTS.len())
                .prop_map(|(shard, object)| Step::RemoveManaged { shard, object }),
            4 => shard().prop_map(|shard| Step::Commit { shard }),
            3 => shard().prop_map(|shard| Step::Seal { shard }),
            2 => (shard(), fault).prop_map(|(shard, fault)| Step::FailedCommit { shard, fault }),
            1 => Just(Step::Crash),
        ],
        1..120,
    )
}

/// One shard, its disk, and the contents that both must have.
struct Node {
    disk: Disk,
    store: MemoryStore,
    shard: Shard,
    now: World,
    /// The contents after a crash.
    durable: World,
    /// The batch that could not be committed, and the contents once it is.
    failed: Option<(Batch, World)>,
    /// The contents once the sealed batch is committed.
    sealed: Option<World>,
    next_entry: EntryNumber,
}

fn tenant(at: usize) -> TenantNumber {
    TenantNumber(u32::try_from(at).unwrap())
}

fn message(topic: &str, payload: &[u8]) -> Arc<Message> {
    Arc::new(Message::new(&Publication {
        topic,
        payload,
        properties: &[],
        qos: QoS::ExactlyOnce,
        retain: true,
        expires_at: None,
    }))
}

/// Chooses one of `all`, if there is any.
fn choose<T: Clone>(mut all: impl Iterator<Item = T> + Clone, which: usize) -> Option<T> {
    let count = all.clone().count();
    if count == 0 { None } else { all.nth(which % count) }
}

impl Node {
    fn new(index: ShardIndex) -> Self {
        let disk = Disk::new();
        let store = disk.open(keys::NAMES.len());
        let mut shard = Shard::new(index);
        for (number, name) in TENANTS.into_iter().enumerate() {
            shard.name_tenant(tenant(number), name);
        }
        let (now, durable) = Default::default();
        Self { disk, store, shard, now, durable, failed: None, sealed: None, next_entry: 1 }
    }

    fn begin_session(&mut self, tenant: TenantNumber, client_id: &str) {
        if self.now.sessions.contains_key(&(tenant, client_id.into())) {
            return;
        }
        let number = self.shard.new_session_number();
        assert_eq!(shard_of(number), self.shard.index());
        assert!(!self.now.has_session(tenant, number));
        let record = SessionRecord {
            number,
            user: None,
            expiry: 60,
            away_since: None,
            will: None,
            replays: Vec::new(),
            answered_as: None,
        };
        self.shard.put_session(tenant, client_id, record.clone());
        self.now.sessions.insert((tenant, client_id.into()), record);
    }

    fn session(&self, which: usize) -> Option<(TenantNumber, SessionNumber)> {
        let sessions = self.now.sessions.iter();
        choose(sessions.map(|((tenant, _), record)| (*tenant, record.number)), which)
    }

    fn end_session(&mut self, which: usize, at_once: bool) {
        let Some((tenant, session)) = self.session(which) else { return };
        let keys = self.now.sessions.iter();
        let (key, _) = keys.clone().find(|(_, record)| record.number == session).unwrap();
        let (_, client_id) = key.clone();
        self.shard.remove_session(tenant, &client_id);
        self.now.sessions.remove(&(tenant, client_id));
        if !at_once {
            return;
        }
        for (of, filter) in self.now.subscriptions.keys().map(|(_, of, filter)| (*of, filter)) {
            if of == session {
                self.shard.remove_subscription(tenant, session, filter);
            }
        }
        self.now.subscriptions.retain(|(_, of, _), _| *of != session);
        let entries: Vec<_> = self.now.entries.keys().copied().collect();
        for key in entries.into_iter().filter(|(_, of, _)| *of == session) {
            self.remove(key);
        }
    }

    fn subscribe(&mut self, which: usize, topic: &str) {
        let Some((tenant, session)) = self.session(which) else { return };
        let record = SubscriptionRecord {
            qos: QoS::AtLeastOnce,
            no_local: which.is_multiple_of(2),
            retain_as_published: false,
            identifier: None,
        };
        self.shard.put_subscription(tenant, session, topic, record);
        self.now.subscriptions.insert((tenant, session, topic.into()), record);
    }

    fn unsubscribe(&mut self, which: usize) {
        let Some(key) = choose(self.now.subscriptions.keys(), which).cloned() else { return };
        self.shard.remove_subscription(key.0, key.1, &key.2);
        self.now.subscriptions.remove(&key);
    }

    fn publish(&mut self, tenant: TenantNumber, chosen: u8) {
        let id = self.shard.new_message_ids(1);
        assert_eq!(self.now.references().get(&id), None, "an identifier that is in use");
        let message = message("t", &id.to_be_bytes());
        let sessions = self.now.sessions.iter().filter(|((of, _), _)| *of == tenant);
        let sessions: Vec<_> = sessions.map(|(_, record)| record.number).collect();
        for (at, session) in sessions.into_iter().enumerate() {
            if chosen >> at & 1 == 0 {
                continue;
            }
            let mut record = EntryRecord::released(1);
            record.phase = Phase::Waiting;
            record.message = id;
            record.queued_at = MonoTime::from_millis(self.next_entry);
            self.shard.put_entry(tenant, session, self.next_entry, record.clone(), &message);
            self.now.entries.insert((tenant, session, self.next_entry), record);
            self.next_entry += 1;
        }
    }

    fn entry(&self, which: usize) -> Option<(TenantNumber, SessionNumber, EntryNumber)> {
        choose(self.now.entries.keys(), which).copied()
    }

    fn stored(&self, key: (TenantNumber, SessionNumber, EntryNumber)) -> StoredAs {
        StoredAs { entry: NonZeroU64::new(key.2).unwrap(), message: self.now.entries[&key].message }
    }

    fn send(&mut self, which: usize, id: PacketId) {
        let Some(key) = self.entry(which) else { return };
        let record = self.now.entries.get_mut(&key).unwrap();
        if record.refers_to().is_some() {
            record.phase = Phase::Sent(id);
            self.shard.update_entry(key.0, key.1, key.2, record.clone());
        }
    }

    fn release(&mut self, which: usize, id: PacketId) {
        let Some(key) = self.entry(which) else { return };
        if self.now.entries[&key].refers_to().is_some() {
            self.shard.release_entry(key.0, key.1, self.stored(key), id);
            self.now.entries.insert(key, EntryRecord::released(id));
        }
    }

    fn remove(&mut self, key: (TenantNumber, SessionNumber, EntryNumber)) {
        let released = self.now.entries[&key].refers_to().is_none();
        let stored = self.stored(key);
        let sealed = |shard: &Shard| shard.sealed().map(WriteSet::len);
        let before = sealed(&self.shard);
        self.shard.remove_entry(key.0, key.1, stored, released);
        self.now.entries.remove(&key);
        if sealed(&self.shard) < before {
            // The sealed batch does not put the entry any more.
            let then = self.sealed.as_mut().expect("it is sealed");
            then.entries.remove(&key).expect("it was noted before");
        }
    }

    /// Notes that a session or a queue gets a message, or that all recipients have it.
    fn receive(&mut self, of: (TenantNumber, SessionNumber, PacketId), by: u8) {
        let note = |record: &mut ReceivedRecord| match by {
            0 => *record = ReceivedRecord::All,
            1..128 => record.add_session(by.into()),
            _ => record.add_queue(by.into()),
        };
        self.shard.note_received(of.0, of.1, of.2, note);
        note(self.now.received.entry(of).or_default());
    }

    fn release_received(&mut self, which: usize) {
        let Some((tenant, session, id)) = choose(self.now.received.keys(), which).copied() else {
            return;
        };
        assert!(self.shard.remove_received(tenant, session, id));
        assert!(!self.shard.remove_received(tenant, session, id));
        self.now.received.remove(&(tenant, session, id));
    }

    fn retain(&mut self, tenant: TenantNumber, topic: &str, payload: u8) {
        let message = message(topic, &[payload]);
        self.shard
            .set_retained(tenant, RetainedRecord { message, holder: None, stamp: Stamp::NONE });
        self.now.retained.insert((tenant, topic.into()), vec![payload]);
    }

    fn remove_retained(&mut self, tenant: TenantNumber, topic: &str) {
        self.shard.remove_retained(tenant, topic);
        self.now.retained.remove(&(tenant, topic.into()));
    }

    /// Advances the clock for a change of a key of the state store.
    fn tick(&mut self, tenant: TenantNumber) -> Version {
        let clock = self.now.clocks.entry(tenant).or_default();
        *clock = clock.next(0, None);
        self.shard.put_state_clock(tenant, *clock);
        *clock
    }

    fn set_state(&mut self, tenant: TenantNumber, key: &[u8], value: u8) {
        let value = vec![value; usize::from(value)].into();
        let (fencing_token, expires_at) = (None, None);
        let version = self.tick(tenant);
        let record = StateRecord { value, version, fencing_token, expires_at, holder: None };
        self.shard.put_state(tenant, &key.into(), record.clone());
        self.now.state.insert((tenant, key.into()), record);
    }

    fn remove_state(&mut self, tenant: TenantNumber, key: &[u8]) {
        self.tick(tenant);
        self.shard.remove_state(tenant, &key.into());
        self.now.state.remove(&(tenant, key.into()));
    }

    fn answer(
        &mut self,
        (tenant, session): (TenantNumber, SessionNumber),
        id: PacketId,
        correlation: u8,
    ) {
        let record = AnsweredRecord {
            correlation: correlation.into(),
            verdict: Verdict::Ok,
            version: None,
            answered_at: Version::default(),
        };
        self.shard.put_answered(tenant, session, id, record);
        self.now.answered.insert((tenant, session, id), record);
    }

    fn forget_answer(&mut self, which: usize) {
        let Some(key) = choose(self.now.answered.keys(), which).copied() else { return };
        self.shard.remove_answered(key.0, key.1, key.2);
        self.now.answered.remove(&key);
    }

    fn put_managed(&mut self, (kind, name): (ManagedKind, &str), text: &str) {
        let key = ManagedKey::of(kind, name).unwrap();
        for (key, text) in [(key, text), (ManagedKey::mark(kind), "")] {
            self.shard.put_managed(key, ManagedRecord { text: text.into(), stamp: Stamp::NONE });
            self.now.managed.insert((kind, key.full_name()), text.into());
        }
    }

    fn remove_managed(&mut self, (kind, name): (ManagedKind, &str)) {
        self.shard.remove_managed(ManagedKey::of(kind, name).unwrap());
        self.now.managed.remove(&(kind, name.into()));
    }

    /// Seals the current batch.
    fn seal(&mut self) {
        let number = self.shard.batch();
        self.shard.seal();
        if self.sealed.is_none() {
            assert_eq!(self.shard.batch(), number + 1);
            self.sealed = Some(self.now.clone());
        }
    }

    /// Commits the failed batch, if any, and then the sealed one, or else the current one.
    fn commit(&mut self, fault: Option<Fault>) {
        if let Some((batch, then)) = self.failed.take()
            && !self.commit_batch(batch, then, fault)
        {
            return;
        }
        let number = self.shard.batch();
        let (taken, set) = self.shard.take();
        let then = match self.sealed.take() {
            Some(then) => {
                assert_eq!((taken + 1, self.shard.batch()), (number, number));
                then
            }
            None => {
                assert_eq!((taken, self.shard.batch()), (number, number + 1));
                self.now.clone()
            }
        };
        let mut batch = Batch::new();
        set.encode(&self.shard.tenant_names(), &mut batch);
        assert_eq!(batch.len(), set.len());
        assert_eq!(set.has_puts(), !batch.only_removes());
        self.commit_batch(batch, then, fault);
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

    /// Checks that the store has the contents of the world: no message is missing, and none is left
    /// over.
    fn check_store(&self) {
        let mut messages = BTreeMap::new();
        let scanned = self.store.scan(keys::MESSAGES, &[], &[], &mut |key, value| {
            let id = MessageKey::decode(key).unwrap().message;
            let payload = decode_message(value).unwrap().publication().payload.to_vec();
            messages.insert(id, payload);
            ControlFlow::Continue(())
        });
        scanned.unwrap();
        let references = self.now.references();
        let expected = references.keys().map(|id| (*id, id.to_be_bytes().to_vec()));
        assert_eq!(messages, expected.collect());
        for (message, count) in references {
            assert_eq!(self.shard.references(message), count);
        }
        assert_eq!(records(&self.store, keys::ENTRIES), self.now.entries.len());
        assert_eq!(records(&self.store, keys::SESSIONS), self.now.sessions.len());
        assert_eq!(records(&self.store, keys::SUBSCRIPTIONS), self.now.subscriptions.len());
        assert_eq!(records(&self.store, keys::RECEIVED), self.now.received.len());
        assert_eq!(records(&self.store, keys::RETAINED), self.now.retained.len());
        assert_eq!(records(&self.store, keys::STATE), self.now.state.len());
        assert_eq!(records(&self.store, keys::STATE_CLOCKS), self.now.clocks.len());
        assert_eq!(records(&self.store, keys::STATE_ANSWERS), self.now.answered.len());
        assert_eq!(records(&self.store, keys::MANAGED), self.now.managed.len());
    }
}

fn records(store: &MemoryStore, keyspace: Keyspace) -> usize {
    let mut count = 0;
    let scanned = store.scan(keyspace, &[], &[], &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    });
    scanned.map(|()| count).unwrap()
}

/// Crashes all processes and starts them again.
fn crash(nodes: &mut [Node]) {
    let mut worlds: Vec<World> = nodes.iter().map(|_| World::default()).collect();
    let mut recovered = Vec::new();
    for (index, (node, world)) in (0..).zip(nodes.iter_mut().zip(&mut worlds)) {
        node.disk.crash();
        (node.failed, node.sealed) = (None, None);
        node.store = node.disk.open(keys::NAMES.len());
        recovered.push(recover(index, &node.store, world).unwrap());
    }
    let (mut homes, mut shards) = (Homes::default(), Vec::new());
    let mut all_traces = Vec::new();
    for recovered in recovered {
        let (shard, traces) = homes.open(recovered);
        shards.push(shard);
        all_traces.extend(traces);
    }
    for (trace, lives) in all_traces {
        let (_, session) = trace.session();
        shards[usize::from(shard_of(session))].skip_number(session);
        let at = usize::from(trace.shard());
        let world = &mut worlds[at];
        match trace {
            _ if !lives => trace.remove(&mut shards[at]),
            Trace::Received(received) => {
                let key = (received.tenant, received.session, received.packet_id);
                assert_eq!(world.received.insert(key, ReceivedRecord::default()), None);
            }
            Trace::Answered(answered) => {
                let key = (answered.tenant, answered.session, answered.packet_id);
                assert_eq!(world.answered.insert(key, answered.record), None);
            }
        }
    }
    let durable: Vec<World> = nodes.iter().map(|node| node.durable.clone()).collect();
    for ((node, shard), mut world) in nodes.iter_mut().zip(shards).zip(worlds) {
        for ((_, session, id), record) in &mut world.received {
            *record = shard.received(*session, *id).expect("it was told").clone();
        }
        assert_eq!(world, node.durable.without_orphans(&durable));
        node.shard = shard;
        for (number, name) in TENANTS.into_iter().enumerate() {
            node.shard.name_tenant(tenant(number), name);
        }
        node.now = world;
        for (message, count) in node.now.references() {
            assert_eq!(node.shard.references(message), count);
        }
        // A crash never loses only entries from the front of a queue, so the next number follows
        // the greatest one that is left.
        node.next_entry = node.now.entries.keys().map(|key| key.2 + 1).max().unwrap_or(1);
        assert!(!node.shard.pending().has_puts(), "only orphans are to be removed");
    }
}

fn apply(nodes: &mut [Node; 2], step: Step) {
    match step {
        Step::BeginSession { shard, tenant: at, client } => {
            nodes[shard].begin_session(tenant(at), &format!("client {client}"));
        }
        Step::EndSession { shard, which, at_once } => nodes[shard].end_session(which, at_once),
        Step::Subscribe { shard, which, topic } => nodes[shard].subscribe(which, TOPICS[topic]),
        Step::Unsubscribe { shard, which } => nodes[shard].unsubscribe(which),
        Step::Publish { shard, tenant: at, sessions } => nodes[shard].publish(tenant(at), sessions),
        Step::Send { shard, which, id } => nodes[shard].send(which, id.into()),
        Step::Release { shard, which, id } => nodes[shard].release(which, id.into()),
        Step::Remove { shard, which } => {
            if let Some(key) = nodes[shard].entry(which) {
                nodes[shard].remove(key);
            }
        }
        Step::Receive { shard, home, which, id, by } => {
            if let Some((tenant, session)) = nodes[home].session(which) {
                nodes[shard].receive((tenant, session, id.into()), by);
            }
        }
        Step::ReleaseReceived { shard, which } => nodes[shard].release_received(which),
        Step::Retain { shard, tenant: at, topic, payload } => {
            nodes[shard].retain(tenant(at), TOPICS[topic], payload);
        }
        Step::RemoveRetained { shard, tenant: at, topic } => {
            nodes[shard].remove_retained(tenant(at), TOPICS[topic]);
        }
        Step::SetState { shard, tenant: at, key, value } => {
            nodes[shard].set_state(tenant(at), KEYS[key], value);
        }
        Step::RemoveState { shard, tenant: at, key } => {
            nodes[shard].remove_state(tenant(at), KEYS[key]);
        }
        Step::Answer { shard, home, which, id, correlation } => {
            if let Some(session) = nodes[home].session(which) {
                nodes[shard].answer(session, id.into(), correlation);
            }
        }
        Step::ForgetAnswer { shard, which } => nodes[shard].forget_answer(which),
        Step::PutManaged { shard, object, text } => {
            nodes[shard].put_managed(OBJECTS[object], &text.to_string());
        }
        Step::RemoveManaged { shard, object } => nodes[shard].remove_managed(OBJECTS[object]),
        Step::Seal { shard } => nodes[shard].seal(),
        Step::Commit { shard } => {
            if nodes[shard].sealed.is_some() {
                nodes[shard].commit(None);
            }
            nodes[shard].commit(None);
            nodes[shard].check_store();
        }
        Step::FailedCommit { shard, fault } => nodes[shard].commit(Some(fault)),
        Step::Crash => crash(nodes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_crash_leaves_what_was_committed(steps in steps()) {
        let mut nodes = [Node::new(0), Node::new(1)];
        for step in steps {
            apply(&mut nodes, step);
        }
        crash(&mut nodes);
        for node in &mut nodes {
            node.commit(None);
            node.check_store();
        }
    }
}

#[test]
fn what_has_gone_before_the_commit_is_not_written() {
    let mut node = Node::new(0);
    node.begin_session(tenant(0), "client");
    node.commit(None);
    node.publish(tenant(0), 1);
    let key = node.entry(0).unwrap();
    assert!(node.shard.pending().has_puts());
    assert!(node.shard.pending().message(key.0, node.stored(key).message).is_some());
    node.send(0, 7);
    node.remove(key);
    assert!(node.shard.pending().is_empty());
    assert_eq!(node.shard.pending().bytes(), 0);
}

#[test]
fn what_is_removed_from_a_sealed_batch_comes_to_nothing() {
    let mut nodes = [Node::new(0), Node::new(1)];
    let node = &mut nodes[0];
    node.begin_session(tenant(0), "client");
    node.commit(None);
    node.publish(tenant(0), 1);
    node.seal();
    node.send(0, 7);
    node.remove(node.entry(0).unwrap());
    assert!(node.shard.sealed().unwrap().is_empty());
    assert!(node.shard.pending().is_empty());
    node.commit(None);
    crash(&mut nodes);
}

#[test]
fn a_message_of_several_sessions_stays_in_a_sealed_batch_with_all_its_entries() {
    let mut nodes = [Node::new(0), Node::new(1)];
    let node = &mut nodes[0];
    node.begin_session(tenant(0), "one");
    node.begin_session(tenant(0), "two");
    node.commit(None);
    node.publish(tenant(0), 0b11);
    node.seal();
    node.remove(node.entry(0).unwrap());
    node.remove(node.entry(0).unwrap());
    node.commit(None);
    assert_eq!((records(&node.store, keys::ENTRIES), records(&node.store, keys::MESSAGES)), (2, 1));
    crash(&mut nodes);
}

#[test]
fn one_message_to_many_sessions_is_stored_once() {
    let mut node = Node::new(0);
    for client in 0..8 {
        node.begin_session(tenant(0), &format!("{client}"));
    }
    node.publish(tenant(0), 0xFF);
    node.commit(None);
    assert_eq!((records(&node.store, keys::ENTRIES), records(&node.store, keys::MESSAGES)), (8, 1));
}

#[test]
fn a_number_whose_traces_lie_in_another_shard_is_not_given_again() {
    let mut nodes = [Node::new(0), Node::new(1)];
    nodes[0].begin_session(tenant(0), "client");
    let (of, session) = nodes[0].session(0).unwrap();
    nodes[1].receive((of, session, 1), 5);
    nodes[1].commit(None);
    crash(&mut nodes);
    assert_eq!(nodes[1].now.received.len(), 0, "the session was not committed");
    assert!(nodes[0].shard.new_session_number() > session);
}

#[test]
fn a_number_that_was_given_is_not_given_again() {
    let mut node = Node::new(3);
    let (mut last, mut epoch) = (0, 0);
    for opened in 1..5 {
        node.shard.begin_tenure();
        assert!(node.shard.epoch() > epoch);
        epoch = node.shard.epoch();
        // Commits in between: a test assigns more numbers at once than a broker does between two
        // commits.
        for _ in 0..3_000_000 {
            let number = node.shard.new_session_number();
            assert!(number > last && shard_of(number) == 3);
            last = number;
            if number.is_multiple_of(300_000) {
                node.commit(None);
            }
        }
        // The last numbers are not in any record.
        node.commit(None);
        last = (0..1_000).map(|_| node.shard.new_session_number()).max().unwrap();
        let recovered = recover(3, &node.store, &mut World::default()).unwrap();
        node.shard = Homes::default().open(recovered).0;
        assert_eq!(node.shard.epoch(), opened);
    }
}

#[test]
fn a_trace_stays_while_nobody_knows_its_session() {
    let mut nodes = [Node::new(0), Node::new(1)];
    nodes[0].begin_session(tenant(0), "client");
    let (of, session) = nodes[0].session(0).unwrap();
    nodes[1].receive((of, session, 1), 5);
    nodes[1].commit(None);
    let alone = recover(1, &nodes[1].store, &mut World::default()).unwrap();
    let mut homes = Homes::default();
    let (shard, traces) = homes.open(alone);
    assert_eq!(traces, []);
    assert!(shard.received(session, 1).is_some_and(|noted| noted.has_session(5)));
    assert!(shard.pending().is_empty(), "nothing goes");
    nodes[0].commit(None);
    let home = recover(0, &nodes[0].store, &mut World::default()).unwrap();
    let (_, traces) = homes.open(home);
    assert!(matches!(traces[..], [(Trace::Received(received), true)] if received.shard == 1));
}

#[test]
fn a_record_of_a_later_version_is_refused_with_a_sentence() {
    let store = MemoryStore::new(keys::NAMES.len());
    let mut batch = Batch::new();
    let mut value = Vec::new();
    encode_message(&message("a", b""), &mut value);
    value[0] = 9;
    batch.put(keys::RETAINED, b"\x04acme\x01a", &value);
    store.commit(&batch).unwrap();
    let error = recover(0, &store, &mut World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read one of the stored retained messages of tenant \"acme\": a newer version of \
         Barid wrote it (its format is 9, this version knows 3). Start the version that wrote it, \
         or restore a backup of this version"
    );
}

#[test]
fn a_session_of_another_shard_is_refused() {
    let mut node = Node::new(1);
    node.begin_session(tenant(0), "client");
    node.commit(None);
    let error = recover(0, &node.store, &mut World::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read one of the stored sessions of tenant \"acme\": a session belongs to another \
         shard. Restore a backup, or see what else is wrong with `barid doctor`"
    );
}
