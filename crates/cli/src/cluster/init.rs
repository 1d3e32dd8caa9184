//! `barid cluster init`: the configuration files of a new cluster.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use barid_auth::password;
use barid_server::settings::{HOMES_MAX, NAME_OF_BROKER_MAX, SLOTS_MAX, is_cluster_name};
use barid_store::private;

use crate::output::print;

/// Port on which brokers hear each other, unless another one is given.
const PORT: u16 = 7946;

#[derive(clap::Args)]
pub struct Args {
    /// The name of the cluster
    name: String,
    /// The brokers: for each its name, and the host or HOST:PORT by which the others reach it
    #[arg(value_name = "BROKER=HOST", required = true, num_args = 2..)]
    brokers: Vec<String>,
    /// The directory for the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Number of slots among which sessions and tenants are divided: a power of two. It never changes
    #[arg(long, default_value_t = 32)]
    slots: u16,
}

/// A broker of the new cluster.
struct Broker {
    name: String,
    /// The address by which others reach it.
    address: String,
    /// The address on which it listens for them.
    listen: SocketAddr,
}

pub fn run(Args { name, brokers, dir, slots }: &Args) -> anyhow::Result<ExitCode> {
    check_name("cluster", name)?;
    let brokers: Vec<_> = brokers.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    for (index, broker) in brokers.iter().enumerate() {
        if brokers[..index].iter().any(|other| other.name == broker.name) {
            bail!("two brokers have the name {}", broker.name);
        }
        if let Some(other) = brokers[..index].iter().find(|other| other.address == broker.address) {
            bail!(
                "{} and {} have the address {}: give them ports of their own, such as {}={}",
                other.name,
                broker.name,
                broker.address,
                broker.name,
                next_port(&broker.address)
            );
        }
    }
    if brokers.len() > HOMES_MAX {
        bail!("a cluster has at most {HOMES_MAX} brokers, not {}", brokers.len());
    }
    if !slots.is_power_of_two() || *slots > SLOTS_MAX || usize::from(*slots) < brokers.len() {
        bail!(
            "--slots is a power of two up to {SLOTS_MAX}, and at least the number of brokers, not {slots}"
        );
    }
    private::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let secret = password::random_secret();
    let mut told = String::new();
    let path_of = |broker: &Broker| dir.join(format!("{}.toml", broker.name));
    // Before one of them is there with a secret that no other one has.
    if let Some(path) = brokers.iter().map(path_of).find(|path| path.exists()) {
        return Err(exists(&path));
    }
    for broker in &brokers {
        let path = path_of(broker);
        write(&path, &configuration(name, broker, &brokers, *slots, &secret))?;
        writeln!(
            told,
            "{}: on the machine of {}, `barid serve --config {}.toml`",
            path.display(),
            broker.address,
            broker.name
        )?;
    }
    told += "Each file has the secret of the cluster: only its broker may read it. Set data_dir and the listeners: without them,\n\
             clients reach a broker from its own machine only. Add users and limits to all files alike, and [cluster.tls] if\n\
             others can read what passes between the machines: docs/operating/cluster.md.\n";
    print(told)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an address with the next port.
fn next_port(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').expect("an address has a port");
    format!("{host}:{}", port.parse::<u16>().map_or(PORT, |port| port.wrapping_add(1)))
}

fn check_name(what: &str, name: &str) -> anyhow::Result<()> {
    if !is_cluster_name(name) {
        bail!(
            "{name:?} is no name of a {what}: it has 1 to {NAME_OF_BROKER_MAX} letters, digits, dots, hyphens and underscores"
        );
    }
    Ok(())
}

/// Reads `NAME=HOST` or `NAME=HOST:PORT`.
fn parse(text: &str) -> anyhow::Result<Broker> {
    let wanted = || {
        format!(
            "a broker is NAME=HOST or NAME=HOST:PORT, for example b1=10.0.0.1 or b1=[fd00::1]:7946, not {text:?}"
        )
    };
    let (name, at) = text.split_once('=').with_context(wanted)?;
    check_name("broker", name)?;
    let bare = at.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let (listen, address) = match (bare, at.parse::<SocketAddr>()) {
        (Ok(ip), _) => {
            let listen = SocketAddr::new(ip, PORT);
            (listen, listen.to_string())
        }
        (_, Ok(listen)) => (listen, at.to_owned()),
        _ => {
            let (host, port) = at.split_once(':').unwrap_or((at, "7946"));
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_host) {
                bail!(wanted());
            }
            let port: u16 = port.parse().ok().with_context(wanted)?;
            // The name is that of the machine for others, so it is not what the broker binds.
            (SocketAddr::from(([0; 4], port)), format!("{host}:{port}"))
        }
    };
    if listen.port() == 0 {
        bail!(wanted());
    }
    Ok(Broker { name: name.to_owned(), address, listen })
}

fn configuration(name: &str, own: &Broker, all: &[Broker], slots: u16, secret: &str) -> String {
    let quoted = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
    };
    let peers = quoted(&mut all.iter().map(|one| &*one.address));
    let homes = quoted(&mut all.iter().map(|one| &*one.name));
    let mut text = format!(
        "# Broker {} of the cluster {name}.\n\n# data_dir = \"/var/lib/barid\"\n\n[cluster]\nname = {name:?}\nbroker = {:?}\nlisten = \"{}\"\n",
        own.name, own.name, own.listen
    );
    if own.listen.to_string() != own.address {
        text += &format!("advertise = {:?}\n", own.address);
    }
    text += &format!("peers = [{peers}]\nhomes = [{homes}]\n");
    if slots != 32 {
        text += &format!("slots = {slots}\n");
    }
    text += &format!("secret = {secret:?}\n");
    text + "\n# Without listeners, clients reach the broker from its own machine only.\n# [listeners]\n# mqtt = { address = \"0.0.0.0:1883\" }\n"
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = private::options().write(true).create_new(true).open(path);
    let mut file: fs::File = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => anyhow::Error::new(error).context(format!("cannot create {}", path.display())),
    })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} exists already: remove it, or choose another --dir. A cluster has one secret, so its files are made together",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Option<(String, String)> {
        parse(text).ok().map(|broker| (broker.listen.to_string(), broker.address))
    }

    #[test]
    fn hosts_have_a_port_or_get_one() {
        for (text, listen, address) in [
            ("b=10.0.0.1", "10.0.0.1:7946", "10.0.0.1:7946"),
            ("b=10.0.0.1:1", "10.0.0.1:1", "10.0.0.1:1"),
            ("b=fd00::1", "[fd00::1]:7946", "[fd00::1]:7946"),
            ("b=[fd00::1]:5", "[fd00::1]:5", "[fd00::1]:5"),
            ("b=broker-1.internal", "0.0.0.0:7946", "broker-1.internal:7946"),
            ("b=broker-1:9", "0.0.0.0:9", "broker-1:9"),
        ] {
            assert_eq!(addresses(text), Some((listen.into(), address.into())), "{text}");
        }
        for text in [
            "b",
            "b=",
            "=10.0.0.1",
            "b b=10.0.0.1",
            "b=a b",
            "b=host:port",
            "b=host:1:2",
            "b=host:0",
            "b=[::1]:0",
        ] {
            assert_eq!(addresses(text), None, "{text}");
        }
    }
}
