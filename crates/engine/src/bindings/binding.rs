//! Declarations of bindings between MQTT topics and queues, and their checks.

use mqtt_proto::topic;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use super::template::{Placeholder, Template};
use crate::entities;
use crate::names::default_tenant_name;

/// Maximum length of the name of a binding, in bytes. A longer name is refused.
const NAME_MAX: usize = 128;

/// A binding, as it is declared. It has either `filter` or `publish`: [`Binding::way`] tells which.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The name, unique in the tenant.
    pub name: String,
    /// The tenant whose MQTT clients and entities the binding connects.
    #[serde(default = "default_tenant_name")]
    pub tenant: String,
    /// The topic filter: messages that clients publish to matching topics go to `queue` or `topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The queue that gets the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The topic (of AMQP) that gets the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The session id that the messages get there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session: Option<Template>,
    /// The queue whose messages are published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_queue: Option<String>,
    /// The subscription whose messages are published, `{topic}/Subscriptions/{subscription}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_subscription: Option<String>,
    /// The MQTT topic to which the messages are published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub publish: Option<Template>,
    /// The QoS with which the messages are published; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// Whether the messages are retained; false by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
}

/// The direction of a binding, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// From MQTT clients to an entity.
    In {
        /// The topic filter.
        filter: &'a str,
        /// The path of the queue or topic.
        to: &'a str,
        /// The session id.
        session: Option<&'a Template>,
    },
    /// From an entity to MQTT clients.
    Out {
        /// The path of the queue or subscription.
        from: &'a str,
        /// The MQTT topic.
        publish: &'a Template,
        /// The QoS.
        qos: u8,
        /// Whether messages are retained.
        retain: bool,
    },
}

/// The reason why a binding is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct BindingError {
    key: &'static str,
    message: String,
    hint: &'static str,
}

impl BindingError {
    fn new(key: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { key, message: message.into(), hint }
    }

    /// The key that is wrong. `None`: the binding as a whole is wrong.
    pub fn key(&self) -> Option<&'static str> {
        (!self.key.is_empty()).then_some(self.key)
    }

    /// Advice for correcting the binding.
    pub fn hint(&self) -> &'static str {
        self.hint
    }
}

const IN_HINT: &str =
    "from MQTT to a queue: `filter` with `queue` or `topic`, and optionally `session`";
const OUT_HINT: &str = "from a queue to MQTT: `from_queue` or `from_subscription` with `publish`, and optionally `qos` and `retain`";
const SESSION_HINT: &str = "a session id is made of text, {1}, {2} … (levels of the topic), {topic}, \
                            {client} (identifier of the publisher) and {property:NAME}";
const PUBLISH_HINT: &str = "a topic is made of text, {session}, {subject} and {property:NAME}; an example: \"devices/{session}/commands\"";

impl Binding {
    /// Checks whether the binding can be declared: whether it is valid, whether a request can name it, and
    /// whether an entity can have the path that it names. This is stricter than [`Binding::way`], which must
    /// accept bindings that earlier versions have stored.
    ///
    /// # Errors
    /// `BindingError` if it cannot be declared.
    pub fn check(&self) -> Result<(), BindingError> {
        let (way, queue_key, other_key) = match self.way()? {
            Way::In { to, .. } => (to, "queue", "topic"),
            Way::Out { from, .. } => (from, "from_queue", "from_subscription"),
        };
        if self.name.len() > NAME_MAX || self.name.contains(char::is_control) {
            let message = format!(
                "the name of a binding has {NAME_MAX} bytes at most, and no control characters"
            );
            return Err(BindingError::new("name", message, "letters, digits, `-`, `_` and `.`"));
        }
        if let Err(error) = entities::check_path(way) {
            let is_queue = [&self.queue, &self.from_queue].iter().any(|queue| queue.is_some());
            let key = if is_queue { queue_key } else { other_key };
            let hint = "docs/operating/entities.md has the rules for names of queues, topics and subscriptions";
            return Err(BindingError::new(key, error.to_string(), hint));
        }
        Ok(())
    }

