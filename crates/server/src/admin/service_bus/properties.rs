//! The elements of a description, and the properties of an entity.
//!
//! The names of the elements are those of the properties in a `Config.json`, so that both are read alike.

use axum::http::StatusCode;
use barid_engine::entities::{IsoDuration, Status, without_authority};
use roxmltree::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::xml::{self, Writer};
use crate::admin::answer::Refusal;

/// How the value of a property is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Bool,
    Number,
    /// The path of an entity; clients write a URI.
    Path,
    /// A [`Status`], which properties have only if it is not `Active`.
    Status,
}

/// What an element of a description stands for.
enum Element {
    /// A property of the entity.
    Property(Form),
    /// A property that has this value for all entities.
    Always(&'static str),
    /// A property that has no effect, or that only answers have.
    Ignored,
    /// What Barid does not have.
    Absent(&'static str),
}

impl Element {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "AutoDeleteOnIdle"
            | "DefaultMessageTimeToLive"
            | "DuplicateDetectionHistoryTimeWindow"
            | "LockDuration"
            | "UserMetadata" => Self::Property(Form::Text),
            "DeadLetteringOnMessageExpiration"
            | "EnableBatchedOperations"
            | "EnableExpress"
            | "EnablePartitioning"
            | "RequiresDuplicateDetection"
            | "RequiresSession"
            | "SupportOrdering" => Self::Property(Form::Bool),
            "MaxDeliveryCount" | "MaxMessageSizeInKilobytes" | "MaxSizeInMegabytes" => {
                Self::Property(Form::Number)
            }
            "ForwardDeadLetteredMessagesTo" | "ForwardTo" => Self::Property(Form::Path),
            "FilteringMessagesBeforePublishing" | "IsAnonymousAccessible" => Self::Always("false"),
            "EntityAvailabilityStatus" => Self::Always("Available"),
            "Status" => Self::Property(Form::Status),
            "AuthorizationRules" => Self::Absent(
                "keys are in the configuration of the broker ([[keys]], with `entity`)",
            ),
            // No filter fails, and subscriptions are never partitioned.
            "EnableSubscriptionPartitioning" | "DeadLetteringOnFilterEvaluationExceptions" => {
                Self::Ignored
            }
            "AccessedAt"
            | "CorrelationFilterCount"
            | "CountDetails"
            | "CreatedAt"
            | "DefaultRuleDescription"
            | "MessageCount"
            | "SizeInBytes"
            | "SqlFilterCount"
            | "SubscriptionCount"
            | "UpdatedAt" => Self::Ignored,
            _ => return None,
        })
    }
}

/// Reads the properties of an entity from its description. Those that are missing have their defaults.
pub fn read<T: DeserializeOwned>(description: Node<'_, '_>) -> Result<T, Refusal> {
    let mut properties = Map::new();
    for element in xml::children(description) {
        let (name, text) = (xml::name(element), xml::text(element));
        if name == "SupportOrdering" && xml::name(description) != "TopicDescription" {
            continue;
        }
        let refuse = |what: &str| Err(Refusal::bad_request(format!("{name}: {what}")));
        match Element::of(name) {
            Some(Element::Property(form)) => match value(form, text) {
                Some(value) => _ = properties.insert(name.into(), value),
                None => return refuse(&format!("{text:?} is not a value of this property")),
            },
            Some(Element::Always(only)) if text.eq_ignore_ascii_case(only) => {}
            Some(Element::Always(only)) => {
                return Err(Refusal::of(
                    StatusCode::NOT_IMPLEMENTED,
                    format!("{name}: this broker supports {only} only, not {text:?}"),
                ));
            }
            Some(Element::Absent(hint)) if xml::children(element).next().is_some() => {
                return Err(Refusal::of(
                    StatusCode::NOT_IMPLEMENTED,
                    format!("{name}: not supported; {hint}"),
                ));
            }
            Some(Element::Absent(_) | Element::Ignored) => {}
            None => return refuse("there is no such property"),
        }
    }
    serde_json::from_value(properties.into())
        .map_err(|error| Refusal::bad_request(error.to_string()))
}

