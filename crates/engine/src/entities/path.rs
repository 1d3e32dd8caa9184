//! Addresses of entities, as clients write them, and the names that entities may have.

use std::fmt;

use barid_core::entity::Part;
use thiserror::Error;

/// Maximum length of the path of a queue or a topic, in bytes. [`check_name`] refuses longer ones.
pub const PATH_MAX: usize = 260;

/// Maximum length of the name of a subscription or a rule, in bytes. [`check_name`] refuses longer ones.
pub const NAME_MAX: usize = 50;

/// Text between the topic and the name of a subscription in a canonical key.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// Text after the path of a node in the address of its management node.
const MANAGEMENT: &str = "/$management";

/// Text after a path in the address of its transfer dead-letter queue.
const TRANSFER_DEAD_LETTER: &str = "/$transfer/$deadletterqueue";

/// Text after a path in the address of its dead-letter queue.
const DEAD_LETTER: &str = "/$deadletterqueue";

/// The address of a node that a link is attached to.
///
/// Clients write `queue` or `topic/Subscriptions/name`, with or without the scheme and authority of a URI in front,
/// and with or without `/$DeadLetterQueue`, `/$Transfer/$DeadLetterQueue` or `/$management` at the end. ASCII
/// letters are compared case-insensitively. Older clients write the dead letters of a subscription as
/// `topic/Subscriptions/name/$DeadLetterQueue/Subscriptions/name`: they build the address of a subscription only by
/// adding a name to the path of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The canonical key of the queue, topic or subscription, in lower case.
    pub entity: Box<str>,
    /// The part of the entity.
    pub part: Part,
    /// Whether the address is that of the management node.
    pub management: bool,
}

/// Error: a text is not a valid name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name:?} is not the name of {of}: {why}")]
pub struct NameError {
    /// The text.
    pub name: Box<str>,
    /// The kind of object that the text should name.
    pub of: Kind,
    /// The reason.
    pub why: &'static str,
}

/// The kinds of objects that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A queue.
    Queue,
    /// A topic.
    Topic,
    /// A subscription of a topic.
    Subscription,
    /// A rule of a subscription.
    Rule,
}

impl Address {
    /// Parses an address. The entity need not exist, nor have a valid name.
    pub fn parse(written: &str) -> Self {
        let mut rest = without_authority(written).trim_matches('/');
        let management = strip(&mut rest, MANAGEMENT);
        strip_repeated_name(&mut rest);
        let part = if strip(&mut rest, TRANSFER_DEAD_LETTER) {
            Part::TransferDeadLetter
        } else if strip(&mut rest, DEAD_LETTER) {
            Part::DeadLetter
        } else {
            Part::Main
        };
        Self { entity: key(rest), part, management }
    }
}

/// Writes the canonical form, with which the scopes of tokens are compared.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entity)?;
        f.write_str(match self.part {
            Part::Main => "",
            Part::DeadLetter => DEAD_LETTER,
            Part::TransferDeadLetter => TRANSFER_DEAD_LETTER,
        })?;
        f.write_str(if self.management { MANAGEMENT } else { "" })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "a queue",
            Self::Topic => "a topic",
            Self::Subscription => "a subscription",
            Self::Rule => "a rule",
        })
    }
}

/// Returns the canonical form of a path, in which paths are compared and stored.
pub fn key(path: &str) -> Box<str> {
    path.trim_matches('/').to_ascii_lowercase().into()
}

/// Returns the canonical key of the entity that a canonical address belongs to: without sub-queue and without
/// `$management`.
pub fn entity_of(canonical: &str) -> &str {
    let path = canonical.strip_suffix(MANAGEMENT).unwrap_or(canonical);
    let part = path.strip_suffix(TRANSFER_DEAD_LETTER).or(path.strip_suffix(DEAD_LETTER));
    part.unwrap_or(path)
}

/// Returns the path of a subscription.
pub fn subscription_path(topic: &str, name: &str) -> String {
    format!("{topic}/Subscriptions/{name}")
}

/// Splits the canonical key of a subscription into the topic and the name. Returns `None` for the key of a queue or
/// a topic.
pub fn split_subscription(key: &str) -> Option<(&str, &str)> {
    key.rsplit_once(SUBSCRIPTIONS)
}