    /// Returns the direction of the binding.
    ///
    /// # Errors
    /// `BindingError` if the binding is invalid.
    pub fn way(&self) -> Result<Way<'_>, BindingError> {
        if self.name.is_empty() || self.name.contains(['/', '\\']) {
            let hint = "letters, digits, `-`, `_` and `.`, for example";
            return Err(BindingError::new("name", "a binding needs a name without slashes", hint));
        }
        match (&self.filter, &self.publish) {
            (Some(filter), None) => self.way_in(filter),
            (None, Some(publish)) => self.way_out(publish),
            (Some(_), Some(_)) => {
                let message = "a binding goes one way: `filter` and `publish` exclude each other";
                Err(BindingError::new("publish", message, "split it into two bindings"))
            }
            (None, None) => {
                let message =
                    "neither `filter` nor `publish` is set, so the direction is not known";
                Err(BindingError::new("", message, IN_HINT))
            }
        }
    }

    fn way_in<'a>(&'a self, filter: &'a str) -> Result<Way<'a>, BindingError> {
        if let Err(error) = topic::validate_filter(filter) {
            let message = format!("not a topic filter: {error}");
            return Err(BindingError::new(
                "filter",
                message,
                "an example: \"devices/+/telemetry\"",
            ));
        }
        if topic::is_shared(filter) {
            let message = "a binding cannot be part of a shared subscription";
            return Err(BindingError::new("filter", message, "use the filter without `$share/…`"));
        }
        for (key, is_there) in [
            ("from_queue", self.from_queue.is_some()),
            ("from_subscription", self.from_subscription.is_some()),
            ("qos", self.qos.is_some()),
            ("retain", self.retain),
        ] {
            if is_there {
                let message = format!("`{key}` cannot be used with `filter`");
                return Err(BindingError::new(key, message, IN_HINT));
            }
        }
        let to = one_of(("queue", &self.queue), ("topic", &self.topic), IN_HINT)?;
        if let Some(session) = &self.session {
            check_session(session, filter)?;
        }
        Ok(Way::In { filter, to, session: self.session.as_ref() })
    }

    fn way_out<'a>(&'a self, publish: &'a Template) -> Result<Way<'a>, BindingError> {
        for (key, is_there) in [
            ("queue", self.queue.is_some()),
            ("topic", self.topic.is_some()),
            ("session", self.session.is_some()),
        ] {
            if is_there {
                let message = format!("`{key}` cannot be used with `publish`");
                return Err(BindingError::new(key, message, OUT_HINT));
            }
        }
        let queue = ("from_queue", &self.from_queue);
        let from = one_of(queue, ("from_subscription", &self.from_subscription), OUT_HINT)?;
        let qos = self.qos.unwrap_or(1);
        if qos > 2 {
            return Err(BindingError::new("qos", format!("there is no QoS {qos}"), "0, 1 or 2"));
        }
        for placeholder in publish.placeholders() {
            if !matches!(
                placeholder,
                Placeholder::Session | Placeholder::Subject | Placeholder::Property(_)
            ) {
                let message = format!("`{placeholder}` has no value for messages of a queue");
                return Err(BindingError::new("publish", message, PUBLISH_HINT));
            }
        }
        // The topic with the values of a message is checked for each message.
        let example = publish.render(|_| Some("x".into())).unwrap_or_default();
        if let Err(error) = topic::validate_name(&example) {
            let message = format!("not a topic to publish to: {error}");
            return Err(BindingError::new("publish", message, PUBLISH_HINT));
        }
        Ok(Way::Out { from, publish, qos, retain: self.retain })
    }
}

fn one_of<'a>(
    (one_key, one): (&'static str, &'a Option<String>),
    (other_key, other): (&'static str, &'a Option<String>),
    hint: &'static str,
) -> Result<&'a str, BindingError> {
    let (key, path) = match (one, other) {
        (Some(path), None) => (one_key, path),
        (None, Some(path)) => (other_key, path),
        (Some(_), Some(_)) => {
            let message = format!("`{one_key}` and `{other_key}` exclude each other");
            return Err(BindingError::new(other_key, message, "split it into two bindings"));
        }
        (None, None) => {
            let message = format!("neither `{one_key}` nor `{other_key}` is there");
            return Err(BindingError::new("", message, hint));
        }
    };
    if path.is_empty() {
        return Err(BindingError::new(key, format!("`{key}` is empty"), hint));
    }
    Ok(path)
}

