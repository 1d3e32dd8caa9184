//! Topic names and topic filters (section 4.7), including shared subscriptions (section 4.8.2).

use std::fmt;

use crate::DecodeError;

/// Maximum number of levels of a topic name or filter. The standard has no such limit; this one bounds the depth of
/// code that walks a topic level by level.
pub const MAX_LEVELS: usize = 128;

/// Maximum length of a topic name or filter, in bytes (MQTT-4.7.3-3).
pub const MAX_LEN: usize = 65_535;

const SHARE_PREFIX: &str = "$share/";

/// The reason why a string is not a valid topic name or topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicError {
    /// The string is empty (MQTT-4.7.3-1).
    Empty,
    /// The string has more than [`MAX_LEN`] bytes (MQTT-4.7.3-3).
    TooLong,
    /// The string has more than [`MAX_LEVELS`] levels, and is otherwise valid.
    TooManyLevels,
    /// The string contains U+0000 (MQTT-4.7.3-2).
    Nul,
    /// A topic name contains `+` or `#` (MQTT-4.7.0-1).
    WildcardInName,
    /// `#` is not the last level, or `#` or `+` is not alone in its level (MQTT-4.7.1-1, MQTT-4.7.1-2).
    MisplacedWildcard,
    /// `$share/` is not followed by a share name without wildcards and a topic filter
    /// (MQTT-4.8.2-1, MQTT-4.8.2-2).
    InvalidShare,
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicError::Empty => f.write_str("it is empty"),
            TopicError::TooLong => write!(f, "it has more than {MAX_LEN} bytes"),
            TopicError::TooManyLevels => write!(f, "it has more than {MAX_LEVELS} levels"),
            TopicError::Nul => f.write_str("it contains U+0000"),
            TopicError::WildcardInName => f.write_str("a topic name must not contain + or #"),
            TopicError::MisplacedWildcard => {
                f.write_str("+ and # need a level of their own, and # must be the last")
            }
            TopicError::InvalidShare => {
                f.write_str("$share/ must be followed by a share name, a slash and a topic filter")
            }
        }
    }
}

impl std::error::Error for TopicError {}

/// Checks that `name` is a valid topic name, to which messages can be published.
#[inline]
pub fn validate_name(name: &str) -> Result<(), TopicError> {
    validate_size(name)?;
    // A loop without an early exit lets the compiler examine many bytes at once.
    let is_bad = |byte: u8| (byte == b'+') | (byte == b'#') | (byte == 0);
    if name.bytes().fold(0, |bad, byte| bad | u8::from(is_bad(byte))) != 0 {
        return Err(if has_wildcards(name) { TopicError::WildcardInName } else { TopicError::Nul });
    }
    if name.len() >= MAX_LEVELS && levels(name).nth(MAX_LEVELS).is_some() {
        return Err(TopicError::TooManyLevels);
    }
    Ok(())
}

/// Checks that `filter` is a valid topic filter. A `$share/…` filter is checked as a shared subscription.
pub fn validate_filter(filter: &str) -> Result<(), TopicError> {
    validate_size(filter)?;
    if filter.as_bytes().contains(&0) {
        return Err(TopicError::Nul);
    }
    let filter = parse_shared(filter)?.map_or(filter, |shared| shared.filter);
    let mut last_is_hash = false;
    let mut count = 0;
    for level in filter.split('/') {
        count += 1;
        if last_is_hash || (level.len() > 1 && has_wildcards(level)) {
            return Err(TopicError::MisplacedWildcard);
        }
        last_is_hash = level == "#";
    }
    if count > MAX_LEVELS { Err(TopicError::TooManyLevels) } else { Ok(()) }
}

/// Returns whether `topic` contains a wildcard character.
#[inline]
pub fn has_wildcards(topic: &str) -> bool {
    topic.bytes().any(|byte| byte == b'+' || byte == b'#')
}

/// Returns whether the valid, non-shared `filter` matches the valid name `topic`.
///
/// A filter that begins with a wildcard does not match names that begin with `$` (MQTT-4.7.2-1).
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels_of_topic = levels(topic);
    for wanted in levels(filter) {
        if wanted == b"#" {
            // `#` also matches the parent level: `sport/#` matches `sport` (section 4.7.1.2).
            return true;
        }
        match levels_of_topic.next() {
            Some(level) if wanted == b"+" || wanted == level => {}
            _ => return false,
        }
    }
    levels_of_topic.next().is_none()
}

/// The parts of the filter of a shared subscription, `$share/{group}/{filter}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedFilter<'a> {
    /// The share name. Subscriptions with the same share name and the same filter share the messages.
    pub group: &'a str,
    /// The topic filter behind the share name.
    pub filter: &'a str,
}

/// Returns whether `filter` is that of a shared subscription, valid or not.
#[inline]
pub fn is_shared(filter: &str) -> bool {
    filter.starts_with(SHARE_PREFIX)
}

/// Splits the filter of a shared subscription into its parts. Returns `Ok(None)` for an ordinary filter.
///
/// The inner filter must not be empty, but is not checked otherwise: [`validate_filter`] does that.
///
/// # Errors
/// [`TopicError::InvalidShare`] if the group or the inner filter is missing, or the group has a wildcard.
pub fn parse_shared(filter: &str) -> Result<Option<SharedFilter<'_>>, TopicError> {
    let Some(share) = filter.strip_prefix(SHARE_PREFIX) else { return Ok(None) };
    let (group, filter) = share.split_once('/').ok_or(TopicError::InvalidShare)?;
    if group.is_empty() || filter.is_empty() || has_wildcards(group) {
        return Err(TopicError::InvalidShare);
    }
    Ok(Some(SharedFilter { group, filter }))
}

