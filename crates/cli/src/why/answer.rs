//! Sentences about a client that answer "where did my message go".

use std::time::Duration;

use mqtt_proto::topic;

use super::Home;
use super::near::near_miss;
use crate::admin::answers::{Detailed, Drops, Session, Subscription};
use crate::admin::{bytes, span};
use crate::plural::count;

/// Maximum number of filters that are listed.
const FILTERS_MAX: usize = 10;

/// Facts that the broker has reported.
pub struct Facts<'a> {
    pub client: &'a str,
    pub topic: Option<&'a str>,
    pub tenant: &'a str,
    /// `None` if the tenant does not exist.
    pub drops: Option<&'a Drops>,
    pub session: Option<&'a Detailed>,
    /// The broker of the cluster that has the sessions of the client's slot, if it is another one than the one that was asked, and
    /// that one has no session of the client.
    pub home: Option<&'a Home>,
    /// Whether the broker that was asked belongs to a cluster.
    pub is_in_cluster: bool,
    /// Tenants in which a client of this name has a session, if it has none here.
    pub tenants_with: &'a [String],
    /// Clients of this tenant with a similar name, if there is none of that name.
    pub similar: &'a [String],
    /// Wall-clock time since 1970.
    pub now: Duration,
}

/// Returns the answer, from the dropped messages to further places to look at.
pub fn answer(facts: &Facts<'_>) -> Vec<String> {
    let mut answer = dropped(facts);
    if let Some(Home { name, failure }) = facts.home {
        let says = match failure {
            None => "was asked as well".into(),
            Some(failure) => format!("does not answer: {failure}"),
        };
        let sentence =
            format!("The broker {name} has the sessions of this client's slot, and {says}.");
        answer.insert(0, sentence);
    }
    match facts.session {
        None => answer.extend(no_session(facts)),
        Some(Detailed { session, .. }) => {
            let (sentences, matched) = subscribed(session, facts.topic);
            answer.extend(sentences);
            if matched {
                answer.extend(waiting(session, facts));
            }
        }
    }
    answer
}

fn dropped(facts: &Facts<'_>) -> Vec<String> {
    let Some(drops) = facts.drops else { return Vec::new() };
    let of_topic = facts.topic.map_or(String::new(), |topic| format!(" of {topic}"));
    if !drops.drops.is_empty() {
        return Vec::new();
    }
    let none = format!(
        "The broker remembers no message{of_topic} for {} that it has dropped.",
        facts.client
    );
    let total: u64 = drops.totals.values().sum();
    if total <= drops.remembered {
        return vec![none];
    }
    let forgotten = format!(
        "It has forgotten earlier ones, though: since its start it has dropped {} of the tenant {}, and \
         remembers the last {}.",
        count(total, "message", "messages"),
        facts.tenant,
        drops.remembered
    );
    vec![none, forgotten]
}

fn no_session(facts: &Facts<'_>) -> Vec<String> {
    let Facts { client, tenant, .. } = facts;
    let missing = match facts.drops {
        Some(_) => format!("There is no session of {client} in the tenant {tenant}"),
        None => format!("There is no tenant {tenant}, and so no session of {client} in it"),
    };
    if facts.home.is_some_and(|home| home.failure.is_some()) {
        return vec![format!(
            "{missing} at the broker that was asked. If it has one that outlives its connection, that is at the other one: \
             messages for it are not delivered, and the client cannot connect, until that is back."
        )];
    }
    let mut answer = vec![format!(
        "{missing}: the broker keeps no messages for it. A session outlives its connection only if the \
         client asks for that with a Session Expiry Interval (MQTT 3: with Clean Session 0), and only \
         for that long."
    )];
    if facts.is_in_cluster {
        answer.push(
            "If the client is connected with a session that ends with its connection, ask the broker that it is connected to, \
             with --broker."
                .into(),
        );
    }
    answer.extend(facts.tenants_with.iter().map(|other| {
        format!("The tenant {other} has a session of that name: ask with --tenant {other}.")
    }));
    if !facts.similar.is_empty() {
        answer.push(format!("Of these there is one: {}.", facts.similar.join(", ")));
    }
    answer
}

