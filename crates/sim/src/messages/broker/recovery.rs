//! From the disks to a broker, and a picture of what it has, to compare.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::durable::{
    EntityRecord, Recovery, SessionRecord, SessionStateRecord, SubscriptionRecord, Trace, keys,
    recover, settle,
};
use barid_core::entity::{Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, MessageId, PacketId, QueueNumber, SessionNumber, TenantNumber};
use barid_core::message::Message;
use barid_core::retained::RetainedStore;
use barid_core::session::{EntryRecord, ShardSet};
use barid_core::state_store::StateRecord;
use barid_core::time::{MonoTime, WallTime};
use barid_core::topic_index::TopicIndex;
use barid_store::Store;
use barid_store::memory::Disk;
use mqtt_proto::QoS;
use statestore_proto::Version;

use super::session::{Home, Session};
use super::{Broker, Effects, Handle, SessionKey, Settings, message_number, options};
use crate::durable::{Durable, TENANT_NUMBER};
use crate::network::ClientId;
use crate::packets::messages::{FILTERS, MessageNumber};
use crate::rules::Rules;

/// What survives a crash although no broker has it: what the checkers know.
#[derive(Default)]
pub struct Remembered {
    births: u64,
    names: BTreeMap<(u16, MessageId), MessageNumber>,
}

/// All that a broker stores, as it has it in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    sessions: BTreeMap<ClientId, SessionPicture>,
    retained: Vec<MessageNumber>,
}

#[derive(Debug, PartialEq, Eq)]
struct SessionPicture {
    birth: u64,
    expiry: Option<u64>,
    subscriptions: BTreeMap<usize, QoS>,
    received: BTreeMap<PacketId, ShardSet>,
    /// Entry, message and how many entries refer to that; a released one has no message.
    entries: Vec<(EntryNumber, Option<(MessageId, u32)>)>,
}

/// How many records there are of what is gone when nothing is on its way any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Entries of queues.
    pub entries: usize,
    /// Messages.
    pub messages: usize,
    /// Packet identifiers received.
    pub received: usize,
}

impl Broker {
    /// Starts a broker from what is on its disks, one for each shard.
    pub fn start(
        disks: &[Disk],
        settings: Settings,
        rules: Rules,
        now: u64,
        remembered: Remembered,
    ) -> Self {
        let stores: Vec<_> = disks.iter().map(|disk| disk.open(keys::NAMES.len())).collect();
        let mut reader = Reader::default();
        let shards = stores.iter().zip(0_u16..).map(|(store, shard)| {
            reader.shard = shard;
            recover(shard, store, &mut reader).expect("what was written can be read")
        });
        let shards = settle(shards.collect(), |trace| {
            let Trace::Received(received) = trace else { return };
            let session = reader.sessions.get_mut(&received.session).expect("it was told");
            session.received.recover(received.packet_id, received.shard);
        });
        let mut durable = Durable::new(shards.into_iter().zip(stores).collect(), rules);
        durable.names = remembered.names;
        let mut broker = Self {
            settings,
            durable,
            index: TopicIndex::with_seed(1),
            sessions: BTreeMap::new(),
            by_client: BTreeMap::new(),
            retained: reader.retained,
            jobs: Vec::new(),
            next_key: 0,
            births: remembered.births,
            now: MonoTime::from_millis(now),
            effects: Effects::default(),
        };
        for (number, mut session) in reader.sessions {
            session.outbound.recover(reader.entries.remove(&number).unwrap_or_default());
            broker.resume(session);
        }
        broker
    }

    /// A session goes on. If its client was connected when the broker ended, it is away since now.
    fn resume(&mut self, mut session: Session) -> SessionKey {
        if session.away_since.is_none() {
            session.away_since = Some(self.now);
            session.store(&mut self.durable);
        }
        let subscriptions = session.subscriptions.clone();
        let key = self.add(session);
        for (filter, qos) in subscriptions {
            self.index.subscribe(FILTERS[filter], &Handle(key), options(qos));
        }
        key
    }

    /// What the checkers know, before the process ends.
    pub fn remembered(&mut self) -> Remembered {
        Remembered { births: self.births, names: std::mem::take(&mut self.durable.names) }
    }

