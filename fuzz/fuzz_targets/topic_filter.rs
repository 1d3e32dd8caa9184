//! Any texts as a topic filter and a topic name: validation and matching agree with a plain implementation of
//! section 4.7. The input has the filter and the name, separated by a line feed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mqtt_proto::topic;

fuzz_target!(|input: &str| {
    let (filter, name) = input.split_once('\n').unwrap_or((input, "a/b"));
    assert_eq!(topic::validate_name(name).is_ok(), is_name(name), "{name:?}");
    assert_eq!(topic::validate_filter(filter).is_ok(), is_filter(filter), "{filter:?}");
    let matched = topic::matches(filter, name);
    if is_name(name) && is_filter(filter) && !topic::is_shared(filter) {
        assert_eq!(matched, matches(filter, name), "{filter:?} {name:?}");
    }
});

fn is_topic(topic: &str) -> bool {
    let levels = 1 + topic.matches('/').count();
    (1..=topic::MAX_LEN).contains(&topic.len())
        && levels <= topic::MAX_LEVELS
        && !topic.contains('\0')
}

fn is_name(name: &str) -> bool {
    is_topic(name) && !name.contains(['+', '#'])
}

fn is_filter(filter: &str) -> bool {
    if filter.len() > topic::MAX_LEN || filter.contains('\0') {
        return false;
    }
    let Some(share) = filter.strip_prefix("$share/") else { return is_plain_filter(filter) };
    let Some(slash) = share.find('/') else { return false };
    let group = &share[..slash];
    !group.is_empty() && !group.contains(['+', '#']) && is_plain_filter(&share[slash + 1..])
}

/// Whether a filter without `$share` is valid: each wildcard is a whole level, and `#` is the last one.
fn is_plain_filter(filter: &str) -> bool {
    let bytes = filter.as_bytes();
    is_topic(filter)
        && (0..bytes.len()).all(|i| {
            let begins = i == 0 || bytes[i - 1] == b'/';
            let ends = i + 1 == bytes.len();
            match bytes[i] {
                b'#' => begins && ends,
                b'+' => begins && (ends || bytes[i + 1] == b'/'),
                _ => true,
            }
        })
}

fn matches(filter: &str, name: &str) -> bool {
    let hidden = name.starts_with('$') && !filter.starts_with('$');
    let wildcard = filter.starts_with('+') || filter.starts_with('#');
    if hidden && wildcard {
        return false;
    }
    let filter: Vec<&str> = filter.split('/').collect();
    let name: Vec<&str> = name.split('/').collect();
    levels_match(&filter, &name)
}

fn levels_match(filter: &[&str], name: &[&str]) -> bool {
    match (filter, name) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, name @ ..]) => levels_match(filter, name),
        ([wanted, filter @ ..], [level, name @ ..]) => {
            wanted == level && levels_match(filter, name)
        }
        _ => false,
    }
}
