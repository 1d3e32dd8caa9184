//! Settings that an operator can choose: plain data, as read from the configuration file.
//!
//! Settings are values, not components: nothing is opened or started here. Every limit that protects the
//! broker from its clients has its name here.

mod cluster;
mod entities;
mod keys;
mod telemetry;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use barid_peers::{
    HOMES_MAX, NAME_MAX as NAME_OF_BROKER_MAX, SLOTS_MAX, is_name as is_cluster_name,
};
pub use cluster::{ClusterSettings, ClusterTls, WithoutQuorum};
pub use entities::{Queue, Rule as SubscriptionRule, Subscription, Topic};
pub use keys::{Key, Right, Secret};
pub use telemetry::TelemetrySettings;

use barid_auth::mysql::MysqlSettings;
use barid_auth::redis::RedisSettings;
use barid_auth::{CertificateSettings, HttpSettings, JwtSettings};
use serde::Deserialize;

use barid_engine::bindings::Binding;
use barid_engine::durability::{Durability, DurabilityRule};
use barid_engine::key_rules::KeyRule;
use barid_engine::limits::{Limits, OwnLimits, ShareStrategy};
use barid_engine::rights::{Rights, Rule};
use barid_engine::user_limits::UserLimits;

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Path of the data directory.
    pub data_dir: PathBuf,
    /// Settings of the data directory's storage.
    pub storage: Storage,
    /// Rules that give topics and keys a durability class of their own. The first rule that matches applies.
    pub durability: Vec<DurabilityRule>,
    /// Number of IO threads; 0: one for each core.
    pub workers: usize,
    /// Settings of the log.
    pub log: Log,
    /// Addresses on which clients connect.
    pub listeners: Listeners,
    /// Certificates of the TLS listeners.
    pub tls: Option<Tls>,
    /// The HTTP address for operators.
    pub admin: Admin,
    /// The HTTP address for administration clients of Service Bus; `None`: there is none.
    pub management: Option<Management>,
    /// `$SYS` topics.
    pub sys: Sys,
    /// OpenTelemetry; `None`: nothing is sent.
    pub telemetry: Option<TelemetrySettings>,
    /// Maximum number of tenants that clients can create.
    pub max_tenants: usize,
    /// Maximum number of bytes that all connections without a session may have sent together, not counting
    /// the first 4 KiB of each.
    pub max_connecting_bytes: usize,
    /// Limits of tenants, as far as a tenant has none of its own.
    pub limits: Limits,
    /// Tenants with settings of their own, by name.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// Settings of shared subscriptions.
    pub shared_subscriptions: SharedSubscriptions,
    /// How logins are decided.
    pub auth: Auth,
    /// Whether clients are refused whose user name has no tenant, `{tenant}/{client}`.
    pub strict_user_names: bool,
    /// Users that may connect.
    pub users: Vec<User>,
    /// Keys with which AMQP clients sign. Empty: see [`Settings::keys_or_emulator`].
    pub keys: Vec<Key>,
    /// AMQP queues.
    pub queues: Vec<Queue>,
    /// AMQP topics.
    pub topics: Vec<Topic>,
    /// Path of a file with more queues and topics, for the tenant `default`, in the format of the emulator's
    /// `Config.json`. The code that reads the configuration adds them to `queues` and `topics`.
    pub entities: Option<PathBuf>,
    /// Bindings between MQTT topics and entities.
    pub bindings: Vec<Binding>,
    /// The other brokers with which this one forms a cluster.
    pub cluster: Option<ClusterSettings>,
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
            management: None,
            sys: Sys::default(),
            telemetry: None,
            max_tenants: 10_000,
            max_connecting_bytes: 64 * 1024 * 1024,
            limits: Limits::default(),
            tenants: BTreeMap::new(),
            shared_subscriptions: SharedSubscriptions::default(),
            auth: Auth::default(),
            strict_user_names: false,
            users: Vec::new(),
            keys: Vec::new(),
            queues: Vec::new(),
            topics: Vec::new(),
            entities: None,
            bindings: Vec::new(),
            cluster: None,
        }
    }
}