fn value(form: Form, text: &str) -> Option<Value> {
    Some(match form {
        Form::Text => text.into(),
        Form::Bool if text.eq_ignore_ascii_case("true") => true.into(),
        Form::Bool if text.eq_ignore_ascii_case("false") => false.into(),
        Form::Bool => return None,
        Form::Number => text.trim().parse::<u64>().ok()?.into(),
        Form::Path => path(text).into(),
        Form::Status => {
            let mut all = Status::ALL.iter().map(|status| format!("{status:?}"));
            all.find(|name| name.eq_ignore_ascii_case(text))?.into()
        }
    })
}

/// Returns the path of an entity, from a URI or a path.
fn path(text: &str) -> &str {
    without_authority(text).trim_matches('/')
}

/// Writes the elements in `order`: the properties of an entity, those that are the same for all, and with `special` the
/// others. `authority` stands in front of the paths of other entities.
pub fn write(
    xml: &mut Writer,
    properties: &impl Serialize,
    authority: &str,
    order: &[&str],
    mut special: impl FnMut(&mut Writer, &str),
) {
    let Ok(Value::Object(properties)) = serde_json::to_value(properties) else { return };
    for name in order {
        match (properties.get(*name), Element::of(name)) {
            (Some(Value::String(path)), Some(Element::Property(Form::Path))) => {
                if !path.is_empty() {
                    xml.text(name, format_args!("sb://{authority}/{path}"));
                }
            }
            (Some(Value::String(text)), _) => {
                if !text.is_empty() {
                    xml.text(name, text);
                }
            }
            (Some(value), _) => xml.text(name, value),
            // Properties that are stored only if they are set.
            (None, Some(Element::Property(Form::Text))) if *name == "AutoDeleteOnIdle" => {
                xml.text(name, IsoDuration::UNLIMITED);
            }
            (None, Some(Element::Property(Form::Bool))) => {
                xml.text(name, matches!(*name, "EnableBatchedOperations" | "SupportOrdering"));
            }
            (None, Some(Element::Property(Form::Status))) => xml.text(name, "Active"),
            (None, Some(Element::Always(only))) => xml.text(name, only),
            (None, _) => special(xml, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use barid_engine::entities::{QueueProperties, TopicProperties};

    use super::*;

    fn parsed<T: DeserializeOwned>(elements: &str) -> Result<T, String> {
        let text =
            format!("<QueueDescription xmlns='{}'>{elements}</QueueDescription>", xml::SERVICE_BUS);
        let document = xml::parse(text.as_bytes()).unwrap();
        read(document.root_element()).map_err(|refusal| refusal.sentence().into())
    }

    #[test]
    fn properties_are_read_as_from_a_file() {
        let queue: QueueProperties = parsed(
            "<LockDuration>PT5S</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount>\
             <RequiresSession>True</RequiresSession><ForwardTo>sb://h:1/a/B</ForwardTo>\
             <EnableBatchedOperations>false</EnableBatchedOperations><Status>senddisabled</Status>\
             <AutoDeleteOnIdle>P10675199DT2H48M5.477581S</AutoDeleteOnIdle><AuthorizationRules/>",
        )
        .unwrap();
        assert_eq!(queue.lock_duration, IsoDuration::seconds(5));
        assert_eq!((queue.max_delivery_count, queue.requires_session), (3, true));
        assert_eq!(queue.forward_to, "a/B");
        assert_eq!(queue.status, Status::SendDisabled);
        assert_eq!(queue.auto_delete_on_idle, IsoDuration::UNLIMITED, "clients round it");
        assert_eq!(parsed::<QueueProperties>(""), Ok(QueueProperties::default()));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let error = |elements| parsed::<TopicProperties>(elements).unwrap_err();
        for (elements, expected) in [
            ("<Status>Off</Status>", "Status: \"Off\" is not a value of this property"),
            (
                "<AuthorizationRules><a/></AuthorizationRules>",
                "AuthorizationRules: not supported; keys are",
            ),
            ("<Other>1</Other>", "Other: there is no such property"),
            (
                "<MaxSizeInMegabytes>-1</MaxSizeInMegabytes>",
                "MaxSizeInMegabytes: \"-1\" is not a value",
            ),
            ("<LockDuration>PT5S</LockDuration>", "unknown field `LockDuration`"),
            ("<DefaultMessageTimeToLive>x</DefaultMessageTimeToLive>", "`x` is no duration"),
        ] {
            let error = error(elements);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_path_has_no_authority() {
        for text in ["sb://h/a/b", "https://h:5300/a/b/", "a/b", "/a/b"] {
            assert_eq!(path(text), "a/b");
        }
        assert_eq!(path("sb://h"), "");
    }
}
