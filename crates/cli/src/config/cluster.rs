//! Checks of the settings of a broker that belongs to a cluster.

use std::fs;

use barid_server::settings::{
    ClusterSettings, NAME_OF_BROKER_MAX, SLOTS_MAX, Secret, Settings, is_cluster_name,
};

use super::problem::Place;
use super::validate::Objections;

/// Minimum length of the secret, in bytes: who knows a frame of the handshake must not be able to guess it.
const SECRET_MIN: usize = 16;

const SECRET_HINT: &str = "`secret_file = \"…\"` names a file that contains the secret, `secret = \"…\"` is the secret itself; \
     `openssl rand -base64 32` generates one. It is the same for all brokers of the cluster";

pub fn check(settings: &Settings, found: &mut Objections) {
    let Some(cluster) = &settings.cluster else { return };
    let place = Place::of(&["cluster"]);
    for (key, name) in [("name", &cluster.name), ("broker", &cluster.broker)] {
        if !is_cluster_name(name) {
            let hint = format!(
                "a name has 1 to {NAME_OF_BROKER_MAX} letters, digits, dots, hyphens and underscores"
            );
            found.add(place.key(key), format!("not a valid name: {name:?}"), &hint);
        }
    }
    if let Err((key, message)) = secret(cluster) {
        found.add(place.key(key), message, SECRET_HINT);
    }
    let address_hint =
        "an address is HOST:PORT, for example 10.0.0.2:7946 or broker-2.internal:7946";
    if cluster.advertise.is_none() && cluster.listen.ip().is_unspecified() {
        found.add(
            place.key("listen"),
            "other brokers cannot reach this address",
            "set `advertise` to the address by which they reach this broker",
        );
    }
    if let Some(address) = cluster.advertise.as_ref().filter(|address| !is_address(address)) {
        found.add(place.key("advertise"), format!("not an address: {address:?}"), address_hint);
    }
    let reference = cluster.server_reference.as_ref();
    if let Some(address) = reference.filter(|address| !is_address(address)) {
        found.add(
            place.key("server_reference"),
            format!("not an address: {address:?}"),
            "it is what MQTT clients are told, HOST:PORT, for example mqtt-2.example.com:8883",
        );
    }
    for (i, address) in cluster.peers.iter().enumerate().filter(|(_, one)| !is_address(one)) {
        found.add(
            place.key("peers").index(i),
            format!("not an address: {address:?}"),
            address_hint,
        );
    }
    check_homes(cluster, &place, found);
}

fn check_homes(cluster: &ClusterSettings, place: &Place, found: &mut Objections) {
    let ClusterSettings { homes, slots, .. } = cluster;
    for (i, home) in homes.iter().enumerate() {
        let problem = if !is_cluster_name(home) {
            format!("not a valid name: {home:?}")
        } else if homes[..i].contains(home) {
            format!("{home} is there already")
        } else {
            continue;
        };
        let hint = "the names of the brokers (`broker`) that have sessions, each once, in the same order in all brokers";
        found.add(place.key("homes").index(i), problem, hint);
    }
    if !slots.is_power_of_two() || *slots > SLOTS_MAX || usize::from(*slots) < homes.len() {
        found.add(
            place.key("slots"),
            format!("{slots} slots for {} homes", homes.len()),
            &format!("the number is a power of two up to {SLOTS_MAX}, and at least that of the homes; 32 is the default"),
        );
    }
}

/// Stores the secret of `secret_file` in the settings, which must have been checked.
pub fn read_secret(settings: &mut Settings) {
    if let Some(cluster) = &mut settings.cluster
        && let Ok(secret) = secret(cluster)
    {
        cluster.secret = Some(secret);
    }
}

/// Returns the secret, or the entry that is wrong and the reason.
fn secret(cluster: &ClusterSettings) -> Result<Secret, (&'static str, String)> {
    let (key, secret) = match (&cluster.secret, &cluster.secret_file) {
        (Some(secret), None) => ("secret", secret.clone()),
        (None, Some(file)) => {
            let text = fs::read_to_string(file).map_err(|error| {
                ("secret_file", format!("cannot read {}: {error}", file.display()))
            })?;
            ("secret_file", Secret::new(text.trim()))
        }
        (Some(_), Some(_)) => {
            return Err(("secret_file", "`secret` and `secret_file` exclude each other".into()));
        }
        (None, None) => return Err(("name", "the cluster has no secret".into())),
    };
    if secret.expose().len() < SECRET_MIN {
        let message = format!("the secret has fewer than {SECRET_MIN} bytes, and can be guessed");
        return Err((key, message));
    }
    Ok(secret)
}

/// Whether a text is `host:port`.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && host.len() <= 253 && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}
