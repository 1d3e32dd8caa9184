//! Listeners of mosquitto.conf, their certificates and their limits.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use toml::Value;

use super::conf::{Conf, Line, Listener};
use super::notes::{Notes, Place};

/// The listeners of a configuration, and what belongs to them.
#[derive(Debug, Default)]
pub struct Listeners {
    /// By name: `mqtt`, `mqtts`, `ws`, `wss`.
    pub all: BTreeMap<&'static str, Carried>,
    pub tls: Option<Tls>,
    /// Keys of `[limits]`.
    pub limits: BTreeMap<&'static str, Value>,
}

/// A listener that is carried over.
#[derive(Debug)]
pub struct Carried {
    pub address: SocketAddr,
    pub has_proxy: bool,
    pub origins: Vec<String>,
}

/// The certificate of all listeners with TLS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
    /// The certificate revocation lists.
    pub crl: Vec<PathBuf>,
}

/// Returns the listeners that can be carried over at all. For each of the others there is a note.
pub fn possible(conf: &Conf, notes: &mut Notes) -> Vec<Listener> {
    let is_possible = |listener: &&Listener| match impossible(listener) {
        None => true,
        Some((place, reason)) => {
            let what = format!("listener {}", listener.port);
            notes.at(&place, what, format!("left out, with its options: {reason}"));
            false
        }
    };
    conf.listeners.iter().filter(is_possible).cloned().collect()
}

/// Returns the reason for which a listener cannot be carried over, with a line.
fn impossible(listener: &Listener) -> Option<(Place, String)> {
    let at = |line: &Line, reason: &str| Some((line.place.clone(), reason.to_owned()));
    if let Some(line) = listener.option("psk_hint") {
        return at(line, "pre-shared keys do not exist");
    }
    match listener.option("protocol") {
        Some(line) if !matches!(line.word(), "mqtt" | "websockets") => {
            return at(line, "the protocol does not exist");
        }
        _ => {}
    }
    if let Some(certificate) = listener.option("certfile") {
        if listener.option("keyfile").is_none() {
            return at(certificate, "there is no keyfile");
        }
        if requires_certificate(listener) && listener.option("cafile").is_none() {
            // Without the authority everybody would get in.
            let line = listener.option("capath").unwrap_or(certificate);
            return at(
                line,
                "certificates of clients need a `cafile`, one file with the authorities",
            );
        }
    }
    let place = listener.place.as_ref()?;
    let reason = match listener.port.parse::<u16>() {
        Ok(0) => "sockets of Unix do not exist",
        Ok(_) => return None,
        Err(_) => "the port is not a number",
    };
    Some((place.clone(), reason.to_owned()))
}

/// Carries listeners over. `has_users`: whether only users with a password may connect. If not, the network must not
/// reach the listeners.
pub fn carry(conf: &Conf, listeners: &[Listener], has_users: bool, notes: &mut Notes) -> Listeners {
    let mut carried = Listeners::default();
    let mut kept: Vec<&Listener> = Vec::new();
    for listener in listeners {
        let name = name_of(listener);
        let reason = if let Some(other) = carried.all.get(name) {
            let address = other.address;
            Some(format!("there is one listener of each kind, and `{name}` is {address}"))
        } else if kept.iter().any(|other| have_other_authorities(conf, listener, other)) {
            Some("the clients of all listeners have certificates of the same authorities".into())
        } else {
            None
        };
        if let Some(reason) = reason {
            if let Some(place) = &listener.place {
                notes.at(
                    place,
                    format!("listener {}", listener.port),
                    format!("left out: {reason}"),
                );
            }
            continue;
        }
        let address = address_of(listener, conf.is_local, has_users, notes);
        let has_proxy = listener.option("enable_proxy_protocol").is_some();
        let origins =
            if name.starts_with("ws") { origins_of(listener, has_users) } else { Vec::new() };
        carried.all.insert(name, Carried { address, has_proxy, origins });
        kept.push(listener);
    }
    carried.tls = tls_of(conf, &kept, notes);
    carried.limits = limits_of(&kept, notes);
    for listener in kept {
        note_options(listener, notes);
    }
    if carried.all.values().any(|listener| listener.origins == ["*"]) {
        notes.add("pages of all sites may open a WebSocket, as in mosquitto: `origins` of the listener can restrict that");
    }
    if carried.all.keys().any(|name| name.starts_with("ws")) {
        notes.add("WebSocket clients must use the path /mqtt, or the `path` of the listener; mosquitto accepts every path");
    }
    carried
}

