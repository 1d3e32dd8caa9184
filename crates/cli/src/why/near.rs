//! Filters that look as if they matched a topic.

use mqtt_proto::topic::matches;

/// What has to be different for `filter`, which does not match `topic`, to match it.
pub fn near_miss(filter: &str, topic: &str) -> Option<&'static str> {
    let (lower_filter, lower_topic) = (filter.to_lowercase(), topic.to_lowercase());
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        matches(filter, &topic[1..])
            .then_some("a filter that begins with a wildcard matches no topic that begins with $")
    } else if matches(&lower_filter, &lower_topic) {
        Some("upper and lower case are different")
    } else if matches(filter.trim_matches('/'), topic.trim_matches('/')) {
        Some("a slash at the beginning or the end makes a level of its own")
    } else if !filter.ends_with('#') && matches(&format!("{filter}/#"), topic) {
        Some("it does not match the levels below: that would take /# at its end")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_right() {
        for (filter, topic, says) in [
            ("Plant/+", "plant/4", Some("case")),
            ("/plant/+", "plant/4", Some("slash")),
            ("plant/4", "plant/4/", Some("slash")),
            ("plant/+", "plant/4/t", Some("/#")),
            ("#", "$SYS/broker", Some("wildcard")),
            ("plant/5", "plant/4", None),
            ("plant/4/t", "plant/4", None),
        ] {
            let miss = near_miss(filter, topic);
            let fits = match says {
                Some(word) => miss.is_some_and(|miss| miss.contains(word)),
                None => miss.is_none(),
            };
            assert!(fits, "{filter} {topic}: {miss:?}");
        }
    }
}
