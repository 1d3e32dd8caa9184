//! The recent drops, remembered with time, topic, client and reason, to answer "where did my message go".
//!
//! Each thread has a log of its own for each tenant. So a drop takes a lock without contention, and rarely
//! allocates once the log is full. A query merges the logs.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;

use barid_core::drop_reason::DropReason;
use barid_core::time::MonoTime;
use mqtt_proto::topic;

use crate::sync::Mutex;

/// Maximum number of drops that one thread remembers for one tenant. Beyond, the oldest is forgotten.
const REMEMBERED_MAX: usize = 1_024;

/// Maximum number of bytes that are remembered of a topic and of a client identifier. The rest is cut off.
const TOPIC_MAX: usize = 160;
const CLIENT_MAX: usize = 96;

/// Replaces the text that was cut off.
const ELLIPSIS: char = '…';

/// The recent drops of one thread for one tenant: at most `REMEMBERED_MAX`, in at most some 360 KiB.
#[derive(Debug, Default)]
pub struct DropLog {
    /// Oldest first.
    drops: Mutex<VecDeque<Remembered>>,
}

/// A remembered drop. Topic and client are in one string, whose memory is reused when the drop is replaced.
#[derive(Debug)]
struct Remembered {
    at: MonoTime,
    reason: DropReason,
    has_topic: bool,
    topic_len: u8,
    text: String,
}

/// A message that did not reach a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedMessage {
    /// Time of the drop.
    pub at: MonoTime,
    /// The topic, cut off after 160 bytes; `None`: the message was in the store only.
    pub topic: Option<String>,
    /// The client identifier of the session, cut off after 96 bytes.
    pub client: String,
    /// The reason for the drop.
    pub reason: DropReason,
}

/// A filter for remembered drops. `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Drops of messages for this client identifier.
    pub client: Option<&'a str>,
    /// Drops of messages whose topic matches this filter, which must be valid and not shared.
    pub topic: Option<&'a str>,
    /// Drops for this reason.
    pub reason: Option<DropReason>,
}

/// The merged drops of several logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// The drops that match the filter, newest first.
    pub drops: Vec<DroppedMessage>,
    /// Number of all remembered drops, whether they match or not.
    pub remembered: usize,
}

impl DropLog {
    /// Remembers that a message of `topic` for `client` was dropped. Replaces the oldest drop if the log is
    /// full.
    pub fn push(&self, at: MonoTime, topic: Option<&str>, client: &str, reason: DropReason) {
        let mut drops = self.drops.lock();
        let oldest = if drops.len() < REMEMBERED_MAX { None } else { drops.pop_front() };
        let mut text = oldest.map_or_else(String::new, |oldest| oldest.text);
        text.clear();
        text.push_str(&cut(topic.unwrap_or_default(), TOPIC_MAX));
        let topic_len = u8::try_from(text.len()).expect("TOPIC_MAX is below 256");
        text.push_str(&cut(client, CLIENT_MAX));
        drops.push_back(Remembered { at, reason, has_topic: topic.is_some(), topic_len, text });
    }
}

/// Merges several logs. Returns the `limit` newest drops that match `wanted`.
pub fn merge<'a>(
    logs: impl IntoIterator<Item = &'a DropLog>,
    wanted: &Wanted<'_>,
    limit: usize,
) -> Recent {
    let mut recent = Recent::default();
    for log in logs {
        let drops = log.drops.lock();
        recent.remembered += drops.len();
        let newest = drops.iter().rev().filter(|drop| wanted.has(drop)).take(limit);
        recent.drops.extend(newest.map(DroppedMessage::from));
    }
    recent.drops.sort_by_key(|drop| Reverse(drop.at));
    recent.drops.truncate(limit);
    recent
}

impl Remembered {
    fn topic(&self) -> Option<&str> {
        self.has_topic.then(|| &self.text[..usize::from(self.topic_len)])
    }

    fn client(&self) -> &str {
        &self.text[usize::from(self.topic_len)..]
    }
}

impl From<&Remembered> for DroppedMessage {
    fn from(drop: &Remembered) -> Self {
        Self {
            at: drop.at,
            topic: drop.topic().map(str::to_owned),
            client: drop.client().to_owned(),
            reason: drop.reason,
        }
    }
}

