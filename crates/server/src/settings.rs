//! What an operator can choose: plain data, as read from the configuration file.
//!
//! Settings are values, never components: whatever is opened or started from them lives elsewhere.
//! Every bound that protects the broker from its clients has its name here.

mod entities;
mod keys;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use entities::{Queue, Rule, Subscription, Topic};
pub use keys::{Key, Right, Secret};

use serde::Deserialize;

use barid_engine::access::Rules;
use barid_engine::bindings::Binding;
use barid_engine::durability::{Durability, DurabilityRule};
use barid_engine::key_rules::KeyRule;
use barid_engine::limits::{Limits, OwnLimits, ShareStrategy};

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where durable data lives.
    pub data_dir: PathBuf,
    /// How durable data is kept.
    pub storage: Storage,
    /// Topics and keys with a durability class of their own; the first that matches counts.
    pub durability: Vec<DurabilityRule>,
    /// IO threads; 0: one for each core.
    pub workers: usize,
    /// What is logged.
    pub log: Log,
    /// Where clients connect.
    pub listeners: Listeners,
    /// Certificates of the TLS listeners.
    pub tls: Option<Tls>,
    /// The HTTP address for operators.
    pub admin: Admin,
    /// `$SYS` topics.
    pub sys: Sys,
    /// The most tenants that clients may bring into being.
    pub max_tenants: usize,
    /// Bytes that all connections without a session may have sent together, besides the first 4 KiB of each.
    pub max_connecting_bytes: usize,
    /// Limits of every tenant that has none of its own.
    pub limits: Limits,
    /// Tenants with settings of their own, by name.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// How a shared subscription chooses the member that gets a message.
    pub shared_subscriptions: SharedSubscriptions,
    /// Who may connect. Empty: anybody, with any password.
    pub users: Vec<User>,
    /// What AMQP clients sign with. Empty: [`Settings::keys_or_emulator`].
    pub keys: Vec<Key>,
    /// Queues of AMQP.
    pub queues: Vec<Queue>,
    /// Topics of AMQP.
    pub topics: Vec<Topic>,
    /// A file with more of both, for the tenant `default`, in the form of the emulator's `Config.json`.
    /// Whoever reads the configuration adds them to `queues` and `topics`.
    pub entities: Option<PathBuf>,
    /// What joins MQTT clients and entities.
    pub bindings: Vec<Binding>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: "barid-data".into(),
            storage: Storage::default(),
            durability: Vec::new(),
            workers: 0,
            log: Log::default(),
            listeners: Listeners::default(),
            tls: None,
            admin: Admin::default(),
            sys: Sys::default(),
            max_tenants: 10_000,
            max_connecting_bytes: 64 * 1024 * 1024,
            limits: Limits::default(),
            tenants: BTreeMap::new(),
            shared_subscriptions: SharedSubscriptions::default(),
            users: Vec::new(),
            keys: Vec::new(),
            queues: Vec::new(),
            topics: Vec::new(),
            entities: None,
            bindings: Vec::new(),
        }
    }
}

impl Settings {
    /// The durability classes of a tenant.
    pub fn durability_of(&self, tenant: &str) -> Durability {
        Durability::new(tenant, self.limits_of(tenant).durability, &self.durability)
    }

    /// The limits of a tenant: its own, over the common ones.
    pub fn limits_of(&self, tenant: &str) -> Limits {
        self.tenants
            .get(tenant)
            .map_or_else(|| self.limits.clone(), |own| own.limits.over(&self.limits))
    }
}

/// What is logged.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,barid_server=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into() }
    }
}

/// Where clients connect. The TLS ones need [`Settings::tls`].
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Listeners {
    /// MQTT over TCP.
    pub mqtt: Option<Listener>,
    /// MQTT over TLS.
    pub mqtts: Option<Listener>,
    /// MQTT over WebSocket.
    pub ws: Option<Listener>,
    /// MQTT over secure WebSocket.
    pub wss: Option<Listener>,
    /// AMQP 1.0 over TCP.
    pub amqp: Option<Listener>,
    /// AMQP 1.0 over TLS.
    pub amqps: Option<Listener>,
}