fn name_of(listener: &Listener) -> &'static str {
    let is_websocket = listener.option("protocol").is_some_and(|line| line.word() == "websockets");
    match (is_websocket, listener.option("certfile").is_some()) {
        (false, false) => "mqtt",
        (false, true) => "mqtts",
        (true, false) => "ws",
        (true, true) => "wss",
    }
}

fn address_of(
    listener: &Listener,
    is_local: bool,
    has_users: bool,
    notes: &mut Notes,
) -> SocketAddr {
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let domain = listener.option("socket_domain").map(Line::word);
    let ip = match listener.host.as_deref() {
        Some("localhost") => LOOPBACK,
        None if is_local => LOOPBACK,
        None if domain == Some("ipv4") => Ipv4Addr::UNSPECIFIED.into(),
        // All addresses, as in mosquitto.
        None => Ipv6Addr::UNSPECIFIED.into(),
        Some(host) => host.parse().unwrap_or_else(|_| {
            if let Some(place) = &listener.place {
                let reason = "host names are not resolved; here on 127.0.0.1";
                notes.at(place, format!("address {host}"), reason);
            }
            LOOPBACK
        }),
    };
    let ip = if has_users || ip.to_canonical().is_loopback() {
        ip
    } else {
        if let Some(place) = &listener.place {
            let reason =
                "on 127.0.0.1 only, because the network must not reach a broker that has no users";
            notes.at(place, format!("listener {}", listener.port), reason);
        }
        LOOPBACK
    };
    SocketAddr::new(ip, listener.port.parse().unwrap_or(1883))
}

/// Returns the sites whose pages may connect. Without any, mosquitto accepts all. That is carried over only if
/// there are passwords: every page in a browser on the machine could connect otherwise.
fn origins_of(listener: &Listener, has_users: bool) -> Vec<String> {
    let lines = listener.options.iter().filter(|line| line.name == "websockets_origin");
    let origins: Vec<_> = lines.map(|line| line.value.clone()).collect();
    if origins.is_empty() && has_users { vec!["*".into()] } else { origins }
}

/// Whether two listeners require certificates of different authorities.
fn have_other_authorities(conf: &Conf, one: &Listener, other: &Listener) -> bool {
    let of = |listener| certificate_of(conf, listener).and_then(|tls| tls.client_ca);
    matches!((of(one), of(other)), (Some(one), Some(other)) if one != other)
}

fn certificate_of(conf: &Conf, listener: &Listener) -> Option<Tls> {
    let path = |name| listener.option(name).map(|line| conf.path(&line.value));
    Some(Tls {
        certificate: path("certfile")?,
        key: path("keyfile")?,
        client_ca: path("cafile").filter(|_| requires_certificate(listener)),
        crl: path("crlfile").filter(|_| requires_certificate(listener)).into_iter().collect(),
    })
}

fn requires_certificate(listener: &Listener) -> bool {
    let line = listener.option("require_certificate");
    line.is_some_and(|line| matches!(line.word(), "true" | "1"))
}

/// Returns the certificate of the first listener with TLS, which is that of all.
fn tls_of(conf: &Conf, kept: &[&Listener], notes: &mut Notes) -> Option<Tls> {
    let mut all =
        kept.iter().filter_map(|listener| Some((listener, certificate_of(conf, listener)?)));
    let (_, mut tls) = all.next()?;
    for (listener, other) in all {
        if other == tls {
            continue;
        }
        // If one of the two requires client certificates, both do: the stricter one decides.
        tls.client_ca = tls.client_ca.or(other.client_ca);
        let further = other.crl.into_iter().filter(|file| !tls.crl.contains(file));
        tls.crl.extend(further.collect::<Vec<_>>());
        if let Some(line) = listener.option("certfile") {
            let reason = "all listeners have the certificate of the first, and require client certificates if one does";
            notes.at(&line.place, &line.name, reason);
        }
    }
    Some(tls)
}

