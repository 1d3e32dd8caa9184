//! The access control lists that EMQX accepts in tokens and in the answers of services.

use barid_engine::rights::{Action, Actions, Rights, Rule};
use serde::Deserialize;

use super::is_object;

/// Text in front of a topic that is meant literally: without placeholders, and as a subscription to exactly this
/// filter.
const LITERAL: &str = "eq ";

/// The old form: what may be done, and nothing else.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lists {
    r#pub: Vec<String>,
    sub: Vec<String>,
    all: Vec<String>,
}

/// A rule of the new form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AclRule {
    permission: Permission,
    action: AclAction,
    topic: String,
    #[serde(default)]
    qos: Option<Levels>,
    #[serde(default)]
    retain: Option<Retain>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AclAction {
    Publish,
    Subscribe,
    All,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Levels {
    One(u8),
    Many(Vec<u8>),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Retain {
    Only(bool),
    Both(Both),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Both {
    All,
}

/// What a topic of a list stands for.
enum Topic {
    /// A topic filter of Barid.
    Filter(String),
    /// A filter with wildcards that is meant literally, so only a subscription can be equal to it.
    LiteralFilter(String),
}

/// Reads an access control list from JSON.
///
/// # Errors
/// A sentence about the first thing that is wrong, or that the rules of Barid cannot express.
pub(crate) fn rights_of_acl(json: &str) -> Result<Rights, String> {
    if is_object(json) {
        serde_json::from_str(json).map_err(|error| error.to_string()).and_then(rights_of_lists)
    } else {
        let rules: Vec<AclRule> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let mut rights = Rights::default();
        for rule in rules {
            rights.rules.extend(translate(rule)?);
        }
        Ok(rights)
    }
}

fn rights_of_lists(lists: Lists) -> Result<Rights, String> {
    let Lists { r#pub, sub, all } = lists;
    let (mut publish, mut subscribe) = (Vec::new(), Vec::new());
    for topic in r#pub.iter().chain(&all) {
        // No topic name is equal to a filter with wildcards.
        if let Topic::Filter(filter) = parse_topic(topic)? {
            publish.push(filter);
        }
    }
    for topic in sub.iter().chain(&all) {
        let (Topic::Filter(filter) | Topic::LiteralFilter(filter)) = parse_topic(topic)?;
        subscribe.push(filter);
    }
    Ok(Rights { publish: Some(publish), subscribe: Some(subscribe), ..Rights::default() })
}

/// Returns no rule for one that matches nothing.
fn translate(rule: AclRule) -> Result<Option<Rule>, String> {
    let (filter, action) = match (parse_topic(&rule.topic)?, rule.action) {
        (Topic::Filter(filter), action) => (filter, action),
        (Topic::LiteralFilter(_), AclAction::Publish) => return Ok(None),
        // Who may subscribe to `a/#` gets the same messages over `a/b`.
        (Topic::LiteralFilter(filter), _) if rule.permission == Permission::Allow => {
            (filter, AclAction::Subscribe)
        }
        // A rule that denies `a/#` would also deny `a/b`. To deny more than the service wants would be safe,
        // but `eq #` would deny everything, for a reason that nobody finds.
        (Topic::LiteralFilter(filter), _) => {
            return Err(format!(
                "`{LITERAL}{filter}` with `deny`: a rule that denies a filter also denies what the filter \
                 matches; use `allow` for the filters that are wanted"
            ));
        }
    };
    let actions = Some(match action {
        AclAction::Publish => Actions::One(Action::Publish),
        AclAction::Subscribe => Actions::One(Action::Subscribe),
        AclAction::All => Actions::Many(vec![Action::Publish, Action::Subscribe]),
    });
    let (allow, deny) = match rule.permission {
        Permission::Allow => (actions, None),
        Permission::Deny => (None, actions),
    };
    Ok(Some(Rule {
        allow,
        deny,
        topics: Some(vec![filter]),
        qos: rule.qos.map(|levels| match levels {
            Levels::One(level) => vec![level],
            Levels::Many(levels) => levels,
        }),
        retain: match rule.retain {
            Some(Retain::Only(retain)) => Some(retain),
            Some(Retain::Both(Both::All)) | None => None,
        },
        ..Rule::default()
    }))
}

fn parse_topic(text: &str) -> Result<Topic, String> {
    if let Some(literal) = text.strip_prefix(LITERAL) {
        if literal.contains("%c") || literal.contains("%u") {
            return Err(format!("`{text}`: a rule cannot contain %c or %u literally"));
        }
        let literal = literal.to_owned();
        let is_filter = literal.split('/').any(|level| matches!(level, "+" | "#"));
        return Ok(if is_filter { Topic::LiteralFilter(literal) } else { Topic::Filter(literal) });
    }
    let filter = text.replace("${clientid}", "%c").replace("${username}", "%u");
    if filter.contains("${") {
        return Err(format!(
            "`{text}`: the placeholders of topics are ${{clientid}} and ${{username}}"
        ));
    }
    Ok(Topic::Filter(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(acl: &str) -> String {
        let rights = rights_of_acl(acl).unwrap();
        rights.check("acme/ada").unwrap();
        serde_json::to_string(&rights).unwrap()
    }

    #[test]
    fn the_old_form_is_what_is_allowed() {
        assert_eq!(
            translated(
                r#"{"pub":["p/${username}","eq q/${username}","eq r/#"],
                    "sub":["s/${clientid}/+","eq t/+/x"],"all":["u/#"]}"#
            ),
            r##"{"publish":["p/%u","q/${username}","u/#"],"subscribe":["s/%c/+","t/+/x","u/#"]}"##
        );
        assert_eq!(translated(r#"{"sub":["a"]}"#), r#"{"publish":[],"subscribe":["a"]}"#);
        assert_eq!(
            translated("{}"),
            r#"{"publish":[],"subscribe":[]}"#,
            "an empty list allows nothing"
        );
    }

    #[test]
    fn the_new_form_is_rules_in_order() {
        assert_eq!(
            translated(
                r#"[{"permission":"allow","action":"publish","topic":"t/${clientid}"},
                    {"permission":"allow","action":"subscribe","topic":"eq t/1/#","qos":[1]},
                    {"permission":"deny","action":"publish","topic":"t/2","retain":true,"qos":0},
                    {"permission":"allow","action":"publish","topic":"eq t/+"},
                    {"permission":"deny","action":"all","topic":"t/3","retain":"all"}]"#
            ),
            r##"{"rules":[{"allow":"publish","topics":["t/%c"]},{"allow":"subscribe","topics":["t/1/#"],"qos":[1]},{"deny":"publish","topics":["t/2"],"qos":[0],"retain":true},{"deny":["publish","subscribe"],"topics":["t/3"]}]}"##
        );
        assert_eq!(translated("[]"), "{}");
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let rule = |topic: &str, more: &str| {
            format!(r#"[{{"permission":"deny","action":"subscribe","topic":"{topic}"{more}}}]"#)
        };
        for (acl, expected) in [
            (rule("eq #", ""), "use `allow`"),
            (rule("a/${cert_common_name}", ""), "the placeholders of topics are"),
            (rule("eq a/%c", ""), "literally"),
            (rule("a", r#","ipaddr":"10.0.0.0/8""#), "unknown field `ipaddr`"),
            (rule("a", r#","permission":"allow""#), "duplicate field"),
            (rule("a", r#","retain":"maybe""#), "did not match"),
            (rule("a", r#","qos":-1"#), "did not match"),
            (r#"{"pub":["a"],"publish":["b"]}"#.into(), "unknown field"),
            (r#"{"pub":["a"],"pub":["b"]}"#.into(), "duplicate field"),
            (r#"{"pub":"a"}"#.into(), "invalid type"),
            (r#"[["a"],["b"]]"#.into(), "unknown variant"),
            (r#"[{"permission":"allow","topic":"a"}]"#.into(), "missing field `action`"),
            ("null".into(), "invalid type"),
        ] {
            let error = rights_of_acl(&acl).unwrap_err();
            assert!(error.contains(expected), "{acl}: {error}");
        }
        let unchecked = rights_of_acl(&rule("a/#/b", "")).unwrap();
        assert!(unchecked.check("acme/ada").unwrap_err().contains("not a topic filter"));
    }
}
