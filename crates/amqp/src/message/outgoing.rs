//! A message as a receiver gets it: as it was sent, with what the broker knows of it.

use super::properties::{COUNT, Field};
use super::sections::{Kind, Sections};
use super::value::{Map, ValueRef, key_text};
use super::wire::code;
use super::writer::{Writer, begin, end, variable};

/// What the broker adds to a message. Times are milliseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivered<'a> {
    /// Attempts before this one that failed: 0 at first.
    pub delivery_count: u32,
    /// Milliseconds to live, if the entity gives others than the sender did.
    pub ttl: Option<u32>,
    /// When it came.
    pub enqueued_at: i64,
    /// When it goes, if it does not live for ever.
    pub expires_at: Option<i64>,
    /// Its place.
    pub sequence_number: u64,
    /// Its place where it first was, before it was forwarded or dead-lettered.
    pub enqueued_sequence_number: u64,
    /// Until when its lock, or that of its session, lasts; `None` without a lock.
    pub locked_until: Option<i64>,
    /// Whether it is to be had at all.
    pub state: State,
    /// When it is to be had, if it was scheduled.
    pub scheduled_at: Option<i64>,
    /// The entity in which it was dead-lettered, if it was forwarded from there.
    pub dead_letter_source: Option<&'a str>,
    /// Its lock token, in network order. Not for those who find it in the delivery tag.
    pub lock_token: Option<[u8; 16]>,
    /// What was changed since it came. The last change of a name holds.
    pub changes: &'a [Change<'a>],
}

/// Whether a message is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// By all.
    Active = 0,
    /// By its sequence number only.
    Deferred = 1,
    /// Later.
    Scheduled = 2,
}

/// A property that was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    /// Where it belongs.
    pub scope: Scope,
    /// Its name there.
    pub name: &'a str,
    /// Its new value; `None` if it was removed.
    pub value: Option<ValueRef<'a>>,
}

/// Where a property belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The properties, with the names of [`Field::of_system`]; others change nothing.
    System,
    /// The application properties.
    User,
    /// The annotations.
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

/// Annotations that only the broker may set.
const OURS: [&str; 6] = [
    SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCKED_UNTIL,
    ENQUEUED_NUMBER,
    MESSAGE_STATE,
    DEAD_LETTER_SOURCE,
];

/// The first annotations, with zeros for their values.
const STAMP: &[u8; 125] = b"\xa3\x15x-opt-sequence-number\x81\0\0\0\0\0\0\0\0\
    \xa3\x1dx-opt-enqueue-sequence-number\x81\0\0\0\0\0\0\0\0\
    \xa3\x13x-opt-enqueued-time\x83\0\0\0\0\0\0\0\0\
    \xa3\x13x-opt-message-state\x54\0";

/// Their keys and values.
const STAMP_COUNT: u32 = 8;

const NULL: &[u8] = &[code::NULL];

