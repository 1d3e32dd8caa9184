//! Clients that log in as users: what they may do, and what happens when that changes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barid_amqp::frame::{
    self, AMQP_HEADER, Attach, Begin, Body, Open, Performative, ReceiverSettles, Role, SASL_HEADER,
    Sasl, SenderSettles, Terminus,
};
use barid_amqp::{Error, Fields};
use barid_core::durable::keys;
use barid_store::Store;
use barid_store::memory::MemoryStore;
use mqtt_proto::ReasonCode;

use super::*;
use crate::access::{Policy, TenantRules};
use crate::account::TenantSettings;
use crate::clock;
use crate::context::Context;
use crate::denials::{Remembered, Wanted};
use crate::denied_action::Action;
use crate::departures::Departures;
use crate::durable::Storage;
use crate::engine::{Engine, EngineSettings};
use crate::ids::ConnectionId;
use crate::limits::{Limits, Quota};
use crate::owner::{Farewell, Owner};
use crate::quotas::Flow;
use crate::random::tests::COUNTING;
use crate::router::Router;
use crate::turn::{Scratch, Turn};
use crate::worker::Worker;

const CHANNEL: u16 = 0;

/// An engine with the queues `orders` and `secret`, and the topic `alarms` with the subscription `all`, in the tenant
/// `acme`, which has the key `acme/key`.
struct World {
    context: Context,
    scratch: Scratch,
    keys: Arc<OneKey>,
}

/// The only key, and the only client that is banned: a user, a container id or an address.
#[derive(Debug, Default)]
struct OneKey {
    banned: Mutex<String>,
}

impl Keys for OneKey {
    fn find(&self, _: SocketAddr, name: &str) -> Option<Key> {
        (name == "acme/key").then(|| Key {
            name: name.into(),
            secret: Secret::new("text"),
            rights: vec![Right::Listen],
            entity: None,
        })
    }

    fn are_in(&self, tenant: &str) -> bool {
        tenant == "acme"
    }

    fn ban(
        &self,
        user: Option<&str>,
        tenant: &str,
        container_id: &str,
        address: IpAddr,
    ) -> Option<String> {
        assert!(["acme", "new"].contains(&tenant), "{tenant}");
        let banned = self.banned.lock().unwrap();
        let names = [user.unwrap_or("none"), container_id, &address.to_string()];
        let is_banned = !banned.is_empty() && names.contains(&&**banned);
        is_banned.then(|| "the client is banned".into())
    }
}

#[derive(Debug)]
struct Thread;

impl Owner for Thread {
    fn drain(&self, _: ConnectionId) {}

    fn close(&self, _: ConnectionId, _: ReasonCode, _: Farewell) {}
}

impl World {
    fn new(limits: Limits) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(keys::NAMES.len()));
        let limits = Arc::new(limits);
        let settings_of = move |_: &str| TenantSettings {
            limits: Arc::clone(&limits),
            ..TenantSettings::default()
        };
        let settings =
            EngineSettings { max_tenants: 10, settings_of: Arc::new(settings_of), sys_interval: 0 };
        let storage = Storage::local(&[store]);
        let engine = Engine::new(settings, (1, 0), storage, clock::tests::stopped(), COUNTING);
        let read = |shard| {
            let mut contents = crate::recovery::read(&engine, &shard).unwrap();
            contents.announce(&engine);
            contents
        };
        let contents: Vec<_> = engine.shards.iter().map(read).collect();
        crate::opening::recover(&engine, contents);
        let declared = serde_json::json!({
            "queues": [{ "Name": "orders" }, { "Name": "secret" }],
            "topics": [{ "Name": "alarms", "Subscriptions": [{ "Name": "all" }] }],
        });
        let definitions = crate::entities::Definitions {
            queues: serde_json::from_value(declared["queues"].clone()).unwrap(),
            topics: serde_json::from_value(declared["topics"].clone()).unwrap(),
        };
        engine.declare([("acme".into(), definitions)]).unwrap();
        engine.shards.iter().for_each(|shard| shard.commit_now());
        let context = Context {
            worker: Worker { id: 0, now: engine.clock.now() },
            engine: Arc::new(engine),
            router: Router::new(COUNTING),
            departures: Departures::default(),
        };
        Self { context, scratch: Scratch::default(), keys: Arc::default() }
    }

    fn turn<T>(&mut self, act: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let (context, scratch) = (&mut self.context, &mut self.scratch);
        let budget = crate::budget::Budget::unbounded();
        act(&mut Turn { context, scratch, budget, writers: 1 })
    }

    fn connect(&self, id: u64) -> Client {
        let inbox = Arc::new(Inbox::new(ConnectionId(id), Arc::new(Thread)));
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let keys = Arc::clone(&self.keys) as Arc<dyn Keys>;
        Client { container: Container::new(here, here, keys, inbox), handle: 0 }
    }

    fn ban(&self, who: &str) {
        who.clone_into(&mut self.keys.banned.lock().unwrap());
    }

    fn denials(&self) -> Vec<Remembered> {
        let tenant = self.context.engine.tenants.get("acme").unwrap();
        tenant.denials.recent(&Wanted::default())
    }

    fn connections(&self) -> usize {
        self.context.engine.tenants.get("acme").unwrap().quotas.usage().connections()
    }
}

