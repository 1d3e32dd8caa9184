//! Messages as receivers get them: as they were sent, with the properties that the broker adds.

use super::properties::Field;
use super::sections::{Kind, Sections};
use crate::wire::{Map, ValueRef, Writer, key_text};

/// Properties that the broker adds to a message on delivery. Times are milliseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivered<'a> {
    /// Number of failed delivery attempts before this one.
    pub delivery_count: u32,
    /// Time to live in milliseconds, if the entity sets another than the sender did.
    pub ttl: Option<u32>,
    /// Time at which the message was enqueued.
    pub enqueued_at: i64,
    /// Time at which the message expires; `None` if it does not.
    pub expires_at: Option<i64>,
    /// Sequence number of the message.
    pub sequence_number: u64,
    /// Sequence number in the first entity, before the message was forwarded or dead-lettered.
    pub enqueued_sequence_number: u64,
    /// Time at which the lock on the message, or on its session, ends; `None` without a lock.
    pub locked_until: Option<i64>,
    /// State of the message.
    pub state: State,
    /// Time from which the message is available, if it was scheduled.
    pub scheduled_at: Option<i64>,
    /// Entity in which the message was dead-lettered, if it was forwarded from there.
    pub dead_letter_source: Option<&'a str>,
    /// Lock token, in network order; `None` for receivers that find it in the delivery tag.
    pub lock_token: Option<[u8; 16]>,
    /// Changes to the message since it was enqueued. The last change of a name holds.
    pub changes: &'a [Change<'a>],
}

/// State of a message: to whom it is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Available to all receivers.
    Active = 0,
    /// Available by its sequence number only.
    Deferred = 1,
    /// Available later.
    Scheduled = 2,
}

/// A changed property.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    /// Section of the message that the property belongs to.
    pub scope: Scope,
    /// Name of the property in that section.
    pub name: &'a str,
    /// New value; `None` if the property was removed.
    pub value: Option<ValueRef<'a>>,
}

/// Section of a message that a changed property belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The properties, by the names of [`Field::of_system`]; other names change nothing.
    System,
    /// The application properties.
    User,
    /// The message annotations.
    Annotation,
}

const SEQUENCE_NUMBER: &str = "x-opt-sequence-number";
const ENQUEUED_TIME: &str = "x-opt-enqueued-time";
const LOCKED_UNTIL: &str = "x-opt-locked-until";
const ENQUEUED_NUMBER: &str = "x-opt-enqueue-sequence-number";
const MESSAGE_STATE: &str = "x-opt-message-state";
const SCHEDULED_TIME: &str = "x-opt-scheduled-enqueue-time";
const DEAD_LETTER_SOURCE: &str = "x-opt-deadletter-source";
const LOCK_TOKEN: &str = "x-opt-lock-token";

/// Annotations that only the broker may set; a sender's values are dropped.
const OURS: [&str; 6] = [
    SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCKED_UNTIL,
    ENQUEUED_NUMBER,
    MESSAGE_STATE,
    DEAD_LETTER_SOURCE,
];

/// Annotations that every message gets, encoded with zeros as values.
const STAMP: &[u8; 125] = b"\xa3\x15x-opt-sequence-number\x81\0\0\0\0\0\0\0\0\
    \xa3\x1dx-opt-enqueue-sequence-number\x81\0\0\0\0\0\0\0\0\
    \xa3\x13x-opt-enqueued-time\x83\0\0\0\0\0\0\0\0\
    \xa3\x13x-opt-message-state\x54\0";

/// Number of keys and values in [`STAMP`].
const STAMP_COUNT: u32 = 8;