impl Default for Listeners {
    fn default() -> Self {
        let loopback = |port| Some(Listener::at(SocketAddr::from(([127, 0, 0, 1], port))));
        Self {
            mqtt: loopback(1883),
            mqtts: None,
            ws: loopback(8083),
            wss: None,
            amqp: loopback(5672),
            amqps: None,
        }
    }
}

impl Listeners {
    /// None at all.
    pub fn none() -> Self {
        Self { mqtt: None, mqtts: None, ws: None, wss: None, amqp: None, amqps: None }
    }
}

/// One listener.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether each connection begins with a PROXY protocol header (v1 or v2) that tells the
    /// client's real address. Connections without one are then refused.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// The path of a WebSocket listener; others answer 404.
    #[serde(default = "default_path")]
    pub path: String,
    /// Origins whose pages may open a WebSocket besides pages of the listener's own origin, such as
    /// `https://app.example`; `*`: all. Clients that are not browsers have no origin.
    #[serde(default)]
    pub origins: Vec<String>,
}

fn default_path() -> String {
    "/mqtt".into()
}

impl Listener {
    /// A listener with defaults for all but its address.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, proxy_protocol: false, path: default_path(), origins: Vec::new() }
    }
}

/// Certificates of the TLS listeners.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate chain.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the authorities whose client certificates are accepted.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is refused. Needs `client_ca`.
    #[serde(default)]
    pub require_client_certificate: bool,
}

/// The HTTP address for operators.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// The address to listen on.
    pub address: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 8081)) }
    }
}

/// `$SYS` topics.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Sys {
    /// Seconds between two publications of `$SYS/broker/…`; 0: never.
    pub interval: u32,
}

impl Default for Sys {
    fn default() -> Self {
        Self { interval: 10 }
    }
}

/// A tenant with settings of its own.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSettings {
    /// Its limits; what is not named is as in `[limits]`.
    pub limits: OwnLimits,
}

/// Where and how the durable plane keeps its data.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// How many shards a new data directory gets; 0: one for each core, at most 8. A directory keeps the
    /// number that it was made with.
    pub shards: usize,
    /// The engine that a new data directory gets. A directory keeps the one that it was made with.
    pub engine: StorageEngine,
    /// Bytes of stored messages that are kept in memory while they wait; beyond, they are read back from
    /// the disk when their client takes them.
    pub queue_memory: usize,
    /// Bytes that the storage engine keeps in memory of what it has read.
    pub cache: usize,
    /// Bytes that must stay free on the disk. Below, durable publishes are refused with 0x97.
    pub min_free: u64,
}

/// What keeps the records of a data directory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum StorageEngine {
    /// An ordered log with its keys in memory.
    Log,
    /// A log-structured merge tree: slower, for more keys than memory is for.
    Lsm,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            shards: 0,
            engine: StorageEngine::Log,
            queue_memory: 256 * 1024 * 1024,
            cache: 64 * 1024 * 1024,
            min_free: 256 * 1024 * 1024,
        }
    }
}

/// How shared subscriptions behave.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct SharedSubscriptions {
    /// How the member is chosen that gets a message.
    pub strategy: ShareStrategy,
}

/// A user: who may connect, and what they may do.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The user name, `{tenant}/{client}` or, for the tenant `default`, without a slash.
    pub name: String,
    /// The argon2id hash of the password, as `barid passwd` prints it.
    pub password: String,
    /// Topic filters that the user may publish to; `%c` is the client identifier, `%u` the user name.
    #[serde(default = "everything")]
    pub publish: Vec<String>,
    /// Topic filters that the user may subscribe to, with the same substitutions.
    #[serde(default = "everything")]
    pub subscribe: Vec<String>,
    /// What the user may do with keys of the state store; none: everything.
    pub state: Option<Vec<KeyRule>>,
}

impl User {
    /// What the user may do.
    pub fn rules(&self) -> Rules<'_> {
        let Self { publish, subscribe, state, .. } = self;
        Rules { publish, subscribe, state: state.as_deref() }
    }
}

fn everything() -> Vec<String> {
    vec!["#".into()]
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}
