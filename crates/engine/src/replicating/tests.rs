use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::durable::keys;
use barid_core::message::{Message, Publication};
use barid_core::retained::Walked;
use barid_core::time::MonoTime;
use barid_peers::{Comparing, Comparison};
use barid_store::Store;
use barid_store::memory::MemoryStore;
use mqtt_proto::QoS;
use proptest::prelude::*;

use super::*;
use crate::clock;
use crate::cluster::tests::Silent;
use crate::cluster::{Cluster, ClusterSize};
use crate::durable::Storage;
use crate::engine::EngineSettings;
use crate::opening::tests::{commit, opened};
use crate::random::tests::COUNTING;
use crate::retained::tombstone;

/// The users and the retained messages of one broker.
type Contents = BTreeMap<(u8, String), String>;

/// A broker over a store that survives its restarts.
struct Broker {
    number: u64,
    stores: Vec<Arc<dyn Store>>,
    engine: Engine,
}

impl Broker {
    fn new(number: u64) -> Self {
        let store = || Arc::new(MemoryStore::new(keys::NAMES.len())) as Arc<dyn Store>;
        let stores = vec![store(), store()];
        Self { number, engine: start(number, &stores), stores }
    }

    fn restart(&mut self) {
        commit(&self.engine);
        self.engine = start(self.number, &self.stores);
    }

    fn put_user(&self, name: &str, text: &str) {
        let mut commits = Commits::default();
        self.engine.managed.put(ManagedKind::User, name, text.into(), &mut commits).unwrap();
    }

    fn remove_user(&self, name: &str) {
        self.engine.managed.remove(ManagedKind::User, name, &mut Commits::default()).unwrap();
    }

    fn tenant(&self) -> Arc<Tenant> {
        self.engine.tenants.recover("acme")
    }

    /// Sets a retained message as a publisher does. An empty text removes it.
    fn retain(&self, topic: &str, text: &str) {
        let tenant = self.tenant();
        let stamp = tenant.retained.read().new_stamp(topic);
        let record = match text {
            "" => tombstone(topic, stamp),
            _ => RetainedRecord { message: message(topic, text), holder: None, stamp },
        };
        let now = self.engine.clock.now();
        let merged = retaining::merge(&tenant, record, now, &mut Commits::default());
        assert_eq!(merged, Merged::Changed);
    }

    fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        self.engine.managed.for_each(ManagedKind::User, |name, text| {
            contents.insert((ManagedKind::User as u8, name.to_string()), text.to_string());
        });
        let tenant = self.tenant();
        let mut steps = usize::MAX;
        let walked = tenant.retained.read().walk("#", None, &mut steps, |topic, message| {
            let payload = String::from_utf8(message.publication().payload.to_vec()).unwrap();
            contents.insert((RETAINED, topic.to_owned()), payload);
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(walked, Walked::All);
        contents
    }

    /// Sends everything that is later here to another broker, as a link does when it is opened.
    fn tell(&self, other: &Self) {
        let mut comparing = Comparing::default();
        let (mine, theirs) = (self.engine.replicated.digest(), other.engine.replicated.digest());
        let differing = theirs.differing(&mine.to_bytes()).unwrap();
        let (listed, has_more) = comparing.compare(Comparison::First, differing, theirs.objects());
        assert!(!has_more);
        let known = other.engine.list_replicas(&listed);
        let known = known.into_iter().map(|one| (one.object, one.stamp)).collect();
        for name in self.engine.later_replicas(&listed, &known) {
            let (object, mut record) = (name.as_object(), Vec::new());
            assert!(self.engine.encode_replica(object, &mut record));
            other.engine.merge_replica(object, &record).unwrap();
        }
    }
}

fn start(number: u64, stores: &[Arc<dyn Store>]) -> Engine {
    let settings = EngineSettings {
        max_tenants: 10,
        settings_of: Arc::new(|_| Default::default()),
        sys_interval: 0,
    };
    let size = ClusterSize { members: 2, threads: 1, origin: number };
    let cluster = Arc::new(Cluster::new(size, stores.len(), COUNTING, Box::new(Silent), None));
    let storage = Storage::local(stores);
    let clock = (clock::tests::stopped(), COUNTING);
    let engine = Engine::in_cluster(settings, (1, 0), storage, clock, Some(cluster));
    opened(engine)
}

fn message(topic: &str, text: &str) -> Arc<Message> {
    Arc::new(Message::new(&Publication {
        topic,
        payload: text.as_bytes(),
        properties: &[],
        qos: QoS::AtLeastOnce,
        retain: true,
        expires_at: None,
    }))
}

fn user(name: &str) -> (u8, String) {
    (ManagedKind::User as u8, name.into())
}

#[test]
fn the_later_change_wins_in_whatever_order_they_come() {
    let [one, other] = [1, 2].map(Broker::new);
    one.put_user("acme/ada", "1");
    one.tell(&other);
    other.put_user("acme/ada", "2");
    one.retain("a", "old");
    other.tell(&one);
    one.tell(&other);
    assert_eq!(one.contents(), other.contents());
    assert_eq!(one.contents()[&user("acme/ada")], "2");
    other.remove_user("acme/ada");
    other.retain("a", "");
    one.tell(&other);
    assert!(other.contents().is_empty(), "the older state does not come back");
    other.tell(&one);
    assert!(one.contents().is_empty());
}

#[test]
fn removals_survive_a_restart_until_all_have_heard_of_them() {
    let [mut one, other] = [1, 2].map(Broker::new);
    one.put_user("acme/ada", "1");
    one.retain("a", "1");
    one.tell(&other);
    one.remove_user("acme/ada");
    one.retain("a", "");
    one.restart();
    other.tell(&one);
    assert!(one.contents().is_empty());
    // The other broker has not heard of it.
    one.engine.forget_tombstones();
    other.tell(&one);
    assert!(one.contents().is_empty());
    one.tell(&other);
    assert!(other.contents().is_empty());
}

#[test]
fn a_mark_makes_a_broker_ask_for_users() {
    let [one, other] = [1, 2].map(Broker::new);
    one.put_user("acme/ada", "1");
    one.remove_user("acme/ada");
    assert!(!other.engine.managed.is_used(ManagedKind::User));
    one.tell(&other);
    assert!(other.engine.managed.is_used(ManagedKind::User));
    other.tell(&one);
    let digests = other.engine.replicated.digest().to_bytes();
    assert_eq!(one.engine.replicated.digest().differing(&digests), Ok(Parts::NONE));
}

#[test]
fn topics_of_one_broker_are_not_replicated() {
    let [one, other] = [1, 2].map(Broker::new);
    let tenant = one.tenant();
    assert_eq!(tenant.retained.read().new_stamp("$SYS/broker/uptime"), Stamp::NONE);
    let record =
        RetainedRecord { message: message("$SYS/x", "1"), holder: None, stamp: Stamp::NONE };
    tenant.retained.write().set(record);
    one.tell(&other);
    assert!(other.contents().is_empty());
    let mut forged = Vec::new();
    let stamp = Stamp { time: 1, origin: 9 };
    RetainedRecord { message: message("$SYS/x", "2"), holder: None, stamp }.encode(&mut forged);
    assert_eq!(other.engine.merge_replica(retained("acme", "$SYS/x"), &forged), Ok(false));
    assert!(other.engine.merge_replica(retained("acme", "y"), &forged).is_err());
    assert!(other.engine.merge_replica(retained("acme", "$SYS/x"), &forged[1..]).is_err());
}

#[test]
fn expired_messages_do_not_come_back() {
    let [one, other] = [1, 2].map(Broker::new);
    one.retain("a", "1");
    let record = one.tenant().retained.read().record("a").unwrap();
    let expired = Message::new(&Publication {
        expires_at: Some(MonoTime::from_millis(0)),
        ..record.message.publication()
    });
    let expired = RetainedRecord { message: Arc::new(expired), ..record };
    let merged = retaining::merge(
        &other.tenant(),
        expired,
        MonoTime::from_millis(1),
        &mut Commits::default(),
    );
    assert_eq!(merged, Merged::Older);
    assert!(other.contents().is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    PutUser(usize, usize, u8),
    RemoveUser(usize, usize),
    Retain(usize, usize, u8),
    Clear(usize, usize),
    Tell(usize, usize),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (broker, object) = (0..3_usize, 0..4_usize);
    prop_oneof![
        (broker.clone(), object.clone(), any::<u8>()).prop_map(|(b, o, v)| Step::PutUser(b, o, v)),
        (broker.clone(), object.clone()).prop_map(|(b, o)| Step::RemoveUser(b, o)),
        (broker.clone(), object.clone(), any::<u8>()).prop_map(|(b, o, v)| Step::Retain(b, o, v)),
        (broker.clone(), object).prop_map(|(b, o)| Step::Clear(b, o)),
        (broker.clone(), broker.clone()).prop_map(|(a, b)| Step::Tell(a, b)),
        broker.prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Three brokers change what they have, restart, and tell each other something now and then. When each has told each
    /// other one, all have the same.
    #[test]
    fn brokers_agree(steps in proptest::collection::vec(step(), 1..40)) {
        let mut brokers = [1, 2, 3].map(Broker::new);
        for step in &steps {
            match step {
                Step::PutUser(at, which, value) => {
                    brokers[*at].put_user(&format!("acme/{which}"), &value.to_string());
                }
                Step::RemoveUser(at, which) => brokers[*at].remove_user(&format!("acme/{which}")),
                Step::Retain(at, which, value) => {
                    brokers[*at].retain(&format!("t/{which}"), &value.to_string());
                }
                Step::Clear(at, which) => brokers[*at].retain(&format!("t/{which}"), ""),
                Step::Tell(from, to) if from != to => brokers[*from].tell(&brokers[*to]),
                Step::Tell(..) => {}
                Step::Restart(at) => brokers[*at].restart(),
            }
        }
        for _ in 0..2 {
            for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)] {
                brokers[from].tell(&brokers[to]);
            }
        }
        let digests = brokers[0].engine.replicated.digest().to_bytes();
        for broker in &brokers[1..] {
            prop_assert_eq!(broker.contents(), brokers[0].contents());
            prop_assert_eq!(broker.engine.replicated.digest().differing(&digests), Ok(Parts::NONE));
        }
        // A digest that has followed all changes is that of what is there now.
        let before = brokers[0].contents();
        brokers[0].restart();
        prop_assert_eq!(brokers[0].contents(), before);
        prop_assert_eq!(brokers[0].engine.replicated.digest().differing(&digests), Ok(Parts::NONE));
    }
}
