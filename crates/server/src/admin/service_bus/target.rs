//! The paths of requests.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::admin::answer::Refusal;

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// The namespace, which is the tenant: `/$namespaceinfo`.
    Namespace,
    /// All queues: `/$Resources/queues`.
    Queues,
    /// All topics: `/$Resources/topics`.
    Topics,
    /// A queue or a topic.
    Entity(String),
    /// All subscriptions of a topic.
    Subscriptions(String),
    /// A subscription.
    Subscription { topic: String, name: String },
    /// All rules of a subscription.
    Rules { topic: String, subscription: String },
    /// A rule.
    Rule { topic: String, subscription: String, name: String },
}

/// Decodes the path of a request. Names of queues and topics may have slashes, which may be percent-encoded.
pub fn decode(path: &str) -> Result<Cow<'_, str>, Refusal> {
    percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| Refusal::bad_request("the path is not UTF-8"))
}

impl Target {
    /// Parses a decoded path.
    pub fn parse(path: &str) -> Result<Self, Refusal> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let is = |segment: &str, word: &str| segment.eq_ignore_ascii_case(word);
        match *segments {
            [first] if is(first, "$namespaceinfo") => return Ok(Self::Namespace),
            [first, kind] if is(first, "$Resources") && is(kind, "queues") => {
                return Ok(Self::Queues);
            }
            [first, kind] if is(first, "$Resources") && is(kind, "topics") => {
                return Ok(Self::Topics);
            }
            _ => {}
        }
        // No segment of a queue or topic has this name.
        let Some(end) = segments.iter().position(|segment| is(segment, "subscriptions")) else {
            return Ok(Self::Entity(segments.join("/")));
        };
        let topic = segments[..end].join("/");
        match segments[end + 1..] {
            [] => Ok(Self::Subscriptions(topic)),
            [name] => Ok(Self::Subscription { topic, name: name.into() }),
            [subscription, rules] if is(rules, "rules") => {
                Ok(Self::Rules { topic, subscription: subscription.into() })
            }
            [subscription, rules, name] if is(rules, "rules") => {
                Ok(Self::Rule { topic, subscription: subscription.into(), name: name.into() })
            }
            _ => Err(Refusal::not_found(format!("no such path: {path}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_slashes_and_words_have_any_case() {
        let parse = |path| Target::parse(&decode(path).unwrap()).unwrap();
        assert_eq!(parse("/$namespaceinfo"), Target::Namespace);
        assert_eq!(parse("/$Resources/Queues"), Target::Queues);
        assert_eq!(parse("/%24Resources/topics"), Target::Topics);
        assert_eq!(parse("/q"), Target::Entity("q".into()));
        assert_eq!(parse("/a%2Fb"), Target::Entity("a/b".into()));
        assert_eq!(parse("/a/B/"), Target::Entity("a/B".into()));
        assert_eq!(parse("/a/t/Subscriptions"), Target::Subscriptions("a/t".into()));
        let (topic, subscription) = ("t".to_owned(), "s".to_owned());
        assert_eq!(
            parse("/t/subscriptions/s"),
            Target::Subscription { topic: topic.clone(), name: subscription.clone() }
        );
        assert_eq!(
            parse("/t/Subscriptions/s/Rules"),
            Target::Rules { topic: topic.clone(), subscription: subscription.clone() }
        );
        let rule = Target::Rule { topic, subscription, name: "$Default".into() };
        assert_eq!(parse("/t/subscriptions/s/rules/$Default"), rule);
        for wrong in ["/t/subscriptions/s/more", "/t/subscriptions/s/rules/r/x"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
        assert!(decode("/%ff").is_err());
    }
}
