//! Recovery of a partition through a shard and its store: the recovered partition equals the
//! original.

use std::num::NonZeroU64;
use std::sync::Arc;

use barid_core::durable::keys::ManagedKey;
use barid_core::durable::{
    AnsweredIn, EntityRecord, Homes, ManagedRecord, Recovery, RetainedRecord, SessionRecord,
    SessionStateRecord, Shard, SubscriptionRecord, Trace, keys, recover,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, PacketId, QueueNumber, SessionNumber, TenantNumber};
use barid_core::session::EntryRecord;
use barid_core::state_store::{
    Answer, Clock, Effects, Limits, Origin, Partition, Request, Scope, Set, Usage,
};
use barid_core::state_store::{AnsweredRecord, StateRecord};
use barid_core::time::WallTime;
use barid_store::memory::MemoryStore;
use barid_store::{Batch, Store};
use statestore_proto::{Condition, Notification, Version};

use crate::script::Connection;

const TENANT: TenantNumber = TenantNumber(0);
const NOW: WallTime = WallTime::from_millis(1_000);

/// The state store of one tenant in one shard.
#[derive(Default)]
struct Tenant {
    partition: Partition<Connection>,
    clock: Clock,
    usage: Usage,
}

struct Notes<'a>(&'a mut Shard);

impl Effects<Connection> for Notes<'_> {
    fn put(&mut self, key: &Arc<[u8]>, record: StateRecord) -> u64 {
        self.0.put_state(TENANT, key, record);
        self.0.batch()
    }

    fn remove(&mut self, key: &Arc<[u8]>) -> u64 {
        self.0.remove_state(TENANT, key);
        self.0.batch()
    }

    fn put_clock(&mut self, version: Version) -> u64 {
        self.0.put_state_clock(TENANT, version);
        self.0.batch()
    }

    fn put_answered(&mut self, of: SessionNumber, id: PacketId, record: AnsweredRecord) -> u64 {
        self.0.put_answered(TENANT, of, id, record);
        self.0.batch()
    }

    fn remove_answered(&mut self, of: SessionNumber, id: PacketId) {
        self.0.remove_answered(TENANT, of, id);
    }

    fn notify(
        &mut self,
        _: &[Connection],
        _: &[u8],
        _: Notification<'_>,
        _: Version,
        _: Option<u64>,
    ) {
    }
}

impl Recovery for Tenant {
    fn tenant(&mut self, name: &str) -> TenantNumber {
        assert_eq!(name, "acme");
        TENANT
    }

    fn session(&mut self, _: TenantNumber, _: &str, _: SessionRecord) {}

    fn subscription(&mut self, _: TenantNumber, _: SessionNumber, _: &str, _: SubscriptionRecord) {}

    fn entry(&mut self, _: TenantNumber, _: SessionNumber, _: EntryNumber, _: EntryRecord) {}

    fn retained(&mut self, _: TenantNumber, _: RetainedRecord) {}

    fn state_clock(&mut self, tenant: TenantNumber, latest: Version) {
        assert_eq!(tenant, TENANT);
        self.clock.raise(latest);
    }

    fn state(&mut self, tenant: TenantNumber, key: &[u8], record: StateRecord) {
        assert_eq!(tenant, TENANT);
        self.partition.insert(&self.usage, key, record);
    }

    fn entity(&mut self, _: TenantNumber, _: &str, _: EntityRecord) {}

    fn queue_numbers(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: SequenceNumber) {}

    fn queue_state(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: SessionStateRecord) {
    }

    fn queue_entry(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: Entry) {}

    fn queue_seen(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: WallTime) {}

    fn managed(&mut self, _: ManagedKey<'_>, _: ManagedRecord) {}
}

impl Tenant {
    fn set(&mut self, shard: &mut Shard, set: Set<'_>, request: Request<'_>) -> Answer {
        let Self { partition, clock, usage } = self;
        let scope = Scope { clock, usage, limits: &Limits::UNBOUNDED, now: NOW };
        let request = Request { timestamp: Some("1500:0:fast"), ..request };
        partition.set(&scope, &request, &set, &mut Notes(shard))
    }

    fn delete(&mut self, shard: &mut Shard, key: &[u8], request: Request<'_>) -> Answer {
        let Self { partition, clock, usage } = self;
        let scope = Scope { clock, usage, limits: &Limits::UNBOUNDED, now: NOW };
        partition.delete(&scope, &request, key, None, &mut Notes(shard))
    }

