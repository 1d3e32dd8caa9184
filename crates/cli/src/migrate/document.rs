//! The configuration as text.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use barid_engine::rights::Rule;
use toml::Value;

use super::limits::Limits;
use super::listeners::{Listeners, Tls};
use super::notes::Notes;
use super::passwords::User;

/// Kinds of listeners, in the order of the documentation.
const KINDS: [&str; 6] = ["mqtt", "mqtts", "ws", "wss", "amqp", "amqps"];

/// The port of the admin address, and the one if a listener of mosquitto has it.
const ADMIN_PORTS: [u16; 2] = [8081, 18081];

/// A user, and the rules if there is an ACL file.
pub type Ruled = (User, Option<Vec<Rule>>);

/// Returns the configuration. `origin`: the file that it is made from.
pub fn write(
    origin: &str,
    listeners: &Listeners,
    limits: &Limits,
    users: &[Ruled],
    notes: &Notes,
) -> String {
    let mut text = format!("# Made by `barid migrate mosquitto` from {}.\n", comment(origin));
    if notes.iter().next().is_some() {
        text.push_str("#\n# Not carried over, or different:\n");
    }
    for note in notes.iter() {
        line(&mut text, format_args!("# - {note}"));
    }
    line(&mut text, format_args!("\ndata_dir = \"/var/lib/barid\"\n\n[listeners]"));
    for kind in KINDS {
        line(&mut text, format_args!("{kind} = {}", listener(listeners, kind)));
    }
    let taken: Vec<_> = listeners.all.values().map(|listener| listener.address.port()).collect();
    if taken.contains(&ADMIN_PORTS[0]) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORTS[1]));
        line(&mut text, format_args!("\n[admin]\naddress = \"{address}\""));
    }
    if let Some(tls) = &listeners.tls {
        text.push_str(&table_of_tls(tls));
    }
    if let Some(interval) = limits.sys_interval {
        line(&mut text, format_args!("\n[sys]\ninterval = {interval}"));
    }
    if let Some(level) = limits.log_level {
        line(&mut text, format_args!("\n[log]\nlevel = \"{level}\""));
    }
    let mut all = limits.limits.clone();
    for (key, value) in &listeners.limits {
        // Both of mosquitto's limits for connections apply, so the lower one does.
        all.entry(key)
            .and_modify(|other| {
                if value.as_integer() < other.as_integer() {
                    *other = value.clone();
                }
            })
            .or_insert_with(|| value.clone());
    }
    if !all.is_empty() {
        text.push_str("\n[limits]\n");
    }
    for (key, value) in all {
        line(&mut text, format_args!("{key} = {value}"));
    }
    for (user, rules) in users {
        text.push_str(&table_of_user(user, rules.as_deref()));
    }
    text
}

fn listener(listeners: &Listeners, kind: &str) -> String {
    let Some(listener) = listeners.all.get(kind) else { return "false".into() };
    let mut keys = vec![format!("address = \"{}\"", listener.address)];
    if listener.has_proxy {
        keys.push("proxy_protocol = true".into());
    }
    if !listener.origins.is_empty() {
        keys.push(format!("origins = {}", Value::from(listener.origins.clone())));
    }
    format!("{{ {} }}", keys.join(", "))
}

fn table_of_tls(tls: &Tls) -> String {
    let path = |path: &std::path::Path| Value::from(path.display().to_string());
    let mut text =
        format!("\n[tls]\ncertificate = {}\nkey = {}\n", path(&tls.certificate), path(&tls.key));
    if let Some(client_ca) = &tls.client_ca {
        let client_ca = path(client_ca);
        line(&mut text, format_args!("client_ca = {client_ca}\nrequire_client_certificate = true"));
        if !tls.crl.is_empty() {
            let lists = Value::Array(tls.crl.iter().map(|file| path(file)).collect());
            line(&mut text, format_args!("crl = {lists}"));
        }
    }
    text
}

fn table_of_user(user: &User, rules: Option<&[Rule]>) -> String {
    let (name, hash) = (Value::from(&*user.name), Value::from(&*user.hash));
    let mut text = format!("\n[[users]]\nname = {name}\npassword = {hash}\n");
    if let Some(rules) = rules {
        text.push_str("rules = [\n");
        for rule in rules {
            let rule = Value::try_from(rule).expect("a rule consists of texts and lists of texts");
            line(&mut text, format_args!("    {rule},"));
        }
        text.push_str("]\n");
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes every text");
}

fn comment(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}