impl Settings {
    /// Returns the names of all back ends of logins.
    pub fn back_ends(&self) -> impl Iterator<Item = &str> {
        let file = (!self.users.is_empty()).then_some("file");
        file.into_iter().chain(["store"]).chain(self.auth.remote_names())
    }

    /// Whether there is a back end of logins with this name.
    pub fn has_back_end(&self, name: &str) -> bool {
        self.back_ends().any(|known| known == name)
    }

    /// Returns the durability classes of a tenant with these limits.
    pub fn durability_of(&self, tenant: &str, limits: &Limits) -> Durability {
        Durability::new(tenant, limits.durability, &self.durability)
    }

    /// Returns the limits of a tenant: its own, and the common ones for those that it does not set.
    pub fn limits_of(&self, tenant: &str) -> Limits {
        self.limits_under(tenant, OwnLimits::default())
    }

    /// Returns the limits of a tenant that has `set` some of them while the broker runs. Those come first.
    pub fn limits_under(&self, tenant: &str, set: OwnLimits) -> Limits {
        let own = self.tenants.get(tenant).map(|own| own.limits.clone());
        set.or(own.unwrap_or_default()).over(&self.limits)
    }
}

/// Settings of the log.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Log level: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,barid_server=debug`.
    pub level: String,
    /// How a line is written.
    pub format: LogFormat,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text, for people.
    #[default]
    Text,
    /// A JSON object, for programs.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

/// Addresses on which clients connect. The TLS listeners need [`Settings::tls`].
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
    /// No listeners.
    pub fn none() -> Self {
        Self { mqtt: None, mqtts: None, ws: None, wss: None, amqp: None, amqps: None }
    }
}

/// Settings of one listener.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Address to listen on; with port 0, the operating system chooses a free port.
    pub address: SocketAddr,
    /// Whether each connection begins with a PROXY protocol header (v1 or v2), which carries the client's
    /// real address. Connections without a header are then refused.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Path of MQTT on a WebSocket listener. The path of AMQP is fixed. Requests for other paths are answered
    /// with 404.
    #[serde(default = "default_path")]
    pub path: String,
    /// Origins whose pages may open a WebSocket, besides the listener's own origin, such as
    /// `https://app.example`; `*`: all origins. Clients other than browsers send no origin.
    #[serde(default)]
    pub origins: Vec<String>,
}

fn default_path() -> String {
    "/mqtt".into()
}

impl Listener {
    /// Creates a listener with default settings, except for its address.
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
    /// PEM file with the certificate authorities whose client certificates are accepted.
    pub client_ca: Option<PathBuf>,
    /// PEM files with certificate revocation lists of these authorities. If there is any, a client certificate
    /// is refused if its authority has no list here, or if the list has expired.
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    /// Whether a client without a certificate is refused. Needs `client_ca`.
    #[serde(default)]
    pub require_client_certificate: bool,
}

/// The HTTP address for operators.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Whether requests need a token as soon as there is one.
    pub tokens: bool,
    /// Address of the API over TLS, also for other machines. Each request there needs a token.
    pub https: Option<SocketAddr>,
    /// Maximum number of requests of one token in a second; 0: no limit.
    pub max_request_rate: u32,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8081)),
            tokens: true,
            https: None,
            max_request_rate: 200,
        }
    }
}

/// The HTTP address for administration clients of Service Bus. Each request is signed with one of the `keys`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Management {
    /// Address to listen on. With certificates it accepts TLS too, and outside of this machine nothing else.
    pub address: SocketAddr,
}

/// `$SYS` topics.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Sys {
    /// Interval between two publications of `$SYS/broker/…`, in seconds; 0: they are never published.
    pub interval: u32,
}

impl Default for Sys {
    fn default() -> Self {
        Self { interval: 10 }
    }
}

/// Settings of one tenant.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSettings {
    /// Limits of the tenant. Those that are not set are as in `[limits]`.
    pub limits: OwnLimits,
    /// Rules for all users of the tenant, which follow those of each user.
    pub rules: Vec<Rule>,
    /// Names of the back ends that are asked for the users of the tenant, in order; `None`: as in `[auth]`.
    pub auth: Option<Vec<String>>,
}