/// Describes the session's subscriptions, and returns whether one of them matches.
fn subscribed(session: &Session<Vec<Subscription>>, topic: Option<&str>) -> (Vec<String>, bool) {
    let all = &session.subscriptions;
    if all.is_empty() {
        let nothing = "It has a session, but no subscriptions: it gets nothing until it subscribes. A \
                       client that connects with Clean Start (MQTT 3: Clean Session 1), or is told \
                       Session Present 0, has to subscribe again.";
        return (vec![nothing.into()], false);
    }
    let Some(topic) = topic else {
        let filters = listed(all.iter().map(|subscription| &*subscription.filter));
        return (vec![format!("It has subscribed to {filters}.")], true);
    };
    let matching: Vec<_> =
        all.iter().filter(|subscription| topic::matches(inner(subscription), topic)).collect();
    if matching.is_empty() {
        let filters = listed(all.iter().map(|subscription| &*subscription.filter));
        let mut answer = vec![format!("None of its subscriptions matches {topic}: {filters}.")];
        answer.extend(all.iter().filter_map(|subscription| {
            let why = near_miss(inner(subscription), topic)?;
            Some(format!("{} nearly does: {why}.", subscription.filter))
        }));
        answer.truncate(1 + FILTERS_MAX);
        return (answer, false);
    }
    (matching.into_iter().take(FILTERS_MAX).map(|one| matches(one, topic)).collect(), true)
}

fn matches(subscription: &Subscription, topic: &str) -> String {
    let Subscription { filter, qos, .. } = subscription;
    let mut sentence = format!("Its subscription to {filter} with QoS {qos} matches {topic}");
    if topic::is_shared(filter) {
        sentence += "; it is shared, so each message goes to one member of the group only";
    }
    if subscription.no_local {
        sentence += "; with No Local it leaves out what the client publishes itself";
    }
    if *qos == 0 {
        sentence += "; with QoS 0 nothing is kept while the client is away";
    }
    sentence + "."
}

/// Describes the messages on their way to the client.
fn waiting(session: &Session<Vec<Subscription>>, facts: &Facts<'_>) -> Vec<String> {
    let Session { queued_messages: queued, in_flight, .. } = session;
    let oldest = session.oldest_queued_at.as_ref().map_or(String::new(), |oldest| {
        format!(", the first for {}", span(oldest.until(facts.now)))
    });
    let wait = format!(
        "{} ({}) {} for it{oldest}",
        count(*queued, "message", "messages"),
        bytes(session.queued_bytes),
        if *queued == 1 { "waits" } else { "wait" },
    );
    let unacknowledged = if *in_flight == 1 {
        "1 message has been sent to it, and it has not acknowledged it: it may not have handled it"
            .into()
    } else {
        format!(
            "{in_flight} messages have been sent to it, and it has not acknowledged them: it may not have \
             handled them"
        )
    };
    let mut answer = Vec::new();
    match (session.connected, *queued, *in_flight) {
        (false, 0, 0) => answer.push(
            "It is not connected, and nothing waits for it. Messages of QoS 1 and 2 would; those of \
             QoS 0 are dropped."
                .into(),
        ),
        (false, 0, _) => {
            let again = if *in_flight == 1 { "gets it again" } else { "gets them again" };
            answer.push(format!("It is not connected. {unacknowledged}. It {again}."));
        }
        (false, _, _) => {
            answer.push(format!("It is not connected. {wait}, until it connects."));
        }
        (true, 0, 0) => {
            answer.push(
                "It is connected, and nothing waits for it: all that the broker had for it has been \
                 written to its connection."
                    .into(),
            );
            answer.push(elsewhere(facts));
        }
        (true, 0, _) => answer.push(format!("It is connected. {unacknowledged}.")),
        (true, _, _) => answer.push(format!(
            "It is connected, but {wait}: it does not read, or does not acknowledge what it gets \
             ({in_flight} in flight)."
        )),
    }
    if !session.connected && session.durability == "memory" && *queued > 0 {
        answer.push("What waits is kept in memory: a restart of the broker loses it.".into());
    }
    answer
}

/// Names further places to look at when the broker has delivered all it had.
fn elsewhere(facts: &Facts<'_>) -> String {
    let topic = facts.topic.unwrap_or("TOPIC");
    format!(
        "A message that it misses came before it subscribed, or did not reach the broker, or was refused \
         there: watch with `barid sub -v -t {topic}`, check the reason in the publisher's PUBACK (0x10 no \
         subscribers, 0x87 not allowed, 0x97 no space), and run `barid why --client` for the publisher: it \
         lists what the publisher was not allowed to do."
    )
}

/// Returns the filter of a subscription, without the share name.
fn inner(subscription: &Subscription) -> &str {
    match topic::parse_shared(&subscription.filter) {
        Ok(Some(shared)) => shared.filter,
        _ => &subscription.filter,
    }
}

