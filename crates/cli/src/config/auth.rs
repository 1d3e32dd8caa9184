//! Checks of the back ends that decide on logins, and of the rules of tenants.

use std::collections::BTreeSet;

use barid_server::settings::Settings;

use super::problem::Place;
use super::validate::Objections;

/// Maximum number of threads that verify passwords. More than any machine can use is a typing error.
const HASH_THREADS_MAX: usize = 1_024;

pub fn check(settings: &Settings, found: &mut Objections) {
    let auth = Place::of(&["auth"]);
    if settings.auth.hash_threads > HASH_THREADS_MAX {
        let hint = "0 means half as many threads as cores; the maximum is 1024";
        found.add(auth.key("hash_threads"), "these are too many threads", hint);
    }
    check_backends(settings, &auth, found);
    for (i, name) in settings.auth.chain.iter().flatten().enumerate() {
        check_name(settings, name, &auth.key("chain").index(i), found);
    }
    for (name, tenant) in &settings.tenants {
        let place = Place::of(&["tenants", name]);
        for (i, name) in tenant.auth.iter().flatten().enumerate() {
            check_name(settings, name, &place.key("auth").index(i), found);
        }
        for (i, rule) in tenant.rules.iter().enumerate() {
            // The rules are for users of all names, also for those with wildcards.
            if let Err(message) = rule.check("") {
                let hint = "an example: { deny = \"publish\", topics = [\"config/#\"] }";
                found.add(place.key("rules").index(i), message, hint);
            }
        }
    }
}

/// Checks the settings of each back end, and that no two have the same name.
fn check_backends(settings: &Settings, place: &Place, found: &mut Objections) {
    let auth = &settings.auth;
    let mysql = auth.mysql.iter().map(|(name, one)| ("mysql", name, one.check()));
    let redis = auth.redis.iter().map(|(name, one)| ("redis", name, one.check()));
    let certificate = auth.certificate.iter().map(|(name, one)| ("certificate", name, one.check()));
    let jwt = auth.jwt.iter().map(|(name, one)| ("jwt", name, one.check()));
    let http = auth.http.iter().map(|(name, one)| ("http", name, one.check()));
    for (kind, name, checked) in mysql.chain(redis).chain(certificate).chain(jwt).chain(http) {
        if let Err(message) = checked {
            found.add(place.key(kind).key(name), message, "");
        }
    }
    let mut names = BTreeSet::from(["file", "store"]);
    for name in auth.remote_names() {
        if !names.insert(name) {
            let hint = "each back end needs a name of its own; `file` and `store` are taken";
            found.add(place.clone(), format!("two back ends have the name `{name}`"), hint);
        }
    }
    for name in auth.redis.keys().filter(|name| !auth.mysql.contains_key(*name)) {
        let hint = "a cache has the name of the back end in MySQL that it is in front of";
        let message = format!("there is no [auth.mysql.{name}] for this cache");
        found.add(place.key("redis").key(name), message, hint);
    }
}

fn check_name(settings: &Settings, name: &str, place: &Place, found: &mut Objections) {
    match name {
        "store" => {}
        "file" if !settings.users.is_empty() => {}
        "file" => found.add(
            place.clone(),
            "`file` is the users in this file, and there are none",
            "add [[users]] (`barid passwd NAME` prints the block to paste), or remove `file`",
        ),
        _ if settings.auth.remote_names().any(|known| known == name) => {}
        _ => found.add(
            place.clone(),
            format!("there is no back end `{name}`"),
            "`file` is the users in this file, `store` those of `barid user`; others need a table such as \
             [auth.mysql.NAME], [auth.certificate.NAME], [auth.jwt.NAME] or [auth.http.NAME]",
        ),
    }
}