    /// What is in memory.
    pub fn picture(&self) -> Picture {
        let mut retained = Vec::new();
        self.retained.for_each_match("#", |_, message| retained.push(message_number(message)));
        let stored = |session: &&Session| session.stored.is_some();
        let sessions = self.sessions.values().filter(stored);
        Picture {
            sessions: sessions.map(|session| (session.client, self.picture_of(session))).collect(),
            retained,
        }
    }

    fn picture_of(&self, session: &Session) -> SessionPicture {
        let references = |message| {
            let home = session.stored.expect("only stored sessions are looked at");
            self.durable.shard(home.shard).references(message)
        };
        let entries = session.outbound.stored().map(|(stored, released)| {
            let message = (!released).then(|| (stored.message, references(stored.message)));
            (stored.entry.get(), message)
        });
        // Retained messages for a new subscription go ahead of the queue only as long as the process lives.
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        SessionPicture {
            birth: session.birth,
            expiry: session.expiry,
            subscriptions: session.subscriptions.clone(),
            received: session.received.iter().collect(),
            entries,
        }
    }
}

/// What is on some disks of what comes and goes.
pub fn remains(disks: &[Disk]) -> Remains {
    let mut remains = Remains::default();
    for disk in disks {
        let store = disk.open(keys::NAMES.len());
        let kinds = [
            (keys::ENTRIES, &mut remains.entries),
            (keys::MESSAGES, &mut remains.messages),
            (keys::RECEIVED, &mut remains.received),
        ];
        for (keyspace, count) in kinds {
            let scanned = store.scan(keyspace, &[], &[], &mut |_, _| {
                *count += 1;
                std::ops::ControlFlow::Continue(())
            });
            scanned.expect("reading does not fail here");
        }
    }
    remains
}

/// Hears what the stores have.
#[derive(Default)]
struct Reader {
    shard: u16,
    sessions: BTreeMap<SessionNumber, Session>,
    entries: BTreeMap<SessionNumber, Vec<(EntryNumber, EntryRecord)>>,
    retained: RetainedStore<Arc<Message>>,
}

impl Recovery for Reader {
    fn tenant(&mut self, _: &str) -> TenantNumber {
        TENANT_NUMBER
    }

    fn session(&mut self, _: TenantNumber, client_id: &str, record: SessionRecord) {
        let number = |text: &str| text.parse::<u64>().expect("it was written as a number");
        let client = usize::try_from(number(&client_id[1..])).expect("there are few clients");
        let birth = number(record.user.as_deref().expect("it was written with its birth"));
        let home = Home { shard: self.shard, number: record.number };
        let expiry = (record.expiry != u32::MAX).then_some(u64::from(record.expiry));
        let mut session = Session::new(client, birth, Some(home), expiry);
        session.away_since = record.away_since;
        self.sessions.insert(record.number, session);
    }

    fn subscription(
        &mut self,
        _: TenantNumber,
        session: SessionNumber,
        filter: &str,
        record: SubscriptionRecord,
    ) {
        let filter =
            FILTERS.iter().position(|known| *known == filter).expect("there are no others");
        let session = self.sessions.get_mut(&session).expect("it was told");
        session.subscriptions.insert(filter, record.qos);
    }

    fn entry(
        &mut self,
        _: TenantNumber,
        session: SessionNumber,
        entry: EntryNumber,
        record: EntryRecord,
    ) {
        self.entries.entry(session).or_default().push((entry, record));
    }

    fn retained(&mut self, _: TenantNumber, message: Message) {
        let message = Arc::new(message);
        self.retained.set(message.publication().topic, Arc::clone(&message));
    }

    // These histories have no state store and no entities.
    fn state_clock(&mut self, _: TenantNumber, _: Version) {}
    fn state(&mut self, _: TenantNumber, _: &[u8], _: StateRecord) {}
    fn entity(&mut self, _: TenantNumber, _: &str, _: EntityRecord) {}
    fn queue_numbers(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: SequenceNumber) {}
    fn queue_state(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: SessionStateRecord) {
    }
    fn queue_entry(&mut self, _: TenantNumber, _: QueueNumber, _: Part, _: Entry) {}
    fn queue_seen(&mut self, _: TenantNumber, _: QueueNumber, _: Arc<str>, _: WallTime) {}
}
