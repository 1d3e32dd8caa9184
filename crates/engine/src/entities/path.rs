//! Addresses of entities, as clients write them, and the names that entities may have.

use std::fmt;

use barid_core::entity::Part;
use thiserror::Error;

/// The longest path of a queue or a topic, in bytes.
pub const PATH_MAX: usize = 260;

/// The longest name of a subscription or a rule, in bytes.
pub const NAME_MAX: usize = 50;

/// What stands between a topic and the name of a subscription, in a canonical key.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// What follows the path of a node in the address of its management node.
const MANAGEMENT: &str = "/$management";

/// What follows a path in the address of its transfer dead-letter queue.
const TRANSFER_DEAD_LETTER: &str = "/$transfer/$deadletterqueue";

/// What follows a path in the address of its dead-letter queue.
const DEAD_LETTER: &str = "/$deadletterqueue";

/// What a link is attached to.
///
/// Clients write `queue`, `topic/Subscriptions/name` or a whole URI in front of that, and behind it
/// `/$DeadLetterQueue`, `/$Transfer/$DeadLetterQueue` or `/$management`. The case of letters does not count. Older
/// ones write the dead letters of a subscription `topic/Subscriptions/name/$DeadLetterQueue/Subscriptions/name`:
/// they know the path of a subscription only as that of a topic with a name behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The queue, topic or subscription: its canonical key, in lower case.
    pub entity: Box<str>,
    /// Which part of it.
    pub part: Part,
    /// Its management node, and not itself.
    pub management: bool,
}

/// Why a text is no address or no name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name:?} is not the name of {of}: {why}")]
pub struct NameError {
    /// The text.
    pub name: Box<str>,
    /// What it should name.
    pub of: Kind,
    /// What is wrong with it.
    pub why: &'static str,
}

/// What can have a name.
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
    /// Reads an address. What it names need not exist, nor have a valid name.
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

/// Its canonical form: what tokens are for is compared with it.
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

/// The canonical form of a path: what is compared and stored.
pub fn key(path: &str) -> Box<str> {
    path.trim_matches('/').to_ascii_lowercase().into()
}

/// The path of a subscription.
pub fn subscription_path(topic: &str, name: &str) -> String {
    format!("{topic}/Subscriptions/{name}")
}

/// The topic and the name that the canonical key of a subscription consists of; `None`: it is that of a
/// queue or a topic.
pub fn split_subscription(key: &str) -> Option<(&str, &str)> {
    key.rsplit_once(SUBSCRIPTIONS)
}

/// Whether an entity, a subscription or a rule may be called that.
///
/// Queues and topics: up to [`PATH_MAX`] ASCII letters, digits and `.`, `-`, `_`, `~`, in one or several
/// segments separated by `/`. Subscriptions and rules: up to [`NAME_MAX`] of them, in one segment; a rule
/// may be called `$Default`.
///
/// # Errors
/// [`NameError`], which says why not.
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
        return refuse("what is below Subscriptions belongs to a topic");
    }
    Ok(())
}

/// Whether something can be at a path: a queue, a topic, or a subscription as
/// `{topic}/Subscriptions/{name}`. Slashes around it do not count.
///
/// # Errors
/// [`NameError`]: nothing of that name can be declared.
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

/// What is left of a URI without its scheme and authority; anything else as it is.
fn without_authority(written: &str) -> &str {
    let Some((scheme, rest)) = written.split_once("://") else { return written };
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric()) {
        return written;
    }
    rest.split_once('/').map_or("", |(_, path)| path)
}

/// Takes `end`, which is in lower case, away from the end of `text`, whatever its case there.
fn strip(text: &mut &str, end: &str) -> bool {
    let Some(at) = text.len().checked_sub(end.len()) else { return false };
    let has = text.get(at..).is_some_and(|tail| tail.eq_ignore_ascii_case(end));
    if has {
        *text = &text[..at];
    }
    has
}

/// Takes `/Subscriptions/name` away from the end of the dead letters of a subscription of that name.
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
