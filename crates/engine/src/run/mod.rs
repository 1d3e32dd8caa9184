//! Messages that one client published one after another to one topic, as they lie in its connection's
//! read buffer.
//!
//! Most of a broker's work is passing such runs on. A run is encoded at most once for each form in which its
//! subscribers want it (version, QoS, RETAIN), not once for each subscriber. If the form is the publisher's
//! own, the bytes in the read buffer are sent as they are, with flags and packet identifiers patched in
//! place. A message becomes a shared [`Message`] only if it must be kept.
//!
//! | file | what is there |
//! | --- | --- |
//! | `parse.rs` | a PUBLISH as it lies in a buffer |
//! | `limit.rs` | limits on the length of a run |
//! | `forms.rs` | a run as it is sent |
//! | `notes.rs` | the shards that store a run, and the recipients that have its messages |

mod forms;
mod limit;
mod notes;
mod parse;

pub use forms::PacketForm;
pub use limit::RunLimit;
pub use notes::Had;
pub use parse::Parsed;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use barid_core::ids::{MessageId, SessionNumber, ShardIndex, StoredAs, TenantNumber};
use barid_core::message::{Message, Publication};
use barid_core::session::{Delivery, OVERHEAD, ShardSet};
use barid_core::stamp::Stamp;
use barid_core::time::MonoTime;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Properties, PropertyId, QoS};
use smallvec::SmallVec;

use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::encode::{self, PublishFrame};
use crate::faults::{Rule, holds};
use crate::offer::Offer;
use forms::{FORMS, Form};

/// Scratch memory for a run; empty between runs, except for its capacity.
#[derive(Debug, Default)]
pub struct Run {
    topic: String,
    qos: Option<QoS>,
    retain: bool,
    v5: bool,
    /// Whether the frames in the buffer can be sent as they are.
    as_is: bool,
    /// The flags of all frames in the buffer, if they have been set for a subscriber.
    flags: Option<u8>,
    largest: usize,
    /// Whether the messages are requests to the state store, which no subscriber gets.
    pub is_requests: bool,
    /// Maximum length of the run.
    pub limit: RunLimit,
    items: Vec<Item>,
    /// Properties that do not lie in one piece in the buffer.
    arena: Vec<u8>,
    messages: Vec<Option<Arc<Message>>>,
    forms: [Form; FORMS],
    /// The publisher's packet identifiers, for QoS 1 and 2.
    pub ids: Vec<u16>,
    /// The durability class of the topic.
    pub class: DurabilityClass,
    /// The publisher's session, if it is stored and the messages have QoS 2: then shards note which
    /// recipients have the messages.
    pub origin: Option<(TenantNumber, SessionNumber)>,
    /// Whether the messages may have been handed on in part, before the broker ended or a shard was closed.
    pub is_resumed: bool,
    /// Whether the messages are a repetition that all recipients have, except some that store them in a shard
    /// that was closed meanwhile.
    pub was_lost: bool,
    /// Shards in which the receipt of the messages is noted.
    pub reached: ShardSet,
    /// Batches that must be durable before the messages are acknowledged.
    pub commits: Commits,
    /// Batches that must be durable before the messages leave, because the messages reveal their changes.
    pub after: Commits,
    /// Whether the messages are responses of the state store.
    pub are_responses: bool,
    /// The places of the messages on the links to other brokers.
    pub sent: Commits,
    /// The other brokers to which the messages were sent, now or before, as the bits of their places.
    pub others: u64,
    /// The stamp with which the last message was retained, if other brokers have replicas of retained messages.
    stamp: Stamp,
    /// For each shard that stores the messages, the message number of the first one.
    message_ids: SmallVec<[(u16, MessageId); 2]>,
    overflowed: bool,
}

/// One message: the positions of its parts in the buffer.
#[derive(Clone, Debug)]
struct Item {
    frame: Range<usize>,
    id: usize,
    properties: PropertiesAt,
    payload: Range<usize>,
    expires_at: Option<MonoTime>,
}

#[derive(Clone, Debug)]
enum PropertiesAt {
    Buffer(Range<usize>),
    Arena(Range<usize>),
}

/// A run together with its buffer.
#[derive(Debug)]
pub struct Messages<'a> {
    run: &'a mut Run,
    buffer: &'a mut [u8],
    now: MonoTime,
}

impl Run {
    /// Whether the run has no message.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The topic of the run; if the run is empty, that of the previous run.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns whether a message with the run's topic belongs to the run: it lies directly behind the last
    /// message, has the same QoS and RETAIN flag, and does not exceed the limit.
    pub fn continues(&self, parsed: &Parsed) -> bool {
        let (Some(first), Some(last)) = (self.items.first(), self.items.last()) else {
            return false;
        };
        self.qos == Some(parsed.qos)
            && self.retain == parsed.retain
            && last.frame.end == parsed.frame.start
            && self.items.len() < self.limit.messages
            && parsed.frame.end - first.frame.start <= self.limit.bytes
    }