/// Limits that mosquitto has for each listener, and Barid for each tenant.
fn limits_of(kept: &[&Listener], notes: &mut Notes) -> BTreeMap<&'static str, Value> {
    let mut limits = BTreeMap::new();
    for (names, key, range) in [
        (&["max_qos", "maximum_qos"][..], "max_qos", 0..=2),
        (&["max_topic_alias"], "topic_alias_maximum", 0..=65_535),
        (&["max_topic_alias_broker"], "max_outbound_topic_aliases", 0..=65_535),
    ] {
        let lines = kept.iter().map(|listener| option_of(listener, names));
        let lines: Vec<_> = lines.collect();
        let values = lines.iter().map(|line| line.and_then(|line| line.number(notes)));
        let values: Vec<_> = values.collect();
        match values.first() {
            Some(Some(first))
                if range.contains(first) && values.iter().all(|other| *other == Some(*first)) =>
            {
                limits.insert(key, Value::Integer(*first));
            }
            _ => {
                for line in lines.into_iter().flatten() {
                    let reason = format!("not the same for all listeners, and `{key}` is for all");
                    notes.at(&line.place, &line.name, reason);
                }
            }
        }
    }
    let lines = kept.iter().map(|listener| listener.option("max_connections"));
    let lines: Vec<_> = lines.collect();
    let counts = lines
        .iter()
        .map(|line| line.and_then(|line| line.number(notes)).filter(|count| *count > 0));
    if let Some(sum) = counts.sum::<Option<i64>>().filter(|sum| *sum > 0) {
        limits.insert("max_connections", Value::Integer(sum));
        if let [Some(line)] = lines[..] {
            notes.at(&line.place, &line.name, "a limit of each tenant, not of the listener");
        } else {
            notes.add(format!("max_connections: the sum of all listeners, {sum}, for each tenant"));
        }
    } else {
        for line in lines.into_iter().flatten().filter(|line| !line.value.starts_with('-')) {
            let reason = "not for all listeners, and `max_connections` is for all";
            notes.at(&line.place, &line.name, reason);
        }
    }
    limits
}

fn option_of<'a>(listener: &'a Listener, names: &[&str]) -> Option<&'a Line> {
    listener.options.iter().rfind(|line| names.contains(&&*line.name))
}

/// Adds a note for each option of a listener that is not carried over.
fn note_options(listener: &Listener, notes: &mut Notes) {
    let has_tls = listener.option("certfile").is_some();
    let is_required = requires_certificate(listener);
    for line in &listener.options {
        match &*line.name {
            "acl_file"
            | "allow_anonymous"
            | "certfile"
            | "enable_proxy_protocol"
            | "keyfile"
            | "listener_allow_anonymous"
            | "max_connections"
            | "max_qos"
            | "max_topic_alias"
            | "max_topic_alias_broker"
            | "maximum_qos"
            | "password_file"
            | "protocol"
            | "require_certificate"
            | "websockets_origin" => {}
            "socket_domain" if line.word() == "ipv4" => {}
            "socket_domain" => {
                notes.at(&line.place, &line.name, "[::] stands for IPv6 and IPv4");
            }
            "cafile" | "crlfile" if is_required && has_tls => {}
            "crlfile" => {
                notes.at(&line.place, &line.name, "not needed without `require_certificate`")
            }
            "cafile" | "capath" => {
                let reason = "not needed without `require_certificate`; the chain of the broker's own certificate must be in `certificate`";
                notes.at(&line.place, &line.name, reason);
            }
            _ => line.leave(notes),
        }
    }
}