fn check_session(session: &Template, filter: &str) -> Result<(), BindingError> {
    let levels = filter.split('/').count();
    for placeholder in session.placeholders() {
        match placeholder {
            Placeholder::Level(level) if *level > levels && !filter.ends_with('#') => {
                let message = format!("`{placeholder}`: topics of `{filter}` have {levels} levels");
                return Err(BindingError::new("session", message, SESSION_HINT));
            }
            Placeholder::Session | Placeholder::Subject => {
                let message = format!("`{placeholder}` has no value for MQTT messages");
                return Err(BindingError::new("session", message, SESSION_HINT));
            }
            Placeholder::Level(_)
            | Placeholder::Client
            | Placeholder::Topic
            | Placeholder::Property(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn binding(mut members: Value) -> Binding {
        members["name"] = "b".into();
        serde_json::from_value(members).unwrap()
    }

    #[test]
    fn both_ways() {
        let telemetry =
            binding(json!({ "filter": "devices/+/t", "queue": "telemetry", "session": "{2}" }));
        let Way::In { filter: "devices/+/t", to: "telemetry", session: Some(session) } =
            telemetry.way().unwrap()
        else {
            panic!("{telemetry:?}");
        };
        assert_eq!(session.as_str(), "{2}");
        let commands = binding(json!({ "from_queue": "c", "publish": "d/{session}" }));
        let Way::Out { from: "c", qos: 1, retain: false, .. } = commands.way().unwrap() else {
            panic!("{commands:?}");
        };
        assert_eq!(commands.tenant, "default");
    }

    #[test]
    fn what_can_never_be_is_not_declared() {
        for (members, key) in [
            (json!({ "filter": "a", "queue": "no such name" }), "queue"),
            (json!({ "filter": "a", "topic": "q/$DeadLetterQueue" }), "topic"),
            (json!({ "publish": "b", "from_queue": "a//b" }), "from_queue"),
            (
                json!({ "publish": "b", "from_subscription": "t/Subscriptions/" }),
                "from_subscription",
            ),
        ] {
            let binding = binding(members.clone());
            assert!(
                binding.way().is_ok(),
                "{members}: it may have been stored by an earlier version"
            );
            assert_eq!(binding.check().unwrap_err().key, key, "{members}");
        }
        let mut named = binding(json!({ "filter": "a", "queue": "/q/" }));
        assert_eq!(named.check(), Ok(()));
        for name in ["a\nb".to_owned(), "b".repeat(NAME_MAX + 1)] {
            named.name = name;
            assert_eq!(named.check().unwrap_err().key, "name");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_key() {
        for (members, key, message) in [
            (json!({}), "", "neither `filter` nor `publish`"),
            (json!({ "filter": "a", "publish": "b" }), "publish", "one way"),
            (json!({ "filter": "a#", "queue": "q" }), "filter", "not a topic filter"),
            (json!({ "filter": "$share/g/a", "queue": "q" }), "filter", "shared"),
            (json!({ "filter": "a" }), "", "neither `queue` nor `topic`"),
            (json!({ "filter": "a", "queue": "q", "topic": "t" }), "topic", "exclude"),
            (json!({ "filter": "a", "queue": "" }), "queue", "empty"),
            (
                json!({ "filter": "a", "queue": "q", "qos": 1 }),
                "qos",
                "cannot be used with `filter`",
            ),
            (json!({ "filter": "a/+", "queue": "q", "session": "{3}" }), "session", "2 levels"),
            (json!({ "filter": "a", "queue": "q", "session": "{subject}" }), "session", "no value"),
            (json!({ "publish": "b" }), "", "neither `from_queue` nor `from_subscription`"),
            (json!({ "publish": "b", "from_queue": "q", "queue": "x" }), "queue", "`publish`"),
            (json!({ "publish": "b", "from_queue": "q", "qos": 3 }), "qos", "no QoS 3"),
            (json!({ "publish": "b/{client}", "from_queue": "q" }), "publish", "no value"),
            (json!({ "publish": "b/#", "from_queue": "q" }), "publish", "not a topic"),
        ] {
            let error = binding(members.clone()).way().unwrap_err();
            assert_eq!(error.key, key, "{members}");
            assert!(error.message.contains(message), "{members}: {error}");
        }
        let deep = binding(json!({ "filter": "a/#", "queue": "q", "session": "{7}" }));
        assert!(deep.way().is_ok(), "topics may have that many levels");
    }
}
