use barid_core::durable::keys;
use barid_core::time::MonoTime;
use barid_store::Store;
use barid_store::memory::MemoryStore;

use super::*;
use crate::clock;
use crate::departures::Departures;
use crate::durable::Storage;
use crate::engine::{Engine, EngineSettings};
use crate::ids::ConnectionId;
use crate::opening::tests::opened;
use crate::owner::{Farewell, Owner};
use crate::random::tests::COUNTING;
use crate::router::Router;
use crate::worker::Worker;

/// An owner of connections that none of these tests calls.
#[derive(Debug)]
struct Nobody;

impl Owner for Nobody {
    fn drain(&self, _: ConnectionId) {}

    fn close(&self, _: ConnectionId, _: ReasonCode, _: Farewell) {}
}

/// A broker in which no tasks are carried out, such as the expiry of sessions.
fn start() -> (Context, Arc<Tenant>) {
    let settings = EngineSettings {
        max_tenants: 10,
        settings_of: Arc::new(|_| Default::default()),
        sys_interval: 0,
    };
    let stores = [Arc::new(MemoryStore::new(keys::NAMES.len())) as Arc<dyn Store>];
    let storage = Storage::local(&stores);
    let engine = Engine::new(settings, (1, 0), storage, clock::tests::stopped(), COUNTING);
    let context = Context {
        worker: Worker { id: 0, now: MonoTime::default() },
        engine: Arc::new(opened(engine)),
        router: Router::new(COUNTING),
        departures: Departures::default(),
    };
    let tenant = context.tenant("acme").expect("there is room");
    (context, tenant)
}

/// Connects `c` with this Session Expiry Interval, and disconnects it. Returns whether a session was resumed.
fn connect(context: &mut Context, tenant: &Arc<Tenant>, number: u64, expiry: u32) -> bool {
    let opening = Opening {
        version: Version::V5,
        clean_start: false,
        client_id: "c",
        is_assigned: false,
        holder: None,
        permissions: None,
        properties: PropertiesBuf::default(),
    };
    let connection = ConnectionId(number);
    let link = Link {
        version: Version::V5,
        max_packet_size: u32::MAX,
        wire: None,
        owner: Arc::new(Nobody),
        connection,
        peer: ([127, 0, 0, 1], 1).into(),
        listener: "test",
        keep_alive: 0,
        rights: Default::default(),
    };
    let wanted = Wanted {
        expiry,
        keep_alive: 0,
        receive_maximum: 1,
        max_packet_size: u32::MAX,
        aliases: None,
        will: None,
        persist: false,
    };
    let before = tenant.sessions.entry("c").get().map(|session| session.id);
    let opened = open_session(context, tenant, &opening, link, wanted);
    let (session, epoch, _) = opened.expect("nothing refuses it");
    context.connection_gone(tenant, &session, connection, epoch, false);
    before == Some(session.id)
}

#[test]
fn a_session_that_has_expired_is_not_resumed_before_its_removal() {
    let (mut context, tenant) = start();
    let mut connects = |number, at, expiry| {
        context.worker.now = MonoTime::from_millis(at);
        connect(&mut context, &tenant, number, expiry)
    };
    assert!(!connects(1, 0, 2));
    assert!(connects(2, 1_999, 2), "it has 1 ms left");
    assert!(!connects(3, 3_999, 2), "it has expired in this moment");
    assert!(!connects(4, 60_000, u32::MAX), "it has long expired");
    assert!(connects(5, u64::from(u32::MAX) * 1_000 * 2, u32::MAX), "it does not expire");
}
