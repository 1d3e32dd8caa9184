//! Checks of users: names, password hashes, rules.

use std::collections::BTreeSet;

use barid_engine::key_rules;
use barid_engine::names::{check_tenant_name, full_name};
use barid_server::password;
use barid_server::settings::{Settings, User};
use mqtt_proto::topic;

use super::problem::Place;
use super::validate::Objections;

const PASSWORD_HINT: &str = "`barid passwd NAME` asks for a password and prints the line to paste";

/// Maximum length of a user name, in bytes: a CONNECT cannot carry a longer one (MQTT 5, 1.5.4).
const NAME_MAX: usize = 65_535;

pub fn check(settings: &Settings, found: &mut Objections) {
    let mut names = BTreeSet::new();
    for (i, user) in settings.users.iter().enumerate() {
        let place = Place::of(&["users"]).index(i);
        if let Err(message) = check_name(&user.name) {
            let hint = "a user name is {tenant}/{client}, or {client} for the tenant `default`";
            found.add(place.key("name"), message, hint);
        } else if !names.insert(full_name(&user.name)) {
            let message = match user.name.strip_prefix("default/") {
                Some(short) => {
                    format!("`{}` and `{short}` are one user, declared twice", user.name)
                }
                None => format!("the user `{}` is declared twice", user.name),
            };
            found.add(place.key("name"), message, "put all rules of a user into one [[users]]");
        }
        if let Err(message) = password::check(&user.password) {
            found.add(place.key("password"), message, PASSWORD_HINT);
        }
        check_rules(&place, user, found);
    }
}

/// Checks that a client can log in with this user name, `{tenant}/{client}` or without a slash.
pub fn check_name(name: &str) -> Result<(), String> {
    let (tenant, client) = name.split_once('/').unwrap_or(("default", name));
    check_tenant_name(tenant).map_err(|error| error.to_string())?;
    if client.is_empty() {
        return Err("the user name is empty".into());
    }
    if name.len() > NAME_MAX {
        let len = name.len();
        return Err(format!("a user name has at most {NAME_MAX} bytes, and this one has {len}"));
    }
    match name.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("a user name cannot contain {c:?}")),
        None => Ok(()),
    }
}

fn check_rules(place: &Place, user: &User, found: &mut Objections) {
    for (key, filters) in [("publish", &user.publish), ("subscribe", &user.subscribe)] {
        for (i, filter) in filters.iter().flatten().enumerate() {
            if filter.contains("%u") && user.name.contains(['+', '#']) {
                let message = "%u stands for the user name, whose + or # would be wildcards";
                found.add(place.key(key).index(i), message, "give the user another name");
                continue;
            }
            // The values of %c and %u at run time contain no wildcards.
            let substituted = filter.replace("%c", "c").replace("%u", "u");
            if let Err(error) = topic::validate_filter(&substituted) {
                found.add(
                    place.key(key).index(i),
                    format!("not a topic filter: {error}"),
                    "an example: \"devices/%c/#\", where %c is the client identifier",
                );
            }
        }
    }
    for (i, rule) in user.rules.iter().enumerate() {
        if let Err(message) = rule.check(&user.name) {
            let hint =
                "an example: { allow = [\"publish\", \"subscribe\"], topics = [\"devices/%c/#\"] }";
            found.add(place.key("rules").index(i), message, hint);
        }
    }
    for (i, rule) in user.state.iter().flatten().enumerate() {
        for (j, key) in rule.keys.iter().enumerate() {
            if let Err(message) = key_rules::check(rule.kind, key) {
                let hint = "`type` is \"pattern\" (with *, ?, [0-9] and {principal.clientId}), \"string\" or \"binary\" (Base64)";
                found.add(place.key("state").index(i).key("keys").index(j), message, hint);
            }
        }
    }
}
