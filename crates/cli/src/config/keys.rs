//! Checks of the keys of AMQP clients: names, secrets, rights.

use std::collections::BTreeSet;
use std::fs;

use barid_engine::entities::{Address, NAME_MAX, PATH_MAX};
use barid_engine::names::check_user_name;
use barid_server::settings::{Key, Secret, Settings};

use super::problem::Place;
use super::validate::Objections;

const SECRET_HINT: &str = "`key = \"…\"` is the secret itself, `key_file = \"…\"` names a file that contains it; \
     `openssl rand -base64 32` generates one";

/// Text between the path of a topic and the name of a subscription.
const SUBSCRIPTIONS: &str = "/Subscriptions/";

pub fn check(settings: &Settings, found: &mut Objections) {
    let mut names = BTreeSet::new();
    for (i, key) in settings.keys.iter().enumerate() {
        let place = Place::of(&["keys"]).index(i);
        if check_user_name(&key.name).is_err() || key.name.contains('%') {
            let hint = "the name of a key is {tenant}/{name}, or {name} for the tenant `default`, without %";
            found.add(place.key("name"), "not a valid name of a key", hint);
        } else if !names.insert(full_name(&key.name)) {
            let message = format!("the key `{}` is declared twice", key.name);
            found.add(place.key("name"), message, "give each key a name of its own");
        }
        if let Err((step, message)) = secret(key) {
            found.add(place.key(step), message, SECRET_HINT);
        }
        if key.rights.is_empty() {
            let hint = "Send, Listen, or Manage, which includes both";
            found.add(place.key("rights"), "a key without rights allows nothing", hint);
        }
        if let Some(entity) = &key.entity
            && !can_begin_a_path(entity)
        {
            let hint =
                "use the name of a queue or topic; without `entity` the key is for all of them";
            found.add(place.key("entity"), "not a valid path of an entity", hint);
        }
    }
}

/// Whether the path of an entity, or of one of its dead-letter queues, can equal or begin with
/// `written`.
fn can_begin_a_path(written: &str) -> bool {
    let entity = Address::parse(written).entity;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | '$');
    !written.starts_with('/')
        && !written.ends_with('/')
        && entity.len() <= PATH_MAX + SUBSCRIPTIONS.len() + NAME_MAX
        && entity.split('/').all(|segment| !segment.is_empty() && segment.chars().all(allowed))
}

/// Reads each `key_file` into its key. The settings must have been checked.
pub fn read_secrets(settings: &mut Settings) {
    for key in &mut settings.keys {
        if let Ok(secret) = secret(key) {
            key.key = Some(secret);
        }
    }
}

/// Returns the secret of a key, or the entry that is wrong and the reason.
fn secret(key: &Key) -> Result<Secret, (&'static str, String)> {
    let (step, secret) = match (&key.key, &key.key_file) {
        (Some(secret), None) => ("key", secret.clone()),
        (None, Some(file)) => {
            let text = fs::read_to_string(file).map_err(|error| {
                ("key_file", format!("cannot read {}: {error}", file.display()))
            })?;
            ("key_file", Secret::new(text.trim()))
        }
        (Some(_), Some(_)) => {
            return Err(("key_file", "`key` and `key_file` exclude each other".into()));
        }
        (None, None) => return Err(("name", format!("the key `{}` has no secret", key.name))),
    };
    if secret.expose().is_empty() {
        return Err((step, "the secret is empty".into()));
    }
    Ok(secret)
}

/// Returns the tenant and the name of a key, so that equivalent names are equal.
fn full_name(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("default", name))
}
