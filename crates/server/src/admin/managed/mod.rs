//! Users, settings of tenants, bans and tokens, which operators change while the broker runs.
//!
//! A change is in force at once, and is answered when it is durable. Every change is logged.

mod bans;
mod settings;
mod tokens;
mod users;

use barid_engine::managed::ManagedError;
use barid_engine::names::check_tenant_name;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Served;
use super::answer::Refusal;

/// Returns the routes for all managed objects.
pub fn routes() -> OpenApiRouter<Served> {
    OpenApiRouter::default()
        .routes(routes!(settings::show, settings::put, settings::patch, settings::delete))
        .routes(routes!(users::list))
        .routes(routes!(users::show, users::put, users::patch, users::delete))
        .routes(routes!(bans::list, bans::post))
        .routes(routes!(bans::show, bans::delete))
        .routes(routes!(tokens::list, tokens::post))
        .routes(routes!(tokens::delete))
}

impl From<ManagedError> for Refusal {
    fn from(error: ManagedError) -> Self {
        let sentence = error.to_string();
        match error {
            ManagedError::Name(..) | ManagedError::Text(..) => Self::bad_request(sentence),
            ManagedError::Full(_) => Self::conflict(sentence),
            ManagedError::Closed(_) => Self::unavailable(sentence),
        }
    }
}

/// Returns what the names of objects of a tenant begin with; nothing for all tenants.
fn prefix_of(tenant: Option<String>) -> Result<String, Refusal> {
    let Some(tenant) = tenant else { return Ok(String::new()) };
    check_tenant_name(&tenant).map_err(|error| {
        Refusal::bad_request(format!("{tenant:?} is not a valid tenant name: {error}"))
    })?;
    Ok(format!("{tenant}/"))
}

/// Reads members into a type.
fn read<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(Value::from(members)).map_err(|error| {
        let path = error.path().to_string();
        let mut sentence = error.into_inner().to_string();
        for number in ["u8", "u16", "u32", "u64", "usize"] {
            let named = format!("expected {number}");
            if sentence.ends_with(&named) {
                let plain = "expected a whole number of 0 or more";
                sentence.replace_range(sentence.len() - named.len().., plain);
            }
        }
        // A member that is missing or unknown is named by the sentence.
        let is_named =
            path == "." || sentence.starts_with("unknown field") || sentence.starts_with("missing");
        Refusal::bad_request(if is_named { sentence } else { format!("`{path}`: {sentence}") })
    })
}

/// Checks the names of the limits in the changes, also of those that are to be removed. `T` has all limits.
fn check_limits<T: DeserializeOwned>(changes: &Map<String, Value>) -> Result<(), Refusal> {
    match changes.get("limits") {
        Some(Value::Object(limits)) => read::<T>(limits.clone()).map(drop),
        _ => Ok(()),
    }
}

/// Removes members that answers have and requests need not have.
fn forget(members: &mut Map<String, Value>, told: &[&str]) {
    members.retain(|member, _| !told.contains(&member.as_str()));
}

/// Changes some members, and of `limits` only those that are named. A member that is null is removed.
fn merge_with_limits(before: &mut Map<String, Value>, mut changes: Map<String, Value>) {
    if let Some(Value::Object(limits)) = changes.get_mut("limits") {
        let mut merged = match before.remove("limits") {
            Some(Value::Object(before)) => before,
            _ => Map::new(),
        };
        merge(&mut merged, std::mem::take(limits));
        *limits = merged;
    }
    merge(before, changes);
}

/// Changes some members. A member that is null is removed.
fn merge(before: &mut Map<String, Value>, changes: Map<String, Value>) {
    for (member, value) in changes {
        if value.is_null() {
            before.remove(&member);
        } else {
            before.insert(member, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use barid_engine::user_limits::UserLimits;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_limit_names_it() {
        let told = |text: &str| {
            let changes = serde_json::from_str(text).unwrap();
            check_limits::<UserLimits>(&changes).map_err(|refusal| refusal.sentence().to_owned())
        };
        assert_eq!(told(r#"{"limits":{"publish_rate":5,"max_sessions":null}}"#), Ok(()));
        assert_eq!(
            told(r#"{"limits":{"max_sessions":1,"publish_rate":-1}}"#).unwrap_err(),
            "`publish_rate`: invalid value: integer `-1`, expected a whole number of 0 or more"
        );
        for text in [r#"{"limits":{"foo":null}}"#, r#"{"limits":{"foo":1}}"#] {
            let sentence = told(text).unwrap_err();
            assert!(sentence.starts_with("unknown field `foo`, expected one of"), "{sentence}");
        }
    }
}
