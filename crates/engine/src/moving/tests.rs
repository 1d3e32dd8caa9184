use std::collections::BTreeSet;
use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::durable::keys::{
    self, EntryKey, MessageKey, ReceivedKey, SessionKey, StateClockKey, StateKey, SubscriptionKey,
};
use barid_core::durable::records::{encode_message, encode_state_clock};
use barid_core::durable::{ReceivedRecord, SessionRecord, SubscriptionRecord};
use barid_core::ids::ShardIndex;
use barid_core::message::{Message, Publication};
use barid_core::session::{EntryRecord, Phase};
use barid_core::state_store::StateRecord;
use barid_core::time::MonoTime;
use barid_peers::Placement;
use barid_store::memory::MemoryStore;
use barid_store::{Keyspace, Store};
use mqtt_proto::QoS;
use smallvec::SmallVec;
use statestore_proto::Version;

use super::records::Record;
use super::*;
use crate::clock;
use crate::cluster::tests::Silent;
use crate::cluster::{Cluster, ClusterSize, Moved, Owner, Slots};
use crate::durable::Storage;
use crate::engine::{Engine, EngineSettings};
use crate::entities::{Definitions, QueueDefinition, QueueProperties};
use crate::opening::tests::{commit, opened};
use crate::random::tests::COUNTING;
use crate::state_store::guest_number;

/// A broker of this name. All slots belong to `a`.
struct Broker {
    engine: Engine,
    slots: Arc<Slots>,
    stores: Vec<Arc<dyn Store>>,
}

impl Broker {
    fn new(name: &str, shards: usize) -> Self {
        let store = || Arc::new(MemoryStore::new(keys::NAMES.len())) as Arc<dyn Store>;
        let stores: Vec<_> = (0..shards).map(|_| store()).collect();
        let placement = Placement::new(1, vec!["a".to_owned()]).unwrap();
        let slots = Arc::new(Slots::new(placement, name));
        let size = ClusterSize { members: 2, threads: 1, origin: 1 };
        let cluster =
            Cluster::new(size, shards, COUNTING, Box::new(Silent), Some(Arc::clone(&slots)));
        let settings = EngineSettings {
            max_tenants: 10,
            settings_of: Arc::new(|_| Default::default()),
            sys_interval: 0,
        };
        let clock = (clock::tests::stopped(), COUNTING);
        let storage = Storage::local(&stores);
        let engine =
            Engine::in_cluster(settings, (1, 1 << 20), storage, clock, Some(Arc::new(cluster)));
        Self { engine: opened(engine), slots, stores }
    }

    /// Takes the contents of the slot out of memory, and reads them.
    fn leave(&self) -> (Leaving, Records) {
        let leaving = Leaving::of(&self.engine, &self.slots, 0);
        leaving.leave(&self.engine);
        commit(&self.engine);
        let records = leaving.read(&self.engine).unwrap();
        (leaving, records)
    }

    /// The number of records in each keyspace, apart from those of shards themselves.
    fn count(&self) -> Vec<(&'static str, usize)> {
        let count = |keyspace: u8| {
            let mut count = 0;
            for store in &self.stores {
                let mut visit = |_: &[u8], _: &[u8]| {
                    count += 1;
                    std::ops::ControlFlow::Continue(())
                };
                store.scan(Keyspace(keyspace), b"", b"", &mut visit).unwrap();
            }
            count
        };
        (0..).zip(keys::NAMES).map(|(index, name)| (name, count(index))).collect()
    }
}

/// Numbers that a broker would have given.
const SHARD: ShardIndex = 1;
const ONE: u64 = 1 << 48 | 5;
const OTHER: u64 = 1 << 48 | 6;

fn entry(message: u64, phase: Phase) -> EntryRecord {
    EntryRecord {
        message,
        size: 9,
        qos: QoS::ExactlyOnce,
        retain: false,
        expires_at: None,
        queued_at: MonoTime::from_millis(1),
        identifiers: SmallVec::new(),
        shared: None,
        phase,
    }
}

