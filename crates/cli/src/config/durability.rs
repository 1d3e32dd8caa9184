//! Durability classes, and the storage of durable data.

use std::collections::BTreeSet;

use barid_engine::durability::DurabilityClass;
use barid_engine::limit_ranges::REPLICATED;
use barid_engine::names::check_tenant_name;
use barid_server::settings::Settings;
use mqtt_proto::topic;

use super::problem::Place;
use super::validate::Objections;

/// Maximum number of shards of a data directory.
const SHARDS_MAX: usize = 64;

pub fn check(settings: &Settings, found: &mut Objections) {
    if settings.storage.shards > SHARDS_MAX {
        found.add(
            Place::of(&["storage", "shards"]),
            format!("{} shards are too many", settings.storage.shards),
            "0 means one for each core, at most 8; the maximum is 64",
        );
    }
    check_class(&Place::of(&["limits"]).key("durability"), settings.limits.durability, found);
    for (name, tenant) in &settings.tenants {
        if let Some(class) = tenant.limits.durability {
            check_class(&Place::of(&["tenants", name, "limits", "durability"]), class, found);
        }
    }
    let mut known = BTreeSet::new();
    for (i, rule) in settings.durability.iter().enumerate() {
        let place = Place::of(&["durability"]).index(i);
        if !known.insert((&rule.filter, &rule.keys, &rule.tenant)) {
            let hint = "only the first one applies; keep one of the two";
            found.add(place.clone(), "an earlier rule is for the same topics or keys", hint);
        }
        check_class(&place.key("class"), rule.class, found);
        if let Some(Err(error)) = rule.tenant.as_deref().map(check_tenant_name) {
            let hint = "without this key the rule applies to all tenants";
            found.add(place.key("tenant"), error.to_string(), hint);
        }
        let filter = match (&rule.filter, &rule.keys) {
            (Some(filter), None) => filter,
            (None, Some(_)) => continue,
            _ => {
                let message = "a rule needs either `filter` or `keys`";
                let hint = "filter = \"telemetry/#\" is for topics, keys = \"cache:*\" for the state store";
                found.add(place, message, hint);
                continue;
            }
        };
        let place = place.key("filter");
        if let Err(error) = topic::validate_filter(filter) {
            let hint = "an example: \"telemetry/#\"";
            found.add(place, format!("not a topic filter: {error}"), hint);
        } else if topic::is_shared(filter) {
            let hint = "the class belongs to messages, not to subscriptions: use a filter for their topics";
            found.add(place, "a shared subscription cannot have a durability class", hint);
        }
    }
}

fn check_class(place: &Place, class: DurabilityClass, found: &mut Objections) {
    if class == DurabilityClass::Replicated {
        let [message, hint] = REPLICATED;
        found.add(place.clone(), message, hint);
    }
}