/// A client, with the broker's end of its connection.
struct Client {
    container: Container,
    handle: u32,
}

/// What the broker has said.
#[derive(Debug, PartialEq)]
enum Said {
    Outcome(u8),
    Opened,
    Begun,
    Attached(u32),
    /// The handle, and the condition of the error.
    Detached(u32, String),
    Closed(String),
    Other,
}

impl Client {
    fn say(&mut self, world: &mut World, bytes: &[u8]) -> Vec<Said> {
        world.turn(|turn| {
            self.container.begin_turn(turn);
            assert_eq!(self.container.receive(turn, bytes), bytes.len());
            self.container.pump(turn);
        });
        self.said()
    }

    fn said(&mut self) -> Vec<Said> {
        let bytes = std::mem::take(self.container.output());
        let mut rest = &bytes[..];
        let mut said = Vec::new();
        while !rest.is_empty() {
            if rest.starts_with(&AMQP_HEADER) || rest.starts_with(&SASL_HEADER) {
                rest = &rest[8..];
                continue;
            }
            let length = frame::length(rest).unwrap().unwrap();
            let condition = |error: Option<Error>| {
                error.map_or_else(String::new, |error| error.condition.into())
            };
            match frame::decode(&rest[..length]).unwrap().body {
                Body::Sasl(Sasl::Mechanisms(_)) => {}
                Body::Sasl(Sasl::Outcome { code }) => said.push(Said::Outcome(code)),
                Body::Amqp(Performative::Open(_), _) => said.push(Said::Opened),
                Body::Amqp(Performative::Begin(_), _) => said.push(Said::Begun),
                Body::Amqp(Performative::Attach(attach), _) => {
                    said.push(Said::Attached(attach.handle));
                }
                Body::Amqp(Performative::Detach(detach), _) => {
                    said.push(Said::Detached(detach.handle, condition(detach.error)));
                }
                Body::Amqp(Performative::Close(close), _) => {
                    said.push(Said::Closed(condition(close.error)));
                }
                _ => said.push(Said::Other),
            }
            rest = &rest[length..];
        }
        said
    }

    /// Sends a name and a password. Returns the login for the caller to decide on.
    fn log_in(&mut self, world: &mut World, user: &str, password: &str) -> Option<Login> {
        self.log_in_with(world, "PLAIN", &format!("\0{user}\0{password}"))
    }

    fn log_in_with(&mut self, world: &mut World, mechanism: &str, response: &str) -> Option<Login> {
        let mut bytes = SASL_HEADER.to_vec();
        let init = Sasl::Init {
            mechanism: mechanism.into(),
            initial_response: Some(response.into()),
            hostname: None,
        };
        frame::encode_sasl(&mut bytes, &init);
        let said = self.say(world, &bytes);
        let login = self.container.take_login();
        assert_eq!(login.is_some(), said.is_empty(), "{said:?}");
        login
    }

