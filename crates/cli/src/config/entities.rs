//! Checks of the queues and topics that are declared.

use barid_engine::entities::{DefinitionError, Definitions, SubscriptionDefinition};
use barid_engine::names::check_tenant_name;
use barid_server::settings::Settings;

use super::problem::{Place, Step};
use super::validate::Objections;

/// Names of the parts of a definition in a file format.
pub struct Words {
    pub queues: &'static str,
    pub topics: &'static str,
    pub subscriptions: &'static str,
    pub rules: &'static str,
    pub name: &'static str,
    pub properties: &'static str,
}

const TOML: Words = Words {
    queues: "queues",
    topics: "topics",
    subscriptions: "subscriptions",
    rules: "rules",
    name: "name",
    properties: "properties",
};

/// Hint for a definition that cannot be used. The message says what is wrong.
pub const HINT: &str = "docs/operating/entities.md lists all properties and their values";

/// Checks the entities that the configuration itself declares.
pub fn check(settings: &Settings, found: &mut Objections) {
    let tenants = settings.queues.iter().map(|queue| &queue.tenant).enumerate();
    let tenants = tenants.map(|(i, tenant)| (Place::of(&["queues"]).index(i), tenant));
    let of_topics = settings.topics.iter().map(|topic| &topic.tenant).enumerate();
    let of_topics = of_topics.map(|(i, tenant)| (Place::of(&["topics"]).index(i), tenant));
    for (place, tenant) in tenants.chain(of_topics) {
        if let Err(error) = check_tenant_name(tenant) {
            found.add(
                place.key("tenant"),
                error.to_string(),
                "without this key the tenant is `default`",
            );
        }
    }
    let all = Definitions {
        queues: settings.queues.iter().map(|queue| queue.definition()).collect(),
        topics: settings.topics.iter().map(|topic| topic.definition()).collect(),
    };
    let before = found.len();
    each(&all, &TOML, |place, error| found.add(place, error.to_string(), HINT));
    if found.len() == before {
        check_names(settings, found);
    }
}

/// Checks that no two entities of a tenant have the same name.
pub fn check_names(settings: &Settings, found: &mut Objections) {
    for (tenant, definitions) in settings.declared() {
        if let Err(error) = definitions.check() {
            let place = Place::of(&["queues"]);
            found.add(place, format!("tenant {tenant}: {error}"), "give each a name of its own");
        }
    }
}

/// Checks each definition on its own, and reports the places of those that cannot be used.
pub fn each(
    definitions: &Definitions,
    words: &Words,
    mut found: impl FnMut(Place, DefinitionError),
) {
    let mut tell = |place: Place, error: DefinitionError| {
        let step = match &error {
            DefinitionError::Value { property, .. } => {
                Some(place.key(words.properties).key(property))
            }
            DefinitionError::Name(_) => Some(place.key(words.name)),
            _ => None,
        };
        found(step.unwrap_or(place), error);
    };
    for (i, queue) in definitions.queues.iter().enumerate() {
        if let Err(error) = queue.check() {
            tell(Place::of(&[words.queues]).index(i), error);
        }
    }
    for (i, topic) in definitions.topics.iter().enumerate() {
        let place = Place::of(&[words.topics]).index(i);
        let mut is_good = true;
        for (j, subscription) in topic.subscriptions.iter().enumerate() {
            let place = place.key(words.subscriptions).index(j);
            for (k, rule) in subscription.rules.iter().enumerate() {
                if let Err(error) = rule.check() {
                    is_good = false;
                    tell(place.key(words.rules).index(k), error);
                }
            }
            let without_rules =
                SubscriptionDefinition { rules: Vec::new(), ..subscription.clone() };
            if let Err(error) = without_rules.check(&topic.name) {
                is_good = false;
                tell(place, error);
            }
        }
        if is_good && let Err(error) = topic.check() {
            tell(place, error);
        }
    }
}

/// Returns `place` as seen from the root, if it is relative to `beginning`.
pub fn below(beginning: &Place, place: Place) -> Place {
    Place(beginning.0.iter().cloned().chain(place.0).collect::<Vec<Step>>())
}
