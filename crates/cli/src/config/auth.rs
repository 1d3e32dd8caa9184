//! Checks of the back ends that decide on logins, and of the rules of tenants.

use barid_server::settings::Settings;

use super::problem::Place;
use super::validate::Objections;

/// Maximum number of threads that verify passwords. More than any machine can use is a typing error.
const HASH_THREADS_MAX: usize = 1_024;

pub fn check(settings: &Settings, found: &mut Objections) {
    let auth = Place::of(&["auth"]);
    if settings.auth.hash_threads > HASH_THREADS_MAX {
        let hint = "0 means one thread for each core; the maximum is 1024";
        found.add(auth.key("hash_threads"), "these are too many threads", hint);
    }
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

fn check_name(settings: &Settings, name: &str, place: &Place, found: &mut Objections) {
    match name {
        "store" => {}
        "file" if !settings.users.is_empty() => {}
        "file" => found.add(
            place.clone(),
            "`file` is the users in this file, and there are none",
            "add [[users]] (`barid passwd NAME` prints the block to paste), or remove `file`",
        ),
        _ => found.add(
            place.clone(),
            format!("there is no back end `{name}`"),
            "`file` is the users in this file, `store` those of `barid user`",
        ),
    }
}