    fn decide(&mut self, world: &mut World, user: &str, decision: Decision) -> Vec<Said> {
        world.turn(|turn| self.container.decide(turn, Some(user), decision));
        self.said()
    }

    fn open(&mut self, world: &mut World, container_id: &str) -> Vec<Said> {
        let mut bytes = AMQP_HEADER.to_vec();
        let begin = Begin {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: 1_000,
            outgoing_window: 1_000,
            handle_max: 100,
            properties: Fields::new(),
        };
        for (channel, performative) in [
            (0, Performative::Open(Box::new(Open::new(container_id)))),
            (CHANNEL, Performative::Begin(Box::new(begin))),
        ] {
            frame::encode(&mut bytes, channel, &performative, &[]);
        }
        let said = self.say(world, &bytes);
        if self.container.is_open() && !self.container.is_closed() {
            world.turn(|turn| self.container.admit(turn));
        }
        said
    }

    /// Asks for a link, and returns the condition of the error with which it is refused; empty: it is attached.
    fn attach(&mut self, world: &mut World, role: Role, address: &str) -> String {
        let handle = self.handle;
        self.handle += 1;
        let (source, target) = match role {
            Role::Sender => ("client", address),
            Role::Receiver => (address, "client"),
        };
        let attach = Attach {
            name: format!("link-{handle}"),
            handle,
            role,
            sender_settles: SenderSettles::Unsettled,
            receiver_settles: ReceiverSettles::First,
            source: Some(Terminus::source(source)),
            target: Some(Terminus::target(target)),
            initial_delivery_count: Some(0),
            max_message_size: None,
            properties: Fields::new(),
        };
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, CHANNEL, &Performative::Attach(Box::new(attach)), &[]);
        let said = self.say(world, &bytes);
        match &said[..] {
            [Said::Attached(_), Said::Detached(_, condition)] => condition.clone(),
            [Said::Attached(_), ..] => String::new(),
            said => panic!("{said:?}"),
        }
    }

    fn send(&mut self, world: &mut World, address: &str) -> String {
        self.attach(world, Role::Sender, address)
    }

    fn receive(&mut self, world: &mut World, address: &str) -> String {
        self.attach(world, Role::Receiver, address)
    }
}