    /// Begins a run. The previous run must have been cleared.
    pub fn begin(&mut self, topic: &str, qos: QoS, retain: bool, v5: bool, class: DurabilityClass) {
        debug_assert!(self.is_empty());
        if self.topic != topic {
            self.topic.clear();
            self.topic.push_str(topic);
        }
        self.qos = Some(qos);
        self.retain = retain;
        self.v5 = v5;
        self.as_is = true;
        self.flags = None;
        self.is_requests = false;
        self.limit = RunLimit::NONE;
        self.class = class;
    }

    /// The QoS of a run that has begun.
    pub fn qos(&self) -> QoS {
        self.qos.expect("a run that has begun has a QoS")
    }

    /// Appends a message that lies in `bytes`.
    pub fn push(&mut self, parsed: Parsed, bytes: &[u8], now: MonoTime) {
        let payload = parsed.payload();
        let properties = if parsed.expiry.is_none() && parsed.alias.is_none() {
            PropertiesAt::Buffer(parsed.properties)
        } else {
            self.as_is &= parsed.alias.is_none();
            let start = self.arena.len();
            let given = Properties::from_validated(&bytes[parsed.properties]);
            let (before, behind) = given.without(PropertyId::MessageExpiryInterval);
            for part in [before, behind] {
                let part = Properties::from_validated(part);
                let (before, behind) = match parsed.alias {
                    Some(_) => part.without(PropertyId::TopicAlias),
                    None => (part.as_bytes(), &[][..]),
                };
                self.arena.extend_from_slice(before);
                self.arena.extend_from_slice(behind);
            }
            PropertiesAt::Arena(start..self.arena.len())
        };
        let expires_at =
            parsed.expiry.map(|seconds| now.after(Duration::from_secs(u64::from(seconds))));
        self.append(Item {
            frame: parsed.frame,
            id: parsed.topic.end,
            properties,
            payload,
            expires_at,
        });
    }

    /// Bytes of all packets of the run.
    pub fn frame_bytes(&self) -> usize {
        self.items.iter().map(|item| item.frame.len()).sum()
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    fn append(&mut self, item: Item) {
        // Upper bound of the packet's size in any form, without Subscription Identifiers and Topic Alias.
        let properties = match &item.properties {
            PropertiesAt::Buffer(range) | PropertiesAt::Arena(range) => range.len(),
        };
        let most = 20 + self.topic.len() + properties + item.payload.len();
        self.largest = self.largest.max(most);
        self.items.push(item);
    }

    /// Removes the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.arena.clear();
        self.messages.clear();
        self.ids.clear();
        self.origin = None;
        self.is_resumed = false;
        self.was_lost = false;
        self.reached = ShardSet::default();
        self.commits.clear();
        self.after.clear();
        self.are_responses = false;
        self.sent.clear();
        self.others = 0;
        self.stamp = Stamp::NONE;
        self.message_ids.clear();
        self.overflowed = false;
        self.largest = 0;
        self.forms.iter_mut().for_each(Form::clear);
    }

    /// Removes all but the first `len` messages. All packet identifiers stay.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Removes some of the messages with their packet identifiers, before any recipient has got a message.
    pub fn remove(&mut self, is_removed: impl Fn(usize) -> bool) {
        let mut index = 0..;
        self.items.retain(|_| !is_removed(index.next().expect("they are counted")));
        let mut index = 0..;
        self.ids.retain(|_| !is_removed(index.next().expect("they are counted")));
        // The remaining messages may no longer lie in one piece.
        self.as_is = false;
        self.messages.clear();
    }

    /// Returns the batches that must be durable before the messages count as handed on.
    pub fn into_commits(self) -> Commits {
        self.commits
    }

    /// Joins the run with its buffer.
    pub fn in_buffer<'a>(&'a mut self, buffer: &'a mut [u8], now: MonoTime) -> Messages<'a> {
        self.messages.resize(self.items.len(), None);
        Messages { run: self, buffer, now }
    }

    /// Creates a run of one message that does not lie in a read buffer, together with a buffer of its own.
    pub fn of(
        publication: &Publication<'_>,
        class: DurabilityClass,
        now: MonoTime,
    ) -> (Self, Vec<u8>) {
        let mut run = Self::default();
        run.begin(publication.topic, publication.qos, publication.retain, true, class);
        let mut buffer = Vec::new();
        run.put(publication, now, &mut buffer);
        (run, buffer)
    }

    /// Appends a message of the broker's own to a run that has begun and that lies in `buffer` as a whole.
    pub fn put(&mut self, publication: &Publication<'_>, now: MonoTime, buffer: &mut Vec<u8>) {
        let frame = PublishFrame {
            publication: *publication,
            qos: publication.qos,
            retain: publication.retain,
            dup: false,
            id: 0,
            identifiers: &[],
            alias: AliasUse::None,
            now,
        };
        let layout = frame.put(true, buffer);
        self.append(Item {
            frame: layout.start..layout.end,
            id: layout.id,
            properties: PropertiesAt::Buffer(layout.properties..layout.payload),
            payload: layout.payload..layout.end,
            expires_at: publication.expires_at,
        });
    }
}