    /// Describes all stored keys.
    fn picture(&self) -> String {
        let stored = self.partition.entries(NOW, b"", b"").filter(|view| view.stored);
        let pictures = stored.map(|view| {
            let (key, value) = (view.key, view.value);
            format!(
                "{key:?} {value:?} {} {:?} {:?}",
                view.version, view.fencing_token, view.expires_at
            )
        });
        pictures.collect::<Vec<_>>().join("\n")
    }
}

fn commit(shard: &mut Shard, store: &MemoryStore) {
    let (_, set) = shard.take();
    let mut batch = Batch::new();
    set.encode(&shard.tenant_names(), &mut batch);
    store.commit(&batch).unwrap();
}

fn set<'a>(key: &'a [u8], value: &'a [u8], ttl: u64) -> Set<'a> {
    Set { key, value, condition: Condition::Always, ttl: NonZeroU64::new(ttl) }
}

#[test]
fn what_was_written_is_found_again() {
    let store = MemoryStore::new(keys::NAMES.len());
    let mut shard = Shard::new(0);
    shard.name_tenant(TENANT, "acme");
    let session = shard.new_session_number();
    let session_record = SessionRecord {
        number: session,
        user: None,
        expiry: 60,
        away_since: None,
        will: None,
        replays: Vec::new(),
        answered_as: None,
    };
    shard.put_session(TENANT, "client", session_record);
    let gone = shard.new_session_number();
    let origin = |session, packet_id| {
        Some(Origin {
            session,
            packet_id,
            correlation: 1 << 100,
            stored: true,
            settled: WallTime::default(),
        })
    };
    let stored = Request { stored: true, ..Request::default() };

    let mut before = Tenant::default();
    let mut answers = Vec::new();
    for (at, session) in (1..).zip([session, gone, session]) {
        let request = Request { origin: origin(session, at), ..stored };
        answers.push(before.set(&mut shard, set(&[0, at as u8], b"value", 0), request));
    }
    before.set(&mut shard, set(b"expires", b"", 10), stored);
    before.set(&mut shard, set(b"gone", b"v", 0), stored);
    commit(&mut shard, &store);
    let fenced = Request { fencing_token: Some("7:8:c\u{fc}"), ..stored };
    before.set(&mut shard, set(b"fenced", &[0xFF; 300], 0), fenced);
    before.delete(&mut shard, b"gone", stored);
    before.set(&mut shard, set(b"volatile", b"v", 0), Request::default());
    commit(&mut shard, &store);

    let mut after = Tenant::default();
    let recovered = recover(0, &store, &mut after).unwrap();
    let (mut shard, traces) = Homes::default().open(recovered);
    for (trace, lives) in traces {
        let Trace::Answered(answered) = trace else { panic!("{trace:?} was not noted") };
        if !lives {
            trace.remove(&mut shard);
            continue;
        }
        assert_eq!((answered.shard, answered.tenant, answered.session), (0, TENANT, session));
        let AnsweredIn { packet_id, record, .. } = answered;
        after.partition.insert_answered(&after.usage, session, packet_id, record);
    }
    assert_eq!(after.picture(), before.picture());
    assert!(after.clock.latest() >= before.clock.latest());
    assert_eq!((after.usage.keys(), before.usage.keys()), (5, 6));
    for (at, answer) in (1..).zip(answers) {
        let found = after.partition.answered(&origin(session, at).unwrap());
        // The answer waits for nothing any more: it is durable.
        assert_eq!(found, (at != 2).then_some(Answer { after: None, ..answer }));
    }
    assert_eq!(after.partition.take_alarm(), Some(WallTime::from_millis(1_010)));
    let again = after.delete(&mut shard, b"fenced", stored);
    assert_eq!(again.version, None, "its token protects it still");
    commit(&mut shard, &store);
    let mut answers = 0;
    let scanned = store.scan(keys::STATE_ANSWERS, b"", b"", &mut |_, _| {
        answers += 1;
        std::ops::ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(answers, 2, "what a session that is gone was answered goes, too");
}

#[test]
fn a_version_that_was_told_is_not_given_again() {
    let store = MemoryStore::new(keys::NAMES.len());
    let mut shard = Shard::new(0);
    shard.name_tenant(TENANT, "acme");
    let mut before = Tenant::default();
    // The key is not stored, but its version is ahead of the wall clock: 1500 at 1000.
    let told = before.set(&mut shard, set(b"k", b"v", 0), Request::default());
    assert_eq!(told.after, Some(shard.batch()));
    commit(&mut shard, &store);
    let mut after = Tenant::default();
    let (mut shard, _) = Homes::default().open(recover(0, &store, &mut after).unwrap());
    let next = after.set(&mut shard, set(b"k", b"v", 0), Request::default());
    assert!(next.version > told.version, "{next:?}");
}

#[test]
fn the_clock_of_a_tenant_that_has_gone_goes_with_it() {
    let store = MemoryStore::new(keys::NAMES.len());
    let mut shard = Shard::new(0);
    shard.name_tenant(TENANT, "acme");
    let version = Version { wall: 9_000, counter: 0 };
    shard.put_state_clock(TENANT, version);
    commit(&mut shard, &store);
    let mut found = Tenant::default();
    recover(0, &store, &mut found).unwrap();
    assert_eq!(found.clock.latest(), version);
    shard.remove_state_clock(TENANT);
    commit(&mut shard, &store);
    let mut found = Tenant::default();
    recover(0, &store, &mut found).unwrap();
    assert_eq!(found.clock.latest(), Version::default());
}

#[test]
fn what_a_batch_has_of_keys_and_tokens_weighs() {
    let mut shard = Shard::new(0);
    shard.name_tenant(TENANT, "acme");
    let (key, token) = ([b'k'; 60_000], format!("0:0:{}", "n".repeat(30_000)));
    let stored = Request { stored: true, ..Request::default() };
    let fenced = Request { fencing_token: Some(&token), ..stored };
    let mut tenant = Tenant::default();
    tenant.set(&mut shard, set(&key, b"v", 0), fenced);
    assert!((90_000..90_500).contains(&shard.pending().bytes()), "{}", shard.pending().bytes());
    commit(&mut shard, &MemoryStore::new(keys::NAMES.len()));
    tenant.delete(&mut shard, &key, fenced);
    assert!((60_000..60_500).contains(&shard.pending().bytes()), "{}", shard.pending().bytes());
}