fn policy(rules: &str) -> Arc<Policy> {
    let rules = serde_json::from_str(&format!(r#"{{"rules":{rules}}}"#)).unwrap();
    Arc::new(Policy::new(&rules, Arc::new(TenantRules::default())))
}

fn granted(user: &str, rules: &str) -> Decision {
    Decision::Granted { user: user.into(), policy: policy(rules) }
}

/// Connects a user with these rules, and opens the connection.
fn user(world: &mut World, rules: &str) -> Client {
    let mut client = world.connect(1);
    assert!(client.log_in(world, "acme/ada", "secret").is_some());
    assert_eq!(client.decide(world, "acme/ada", granted("acme/ada", rules)), [Said::Outcome(0)]);
    assert_eq!(client.open(world, "box-1"), [Said::Opened, Said::Begun]);
    client
}

const NOT_ALLOWED: &str = "amqp:unauthorized-access";

#[test]
fn a_key_is_looked_up_before_a_user() {
    let mut world = World::new(Limits::default());
    let mut client = world.connect(1);
    assert!(client.log_in(&mut world, "acme/key", "text").is_none());
    assert!(client.container.tenant_name() == Some("acme") && client.container.user().is_none());
    let mut client = world.connect(2);
    assert!(client.log_in(&mut world, "acme/key", "wrong").is_none(), "a user has no such name");
    assert!(client.container.is_closed());
    let [denial] = &world.denials()[..] else { panic!() };
    assert_eq!((denial.action, denial.user.as_deref()), (Action::Login, Some("acme/key")));
    let mut client = world.connect(3);
    let login = client.log_in(&mut world, "acme/ada", "secret").unwrap();
    assert_eq!(login.user.as_deref(), Some("acme/ada"));
    assert_eq!(login.password.as_deref(), Some(&b"secret"[..]));
    assert!(!format!("{login:?}").contains("secret"));
}

#[test]
fn a_certificate_may_say_who_the_client_is() {
    let mut world = World::new(Limits::default());
    for (name, user) in [("", None), ("acme/ada", Some("acme/ada"))] {
        let mut client = world.connect(1);
        let login = client.log_in_with(&mut world, "EXTERNAL", name).unwrap();
        assert_eq!((login.user.as_deref(), login.password), (user, None));
        let decided = world.turn(|turn| {
            client.container.decide(turn, user, granted("acme/ada", "[]"));
            client.said()
        });
        assert_eq!(decided, [Said::Outcome(0)]);
        assert_eq!(client.container.user(), Some("acme/ada"));
    }
    let mut client = world.connect(2);
    client.log_in_with(&mut world, "EXTERNAL", "").unwrap();
    world.turn(|turn| client.container.decide(turn, None, Decision::Anonymous));
    assert_eq!(client.said(), [Said::Outcome(0)]);
    assert!(client.container.user().is_none() && client.container.tenant_name().is_none());
}

#[test]
fn a_decision_may_take_its_time() {
    let mut world = World::new(Limits::default());
    let mut client = world.connect(1);
    client.log_in(&mut world, "acme/ada", "secret").unwrap();
    world.turn(|turn| {
        client.container.attend(turn);
        assert_eq!(client.container.receive(turn, &AMQP_HEADER), 0);
    });
    assert_eq!(client.said(), []);
    assert!(client.container.tenant_name().is_none() && client.container.take_login().is_none());
    assert_eq!(
        client.decide(&mut world, "acme/ada", granted("acme/ada", "[]")),
        [Said::Outcome(0)]
    );
    assert_eq!(client.container.tenant_name(), Some("acme"));
    assert_eq!(client.container.user(), Some("acme/ada"));
}

#[test]
fn who_is_not_let_in_is_told_whether_to_try_again() {
    for (decision, code, reason) in [
        (Decision::Denied("wrong".into()), 1, "wrong"),
        (Decision::Undecided("slow".into()), 4, "slow"),
    ] {
        let mut world = World::new(Limits::default());
        let mut client = world.connect(1);
        client.log_in(&mut world, "acme/ada", "secret").unwrap();
        assert_eq!(client.decide(&mut world, "acme/ada", decision), [Said::Outcome(code)]);
        assert!(client.container.is_closed() && client.container.tenant_name().is_none());
        let denials = world.denials();
        let [denial] = &denials[..] else { panic!("{denials:?}") };
        assert_eq!((denial.user.as_deref(), &*denial.reason), (Some("acme/ada"), reason));
        let tenant = world.context.engine.tenants.get("acme").unwrap();
        assert_eq!(tenant.totals().refused_connects, 1);
    }
}

#[test]
fn what_is_sent_behind_a_login_counts() {
    let limits = Limits { inbound_bytes_rate: 1_000, ..Limits::default() };
    let mut world = World::new(limits);
    // The clock of the test begins at zero, with empty buckets.
    world.context.worker.now = world.context.worker.now.after(Duration::from_secs(1));
    let try_in = |world: &mut World| {
        let mut client = world.connect(1);
        client.log_in(world, "acme/ada", "secret").unwrap();
        let said = client.decide(world, "acme/ada", granted("acme/ada", "[]"));
        (client, said)
    };
    let debt = |world: &World| {
        let tenant = world.context.engine.tenants.get("acme").unwrap();
        tenant.quotas.usage().bucket(Flow::Inbound).debt(world.context.worker.now).as_millis()
    };
    let (mut client, said) = try_in(&mut world);
    assert_eq!(said, [Said::Outcome(0)]);
    let empty_frame = [0, 0, 0, 8, 2, 0, 0, 0];
    let mut bytes = AMQP_HEADER.to_vec();
    let open = Performative::Open(Box::new(Open::new("box-1")));
    frame::encode(&mut bytes, 0, &open, &[]);
    bytes.extend(empty_frame.repeat(500));
    assert_eq!(client.say(&mut world, &bytes), [Said::Opened]);
    assert_eq!(debt(&world), bytes.len() as u128 - 1_000);
    client.say(&mut world, &empty_frame);
    assert_eq!(debt(&world), bytes.len() as u128 - 1_000, "later bytes count when they are read");
    assert_eq!(client.container.may_read(10), 0);
    let (_, said) = try_in(&mut world);
    assert_eq!(said, [Said::Outcome(4)], "refused while the tenant owes more than a second");
    let tenant = world.context.engine.tenants.get("acme").unwrap();
    assert_eq!(tenant.counted().refused[Quota::InboundBytesRate], 1);
    world.context.worker.now = world.context.worker.now.after(Duration::from_millis(2_100));
    assert_eq!(try_in(&mut world).1, [Said::Outcome(0)]);
}

#[test]
fn quotas_of_connections_are_for_users_as_well() {
    let limits = Limits { max_connections: 2, max_user_connections: 1, ..Limits::default() };
    let mut world = World::new(limits);
    let try_in = |world: &mut World, user: &str| {
        let mut client = world.connect(1);
        client.log_in(world, user, "secret").unwrap();
        let said = client.decide(world, user, granted(user, "[]"));
        (client, said)
    };
    let (ada, said) = try_in(&mut world, "acme/ada");
    assert_eq!(said, [Said::Outcome(0)]);
    assert_eq!(try_in(&mut world, "acme/ada").1, [Said::Outcome(4)]);
    let (bob, said) = try_in(&mut world, "acme/bob");
    assert_eq!((said, world.connections()), (vec![Said::Outcome(0)], 2));
    assert_eq!(try_in(&mut world, "acme/eve").1, [Said::Outcome(4)]);
    drop((ada, bob));
    assert_eq!(world.connections(), 0);
    assert_eq!(try_in(&mut world, "acme/eve").1, [Said::Outcome(0)]);
}

#[test]
fn a_user_has_limits_of_its_own_which_change() {
    let mut world = World::new(Limits { max_user_connections: 1, ..Limits::default() });
    world.context.worker.now = world.context.worker.now.after(Duration::from_secs(1));
    let limited = |limits: &str| {
        let rights = serde_json::from_str(&format!(r#"{{"limits":{limits}}}"#)).unwrap();
        Arc::new(Policy::new(&rights, Arc::default()))
    };
    let try_in = |world: &mut World, user: &str, limits: &str| {
        let mut client = world.connect(1);
        client.log_in(world, user, "secret").unwrap();
        let decision = Decision::Granted { user: user.into(), policy: limited(limits) };
        let said = client.decide(world, user, decision);
        (client, said)
    };
    let own = r#"{"max_connections":2,"inbound_bytes_rate":1000}"#;
    let (mut ada, said) = try_in(&mut world, "acme/ada", own);
    assert_eq!(said, [Said::Outcome(0)]);
    let (_second, said) = try_in(&mut world, "acme/ada", own);
    assert_eq!(said, [Said::Outcome(0)], "two instead of one");
    assert_eq!(try_in(&mut world, "acme/ada", own).1, [Said::Outcome(4)]);
    let (mut bob, said) = try_in(&mut world, "acme/bob", "{}");
    assert_eq!(said, [Said::Outcome(0)]);
    assert_eq!(try_in(&mut world, "acme/bob", "{}").1, [Said::Outcome(4)]);
    for client in [&mut ada, &mut bob] {
        client.open(&mut world, "box-1");
        client.container.has_read(5_000);
    }
    let may_read = |world: &mut World, client: &mut Client| {
        world.turn(|turn| client.container.begin_turn(turn));
        client.container.may_read(10)
    };
    assert_eq!((may_read(&mut world, &mut ada), may_read(&mut world, &mut bob)), (0, 10));
    assert!(ada.container.is_held_back());
    world.context.worker.now = world.context.worker.now.after(Duration::from_millis(2_500));
    world.turn(|turn| ada.container.change_policy(turn, limited("{}")));
    assert!(!ada.container.is_held_back(), "at once, without a turn");
    let tenant = world.context.engine.tenants.get("acme").unwrap();
    let waited = tenant.counted().throttled_ms[Quota::UserInboundBytesRate as usize];
    assert_eq!(waited, 2_500, "of the four seconds that it would have waited");
    assert_eq!(may_read(&mut world, &mut ada), 10);
    world.turn(|turn| bob.container.change_policy(turn, limited(own)));
    bob.container.has_read(5_000);
    assert_eq!(may_read(&mut world, &mut bob), 0);
}

#[test]
fn a_client_without_room_for_its_tenant_is_counted() {
    let mut world = World::new(Limits::default());
    world.context.tenant("default").unwrap();
    for tenant in 0..10 {
        world.context.tenant(&format!("t{tenant}"));
    }
    let mut client = world.connect(1);
    client.log_in(&mut world, "new/ada", "secret").unwrap();
    let said = client.decide(&mut world, "new/ada", granted("new/ada", "[]"));
    assert_eq!(said, [Said::Outcome(4)]);
    let tenant = world.context.engine.tenants.get("default").unwrap();
    assert_eq!(tenant.counted().refused[Quota::MaxTenants], 1);
}

#[test]
fn rules_decide_about_entities_with_all_that_belongs_to_them() {
    let mut world = World::new(Limits::default());
    let rules = r##"[{"deny":"all","entities":["secret"]},
        {"allow":["send","receive"],"entities":["orders"]},
        {"allow":"receive","entities":["alarms/subscriptions/+"]},
        {"allow":"manage","entities":["of/%c"]}]"##;
    let mut ada = user(&mut world, rules);
    for allowed in ["orders", "Orders", "amqps://host/orders"] {
        assert_eq!(ada.send(&mut world, allowed), "", "{allowed}");
    }
    for allowed in [
        "orders",
        "orders/$DeadLetterQueue",
        "orders/$Transfer/$DeadLetterQueue",
        "orders/$management",
        "orders/$DeadLetterQueue/$management",
        "alarms/Subscriptions/all",
        "alarms/Subscriptions/all/$management",
        "alarms/Subscriptions/all/$DeadLetterQueue",
    ] {
        assert_eq!(ada.receive(&mut world, allowed), "", "{allowed}");
    }
    let said = world.denials();
    assert_eq!(said, []);
    for denied in ["secret", "alarms", "nowhere", "orders/x", "", "of/box-1"] {
        assert_eq!(ada.send(&mut world, denied), NOT_ALLOWED, "{denied}");
    }
    for denied in ["secret", "secret/$management", "secret/$DeadLetterQueue", "alarms/$management"]
    {
        assert_eq!(ada.receive(&mut world, denied), NOT_ALLOWED, "{denied}");
    }
    let denials = world.denials();
    assert!(denials.iter().all(|denial| denial.user.as_deref() == Some("acme/ada")));
    assert!(denials.iter().all(|denial| denial.client == "box-1"));
    let of = |action| denials.iter().filter(|denial| denial.action == action).count();
    assert_eq!((of(Action::Send), of(Action::Receive), of(Action::Manage)), (6, 2, 2));
    // A rule with the container id is for an entity that does not exist, which is told to those who may manage it.
    assert_eq!(ada.receive(&mut world, "of/box-1/$management"), "amqp:not-found");
    assert_eq!(ada.receive(&mut world, "of/box-2/$management"), NOT_ALLOWED);
}

#[test]
fn without_rules_everything_is_allowed_and_entities_of_other_tenants_do_not_exist() {
    let mut world = World::new(Limits::default());
    let mut client = world.connect(1);
    client.log_in(&mut world, "acme/ada", "secret").unwrap();
    let policy = Arc::new(Policy::new(&Default::default(), Arc::default()));
    let decision = Decision::Granted { user: "acme/ada".into(), policy };
    assert_eq!(client.decide(&mut world, "acme/ada", decision), [Said::Outcome(0)]);
    client.open(&mut world, "c");
    assert_eq!(client.send(&mut world, "secret"), "");
    assert_eq!(client.send(&mut world, "default/orders"), "amqp:not-found");
}

#[test]
fn rights_that_change_apply_to_links_at_once() {
    let mut world = World::new(Limits::default());
    let mut ada = user(&mut world, r##"[{"allow":"all","entities":["#"]}]"##);
    for address in ["orders", "secret", "alarms"] {
        assert_eq!(ada.send(&mut world, address), "");
    }
    for address in ["orders", "secret", "secret/$management", "alarms/subscriptions/all", "$cbs"] {
        assert_eq!(ada.receive(&mut world, address), "");
    }
    let change = |world: &mut World, ada: &mut Client, rules: &str| {
        world.turn(|turn| ada.container.change_policy(turn, policy(rules)));
        ada.said()
    };
    let detached = |handles: &[u32]| {
        let detached = handles.iter().map(|handle| Said::Detached(*handle, NOT_ALLOWED.into()));
        detached.collect::<Vec<_>>()
    };
    assert_eq!(change(&mut world, &mut ada, r##"[{"allow":"all"}]"##), []);
    let rules = r##"[{"deny":"all","entities":["secret"]},{"deny":"send","entities":["orders"]},{"allow":"all"}]"##;
    assert_eq!(change(&mut world, &mut ada, rules), detached(&[0, 1, 4, 5]));
    assert_eq!(world.denials().len(), 4);
    assert_eq!(ada.send(&mut world, "orders"), NOT_ALLOWED);
    assert_eq!(
        change(&mut world, &mut ada, r#"[{"deny":"all"}]"#),
        detached(&[2, 3, 6]),
        "$cbs is for everybody"
    );
    assert_eq!(change(&mut world, &mut ada, r##"[{"allow":"all"}]"##), []);
    assert_eq!(ada.send(&mut world, "orders"), "");
}

#[test]
fn banned_clients_are_kept_out() {
    for (banned, code) in [("acme/ada", 1), ("127.0.0.1", 1), ("acme/bob", 0)] {
        let mut world = World::new(Limits::default());
        world.ban(banned);
        let mut client = world.connect(1);
        client.log_in(&mut world, "acme/ada", "secret").unwrap();
        let said = client.decide(&mut world, "acme/ada", granted("acme/ada", "[]"));
        assert_eq!(said, [Said::Outcome(code)], "{banned}");
        assert_eq!(world.connections(), usize::from(code == 0));
    }
    // A ban of an address is for keys, too. A container id is known when the connection opens.
    let mut world = World::new(Limits::default());
    world.ban("127.0.0.1");
    let mut client = world.connect(1);
    assert!(client.log_in(&mut world, "acme/key", "text").is_none());
    assert!(client.container.is_closed());
    world.ban("box-1");
    let mut client = world.connect(2);
    assert!(client.log_in(&mut world, "acme/key", "text").is_none());
    assert_eq!(
        client.open(&mut world, "box-1"),
        [Said::Opened, Said::Begun, Said::Closed("amqp:connection:forced".into())]
    );
    assert!(client.container.is_closed());
    assert_eq!(world.denials()[0].reason, "the client is banned");
    let mut client = world.connect(3);
    client.log_in(&mut world, "acme/key", "text");
    assert_eq!(client.open(&mut world, "box-2"), [Said::Opened, Said::Begun]);
}

#[test]
fn a_user_is_listed_without_a_key() {
    let mut world = World::new(Limits::default());
    let _ada = user(&mut world, "[]");
    let tenant = world.context.engine.tenants.get("acme").unwrap();
    let [listed] = &tenant.amqp_clients.page(0, 10)[..] else { panic!() };
    assert_eq!((listed.user.as_deref(), listed.key.as_deref()), (Some("acme/ada"), None));
    assert_eq!(listed.container, "box-1");
}
