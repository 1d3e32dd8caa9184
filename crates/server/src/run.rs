//! Messages that one client published one after another to one topic, as they lie in its connection's
//! read buffer.
//!
//! Most of what a broker does is passing such a run on. It is encoded at most once for each form in
//! which its subscribers want it (version, QoS, RETAIN), not once for each subscriber; where the form is
//! the publisher's own, the bytes in the read buffer are sent as they are, with packet identifiers
//! patched in place. A message becomes a shared [`Message`] only if somebody must keep it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use barid_core::ids::{MessageId, SessionNumber, StoredAs, TenantNumber};
use barid_core::message::{Message, Publication};
use barid_core::session::{Delivery, OVERHEAD, ShardSet};
use barid_core::time::MonoTime;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::{
    DecodeError, FixedHeader, PacketId, Properties, PropertiesBuf, PropertyId, Publish, QoS,
    Version,
};
use smallvec::SmallVec;

use crate::durability::DurabilityClass;
use crate::durable::{ChangeGuard, Commits, Shards};
use crate::encode::{self, Layout, PublishFrame};
use crate::offer::Offer;
use crate::packets::{Packets, SHARED_FROM};

/// Version × QoS × RETAIN.
const FORMS: usize = 12;

/// Scratch memory for a run; empty between runs, but for its capacity.
#[derive(Debug, Default)]
pub struct Run {
    topic: String,
    qos: Option<QoS>,
    retain: bool,
    v5: bool,
    /// Whether the frames in the buffer can be sent as they are.
    as_is: bool,
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
    /// Shards that have the messages from before the broker ended.
    pub reached_before: ShardSet,
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

/// How long a run may get. Its messages are handed on in one piece, to each subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimit {
    messages: usize,
    /// Bytes of all packets.
    bytes: usize,
}

/// Messages that a run brings to all subscribers together, if it has more than one: some 10 ms …
const OFFERS_MAX: usize = 32 * 1024;

/// … and their bytes.
const OFFERED_BYTES_MAX: usize = 16 * 1024 * 1024;

impl RunLimit {
    /// Whatever comes in one read.
    pub const NONE: Self = Self { messages: usize::MAX, bytes: usize::MAX };

    /// A single message.
    pub const ONE: Self = Self { messages: 1, bytes: usize::MAX };

    /// For messages that go to so many.
    pub fn for_subscribers(count: usize) -> Self {
        let count = count.max(1);
        Self { messages: OFFERS_MAX / count, bytes: OFFERED_BYTES_MAX / count }
    }
}

impl Default for RunLimit {
    fn default() -> Self {
        Self::NONE
    }
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

/// A PUBLISH in a buffer: what it says, and where its parts lie.
#[derive(Clone, Debug)]
pub struct Parsed {
    frame: Range<usize>,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The packet identifier, for QoS 1 and 2.
    pub id: Option<PacketId>,
    /// The topic; empty if only an alias is given.
    pub topic: Range<usize>,
    /// Whether the topic is the one of the run (also when both are empty).
    pub same_topic: bool,
    properties: Range<usize>,
    /// Message Expiry Interval.
    pub expiry: Option<u32>,
    /// Topic Alias.
    pub alias: Option<u16>,
    /// Whether there is a Subscription Identifier, which a client must not send.
    pub has_identifier: bool,
}

impl Parsed {
    /// Where the payload lies.
    pub fn payload(&self) -> Range<usize> {
        self.properties.end..self.frame.end
    }
}

#[derive(Clone, Debug)]
enum PropertiesAt {
    Buffer(Range<usize>),
    Arena(Range<usize>),
}

/// The whole run, encoded in one form.
#[derive(Debug, Default)]
struct Form {
    bytes: Vec<u8>,
    layouts: Vec<Layout>,
}

/// How some messages of a run are sent to one client.
#[derive(Clone, Debug)]
pub struct PacketForm {
    /// Which.
    pub range: Range<usize>,
    /// The client speaks MQTT 5.
    pub v5: bool,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The packet identifier of the first, for QoS 1 and 2; the others follow it.
    pub first_id: u16,
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