/// Checks a filter from the wire. A filter that only has too many levels is accepted: the server may refuse it, but it
/// is not a reason to close the connection.
#[inline]
pub(crate) fn check_filter(filter: &str) -> Result<(), DecodeError> {
    match validate_filter(filter) {
        Ok(()) | Err(TopicError::TooManyLevels) => Ok(()),
        Err(error) => Err(DecodeError::TopicFilter(error)),
    }
}

/// Decodes `bytes` from the wire as a topic name, and checks it.
#[inline]
pub(crate) fn decode_name(bytes: &[u8]) -> Result<&str, DecodeError> {
    let name = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8)?;
    match validate_name(name) {
        Ok(()) => Ok(name),
        Err(TopicError::Nul) => Err(DecodeError::NulInString),
        Err(error) => Err(DecodeError::TopicName(error)),
    }
}

/// The levels of a topic name or filter, as bytes, because splitting bytes is faster than splitting characters.
#[inline]
fn levels(topic: &str) -> impl Iterator<Item = &[u8]> {
    topic.as_bytes().split(|&byte| byte == b'/')
}

#[inline]
fn validate_size(topic: &str) -> Result<(), TopicError> {
    match topic.len() {
        0 => Err(TopicError::Empty),
        1..=MAX_LEN => Ok(()),
        _ => Err(TopicError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqtt_4_7_names() {
        for name in ["a", "/", "a//b", " ", "$SYS/x", "a/b/ü"] {
            assert_eq!(validate_name(name), Ok(()), "{name}");
        }
        assert_eq!(validate_name(""), Err(TopicError::Empty));
        assert_eq!(validate_name("a/+"), Err(TopicError::WildcardInName));
        assert_eq!(validate_name("a#"), Err(TopicError::WildcardInName));
        assert_eq!(validate_name("a\0"), Err(TopicError::Nul));
        assert_eq!(validate_name(&"a".repeat(MAX_LEN)), Ok(()));
        assert_eq!(validate_name(&"a".repeat(MAX_LEN + 1)), Err(TopicError::TooLong));
        assert_eq!(validate_name(&"/".repeat(MAX_LEVELS - 1)), Ok(()));
        assert_eq!(validate_name(&"/".repeat(MAX_LEVELS)), Err(TopicError::TooManyLevels));
    }

    #[test]
    fn mqtt_4_7_1_filters() {
        for filter in ["#", "+", "+/+", "/+", "+/#", "a/+/b/#", "$SYS/#", "$share/g/#"] {
            assert_eq!(validate_filter(filter), Ok(()), "{filter}");
        }
        for filter in ["a#", "a/#/b", "a+", "+a", "a/b+/c", "##", "#/", "++", "$share/g/a#"] {
            assert_eq!(validate_filter(filter), Err(TopicError::MisplacedWildcard), "{filter}");
        }
        assert_eq!(validate_filter(""), Err(TopicError::Empty));
        assert_eq!(validate_filter("a\0"), Err(TopicError::Nul));
        assert_eq!(validate_filter("$share/\0/a"), Err(TopicError::Nul));
        assert_eq!(validate_filter(&"a".repeat(MAX_LEN + 1)), Err(TopicError::TooLong));
        assert_eq!(validate_filter(&"/".repeat(MAX_LEVELS - 1)), Ok(()));
        assert_eq!(validate_filter(&"/".repeat(MAX_LEVELS)), Err(TopicError::TooManyLevels));
    }

    #[test]
    fn mqtt_4_7_1_wildcards_match() {
        for (filter, topic) in [
            ("sport/tennis/#", "sport/tennis"),
            ("sport/tennis/#", "sport/tennis/ranking/1"),
            ("#", "a"),
            ("#", "/"),
            ("+/tennis/#", "sport/tennis"),
            ("sport/+", "sport/"),
            ("+/+", "/finance"),
            ("/+", "/finance"),
            ("$SYS/#", "$SYS/monitor"),
            ("$SYS/monitor/+", "$SYS/monitor/clients"),
        ] {
            assert!(matches(filter, topic), "{filter} matches {topic}");
        }
        for (filter, topic) in [
            ("sport/+", "sport"),
            ("sport/+", "sport/a/b"),
            ("+", "/finance"),
            ("sport", "Sport"),
            ("a", "/a"),
            ("a/b", "a"),
            ("a/#", "ab"),
        ] {
            assert!(!matches(filter, topic), "{filter} does not match {topic}");
        }
    }

    #[test]
    fn mqtt_4_7_2_1_leading_wildcards_do_not_match_dollar_names() {
        for filter in ["#", "+/monitor/clients", "+/#"] {
            assert!(!matches(filter, "$SYS/monitor/clients"), "{filter}");
        }
    }

    #[test]
    fn mqtt_4_8_2_shared_filters() {
        assert_eq!(
            parse_shared("$share/g//a/+"),
            Ok(Some(SharedFilter { group: "g", filter: "/a/+" }))
        );
        assert_eq!(parse_shared("$shared/g/a"), Ok(None));
        assert_eq!(parse_shared("$share"), Ok(None));
        for filter in ["$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a"]
        {
            assert_eq!(parse_shared(filter), Err(TopicError::InvalidShare), "{filter}");
            assert_eq!(validate_filter(filter), Err(TopicError::InvalidShare), "{filter}");
            assert!(is_shared(filter));
        }
    }
}