impl Delivered<'_> {
    /// Appends the message to `out` as a receiver gets it.
    pub fn encode(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        out.reserve(sections.body().len() + 512);
        self.header(sections, out);
        self.delivery_annotations(out);
        self.annotations(sections, out);
        self.properties(sections, out);
        self.application_properties(sections, out);
        out.extend_from_slice(sections.body());
    }

    fn header(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        let header = sections.header();
        let or_null = |value: Option<ValueRef<'static>>| value.unwrap_or(ValueRef::Null);
        out.extend_from_slice(&Kind::Header.descriptor());
        out.extend_from_slice(&[code::LIST_8, 0, 5]);
        let start = out.len();
        let mut fields = Writer::new(out);
        fields.value(ValueRef::Bool(header.durable));
        fields.value(or_null(header.priority.map(ValueRef::Ubyte)));
        fields.value(or_null(self.ttl.or(header.ttl).map(ValueRef::Uint)));
        fields.value(ValueRef::Bool(header.first_acquirer));
        fields.value(ValueRef::Uint(self.delivery_count));
        // The count is a byte of it, too. Five fields have 14 bytes at most.
        out[start - 2] = (out.len() - start + 1) as u8;
    }

    fn delivery_annotations(&self, out: &mut Vec<u8>) {
        let Some(token) = self.lock_token else { return };
        out.extend_from_slice(&Kind::DeliveryAnnotations.descriptor());
        let start = begin(out, code::MAP_32);
        annotation(out, LOCK_TOKEN, ValueRef::Uuid(token));
        end(out, start, 2);
    }

    fn annotations(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&Kind::MessageAnnotations.descriptor());
        let start = begin(out, code::MAP_32);
        out.extend_from_slice(&self.stamp());
        let mut count = STAMP_COUNT;
        let mut ours = |name, value| {
            annotation(out, name, value);
            count += 2;
        };
        if let Some(at) = self.locked_until {
            ours(LOCKED_UNTIL, ValueRef::Timestamp(at));
        }
        if let Some(at) = self.scheduled_at {
            ours(SCHEDULED_TIME, ValueRef::Timestamp(at));
        }
        if let Some(source) = self.dead_letter_source {
            ours(DEAD_LETTER_SOURCE, ValueRef::String(source));
        }
        let is_kept = |key: &[u8]| {
            let Some(name) = key_text(key).filter(|name| name.starts_with(b"x-opt-")) else {
                return true;
            };
            !(OURS.iter().any(|own| own.as_bytes() == name)
                || self.scheduled_at.is_some() && name == SCHEDULED_TIME.as_bytes())
        };
        count += self.merge(Scope::Annotation, sections.annotations(), is_kept, annotation, out);
        end(out, start, count);
    }

    /// The annotations that every message has.
    fn stamp(&self) -> [u8; STAMP.len()] {
        let mut stamp = *STAMP;
        let mut at = 0;
        let mut set = |name: &str, value: [u8; 8]| {
            at += 2 + name.len() + 1;
            stamp[at..at + 8].copy_from_slice(&value);
            at += 8;
        };
        // Numbers count messages: they never come near to the half that `long` does not have.
        set(SEQUENCE_NUMBER, self.sequence_number.to_be_bytes());
        set(ENQUEUED_NUMBER, self.enqueued_sequence_number.to_be_bytes());
        set(ENQUEUED_TIME, self.enqueued_at.to_be_bytes());
        stamp[STAMP.len() - 1] = self.state as u8;
        stamp
    }

    /// With those that a sender may set but only the broker knows: when the message came, and when it goes.
    fn properties(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        let sent = sections.properties_list();
        let changes = self.changes.iter().filter(|change| change.scope == Scope::System);
        let has_changes = changes.clone().next().is_some();
        if sent.count() == 0 && !has_changes && self.expires_at.is_none() {
            return;
        }
        out.extend_from_slice(&Kind::Properties.descriptor());
        let start = begin(out, code::LIST_32);
        if has_changes {
            self.changed_properties(sections, changes, out);
            return end(out, start, COUNT as u32);
        }
        let mut rest = sent.raw();
        rest.copy(Field::AbsoluteExpiryTime as usize, out);
        let (_, created) = (rest.next(), rest.next().unwrap_or(NULL));
        let mut ours = Writer::new(out);
        ours.value(self.expires_at.map_or(ValueRef::Null, ValueRef::Timestamp));
        match self.created(created) {
            Some(ms) => ours.value(ValueRef::Timestamp(ms)),
            None => ours.value(ValueRef::Null),
        }
        out.extend_from_slice(rest.rest());
        end(out, start, sent.count().max(Field::CreationTime as u32 + 1));
    }

    fn changed_properties<'c>(
        &self,
        sections: &Sections<'_>,
        changes: impl Iterator<Item = &'c Change<'c>>,
        out: &mut Vec<u8>,
    ) {
        let sent = sections.properties();
        let mut fields = sent.all().map(ValueRef::known);
        let created = self.created(sent.all()[Field::CreationTime as usize]);
        let time = |at: Option<i64>| at.map_or(ValueRef::Null, ValueRef::Timestamp);
        fields[Field::AbsoluteExpiryTime as usize] = time(self.expires_at);
        fields[Field::CreationTime as usize] = time(created);
        for change in changes {
            if let Some(field) = Field::of_system(change.name) {
                fields[field as usize] = change.value.unwrap_or(ValueRef::Null);
            }
        }
        let mut writer = Writer::new(out);
        for value in fields {
            writer.value(value);
        }
    }

    /// Clients tell the time to live by the time of creation, and want it to be a time.
    fn created(&self, sent: &[u8]) -> Option<i64> {
        match (self.expires_at, ValueRef::known(sent)) {
            (Some(_), _) => Some(self.enqueued_at),
            (None, ValueRef::Timestamp(ms)) => Some(ms),
            (None, _) => None,
        }
    }

    fn application_properties(&self, sections: &Sections<'_>, out: &mut Vec<u8>) {
        let sent = sections.application_properties();
        let has_changes = self.changes.iter().any(|change| change.scope == Scope::User);
        if sent.is_empty() && !has_changes {
            return;
        }
        out.extend_from_slice(&Kind::ApplicationProperties.descriptor());
        if !has_changes {
            return Writer::new(out).value(ValueRef::Map(sent));
        }
        let start = begin(out, code::MAP_32);
        let count = self.merge(Scope::User, sent, |_| true, property, out);
        end(out, start, count);
    }

    /// Entries that were sent, and those that were changed: how many keys and values.
    fn merge(
        &self,
        scope: Scope,
        sent: Map<'_>,
        is_kept: impl Fn(&[u8]) -> bool,
        put: impl Fn(&mut Vec<u8>, &str, ValueRef<'_>),
        out: &mut Vec<u8>,
    ) -> u32 {
        let mut count = 0;
        let is_changed = |changes: &[Change<'_>], name: Option<&[u8]>| {
            let is_it =
                |change: &Change<'_>| change.scope == scope && Some(change.name.as_bytes()) == name;
            changes.iter().any(is_it)
        };
        for (key, value) in sent.pairs() {
            if is_kept(key) && !is_changed(self.changes, key_text(key)) {
                out.extend_from_slice(key);
                out.extend_from_slice(value);
                count += 2;
            }
        }
        for (index, change) in self.changes.iter().enumerate() {
            let is_last = !is_changed(&self.changes[index + 1..], Some(change.name.as_bytes()));
            if let Some(value) = change.value.filter(|_| change.scope == scope && is_last) {
                put(out, change.name, value);
                count += 2;
            }
        }
        count
    }
}

fn annotation(out: &mut Vec<u8>, name: &str, value: ValueRef<'_>) {
    variable(out, code::SYMBOL_8, name.as_bytes());
    Writer::new(out).value(value);
}

fn property(out: &mut Vec<u8>, name: &str, value: ValueRef<'_>) {
    Writer::new(out).entry(name, value);
}
