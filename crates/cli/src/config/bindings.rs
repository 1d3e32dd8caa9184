//! Bindings between MQTT and entities.

use std::collections::BTreeSet;

use barid_engine::names::check_tenant_name;
use barid_server::settings::Settings;

use super::problem::Place;
use super::validate::Objections;

pub fn check(settings: &Settings, found: &mut Objections) {
    let mut names = BTreeSet::new();
    for (i, binding) in settings.bindings.iter().enumerate() {
        let place = Place::of(&["bindings"]).index(i);
        if let Err(error) = check_tenant_name(&binding.tenant) {
            found.add(
                place.key("tenant"),
                error.to_string(),
                "without this key the tenant is `default`",
            );
        }
        if let Err(error) = binding.check() {
            let place = error.key().map_or(place.clone(), |key| place.key(key));
            found.add(place, error.to_string(), error.hint());
        } else if !names.insert((&binding.tenant, &binding.name)) {
            let message = format!("the binding `{}` is declared twice", binding.name);
            found.add(place.key("name"), message, "give each binding a name of its own");
        }
    }
}
