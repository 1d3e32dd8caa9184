//! Checks of settings beyond being well-formed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use barid_server::settings::{Listener, Settings};

use super::problem::{Objection, Place};
use super::{
    auth, bindings, cluster, durability, entities, files, hints, keys, limits, telemetry, users,
};

/// Maximum number of threads. More than any machine can use is a typing error.
const MAX_WORKERS: usize = 1_024;

/// Collected objections.
#[derive(Default)]
pub struct Objections(Vec<Objection>);

impl Objections {
    /// Returns the number of objections.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an objection; `hint` may be empty.
    pub fn add(&mut self, place: Place, message: impl Into<String>, hint: &str) {
        let hint = (!hint.is_empty()).then(|| hint.into());
        self.0.push(Objection { place, message: message.into(), hint });
    }
}

/// Returns an objection for everything in `settings` that makes no sense or is not safe. Reads the files that
/// the settings name.
pub fn validate(settings: &Settings) -> Vec<Objection> {
    let mut found = Objections::default();
    general(settings, &mut found);
    addresses(settings, &mut found);
    exposure(settings, &mut found);
    files::check(settings, &mut found);
    limits::check(settings, &mut found);
    durability::check(settings, &mut found);
    users::check(settings, &mut found);
    auth::check(settings, &mut found);
    keys::check(settings, &mut found);
    entities::check(settings, &mut found);
    bindings::check(settings, &mut found);
    cluster::check(settings, &mut found);
    telemetry::check(settings, &mut found);
    found.0
}

/// Returns the listeners for clients, with their names in the file.
pub fn listeners(settings: &Settings) -> impl Iterator<Item = (&'static str, &Listener)> {
    let listeners = &settings.listeners;
    [
        ("mqtt", &listeners.mqtt),
        ("mqtts", &listeners.mqtts),
        ("ws", &listeners.ws),
        ("wss", &listeners.wss),
        ("amqp", &listeners.amqp),
        ("amqps", &listeners.amqps),
    ]
    .into_iter()
    .filter_map(|(name, listener)| Some((name, listener.as_ref()?)))
}

/// Returns the address for administration clients of Service Bus, with its place in the file.
fn management(settings: &Settings) -> Option<(Place, SocketAddr)> {
    let management = settings.management.as_ref()?;
    Some((Place::of(&["management", "address"]), management.address))
}

/// Returns the address of the admin API over TLS, with its place in the file.
fn https(settings: &Settings) -> Option<(Place, SocketAddr)> {
    Some((Place::of(&["admin", "https"]), settings.admin.https?))
}

fn general(settings: &Settings, found: &mut Objections) {
    if settings.workers > MAX_WORKERS {
        found.add(
            Place::of(&["workers"]),
            format!("{} threads are too many", settings.workers),
            "0 means one thread for each core; the maximum is 1024",
        );
    }
    if settings.data_dir.as_os_str().is_empty() {
        found.add(Place::of(&["data_dir"]), "the data directory has no name", "");
    }
    if settings.max_tenants == 0 {
        found.add(
            Place::of(&["max_tenants"]),
            "with no tenant at all nobody can connect",
            "the minimum is 1: the tenant `default`",
        );
    }
    if let Err((message, hint)) = check_level(&settings.log.level) {
        found.add(Place::of(&["log", "level"]), message, &hint);
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks a log level: one of the levels, or a comma-separated list of them and `TARGET=LEVEL`.
///
/// The logging library takes any word for a target, so a misspelt level would log everything of a target that
/// does not exist.
pub fn check_level(level: &str) -> Result<(), (String, String)> {
    for directive in level.split(',') {
        let word = directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim();
        if !LEVELS.contains(&word.to_ascii_lowercase().as_str()) {
            let hint = match hints::nearest(word, &LEVELS) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known levels: {}; or TARGET=LEVEL, …", LEVELS.join(", ")),
            };
            return Err((format!("unknown log level `{word}`"), hint));
        }
    }
    tracing_subscriber::EnvFilter::try_new(level)
        .map(drop)
        .map_err(|error| (format!("not a log filter: {error}"), String::new()))
}

fn addresses(settings: &Settings, found: &mut Objections) {
    let mut taken: BTreeMap<SocketAddr, &str> = BTreeMap::new();
    let all = listeners(settings)
        .map(|(name, listener)| {
            (name, Place::of(&["listeners", name, "address"]), listener.address)
        })
        .chain([("admin", Place::of(&["admin", "address"]), settings.admin.address)])
        .chain(https(settings).map(|(place, address)| ("admin.https", place, address)))
        .chain(management(settings).map(|(place, address)| ("management", place, address)));
    let mut none = true;
    for (name, place, address) in all {
        none &= matches!(name, "admin" | "admin.https" | "management");
        // Port 0 selects a free port each time.
        if address.port() != 0
            && let Some(first) = taken.insert(address, name)
        {
            found.add(
                place,
                format!("{address} is already the address of the {first} listener"),
                "give each listener a port of its own",
            );
        }
    }
    if none {
        found.add(
            Place::of(&["listeners"]),
            "every listener is switched off",
            "nobody can connect; leave at least one on",
        );
    }
    for (name, listener) in listeners(settings).filter(|(name, _)| matches!(*name, "ws" | "wss")) {
        if let Some(message) = wrong_with_path(&listener.path) {
            let place = Place::of(&["listeners", name, "path"]);
            found.add(place, message, "the usual path is \"/mqtt\"");
        }
    }
}

/// Returns the reason why no WebSocket can be opened at a path. Clients percent-encode characters outside
/// ASCII, and send neither a query nor a fragment as part of the path.
fn wrong_with_path(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("the path must begin with `/`");
    }
    let is_possible = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
    (!path.chars().all(is_possible)).then_some(
        "no client can request this path: it may have only visible ASCII characters except ? and #",
    )
}

