//! Entities over stores in memory, with a clock and threads that each test drives.

mod changing;
mod forwarding;
mod holding;
mod idleness;
mod receiving;
mod restarting;
mod topics;

use std::sync::Arc;

use barid_amqp::message::{Builder, Field, ValueRef};
use barid_core::durable::keys::ManagedKey;
use barid_core::durable::{
    self, EntityRecord, Homes, ManagedRecord, Recovery, RetainedRecord, SessionRecord,
    SessionStateRecord, SubscriptionRecord, keys,
};
use barid_core::entity::{Delivery, Entry, Incoming, Mode, Part, SequenceNumber, State};
use barid_core::ids::{EntryNumber, QueueNumber, SessionNumber, TenantNumber};
use barid_core::session::EntryRecord;
use barid_core::state_store::StateRecord;
use barid_core::time::{MonoTime, WallTime};
use barid_store::Store;
use barid_store::memory::MemoryStore;
use statestore_proto::Version;

use super::*;
use crate::account::TenantSettings;
use crate::agenda::{After, Agenda, Task};
use crate::clock;
use crate::durable::{Commits, DurableShard, Shards, Storage};
use crate::limits::Limits;
use crate::random::tests::COUNTING;
use crate::sync::Mutex;
use crate::tenant::{Tenant, Tenants};
use crate::worker::Worker;

/// Memory that is enough for all messages, in bytes.
const PLENTY: usize = 1 << 20;

/// Maximum number of bytes that all entities may hold together.
const BYTES_MAX: usize = 1 << 20;

/// The parts of a broker that entities need.
struct World {
    shards: Arc<Shards>,
    tenant: Arc<Tenant>,
    agenda: Agenda,
    alarm: Arc<dyn Alarm>,
    now: WallTime,
    _tenants: Tenants,
}

impl World {
    fn new() -> Self {
        Self::over(&stores(), PLENTY)
    }

    /// Starts a broker over these stores.
    fn over(stores: &[Arc<dyn Store>], memory: usize) -> Self {
        let shards = Arc::new(Shards::new(Storage::local(stores), memory));
        let agenda = Agenda::new(clock::tests::stopped(), shards.sources().clone());
        let (max_entities, max_tenant_entity_bytes) = (12, BYTES_MAX);
        let limits = Limits { max_entities, max_tenant_entity_bytes, ..Limits::default() };
        let limits = Arc::new(limits);
        let settings = TenantSettings { limits, ..TenantSettings::default() };
        let settings_of = Arc::new(move |_: &str| settings.clone());
        let tenants = Tenants::new(1, 1, settings_of, COUNTING, Arc::clone(&shards), None);
        let tenant = tenants.recover("t");
        let world = Self {
            shards,
            tenant,
            alarm: Arc::new(agenda.clone()),
            agenda,
            now: WallTime::from_millis(1_000_000),
            _tenants: tenants,
        };
        world.recover();
        world
    }

    fn recover(&self) {
        let mut homes = Homes::default();
        for shard in self.shards.iter() {
            let of_shard = Recovering::default();
            let mut reader = Reader { world: self, shard: &shard, found: of_shard };
            let read = durable::recover(shard.index(), &**shard.store(), &mut reader).unwrap();
            shard.install(homes.open(read).0);
            shard.name_tenant(self.tenant.stored_number(), "t");
            reader.found.join();
        }
        self.settle();
    }

    fn entities(&self) -> &Arc<Entities> {
        self.tenant.entities(&self.alarm)
    }

    /// Does the work of all threads of a broker until nothing is left.
    fn settle(&self) {
        loop {
            self.shards.iter().for_each(|shard| shard.commit_now());
            let now = MonoTime::from_millis(self.now.as_millis());
            let worker = Worker { id: 0, now };
            self.shards.iter().for_each(|shard| shard.fetch_now(&worker));
            let durable = self.agenda.take_durable();
            let task = self.agenda.due(now);
            if durable.is_empty() && task.is_none() {
                return;
            }
            for after in durable {
                if let After::Complete(mover, done) = after {
                    mover.complete(&done, self.now);
                }
            }
            match task {
                Some(Task::WakeQueue { queue, at }) => {
                    queue.upgrade().into_iter().for_each(|queue| queue.wake(at, self.now));
                }
                Some(Task::Move(mover)) => {
                    let mover = mover.upgrade().into_iter();
                    mover.for_each(|mover| mover.run(self.now));
                }
                _ => {}
            }
        }
    }

    fn sleep(&mut self, millis: u64) {
        self.now = WallTime::from_millis(self.now.as_millis() + millis);
        self.settle();
    }

    /// Declares entities.
    fn declare(&self, json: &str) {
        self.try_declare(json).unwrap();
    }

    fn try_declare(&self, json: &str) -> Result<(), String> {
        let definitions: Definitions = serde_json::from_str(json).unwrap();
        let declared = self.entities().declare(&definitions, &mut Commits::default());
        self.settle();
        declared.map_err(|error| error.to_string())
    }

    fn node(&self, path: &str) -> Node {
        self.entities().find(&Address::parse(path)).unwrap_or_else(|| panic!("no {path}"))
    }