/// How logins are decided.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Names of the back ends that are asked, in order: `file`, `store`, and those below. `None`: both, unless there never was a
    /// user in either; then any client may connect. An empty list: any client may connect.
    pub chain: Option<Vec<String>>,
    /// Number of threads that verify password hashes; 0: half as many as cores, at least one. The share of the cores that a
    /// flood of logins can use is at most this number of cores.
    pub hash_threads: usize,
    /// Maximum number of accepted logins that are remembered, so that a client that comes back with the same
    /// password is let in without the cost of the hash. 0: none.
    pub remembered: u64,
    /// Time for which a login is remembered, in seconds.
    pub fresh: u32,
    /// Time beyond `fresh` for which a login is remembered while a back end cannot be asked, in seconds.
    pub grace: u32,
    /// Back ends in MySQL or MariaDB, by name.
    pub mysql: BTreeMap<String, MysqlSettings>,
    /// Caches in Redis, by the name of the back end in MySQL that each is in front of.
    pub redis: BTreeMap<String, RedisSettings>,
    /// Back ends that accept client certificates, by name.
    pub certificate: BTreeMap<String, CertificateSettings>,
    /// Back ends that accept JSON Web Tokens, by name.
    pub jwt: BTreeMap<String, JwtSettings>,
    /// Back ends that ask a service over HTTP, by name.
    pub http: BTreeMap<String, HttpSettings>,
}

impl Auth {
    /// Names of the back ends in MySQL, of certificates, of tokens and of services, in no order. Two may be the same.
    pub fn remote_names(&self) -> impl Iterator<Item = &str> {
        let names = self
            .mysql
            .keys()
            .chain(self.certificate.keys())
            .chain(self.jwt.keys())
            .chain(self.http.keys());
        names.map(String::as_str)
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            chain: None,
            hash_threads: 0,
            remembered: 100_000,
            fresh: 600,
            grace: 3_600,
            mysql: BTreeMap::new(),
            redis: BTreeMap::new(),
            certificate: BTreeMap::new(),
            jwt: BTreeMap::new(),
            http: BTreeMap::new(),
        }
    }
}

/// Settings of the data directory's storage.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// Number of shards of a new data directory; 0: one for each core, at most 8. An existing directory keeps
    /// the number that it was created with.
    pub shards: usize,
    /// Storage engine of a new data directory. An existing directory keeps the one that it was created with.
    pub engine: StorageEngine,
    /// Maximum size of the stored messages that are kept in memory while they wait, in bytes. Beyond it,
    /// messages are read back from the disk when their client takes them.
    pub queue_memory: usize,
    /// Size of the storage engine's read cache, in bytes.
    pub cache: usize,
    /// Bytes that must stay free on the disk. Below that, durable publishes are refused with 0x97 (Quota
    /// exceeded).
    pub min_free: u64,
}

/// The storage engine of a data directory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum StorageEngine {
    /// An ordered log with its keys in memory.
    Log,
    /// A log-structured merge tree: slower than the log, for more keys than fit in memory.
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

/// Settings of shared subscriptions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct SharedSubscriptions {
    /// Strategy that chooses the member that gets a message.
    pub strategy: ShareStrategy,
}

/// A user who may connect, and the permissions of the user.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// User name: `{tenant}/{client}`, or a name without a slash for the tenant `default`.
    pub name: String,
    /// Hash of the password, in one of the formats of `barid_auth::password`.
    pub password: String,
    /// Rules, in order, which come before those in the short forms.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Short form: topic filters that the user may publish to, and no others; `%c` stands for the client
    /// identifier, `%u` for the user name.
    pub publish: Option<Vec<String>>,
    /// Short form: topic filters that the user may subscribe to, and no others, with the same substitutions.
    pub subscribe: Option<Vec<String>>,
    /// Short form: keys of the state store that the user may use, and no others.
    pub state: Option<Vec<KeyRule>>,
    /// Limits of this user, instead of those for every user of its tenant.
    #[serde(default)]
    pub limits: UserLimits,
}

impl User {
    /// Returns the rights of the user.
    pub fn rights(&self) -> Rights {
        Rights {
            rules: self.rules.clone(),
            publish: self.publish.clone(),
            subscribe: self.subscribe.clone(),
            state: self.state.clone(),
            limits: self.limits.if_any(),
        }
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}