fn listed<'a>(filters: impl ExactSizeIterator<Item = &'a str>) -> String {
    let rest = filters.len().saturating_sub(FILTERS_MAX);
    let mut listed = filters.take(FILTERS_MAX).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        listed += &format!(" and {rest} more");
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn session(change: &[(&str, Value)]) -> Detailed {
        let mut session = json!({
            "client": "c", "connected": true, "protocol": "5.0", "user": null, "durability": "local",
            "expiry_seconds": 60, "expires_at": null, "queued_messages": 0, "queued_bytes": 0,
            "oldest_queued_at": null, "in_flight": 0, "unreleased": 0, "will": null,
            "subscriptions": [subscription("plant/+", 1)],
        });
        for (key, value) in change {
            session[key] = value.clone();
        }
        serde_json::from_value(session).unwrap()
    }

    fn subscription(filter: &str, qos: u8) -> Value {
        json!({ "filter": filter, "qos": qos, "no_local": false, "retain_as_published": false,
                "identifier": null })
    }

    fn answer_of(session: Option<&Detailed>, topic: Option<&str>) -> String {
        let drops: Drops =
            serde_json::from_value(json!({ "drops": [], "totals": {}, "remembered": 0 })).unwrap();
        let (tenants_with, similar) = (["acme".to_owned()], ["C".to_owned()]);
        answer(&Facts {
            client: "c",
            topic,
            tenant: "default",
            drops: Some(&drops),
            session,
            home: None,
            is_in_cluster: false,
            tenants_with: if session.is_none() { &tenants_with } else { &[] },
            similar: if session.is_none() { &similar } else { &[] },
            now: Duration::from_secs(1_798_761_599),
        })
        .join("\n")
    }

    #[test]
    fn each_case_has_its_answer() {
        let away = ("connected", json!(false));
        for (change, topic, says) in [
            (vec![("subscriptions", json!([]))], None, "no subscriptions"),
            (vec![], Some("other"), "None of its subscriptions matches other: plant/+."),
            (vec![], Some("Plant/4"), "plant/+ nearly does: upper"),
            (vec![], Some("plant/4"), "nothing waits for it: all that"),
            (vec![], None, "subscribed to plant/+."),
            (vec![away.clone()], None, "not connected, and nothing waits"),
            (vec![("in_flight", json!(3))], None, "3 messages have been sent"),
            (vec![away.clone(), ("in_flight", json!(3))], None, "gets them again"),
            (vec![("queued_messages", json!(7))], None, "but 7 messages (0 B) wait for it"),
            (vec![("queued_messages", json!(1))], None, "but 1 message (0 B) waits for it"),
            (vec![("in_flight", json!(1))], None, "1 message has been sent"),
            (vec![away.clone(), ("in_flight", json!(1))], None, "gets it again"),
            (vec![("subscriptions", json!([subscription("#", 0)]))], Some("a"), "QoS 0 nothing is"),
            (
                vec![("subscriptions", json!([subscription("$share/g/a", 1)]))],
                Some("a"),
                "one member of the group",
            ),
            (
                vec![
                    away,
                    ("queued_messages", json!(7)),
                    ("oldest_queued_at", json!("2026-12-31T23:59:00.000Z")),
                    ("durability", json!("memory")),
                ],
                Some("plant/4"),
                "wait for it, the first for 59s, until it connects.\nWhat waits is kept in memory",
            ),
        ] {
            let answer = answer_of(Some(&session(&change)), topic);
            assert!(answer.contains(says), "{says}: {answer}");
            assert!(answer.starts_with("The broker remembers no message"), "{answer}");
        }
        let answer = answer_of(None, Some("a"));
        assert!(answer.contains("no session of c in the tenant default: "), "{answer}");
        assert!(answer.contains("ask with --tenant acme"), "{answer}");
        assert!(answer.ends_with("\nOf these there is one: C."), "{answer}");
    }

    #[test]
    fn another_broker_of_the_cluster_may_have_the_session() {
        let answer = |failure: Option<&str>| {
            answer(&Facts {
                client: "c",
                topic: None,
                tenant: "default",
                drops: None,
                session: None,
                home: Some(&Home { name: "b2".into(), failure: failure.map(Into::into) }),
                is_in_cluster: true,
                tenants_with: &[],
                similar: &[],
                now: Duration::ZERO,
            })
        };
        let asked = answer(None);
        assert!(asked[0].contains("The broker b2 has the sessions"), "{asked:?}");
        assert!(asked.last().unwrap().contains("with --broker"), "{asked:?}");
        let away = answer(Some("it is down"));
        assert!(away[0].ends_with("does not answer: it is down."), "{away:?}");
        assert!(away[1].contains("until that is back"), "{away:?}");
    }

    #[test]
    fn what_is_forgotten_is_said() {
        let drops = json!({ "drops": [], "totals": { "offline": 5_000 }, "remembered": 1_024 });
        let drops: Drops = serde_json::from_value(drops).unwrap();
        let session = session(&[]);
        let answer = answer(&Facts {
            client: "c",
            topic: None,
            tenant: "default",
            drops: Some(&drops),
            session: Some(&session),
            home: None,
            is_in_cluster: false,
            tenants_with: &[],
            similar: &[],
            now: Duration::ZERO,
        });
        assert!(answer[1].contains("dropped 5000 messages"), "{answer:?}");
    }
}
