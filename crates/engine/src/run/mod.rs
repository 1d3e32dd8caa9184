//! Messages that one client published one after another to one topic, as they lie in its connection's
//! read buffer.
//!
//! Most of what a broker does is passing such a run on. It is encoded at most once for each form in
//! which its subscribers want it (version, QoS, RETAIN), not once for each subscriber; where the form is
//! the publisher's own, the bytes in the read buffer are sent as they are, with packet identifiers
//! patched in place. A message becomes a shared [`Message`] only if somebody must keep it.
//!
//! | file | what is there |
//! | --- | --- |
//! | `parse.rs` | a PUBLISH as it lies in a buffer |
//! | `limit.rs` | how long a run may get |
//! | `forms.rs` | a run as it is sent |
//! | `notes.rs` | where it is stored, and who has got its messages |

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

use barid_core::ids::{MessageId, SessionNumber, StoredAs, TenantNumber};
use barid_core::message::{Message, Publication};
use barid_core::session::{Delivery, OVERHEAD, ShardSet};
use barid_core::time::MonoTime;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{Properties, PropertyId, QoS};
use smallvec::SmallVec;

use crate::durability::DurabilityClass;
use crate::durable::Commits;
use crate::encode::{self, PublishFrame};
use crate::offer::Offer;
use forms::{FORMS, Form};

/// Scratch memory for a run; empty between runs, but for its capacity.
#[derive(Debug, Default)]
pub struct Run {
    topic: String,
    qos: Option<QoS>,
    retain: bool,
    v5: bool,
    /// Whether the frames in the buffer can be sent as they are.
    as_is: bool,
    /// The flags of all frames in the buffer, if they were set for a subscriber before.
    flags: Option<u8>,
    largest: usize,
    /// They are requests to the state store, and nobody else gets them.
    pub is_requests: bool,
    /// How long it may get.
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
    /// The publisher's session, if it is stored and these are QoS 2: what is received of it is noted.
    pub origin: Option<(TenantNumber, SessionNumber)>,
    /// They may have been handed on in part, before the broker ended.
    pub is_resumed: bool,
    /// They were handed on to all but those who store them in a shard that was closed meanwhile.
    pub was_lost: bool,
    /// Shards that have noted that the messages were received.
    pub reached: ShardSet,
    /// What has to be durable before the messages are acknowledged.
    pub commits: Commits,
    /// What has to be durable before the messages leave: they tell of it.
    pub after: Commits,
    /// Their first identifiers in the shards that store them.
    message_ids: SmallVec<[(u16, MessageId); 2]>,
    overflowed: bool,
}

/// One message: where its parts lie in the buffer.
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

/// A run together with the buffer that it lies in.
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

    /// The topic of the run, or of the one before if this one is empty.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Whether a message with the run's topic belongs to the run: it lies right behind the last one and
    /// is like it, and there is room for it.
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

    /// Begins a run.
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

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    fn append(&mut self, item: Item) {
        // What the packet takes at most in any form, but for Subscription Identifiers and aliases.
        let properties = match &item.properties {
            PropertiesAt::Buffer(range) | PropertiesAt::Arena(range) => range.len(),
        };
        let most = 20 + self.topic.len() + properties + item.payload.len();
        self.largest = self.largest.max(most);
        self.items.push(item);
    }

    /// Forgets the messages and keeps the memory.
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
        self.message_ids.clear();
        self.overflowed = false;
        self.largest = 0;
        self.forms.iter_mut().for_each(Form::clear);
    }

    /// Forgets all but the first `len` messages.
    pub fn truncate(&mut self, len: usize) {
        self.items.truncate(len);
    }

    /// Forgets some of the messages with their packet identifiers, before anybody has got any.
    pub fn remove(&mut self, is_removed: impl Fn(usize) -> bool) {
        let mut index = 0..;
        self.items.retain(|_| !is_removed(index.next().expect("they are counted")));
        let mut index = 0..;
        self.ids.retain(|_| !is_removed(index.next().expect("they are counted")));
        // What is left does not lie in one piece any more.
        self.as_is = false;
        self.messages.clear();
    }

    /// What has to be durable before the messages count as handed on.
    pub fn into_commits(self) -> Commits {
        self.commits
    }

    /// The run with its buffer.
    pub fn in_buffer<'a>(&'a mut self, buffer: &'a mut [u8], now: MonoTime) -> Messages<'a> {
        self.messages.resize(self.items.len(), None);
        Messages { run: self, buffer, now }
    }

    /// Makes a run of one message that did not come from a client just now, in a buffer of its own.
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

    /// Appends a message of the broker's own to a run that has begun and that all lies in `buffer`.
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

#[expect(clippy::len_without_is_empty, reason = "there is always one")]
impl Messages<'_> {
    /// How many messages there are; at least one.
    pub fn len(&self) -> usize {
        self.run.items.len()
    }

    /// Bytes of the packets in which they were published.
    pub fn frame_bytes(&self) -> usize {
        self.run.frame_bytes()
    }

    /// Their topic.
    pub fn topic(&self) -> &str {
        &self.run.topic
    }

    /// The QoS they were published with.
    pub fn qos(&self) -> QoS {
        self.run.qos()
    }

    /// Whether they were published with RETAIN.
    pub fn retain(&self) -> bool {
        self.run.retain
    }

    /// An upper bound for the bytes of any of the packets without Subscription Identifiers and alias.
    pub fn largest(&self) -> usize {
        self.run.largest
    }

    /// One of the messages.
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

    /// One of the messages, to keep. It is copied out of the buffer once, whoever asks.
    pub fn message(&mut self, index: usize) -> Arc<Message> {
        if let Some(message) = &self.run.messages[index] {
            return Arc::clone(message);
        }
        let message = Arc::new(Message::new(&self.publication(index)));
        self.run.messages[index] = Some(Arc::clone(&message));
        message
    }

    /// One of the messages, to wait for one session or to be kept until it acknowledges.
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

    /// Whether one of the messages was sent again (DUP).
    pub fn is_repeated(&self, index: usize) -> bool {
        encode::is_dup(self.buffer[self.run.items[index].frame.start])
    }

    /// What has to be durable before the messages leave.
    pub fn after(&self) -> &Commits {
        &self.run.after
    }

    /// The durability class of their topic.
    pub fn class(&self) -> DurabilityClass {
        self.run.class
    }

    /// Whether the messages, delivered with `qos` to a session that is stored, are stored as well. QoS 2
    /// always is: to forget that a client was sent a packet identifier would make it lose another message.
    pub fn are_stored(&self, qos: QoS) -> bool {
        match qos {
            QoS::AtMostOnce => false,
            QoS::AtLeastOnce => self.run.class.is_stored(),
            QoS::ExactlyOnce => true,
        }
    }

    /// A queue is full, and has got the messages nevertheless.
    pub fn overflow(&mut self) {
        self.run.overflowed = true;
    }

    /// Whether that has happened since the last time.
    pub fn has_overflowed(&mut self) -> bool {
        std::mem::take(&mut self.run.overflowed)
    }

    /// What the messages take in a queue, in order, in bytes; but for Subscription Identifiers.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(|index| OVERHEAD + self.publication(index).size())
    }
}