    fn queue(&self, path: &str) -> Arc<Queue> {
        Arc::clone(self.node(path).entity())
    }

    fn send(&self, path: &str, message: Incoming) -> Result<SequenceNumber, SendError> {
        let batch = Batch::from_buf([message]);
        self.node(path).send(batch, self.now, &mut Commits::default()).map(|numbers| numbers[0])
    }

    /// Returns the bodies of the messages in a part, in order.
    fn texts(&self, path: &str, part: Part) -> Vec<String> {
        self.entries(path, part).iter().map(|entry| self.text(path, entry)).collect()
    }

    fn entries(&self, path: &str, part: Part) -> Vec<Entry> {
        self.settle();
        let mut entries = Vec::new();
        self.queue(path).read(|entity| {
            entity.peek(part, 1, usize::MAX, None, |entry| {
                entries.push(entry.clone());
                true
            });
        });
        entries
    }

    fn text(&self, path: &str, entry: &Entry) -> String {
        let queue = self.queue(path);
        let bytes = entry.body.bytes.clone().unwrap_or_else(|| {
            let body = queue.shard().body(queue.tenant(), "t", queue.number(), entry.body.id);
            body.unwrap().expect("it is stored")
        });
        let sections = barid_amqp::message::Sections::split(&bytes).unwrap();
        String::from_utf8(sections.payload().unwrap().into_owned()).unwrap()
    }

    /// Opens a plain receiver and takes up to 100 messages.
    fn take(&self, path: &str, part: Part) -> Vec<Delivery> {
        let (queue, id) = (self.queue(path), new_receiver_id());
        let mut out = Vec::new();
        queue.with(&mut Commits::default(), |entity, fx| {
            entity.open(id, part, Mode::PeekLock).unwrap();
            entity.take(id, 100, self.now, fx, &mut out).unwrap();
        });
        out
    }
}

/// Returns empty stores.
fn stores() -> Vec<Arc<dyn Store>> {
    let store = || Arc::new(MemoryStore::new(keys::NAMES.len())) as Arc<dyn Store>;
    vec![store(), store(), store()]
}

/// Returns a message with a text.
fn message(text: &str) -> Incoming {
    with(text, |_| {})
}

/// Returns a message of a session.
fn of_session(session: &str, text: &str) -> Incoming {
    let mut message = with(text, |builder| {
        builder.property(Field::GroupId, ValueRef::String("unused"));
    });
    message.session = Some(session.into());
    message
}

fn with(text: &str, more: impl FnOnce(&mut Builder<'_>)) -> Incoming {
    let (mut builder, mut bytes) = (Builder::new(), Vec::new());
    more(&mut builder);
    builder.data(text.as_bytes(), &mut bytes);
    Incoming {
        session: None,
        message_id: None,
        time_to_live: None,
        scheduled_at: None,
        bytes: bytes.into(),
        overlay: None,
    }
}

/// An inbox that records its notifications.
#[derive(Default)]
struct Ears(Mutex<Vec<Told>>);

impl Inbox for Ears {
    fn tell(&self, _: barid_core::entity::ReceiverId, what: Told) {
        self.0.lock().push(what);
    }
}

impl Ears {
    fn heard(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Recovers the entities of one store.
struct Reader<'a> {
    world: &'a World,
    shard: &'a Arc<DurableShard>,
    found: Recovering,
}

impl Recovery for Reader<'_> {
    fn tenant(&mut self, name: &str) -> TenantNumber {
        assert_eq!(name, "t");
        self.world.tenant.stored_number()
    }

    fn entity(&mut self, _: TenantNumber, path: &str, record: EntityRecord) {
        self.found.entity(self.world.entities(), self.shard, path, record).unwrap();
    }

    fn queue_numbers(&mut self, _: TenantNumber, queue: QueueNumber, part: Part, reserved: u64) {
        self.found.restore(queue, |entity| entity.recover_numbers(part, reserved));
    }

    fn queue_state(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        session: Arc<str>,
        record: SessionStateRecord,
    ) {
        let SessionStateRecord { state, updated_at } = record;
        self.found.restore(queue, |entity| entity.recover_state(&session, state, updated_at));
    }

    fn queue_entry(&mut self, _: TenantNumber, queue: QueueNumber, part: Part, entry: Entry) {
        self.found.restore(queue, |entity| entity.recover_entry(part, entry));
    }

    fn queue_seen(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        message_id: Arc<str>,
        until: WallTime,
    ) {
        self.found.restore(queue, |entity| entity.recover_seen(&message_id, until));
    }

    fn session(&mut self, _: TenantNumber, _: &str, _: SessionRecord) {}
    fn subscription(&mut self, _: TenantNumber, _: SessionNumber, _: &str, _: SubscriptionRecord) {}
    fn entry(&mut self, _: TenantNumber, _: SessionNumber, _: EntryNumber, _: EntryRecord) {}
    fn retained(&mut self, _: TenantNumber, _: RetainedRecord) {}
    fn state_clock(&mut self, _: TenantNumber, _: Version) {}
    fn state(&mut self, _: TenantNumber, _: &[u8], _: StateRecord) {}
    fn managed(&mut self, _: ManagedKey<'_>, _: ManagedRecord) {}
}