    /// Reads the PUBLISH that lies at `frame` in `bytes`. A topic that is the run's own is not checked
    /// again.
    pub fn parse(
        &self,
        version: Version,
        header: FixedHeader,
        bytes: &[u8],
        frame: &Range<usize>,
    ) -> Result<Parsed, DecodeError> {
        let body = &bytes[frame.start + header.header_len..frame.end];
        let publish = Publish::decode_with_known_topic(version, header, body, &self.topic)?;
        let topic_start = frame.start + header.header_len + 2;
        // Topic, identifier and properties lie before the payload, which is the rest.
        let payload = frame.end - publish.payload.len();
        let mut parsed = Parsed {
            frame: frame.clone(),
            qos: publish.qos,
            retain: publish.retain,
            id: publish.packet_id,
            topic: topic_start..topic_start + publish.topic.len(),
            same_topic: publish.topic == self.topic,
            properties: payload - publish.properties.as_bytes().len()..payload,
            expiry: None,
            alias: None,
            has_identifier: false,
        };
        if !publish.properties.is_empty() {
            parsed.expiry = publish.properties.message_expiry_interval();
            parsed.alias = publish.properties.topic_alias();
            parsed.has_identifier = publish.properties.subscription_identifiers().next().is_some();
        }
        Ok(parsed)
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
            let mut kept = PropertiesBuf::default();
            for property in Properties::from_validated(&bytes[parsed.properties]).raw() {
                if !matches!(
                    property.id,
                    PropertyId::MessageExpiryInterval | PropertyId::TopicAlias
                ) {
                    kept.push_raw(property);
                }
            }
            self.arena.extend_from_slice(kept.as_properties().as_bytes());
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
        self.reached_before = ShardSet::default();
        self.reached = ShardSet::default();
        self.commits.clear();
        self.after.clear();
        self.message_ids.clear();
        self.overflowed = false;
        self.largest = 0;
        for form in &mut self.forms {
            form.layouts.clear();
            form.bytes.clear();
            form.bytes.shrink_to(256 * 1024);
        }
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

    /// Whether some shards have the messages from before the broker ended.
    pub fn is_resumed(&self) -> bool {
        !self.run.reached_before.is_empty()
    }

    /// The shards that have the messages from before the broker ended.
    pub fn reached_before(&self) -> ShardSet {
        self.run.reached_before
    }

    /// Whether a shard has the messages from before the broker ended.
    pub fn have_reached(&self, shard: u16) -> bool {
        self.run.reached_before.contains(shard)
    }

    /// The messages are going to be stored in a shard. In the same batch goes the note that they were
    /// received, if they came with QoS 2 from a session that is stored.
    pub fn reach(&mut self, shard: &mut ChangeGuard<'_>) {
        let index = shard.index();
        let run = &mut *self.run;
        if !run.message_ids.iter().any(|(known, _)| *known == index) {
            run.message_ids.push((index, shard.new_message_ids(run.items.len())));
        }
        self.note_received(shard);
    }

    /// Notes in a shard that the messages were received, and has the publisher wait for it.
    pub fn note_received(&mut self, shard: &mut ChangeGuard<'_>) {
        let run = &mut *self.run;
        if let Some((tenant, session)) = run.origin {
            // Those that are refused are at the end.
            for id in run.ids.iter().take(run.items.len()) {
                shard.put_received(tenant, session, *id);
            }
            run.reached.insert(shard.index());
        }
        if run.class.is_stored() {
            run.commits.add(shard.index(), shard.batch());
        }
    }

    /// Entities have got the messages, in batches that have not ended if it matters: the same as for
    /// sessions is noted there, and the publisher waits, whatever the class.
    pub fn note_entered(&mut self, shards: &Shards, commits: &Commits) {
        if self.run.origin.is_some() {
            for (shard, _) in commits.iter() {
                self.note_received(&mut shards.get(shard).change());
            }
        }
        if self.qos() != QoS::AtMostOnce {
            self.run.commits.join(commits);
        }
    }

    /// Has the publisher wait for what has been noted in a shard.
    pub fn wait_for(&mut self, shard: &ChangeGuard<'_>) {
        self.run.commits.add(shard.index(), shard.batch());
    }

    /// As what one of the messages is stored in a shard, if they [reach](Self::reach) it.
    pub fn stored_as(&self, shard: u16, index: usize) -> Option<MessageId> {
        let first = self.run.message_ids.iter().find(|(known, _)| *known == shard);
        first.map(|(_, first)| first + index as u64)
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

    /// The packets in one form.
    pub fn packets(&mut self, wanted: &PacketForm) -> &[u8] {
        let has_id = wanted.qos != QoS::AtMostOnce;
        let mut id = wanted.first_id;
        let mut next_id = || {
            let this = id;
            id = if id == u16::MAX { 1 } else { id + 1 };
            this.to_be_bytes()
        };
        let range = wanted.range.clone();
        if self.is_as_is(wanted) {
            let flags = encode::flags(wanted.qos, wanted.retain, false);
            for item in &self.run.items[range.clone()] {
                self.buffer[item.frame.start] = flags;
                if has_id {
                    self.buffer[item.id..item.id + 2].copy_from_slice(&next_id());
                }
            }
            let start = self.run.items[range.start].frame.start;
            let end = self.run.items[range.end - 1].frame.end;
            return &self.buffer[start..end];
        }
        if self.run.forms[wanted.index()].layouts.is_empty() {
            self.encode(wanted);
        }
        let form = &mut self.run.forms[wanted.index()];
        if has_id {
            for layout in &form.layouts[range.clone()] {
                form.bytes[layout.id..layout.id + 2].copy_from_slice(&next_id());
            }
        }
        &form.bytes[form.layouts[range.start].start..form.layouts[range.end - 1].end]
    }

    /// [`Self::packets`] but for their first `written` bytes, to be kept: large payloads are shared.
    pub fn kept_packets(&mut self, wanted: &PacketForm, written: usize) -> Packets {
        let mut kept = Packets::default();
        if self.run.largest < SHARED_FROM {
            kept.push(&self.packets(wanted)[written..]);
            return kept;
        }
        let payload_len = |at| self.publication(at).payload.len();
        let payloads: Vec<usize> = wanted.range.clone().map(payload_len).collect();
        let large = |(at, len): (usize, &usize)| (*len >= SHARED_FROM).then(|| self.message(at));
        let shared: Vec<_> = wanted.range.clone().zip(&payloads).map(large).collect();
        let ends = self.ends(wanted);
        let bytes = self.packets(wanted);
        let mut start = 0;
        for ((end, payload), message) in ends.into_iter().zip(payloads).zip(shared) {
            let from = start.max(written.min(end));
            let head = end - payload;
            match message {
                Some(message) => {
                    kept.push(&bytes[from.min(head)..head]);
                    kept.push_payload(message, from.saturating_sub(head));
                }
                None => kept.push(&bytes[from..end]),
            }
            start = end;
        }
        kept
    }

    /// Where each of [`Self::packets`] ends.
    fn ends(&mut self, wanted: &PacketForm) -> Vec<usize> {
        // Makes sure that the form is there.
        self.packets(wanted);
        if self.is_as_is(wanted) {
            let items = &self.run.items[wanted.range.clone()];
            return items.iter().map(|item| item.frame.end - items[0].frame.start).collect();
        }
        let layouts = &self.run.forms[wanted.index()].layouts[wanted.range.clone()];
        layouts.iter().map(|layout| layout.end - layouts[0].start).collect()
    }

    /// Whether the frames in the buffer are in this form, but for flags and identifiers.
    fn is_as_is(&self, wanted: &PacketForm) -> bool {
        self.run.as_is && self.run.v5 == wanted.v5 && self.qos() == wanted.qos
    }

    fn encode(&mut self, wanted: &PacketForm) {
        let mut encoded = std::mem::take(&mut self.run.forms[wanted.index()]);
        for index in 0..self.len() {
            let frame = PublishFrame {
                publication: self.publication(index),
                qos: wanted.qos,
                retain: wanted.retain,
                dup: false,
                id: 0,
                identifiers: &[],
                alias: AliasUse::None,
                now: self.now,
            };
            encoded.layouts.push(frame.put(wanted.v5, &mut encoded.bytes));
        }
        self.run.forms[wanted.index()] = encoded;
    }
}

impl PacketForm {
    /// Its place in [`Run::forms`].
    fn index(&self) -> usize {
        (usize::from(self.v5) * 3 + self.qos as usize) * 2 + usize::from(self.retain)
    }
}