impl Wanted<'_> {
    fn has(&self, drop: &Remembered) -> bool {
        self.reason.is_none_or(|reason| reason == drop.reason)
            && self.client.is_none_or(|client| cut(client, CLIENT_MAX) == drop.client())
            && self.topic.is_none_or(|filter| drop.topic().is_some_and(|topic| of(filter, topic)))
    }
}

/// Whether a filter matches a topic that may have been cut off for the log.
fn of(filter: &str, topic: &str) -> bool {
    if topic::has_wildcards(filter) {
        topic::matches(filter, topic)
    } else {
        cut(filter, TOPIC_MAX) == topic
    }
}

/// Returns the text in at most `max` bytes. If it is longer, its end is replaced by an ellipsis.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let mut short = text[..text.floor_char_boundary(max - ELLIPSIS.len_utf8())].to_owned();
    short.push(ELLIPSIS);
    short.into()
}

/// Explains a drop reason, and what an operator can do about it.
pub const fn explanation(reason: DropReason) -> &'static str {
    match reason {
        DropReason::QueueMessages => {
            "max_queued_messages was reached for the client: let the client connect and take its messages, \
             raise the limit, or choose with queue_overflow which messages are dropped."
        }
        DropReason::QueueBytes => {
            "max_queued_bytes was reached for the client: let the client connect and take its messages, \
             raise the limit, or choose with queue_overflow which messages are dropped."
        }
        DropReason::Expired => {
            "The Message Expiry Interval ended before the client took the message: let the publisher set a \
             longer one or none, or let the client connect more often."
        }
        DropReason::PacketTooLarge => {
            "The message is larger than the Maximum Packet Size of the client: let the client allow more, \
             or publish smaller messages."
        }
        DropReason::Offline => {
            "The client was not connected, and the message was not to be kept: publish and \
             subscribe with QoS 1 or 2, and let the client connect with a Session Expiry Interval \
             (MQTT 3: with Clean Session 0)."
        }
        DropReason::SessionEnded => {
            "The session ended while the message waited: the session expired, the client connected with \
             Clean Start, or an operator dropped it. Set a longer Session Expiry Interval."
        }
        DropReason::Refused => {
            "The client refused the message with an error in PUBACK or PUBREC: see the log of the client."
        }
        DropReason::RetainedMessages => {
            "The message was to be retained, and max_retained_messages of the tenant was reached: \
             remove some by publishing empty ones, or raise the limit."
        }
        DropReason::RetainedBytes => {
            "The message was to be retained, and max_retained_bytes of the tenant was reached: \
             remove some by publishing empty ones, or raise the limit."
        }
        DropReason::TenantQueue => {
            "The queues of the tenant's sessions together reached a limit: find the sessions where \
             messages wait with `barid session list`, drop those whose clients do not return, or \
             raise the limits."
        }
        DropReason::UserQueue => {
            "The queues of the user's sessions together reached max_user_queued_bytes, or the limit of this \
             user: let its clients connect and take their messages, or raise the limit."
        }
        DropReason::UserRetainedMessages => {
            "The message was to be retained, and its publisher has set as many retained messages as \
             max_user_retained_messages, or the limit of this user, allows: remove some by publishing empty \
             ones, or raise the limit."
        }
        DropReason::UserRetainedBytes => {
            "The message was to be retained, and the retained messages of its publisher are as large as \
             max_user_retained_bytes, or the limit of this user, allows: remove some by publishing empty \
             ones, or raise the limit."
        }
        DropReason::StoreUnreadable => {
            "The message could not be read back from the data directory: see the broker's log, and \
             check the directory with `barid doctor` when the broker is stopped."
        }
        DropReason::StoreFull => {
            "The disk of the data directory was full, and the publisher was refused (0x97; with MQTT 3 \
             by the end of its connection): free disk space, and the broker continues by itself."
        }
        DropReason::QueueRefuses => {
            "The queue of the client, or the queues of the tenant or the user together, were full and queue_overflow \
             is reject, or were at twice their limit and it is block: the publisher was refused (0x97; with MQTT 3 by the end of its connection), and \
             should try again later."
        }
        DropReason::NotAllowed => {
            "The rules of the user were changed while the message waited, and it may not subscribe to this topic any \
             more: see the rules of the user and of the tenant."
        }
        DropReason::BindingNoEntity => {
            "The queue or topic of the binding does not exist or cannot be used: see `barid binding list`, \
             and create it, or change the binding."
        }
        DropReason::BindingSession => {
            "The queue of the binding requires sessions, and the message lacks a value for the session \
             id, or the session id is longer than 512 bytes: see `session` of the binding, and let the \
             publisher send the values that it uses."
        }
        DropReason::BindingTooLarge => {
            "The message is larger than MaxMessageSizeInKilobytes of the binding's queue: raise it, or \
             publish smaller messages."
        }
        DropReason::LinkFull => {
            "Another broker of the cluster did not take messages as fast as they are published, or cannot be reached: \
             see `barid cluster status`."
        }
        DropReason::BrokerDown => {
            "Another broker of the cluster went down, or lost contact with more than half of the others, before it had acknowledged the message: its \
             sessions do not get it, whether they ended with that broker or not. See `barid cluster status`."
        }
        DropReason::BindingFull => {
            "The queue of the binding was full: let more workers receive from it, or raise its \
             MaxSizeInMegabytes. `barid queue show` shows its message counts."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    fn topics(recent: &Recent) -> Vec<&str> {
        recent.drops.iter().filter_map(|drop| drop.topic.as_deref()).collect()
    }

    #[test]
    fn several_logs_are_one_newest_first() {
        let (one, other) = (DropLog::default(), DropLog::default());
        one.push(at(1), Some("a"), "c", DropReason::Offline);
        other.push(at(2), Some("b"), "c", DropReason::Offline);
        one.push(at(3), Some("c"), "c", DropReason::Offline);
        one.push(at(3), Some("d"), "c", DropReason::Offline);
        let recent = merge([&one, &other], &Wanted::default(), 9);
        assert_eq!((topics(&recent), recent.remembered), (vec!["d", "c", "b", "a"], 4));
        assert_eq!(topics(&merge([&one, &other], &Wanted::default(), 3)), ["d", "c", "b"]);
    }

    #[test]
    fn one_can_ask_for_a_client_a_topic_and_a_reason() {
        let log = DropLog::default();
        log.push(at(1), Some("a/b"), "one", DropReason::Offline);
        log.push(at(2), Some("a/c"), "one", DropReason::Expired);
        log.push(at(3), Some("a/b"), "two", DropReason::Expired);
        log.push(at(4), None, "two", DropReason::SessionEnded);
        let ask = |client, topic, reason| {
            let wanted = Wanted { client, topic, reason };
            merge([&log], &wanted, 9).drops.iter().map(|drop| drop.at.as_millis()).collect()
        };
        let all: Vec<u64> = ask(None, None, None);
        assert_eq!(all, [4, 3, 2, 1]);
        assert_eq!(ask(Some("one"), None, None), [2, 1]);
        assert_eq!(ask(None, Some("a/b"), None), [3, 1]);
        assert_eq!(ask(None, Some("a/+"), None), [3, 2, 1]);
        assert_eq!(ask(Some("two"), Some("a/#"), Some(DropReason::Expired)), [3]);
    }

    #[test]
    fn the_oldest_are_forgotten_and_what_is_long_is_cut() {
        let log = DropLog::default();
        let (topic, client) = ("ä/".repeat(500), "ö".repeat(500));
        for n in 0..REMEMBERED_MAX as u64 + 10 {
            log.push(at(n), Some(&topic), &client, DropReason::Offline);
        }
        let recent = merge([&log], &Wanted::default(), usize::MAX);
        assert_eq!((recent.remembered, recent.drops.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert_eq!(recent.drops.last().map(|drop| drop.at), Some(at(10)));
        let drop = &recent.drops[0];
        let remembered = drop.topic.as_deref().unwrap();
        assert!(remembered.len() <= TOPIC_MAX && remembered.starts_with("ä/ä/"), "{remembered}");
        assert!(remembered.ends_with('…') && drop.client.ends_with('…'));
        assert!(drop.client.len() <= CLIENT_MAX);
        let wanted = Wanted { client: Some(&client), topic: Some(&topic), reason: None };
        assert_eq!(merge([&log], &wanted, 1).drops.len(), 1, "found by the whole names");
    }

    #[test]
    fn every_reason_says_what_to_do() {
        for reason in DropReason::ALL {
            let text = explanation(reason);
            assert!(text.ends_with('.') && text.contains(": "), "{reason:?}");
            assert!(!text.contains("  "), "{reason:?}");
        }
    }
}