/// Two sessions with a message that both have, one in flight, one that was released, and a QoS 2 message of their client; two
/// keys.
fn contents() -> Records {
    let mut records = Records::default();
    let mut put = |keyspace, key: &dyn Fn(&mut Vec<u8>), value: &dyn Fn(&mut Vec<u8>)| {
        let (mut own_key, mut own_value) = (Vec::new(), Vec::new());
        key(&mut own_key);
        value(&mut own_value);
        let record = Record { shard: SHARD, keyspace, key: &own_key, value: &own_value };
        records.push(record);
    };
    let tenant = "acme";
    for (number, client_id) in [(ONE, "one"), (OTHER, "other")] {
        let record = SessionRecord {
            number,
            user: None,
            expiry: 60,
            away_since: Some(MonoTime::default()),
            will: None,
            replays: Vec::new(),
            answered_as: None,
        };
        put(keys::SESSIONS, &|out| SessionKey { tenant, client_id }.encode(out), &|out| {
            record.encode(out);
        });
    }
    for session in [ONE, OTHER] {
        let record = SubscriptionRecord {
            qos: QoS::ExactlyOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let key = SubscriptionKey { tenant, session, filter: "a/#" };
        put(keys::SUBSCRIPTIONS, &|out| key.encode(out), &|out| record.encode(out));
    }
    for message in [7, 8] {
        let own = Message::new(&Publication {
            topic: "a/b",
            payload: &[u8::try_from(message).unwrap()],
            properties: &[],
            qos: QoS::ExactlyOnce,
            retain: false,
            expires_at: None,
        });
        put(keys::MESSAGES, &|out| MessageKey { tenant, message }.encode(out), &|out| {
            encode_message(&own, out);
        });
    }
    for (session, number, record) in [
        (ONE, 1, EntryRecord::released(3)),
        (ONE, 2, entry(7, Phase::Sent(4))),
        (ONE, 3, entry(8, Phase::Waiting)),
        (OTHER, 1, entry(8, Phase::Waiting)),
    ] {
        let key = EntryKey { tenant, session, entry: number };
        put(keys::ENTRIES, &|out| key.encode(out), &|out| record.encode(out));
    }
    let key = ReceivedKey { tenant, session: ONE, packet_id: 9 };
    put(keys::RECEIVED, &|out| key.encode(out), &|out| ReceivedRecord::All.encode(out));
    let latest = Version { wall: 77, counter: 1 };
    put(keys::STATE_CLOCKS, &|out| StateClockKey { tenant }.encode(out), &|out| {
        encode_state_clock(latest, out);
    });
    for key in [&b"first"[..], b"second"] {
        let record = StateRecord {
            version: latest,
            value: key.into(),
            expires_at: None,
            fencing_token: None,
            holder: None,
        };
        put(keys::STATE, &|out| StateKey { tenant, key }.encode(out), &|out| record.encode(out));
    }
    records
}

/// What a broker has of the slot, without its numbers.
fn seen(broker: &Broker) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let tenant = broker.engine.tenants.recover("acme");
    tenant.sessions.for_each(|session| {
        let (subscriptions, has_received) = {
            let state = session.state();
            let filters: Vec<_> = state.subscriptions.iter().map(|own| own.filter.clone()).collect();
            (filters, state.received.len())
        };
        let (queued, released) = session.inspect(|outbound, _| {
            let released = outbound.stored().filter(|(_, released)| *released).count();
            (outbound.depth(), released)
        });
        let as_known = session.answered_as() != session.stored_number().unwrap();
        seen.insert(format!(
            "{} {subscriptions:?} received {has_received} queued {queued} released {released} moved {as_known}",
            session.client_id
        ));
    });
    seen.insert(format!("keys {}", tenant.state_store().usage().keys()));
    let entities = tenant.entities(&broker.engine.alarm);
    seen.insert(format!("entities {}", entities.len()));
    seen
}

#[test]
fn a_slot_goes_from_broker_to_broker_and_leaves_nothing_behind() {
    let [from, to] = [("a", 2), ("b", 3)].map(|(name, shards)| Broker::new(name, shards));
    assert_eq!(adopt(&from.engine, &contents(), ("z", "a"), Watches::Adopt).unwrap(), 2);
    let queue = QueueDefinition { name: "jobs".into(), properties: QueueProperties::default() };
    let definitions = Definitions { queues: vec![queue], ..Definitions::default() };
    let tenant = from.engine.tenants.recover("acme");
    tenant.entities(&from.engine.alarm).declare(&definitions, &mut Commits::default()).unwrap();
    commit(&from.engine);
    let before = (seen(&from), from.count());
    assert!(before.0.iter().any(|one| one.starts_with("one ") && one.contains("received 1")));

    from.slots.close(0);
    assert_eq!(from.slots.owner(0), Owner::Closed);
    let (leaving, records) = from.leave();
    assert_eq!((leaving.sessions(), leaving.tenants().collect::<Vec<_>>()), (2, vec!["acme"]));
    // It stays after all.
    assert_eq!(stay(&from.engine, &leaving, &records).unwrap(), 2);
    from.slots.open(0);
    homes_have_changed(&from.engine);
    commit(&from.engine);
    assert_eq!((seen(&from), from.count()), before);

    from.slots.close(0);
    let (leaving, again) = from.leave();
    assert_eq!(again, records);
    let moved = Moved { broker: "b".into(), generation: 1 };
    assert!(to.slots.note(0, moved.clone()) && from.slots.note(0, moved));
    assert_eq!(adopt(&to.engine, &records, ("a", "b"), Watches::Adopt).unwrap(), 2);
    homes_have_changed(&to.engine);
    commit(&to.engine);
    assert_eq!(seen(&to), before.0);
    let one = to.engine.tenants.recover("acme").sessions.entry("one").get().cloned().unwrap();
    assert_eq!(one.answered_as(), guest_number("z", ONE), "the number that it had first");
    assert!(one.state().received.handed_on().eq([9]), "it is not handed on once more");

    forget(&from.engine, &leaving, "a");
    remove(&from.engine, &records).unwrap();
    commit(&from.engine);
    let left: Vec<_> = from.count().into_iter().filter(|(_, count)| *count > 0).collect();
    // The clock of the state store stays, one for each shard.
    assert_eq!(left, [("state_clocks", 2), ("shard", 2)]);
    let tenant = from.engine.tenants.recover("acme");
    assert!(tenant.sessions.is_empty() && tenant.entities(&from.engine.alarm).is_empty());
}

#[test]
fn records_that_cannot_be_read_change_nothing() {
    let broker = Broker::new("a", 2);
    let mut records = contents();
    let (key, value) = (b"\x04acme\x01x", b"\xff");
    records.push(Record { shard: 0, keyspace: keys::SESSIONS, key, value });
    assert!(matches!(
        adopt(&broker.engine, &records, ("z", "a"), Watches::Adopt),
        Err(AdoptError::Record(_))
    ));
    let bytes = contents().as_bytes().to_vec();
    let cut = Records::from_bytes(bytes[..bytes.len() - 1].to_vec());
    assert_eq!(
        adopt(&broker.engine, &cut, ("z", "a"), Watches::Adopt),
        Err(AdoptError::Damaged(Damaged))
    );
    commit(&broker.engine);
    let left: Vec<_> = broker.count().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(left, [("shard", 2)]);
}