/// Refuses addresses that the network can reach without credentials. Over MQTT, anybody may connect with any
/// password to a tenant without back ends. Over AMQP, nobody may connect without users and keys. The admin address never
/// asks for a password.
fn exposure(settings: &Settings, found: &mut Objections) {
    let is_exposed = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    if is_exposed(settings.admin.address) {
        found.add(
            Place::of(&["admin", "address"]),
            format!(
                "{} can be reached from the network, and the admin API has no password",
                settings.admin.address
            ),
            "listen on 127.0.0.1 or [::1]; for other machines, `https` in [admin] names an address with TLS, where each \
             request needs a token of `barid token create`",
        );
    }
    if let Some((place, address)) = https(settings).filter(|_| settings.tls.is_none()) {
        let hint = "add a [tls] table with `certificate` and `key`";
        found.add(place, format!("{address} has no certificates"), hint);
    }
    if let Some((place, address)) = management(settings).filter(|(_, address)| is_exposed(*address))
    {
        if settings.keys.is_empty() {
            let message = format!(
                "{address} can be reached from the network, and there are no [[keys]] to sign with"
            );
            found.add(
                place,
                message,
                "name at least one key with the right Manage, or listen on 127.0.0.1",
            );
        } else if settings.tls.is_none() {
            let message = format!("{address} can be reached from the network, and needs TLS");
            found.add(
                place,
                message,
                "add a [tls] table with `certificate` and `key`, or listen on 127.0.0.1",
            );
        }
    }
    let addresses = listeners(settings).map(|(name, listener)| {
        let place = Place::of(&["listeners", name, "address"]);
        (name.starts_with("amqp"), place, listener.address)
    });
    let asks = match &settings.auth.chain {
        Some(chain) => !chain.is_empty(),
        None => !settings.users.is_empty(),
    };
    // One objection for each address, not for each listener on it.
    let mut told = BTreeSet::new();
    let mut exposed = None;
    for (is_amqp, place, address) in addresses.filter(|(_, _, address)| is_exposed(*address)) {
        let (is_guarded, guard, hint) = if is_amqp {
            let hint = "name at least one key or user, or listen on 127.0.0.1";
            (asks || !settings.keys.is_empty(), "[[keys]] or [[users]]", hint)
        } else {
            exposed.get_or_insert(address);
            let hint = "name at least one user (`barid passwd NAME` prints the block to paste), \
                        or write [auth] chain = [\"store\"] for users of `barid user`, \
                        or listen on 127.0.0.1";
            (asks, "[[users]]", hint)
        };
        if !is_guarded && told.insert(address) {
            let message = format!(
                "{address} can be reached from the network, and no {guard} say who may connect"
            );
            found.add(place, message, hint);
        }
    }
    let Some(address) = exposed else { return };
    for (name, tenant) in &settings.tenants {
        if tenant.auth.as_ref().is_some_and(Vec::is_empty) {
            let message = format!(
                "without back ends any client may connect to the tenant, and {address} can be reached from the network"
            );
            let hint = "name back ends, or leave `auth` out, or listen on 127.0.0.1";
            found.add(Place::of(&["tenants", name, "auth"]), message, hint);
        }
    }
}
