//! Filters that nearly match a topic, and names that resemble another.

use mqtt_proto::topic::matches;

/// Minimum similarity of names, from 0 to 1, and maximum number of names listed.
const ALIKE: f64 = 0.9;
const SIMILAR_MAX: usize = 3;

/// Returns the names most similar to `name`.
pub fn similar(name: &str, others: impl IntoIterator<Item = String>) -> Vec<String> {
    let name = name.to_lowercase();
    let likeness = |other: &String| strsim::jaro_winkler(&name, &other.to_lowercase());
    let alike = others.into_iter().map(|other| (likeness(&other), other));
    let mut alike: Vec<_> = alike.filter(|(likeness, _)| *likeness >= ALIKE).collect();
    alike.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    alike.into_iter().take(SIMILAR_MAX).map(|(_, other)| other).collect()
}

/// Returns what would have to differ for `filter`, which does not match `topic`, to match it.
pub fn near_miss(filter: &str, topic: &str) -> Option<&'static str> {
    let (lower_filter, lower_topic) = (filter.to_lowercase(), topic.to_lowercase());
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        matches(filter, &topic[1..])
            .then_some("a filter that begins with a wildcard matches no topic that begins with $")
    } else if matches(&lower_filter, &lower_topic) {
        Some("upper and lower case are different")
    } else if matches(filter.trim_matches('/'), topic.trim_matches('/')) {
        Some("a slash at the beginning or the end adds an empty level")
    } else if !filter.ends_with('#') && matches(&format!("{filter}/#"), topic) {
        Some("it does not match the levels below; with /# at its end it would")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        let names = ["kitchen", "Kitchn", "cellar", "kitchen-2"].map(String::from);
        assert_eq!(similar("kitchn", names), ["Kitchn", "kitchen", "kitchen-2"]);
    }

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