/// Checks the name of an entity, a subscription or a rule.
///
/// Queues and topics: up to [`PATH_MAX`] ASCII letters, digits and `.`, `-`, `_`, `~`, in one or several segments
/// separated by `/`, none of which is `Subscriptions`. Subscriptions and rules: up to [`NAME_MAX`] of the same
/// characters, in one segment; the name of a rule may also be `$Default`.
///
/// # Errors
/// [`NameError`] with the reason.
pub fn check_name(of: Kind, name: &str) -> Result<(), NameError> {
    let refuse = |why| Err(NameError { name: name.into(), of, why });
    if of == Kind::Rule && name == "$Default" {
        return Ok(());
    }
    let has_segments = matches!(of, Kind::Queue | Kind::Topic);
    if name.is_empty() {
        return refuse("it is empty");
    }
    if has_segments && name.len() > PATH_MAX {
        return refuse("it has more than 260 characters");
    }
    if !has_segments && name.len() > NAME_MAX {
        return refuse("it has more than 50 characters");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
    if !name.chars().all(|c| allowed(c) || has_segments && c == '/') {
        return refuse(if has_segments {
            "letters and digits of ASCII, '.', '-', '_', '~' and '/' are allowed"
        } else {
            "letters and digits of ASCII, '.', '-', '_' and '~' are allowed"
        });
    }
    if name.split('/').any(str::is_empty) {
        return refuse("it has an empty segment");
    }
    if name.split('/').any(|segment| segment.eq_ignore_ascii_case("subscriptions")) {
        return refuse("the segment Subscriptions is reserved for the subscriptions of a topic");
    }
    Ok(())
}

/// Checks whether an entity can have a path: a queue, a topic, or a subscription as `{topic}/Subscriptions/{name}`.
/// Leading and trailing slashes are ignored.
///
/// # Errors
/// [`NameError`] if no entity can have this path.
pub fn check_path(path: &str) -> Result<(), NameError> {
    let trimmed = path.trim_matches('/');
    let key = trimmed.to_ascii_lowercase();
    match split_subscription(&key) {
        Some((topic, name)) => {
            check_name(Kind::Topic, topic)?;
            check_name(Kind::Subscription, name)
        }
        None => check_name(Kind::Queue, trimmed),
    }
}

/// Returns the path of a URI, without scheme and authority. Returns any other text unchanged.
pub fn without_authority(written: &str) -> &str {
    let Some((scheme, rest)) = written.split_once("://") else { return written };
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric()) {
        return written;
    }
    rest.split_once('/').map_or("", |(_, path)| path)
}

/// Removes `end`, which is in lower case, from the end of `text`, case-insensitively. Returns whether it was there.
fn strip(text: &mut &str, end: &str) -> bool {
    let Some(at) = text.len().checked_sub(end.len()) else { return false };
    let has = text.get(at..).is_some_and(|tail| tail.eq_ignore_ascii_case(end));
    if has {
        *text = &text[..at];
    }
    has
}

