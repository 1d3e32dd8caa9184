//! Rights in tokens and in the answers of services.
//!
//! What is not understood is an error here, and never left out: a rule that is left out may be one that denies.

mod emqx;

use barid_engine::key_rules::KeyRule;
use barid_engine::rights::{Action, Rights, Rule};
use barid_engine::user_limits::UserLimits;
use serde::Deserialize;

pub(crate) use emqx::rights_of_acl;

/// [`Rights`] without other fields: a name with a spelling mistake must not mean that there are no rules.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Strict {
    rules: Vec<Rule>,
    publish: Option<Vec<String>>,
    subscribe: Option<Vec<String>>,
    state: Option<Vec<KeyRule>>,
    limits: UserLimits,
}

/// Reads [`Rights`] from JSON.
///
/// # Errors
/// A sentence about what is wrong with the JSON.
pub(crate) fn rights_of_json(json: &str) -> Result<Rights, String> {
    if !is_object(json) {
        return Err(
            "rights are an object with `rules`, `publish`, `subscribe`, `state` or `limits`".into(),
        );
    }
    let Strict { rules, publish, subscribe, state, limits } =
        serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok(Rights { rules, publish, subscribe, state, limits: limits.if_any() })
}

/// Whether JSON is an object. A structure is also read from a list, whose missing elements have their defaults.
pub(crate) fn is_object(json: &str) -> bool {
    json.trim_ascii_start().starts_with('{')
}

/// Returns the rights of a user that no rule restricts, not even those of the tenant.
pub(crate) fn unrestricted() -> Rights {
    Rights { rules: vec![Rule::everywhere(true, Action::All)], ..Rights::default() }
}

#[cfg(test)]
mod tests {
    use barid_engine::key_rules::{KeyAccess, KeyKind};
    use barid_engine::rights::Actions;

    use super::*;

    #[test]
    fn all_rights_are_read() {
        let rights = Rights {
            rules: vec![Rule {
                deny: Some(Actions::One(Action::Publish)),
                topics: Some(vec!["a/%c".into()]),
                qos: Some(vec![2]),
                retain: Some(true),
                ..Rule::default()
            }],
            publish: Some(vec!["b".into()]),
            subscribe: Some(vec![]),
            state: Some(vec![KeyRule {
                access: KeyAccess::Read,
                kind: KeyKind::String,
                keys: vec!["k".into()],
            }]),
            limits: UserLimits { publish_rate: Some(10), ..UserLimits::NONE }.if_any(),
        };
        let json = serde_json::to_string(&rights).unwrap();
        assert_eq!(rights_of_json(&json).unwrap(), rights);
        assert!(rights_of_json("{}").unwrap().are_empty());
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for (json, expected) in [
            (r#"{"publsh":["a"]}"#, "unknown field `publsh`"),
            (r#"{"publish":["a"],"publish":["b"]}"#, "duplicate field"),
            (r#"{"limits":{"publsh_rate":1}}"#, "unknown field `publsh_rate`"),
            (r#"{"limits":{"publish_rate":"1"}}"#, "invalid type"),
            (r#"{"rules":[{"deny":"publish","deny":"read"}]}"#, "duplicate field"),
            (r#"{"rules":[{"deny":"publish","topic":["a"]}]}"#, "unknown field `topic`"),
            ("[]", "an object with"),
            (r#"[[],["a"]]"#, "an object with"),
            ("null", "an object with"),
            (r#""all""#, "an object with"),
            (r#" {"publish":"all"}"#, "invalid type"),
        ] {
            let error = rights_of_json(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