impl Messages<'_> {
    /// Number of messages; at least one.
    pub fn len(&self) -> usize {
        self.run.items.len()
    }

    /// Bytes of the packets in which the messages were published.
    pub fn frame_bytes(&self) -> usize {
        self.run.frame_bytes()
    }

    /// The topic of the messages.
    pub fn topic(&self) -> &str {
        &self.run.topic
    }

    /// The QoS with which the messages were published.
    pub fn qos(&self) -> QoS {
        self.run.qos()
    }

    /// Whether the messages were published with RETAIN.
    pub fn retain(&self) -> bool {
        self.run.retain
    }

    /// Upper bound of the size of each packet, in bytes, without Subscription Identifiers and Topic Alias.
    pub fn largest(&self) -> usize {
        self.run.largest
    }

    /// Returns a message.
    pub fn publication(&self, index: usize) -> Publication<'_> {
        let item = &self.run.items[index];
        Publication {
            topic: &self.run.topic,
            payload: &self.buffer[item.payload.clone()],
            properties: match &item.properties {
                PropertiesAt::Buffer(range) => &self.buffer[range.clone()],
                PropertiesAt::Arena(range) => &self.run.arena[range.clone()],
            },
            qos: self.qos(),
            retain: self.run.retain,
            expires_at: item.expires_at,
        }
    }

    /// Returns a message in memory of its own. It is copied out of the buffer only once, for all callers.
    pub fn message(&mut self, index: usize) -> Arc<Message> {
        if let Some(message) = &self.run.messages[index] {
            return Arc::clone(message);
        }
        let message = Arc::new(Message::new(&self.publication(index)));
        self.run.messages[index] = Some(Arc::clone(&message));
        message
    }

    /// Returns a message as a delivery, which waits for one session or is kept until that session
    /// acknowledges it.
    pub fn delivery(
        &mut self,
        index: usize,
        offer: &Offer<'_>,
        stored: Option<StoredAs>,
    ) -> Delivery {
        Delivery {
            message: self.message(index),
            qos: offer.qos,
            retain: offer.retain,
            identifiers: SmallVec::from_slice(offer.identifiers),
            shared: offer.shared.cloned(),
            stored,
            queued_at: self.now,
            after: (!self.run.after.is_empty()).then(|| Box::new(self.run.after.clone())),
        }
    }

    /// Returns whether a message was sent again (DUP). Valid until the frames in the buffer are patched for a
    /// subscriber.
    pub fn is_repeated(&self, index: usize) -> bool {
        encode::is_dup(self.buffer[self.run.items[index].frame.start])
    }

    /// Batches that must be durable before the messages leave.
    pub fn after(&self) -> &Commits {
        &self.run.after
    }

    /// Whether the messages are responses of the state store.
    pub fn are_responses(&self) -> bool {
        self.run.are_responses
    }

    /// The durability class of the topic.
    pub fn class(&self) -> DurabilityClass {
        self.run.class
    }

    /// Notes the stamp with which the last message was retained.
    pub(crate) fn note_stamp(&mut self, stamp: Stamp) {
        self.run.stamp = stamp;
    }

    /// The stamp with which the last message was retained, if other brokers have replicas of it.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        Some(self.run.stamp).filter(|stamp| *stamp != Stamp::NONE)
    }

    /// Notes the place of the messages on a link to another broker. Messages that must not be lost count as handed on
    /// when the other broker has acknowledged them.
    pub(crate) fn note_sent(&mut self, source: ShardIndex, sequence: u64) {
        self.run.sent.add(source, sequence);
        if self.qos() != QoS::AtMostOnce && holds(Rule::AcknowledgeWhenDone) {
            self.run.commits.add(source, sequence);
        }
    }

    /// Notes the broker, by its place, to which the messages were sent.
    pub(crate) fn note_sent_to(&mut self, place: u8) {
        self.run.others |= 1 << place;
    }

    /// Whether the messages are a repetition, and the broker at this place was sent them before.
    pub(crate) fn were_sent_to(&self, place: u8) -> bool {
        self.run.is_resumed && self.run.others & (1 << place) != 0 && holds(Rule::SendOnce)
    }

    /// Returns whether the messages are stored if they are delivered with `qos` to a stored session. Messages
    /// of QoS 2 always are: if the broker forgot that a client was sent a packet identifier, the client would
    /// lose another message.
    pub fn are_stored(&self, qos: QoS) -> bool {
        match qos {
            QoS::AtMostOnce => false,
            QoS::AtLeastOnce => self.run.class.is_stored(),
            QoS::ExactlyOnce => true,
        }
    }

    /// Notes that a queue is full and has got the messages nevertheless.
    pub fn overflow(&mut self) {
        self.run.overflowed = true;
    }

    /// Returns whether [`Self::overflow`] was called since the last call.
    pub fn has_overflowed(&mut self) -> bool {
        std::mem::take(&mut self.run.overflowed)
    }

    /// Sizes of the messages in a queue, in bytes and in order, without Subscription Identifiers.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(|index| OVERHEAD + self.publication(index).size())
    }
}