/// Removes `/Subscriptions/name` from the end of the address of the dead letters of a subscription of that name.
fn strip_repeated_name(text: &mut &str) {
    let lower = text.to_ascii_lowercase();
    let Some((before, name)) = lower.rsplit_once(SUBSCRIPTIONS) else { return };
    let of = before.strip_suffix(TRANSFER_DEAD_LETTER).or(before.strip_suffix(DEAD_LETTER));
    if of.and_then(split_subscription).is_some_and(|(_, own)| own == name) {
        *text = &text[..before.len()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_possible_if_something_can_be_declared_there() {
        for possible in ["orders", "/a/b/", "events/Subscriptions/billing", "a/b/subscriptions/c"] {
            assert_eq!(check_path(possible), Ok(()), "{possible}");
        }
        for impossible in
            ["", "/", "a b", "a//b", "q/$DeadLetterQueue", "Subscriptions/s", "t/Subscriptions/a/b"]
        {
            assert!(check_path(impossible).is_err(), "{impossible}");
        }
        assert!(check_path(&"q".repeat(PATH_MAX + 1)).is_err());
        assert!(check_path(&format!("t/Subscriptions/{}", "s".repeat(NAME_MAX + 1))).is_err());
    }

    fn parse(written: &str) -> (String, Part, bool) {
        let Address { entity, part, management } = Address::parse(written);
        (entity.into(), part, management)
    }

    #[test]
    fn whatever_a_client_writes_in_front_and_whatever_case_it_is_the_same_entity() {
        for written in
            ["sq", "/sq", "SQ", "sq/", "sb://h/sq", "amqps://h:5671/sq", "amqp://[::1]:5672/Sq"]
        {
            assert_eq!(parse(written), ("sq".into(), Part::Main, false), "{written}");
        }
        assert_eq!(parse("amqps://host"), (String::new(), Part::Main, false));
        assert_eq!(parse("a://b").0, "", "a host without a path");
        assert_eq!(parse("://x").0, "://x", "no scheme");
        assert_eq!(parse("a/b/C").0, "a/b/c");
    }

    #[test]
    fn parts_and_management_nodes_are_told_by_the_end() {
        let dead = "sb://h/st/Subscriptions/S1/$DeadLetterQueue/$management";
        assert_eq!(parse(dead), ("st/subscriptions/s1".into(), Part::DeadLetter, true));
        assert_eq!(parse("q/$deadletterqueue"), ("q".into(), Part::DeadLetter, false));
        let transfer = "q/$Transfer/$DeadLetterQueue";
        assert_eq!(parse(transfer), ("q".into(), Part::TransferDeadLetter, false));
        let written = "amqps://h/Q/$Transfer/$DeadLetterQueue/$Management/";
        let canonical = "q/$transfer/$deadletterqueue/$management";
        assert_eq!(Address::parse(written).to_string(), canonical);
        assert_eq!(parse("q/$management"), ("q".into(), Part::Main, true));
        assert_eq!(parse("é/$management"), ("é".into(), Part::Main, true));
        assert_eq!(parse("$management").0, "$management", "of nothing");
    }

    #[test]
    fn a_canonical_address_has_its_entity_in_front() {
        for written in [
            "orders",
            "orders/$management",
            "Orders/$DeadLetterQueue",
            "a/orders/$Transfer/$DeadLetterQueue/$management",
            "t/Subscriptions/s/$DeadLetterQueue/Subscriptions/s",
            "q/$management/$management",
            "q/$deadletterqueue/$transfer/$deadletterqueue",
            "$management",
            "",
        ] {
            let address = Address::parse(written);
            assert_eq!(entity_of(&address.to_string()), &*address.entity, "{written}");
        }
    }

    #[test]
    fn dead_letters_of_a_subscription_may_repeat_its_name() {
        let dead = "t/Subscriptions/S/$DeadLetterQueue/Subscriptions/s";
        assert_eq!(parse(dead), ("t/subscriptions/s".into(), Part::DeadLetter, false));
        let managed = format!("sb://h/{dead}/$management");
        assert_eq!(parse(&managed), ("t/subscriptions/s".into(), Part::DeadLetter, true));
        let transfer = "a/t/Subscriptions/s/$Transfer/$DeadLetterQueue/Subscriptions/s";
        let of = ("a/t/subscriptions/s".into(), Part::TransferDeadLetter, false);
        assert_eq!(parse(transfer), of);
        for other in [
            "t/Subscriptions/s/$DeadLetterQueue/Subscriptions/other",
            "q/$DeadLetterQueue/Subscriptions/q",
            "t/Subscriptions/s/Subscriptions/s",
        ] {
            assert_eq!(parse(other), (other.to_ascii_lowercase(), Part::Main, false), "{other}");
        }
    }

    #[test]
    fn a_subscription_knows_its_topic() {
        assert_eq!(split_subscription("a/b/subscriptions/s"), Some(("a/b", "s")));
        assert_eq!(split_subscription("a/b"), None);
        assert_eq!(&*key(&subscription_path("A/b", "S")), "a/b/subscriptions/s");
    }

    #[test]
    fn names_are_checked() {
        for good in ["q", "a/b/c", "My-Queue_1.x~y", &"x".repeat(260)] {
            assert_eq!(check_name(Kind::Queue, good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/q",
            "q/",
            "a//b",
            "a b",
            "$cbs",
            "ä",
            "q?",
            &"x".repeat(261),
            "t/Subscriptions/s",
        ] {
            assert!(check_name(Kind::Topic, bad).is_err(), "{bad}");
        }
        assert!(check_name(Kind::Subscription, "a/b").is_err());
        assert!(check_name(Kind::Subscription, &"x".repeat(51)).is_err());
        assert_eq!(check_name(Kind::Rule, "$Default"), Ok(()));
        let error = check_name(Kind::Queue, "").unwrap_err().to_string();
        assert_eq!(error, "\"\" is not the name of a queue: it is empty");
    }
}