impl Delivered<'_> {
    /// Appends the message to `out` as a receiver gets it.
    pub fn encode(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        out.reserve(sections.body().len() + 512);
        let mut writer = Writer::new(out);
        self.header(sections, &mut writer);
        self.delivery_annotations(sections, &mut writer);
        self.annotations(sections, &mut writer);
        self.properties(sections, &mut writer);
        self.application_properties(sections, &mut writer);
        out.extend_from_slice(sections.body());
    }

    fn header(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let header = sections.header();
        writer.composite(Kind::Header as u64, |fields| {
            fields.value(header.durable);
            fields.value(header.priority);
            fields.value(self.ttl.or(header.ttl));
            fields.value(header.first_acquirer);
            fields.value(self.delivery_count);
        });
    }

    /// Writes the delivery annotations. Those of the sender are passed on, as Service Bus does.
    fn delivery_annotations(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let sent = sections.delivery_annotations();
        if self.lock_token.is_none() && sent.is_empty() {
            return;
        }
        writer.described(Kind::DeliveryAnnotations as u64, |value| {
            value.map(|map| {
                for (key, value) in sent.pairs() {
                    if key_text(key) != Some(LOCK_TOKEN.as_bytes()) {
                        map.encoded(1, key);
                        map.encoded(1, value);
                    }
                }
                if let Some(token) = self.lock_token {
                    annotation(map, LOCK_TOKEN, ValueRef::Uuid(token));
                }
            });
        });
    }

    fn annotations(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let is_kept = |key: &[u8]| {
            let Some(name) = key_text(key).filter(|name| name.starts_with(b"x-opt-")) else {
                return true;
            };
            !(OURS.iter().any(|own| own.as_bytes() == name)
                || self.scheduled_at.is_some() && name == SCHEDULED_TIME.as_bytes())
        };
        writer.described(Kind::MessageAnnotations as u64, |value| {
            value.map(|map| {
                map.encoded(STAMP_COUNT, &self.stamp());
                if let Some(at) = self.locked_until {
                    annotation(map, LOCKED_UNTIL, ValueRef::Timestamp(at));
                }
                if let Some(at) = self.scheduled_at {
                    annotation(map, SCHEDULED_TIME, ValueRef::Timestamp(at));
                }
                if let Some(source) = self.dead_letter_source {
                    annotation(map, DEAD_LETTER_SOURCE, ValueRef::String(source));
                }
                self.merge(Scope::Annotation, sections.annotations(), is_kept, map);
            });
        });
    }

    /// Encodes the annotations that every message gets.
    fn stamp(&self) -> [u8; STAMP.len()] {
        let mut stamp = *STAMP;
        let mut at = 0;
        let mut set = |name: &str, value: [u8; 8]| {
            at += 2 + name.len() + 1;
            stamp[at..at + 8].copy_from_slice(&value);
            at += 8;
        };
        // Sequence numbers count messages, so they never reach the upper half of the range, which `long`
        // lacks.
        set(SEQUENCE_NUMBER, self.sequence_number.to_be_bytes());
        set(ENQUEUED_NUMBER, self.enqueued_sequence_number.to_be_bytes());
        set(ENQUEUED_TIME, self.enqueued_at.to_be_bytes());
        stamp[STAMP.len() - 1] = self.state as u8;
        stamp
    }

    /// Writes the properties, with the creation and the expiry time that the broker knows.
    fn properties(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let sent = sections.properties_list();
        let has_changes = self.changes.iter().any(|change| change.scope == Scope::System);
        if sent.count() == 0 && !has_changes && self.expires_at.is_none() {
            return;
        }
        writer.composite(Kind::Properties as u64, |fields| {
            if has_changes {
                return self.changed_properties(sections, fields);
            }
            let mut rest = sent.raw();
            let (count, before) = rest.first(Field::AbsoluteExpiryTime as usize);
            fields.encoded(count, before);
            for _missing in count..Field::AbsoluteExpiryTime as u32 {
                fields.value(ValueRef::Null);
            }
            let created = rest.nth(1).map_or(ValueRef::Null, ValueRef::known);
            fields.value(self.expires_at.map(ValueRef::Timestamp));
            fields.value(self.created(created).map(ValueRef::Timestamp));
            let behind = sent.count().saturating_sub(Field::CreationTime as u32 + 1);
            fields.encoded(behind, rest.rest());
        });
    }

    fn changed_properties(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let mut fields = sections.properties().all().map(ValueRef::known);
        let created = self.created(fields[Field::CreationTime as usize]);
        fields[Field::AbsoluteExpiryTime as usize] =
            self.expires_at.map(ValueRef::Timestamp).into();
        fields[Field::CreationTime as usize] = created.map(ValueRef::Timestamp).into();
        for change in self.changes.iter().filter(|change| change.scope == Scope::System) {
            if let Some(field) = Field::of_system(change.name) {
                fields[field as usize] = change.value.into();
            }
        }
        fields.iter().for_each(|value| writer.value(*value));
    }

    /// Returns the creation time. Clients compute the time to live from it, and expect a timestamp.
    fn created(&self, sent: ValueRef<'_>) -> Option<i64> {
        match (self.expires_at, sent) {
            (Some(_), _) => Some(self.enqueued_at),
            (None, ValueRef::Timestamp(ms)) => Some(ms),
            (None, _) => None,
        }
    }

    fn application_properties(&self, sections: &Sections<'_>, writer: &mut Writer<'_>) {
        let sent = sections.application_properties();
        let has_changes = self.changes.iter().any(|change| change.scope == Scope::User);
        if sent.is_empty() && !has_changes {
            return;
        }
        writer.described(Kind::ApplicationProperties as u64, |value| {
            if !has_changes {
                return value.value(ValueRef::Map(sent));
            }
            value.map(|map| self.merge(Scope::User, sent, |_| true, map));
        });
    }

    /// Writes the entries that were sent, with the changes applied.
    fn merge(
        &self,
        scope: Scope,
        sent: Map<'_>,
        is_kept: impl Fn(&[u8]) -> bool,
        map: &mut Writer<'_>,
    ) {
        let is_changed = |changes: &[Change<'_>], name: Option<&[u8]>| {
            let is_it =
                |change: &Change<'_>| change.scope == scope && Some(change.name.as_bytes()) == name;
            changes.iter().any(is_it)
        };
        for (key, value) in sent.pairs() {
            if is_kept(key) && !is_changed(self.changes, key_text(key)) {
                map.encoded(1, key);
                map.encoded(1, value);
            }
        }
        for (index, change) in self.changes.iter().enumerate() {
            let is_last = !is_changed(&self.changes[index + 1..], Some(change.name.as_bytes()));
            if let Some(value) = change.value.filter(|_| change.scope == scope && is_last) {
                match scope {
                    Scope::Annotation => annotation(map, change.name, value),
                    Scope::User | Scope::System => map.entry(change.name, value),
                }
            }
        }
    }
}

fn annotation(map: &mut Writer<'_>, name: &str, value: ValueRef<'_>) {
    map.value(ValueRef::Symbol(name));
    map.value(value);
}
