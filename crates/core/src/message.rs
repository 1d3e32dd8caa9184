//! The MQTT Application Message in a form that is independent of the protocol version.
//!
//! A [`Publication`] borrows its bytes from a buffer, such as a connection's read buffer or a [`Message`]. A
//! [`Message`] owns them, in one allocation, and is shared by all deliveries that still have to send it.

use mqtt_proto::{QoS, topic};

use crate::time::MonoTime;

/// An Application Message that borrows its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// The topic name; validated, never empty.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// MQTT 5 properties in wire form that travel with the message unchanged: all but Topic Alias,
    /// Subscription Identifier and Message Expiry Interval, which belong to one hop.
    pub properties: &'a [u8],
    /// The QoS that the message was published with.
    pub qos: QoS,
    /// Whether the message was published with RETAIN, or comes from the retained messages.
    pub retain: bool,
    /// Time at which the message expires (Message Expiry Interval), if ever.
    pub expires_at: Option<MonoTime>,
}

impl Publication<'_> {
    /// Size of topic, properties and payload, in bytes.
    pub fn size(&self) -> usize {
        self.topic.len() + self.properties.len() + self.payload.len()
    }
}

/// An Application Message that owns its bytes. Immutable once created.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// Topic, properties and payload, in this order.
    bytes: Box<[u8]>,
    topic_len: u32,
    properties_len: u32,
    qos: QoS,
    retain: bool,
    expires_at: Option<MonoTime>,
}

impl Message {
    /// Copies a publication out of the buffer that it borrows from.
    pub fn new(publication: &Publication<'_>) -> Self {
        let mut bytes = Vec::with_capacity(publication.size());
        bytes.extend_from_slice(publication.topic.as_bytes());
        bytes.extend_from_slice(publication.properties);
        bytes.extend_from_slice(publication.payload);
        let len = |n: usize| u32::try_from(n).expect("a packet is shorter than 256 MiB");
        Self {
            bytes: bytes.into_boxed_slice(),
            topic_len: len(publication.topic.len()),
            properties_len: len(publication.properties.len()),
            qos: publication.qos,
            retain: publication.retain,
            expires_at: publication.expires_at,
        }
    }

    /// Rebuilds the message from which [`Self::bytes`] and the lengths were taken. Returns `None` if the lengths do not
    /// fit, or if the first `topic_len` bytes are not a topic name.
    pub(crate) fn from_parts(
        bytes: &[u8],
        topic_len: u32,
        properties_len: u32,
        qos: QoS,
        retain: bool,
        expires_at: Option<MonoTime>,
    ) -> Option<Self> {
        let (topic, rest) = bytes.split_at_checked(topic_len as usize)?;
        topic::validate_name(std::str::from_utf8(topic).ok()?).ok()?;
        rest.get(..properties_len as usize)?;
        Some(Self { bytes: bytes.into(), topic_len, properties_len, qos, retain, expires_at })
    }

    /// Borrows the message as a publication.
    pub fn publication(&self) -> Publication<'_> {
        let (topic, rest) = self.bytes.split_at(self.topic_len as usize);
        let (properties, payload) = rest.split_at(self.properties_len as usize);
        Publication {
            topic: std::str::from_utf8(topic).expect("copied from a str"),
            payload,
            properties,
            qos: self.qos,
            retain: self.retain,
            expires_at: self.expires_at,
        }
    }

    /// The QoS that the message was published with.
    pub fn qos(&self) -> QoS {
        self.qos
    }

    /// Whether the message was published with RETAIN, or comes from the retained messages.
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// Time at which the Message Expiry Interval runs out, if ever.
    pub fn expires_at(&self) -> Option<MonoTime> {
        self.expires_at
    }

    /// Size of topic, properties and payload, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Topic, properties and payload, in this order.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the topic, in bytes.
    pub(crate) fn topic_len(&self) -> u32 {
        self.topic_len
    }

    /// Length of the properties, in bytes.
    pub(crate) fn properties_len(&self) -> u32 {
        self.properties_len
    }

    /// Whether its Message Expiry Interval has run out.
    pub fn is_expired(&self, now: MonoTime) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gives_back_the_publication_it_was_made_of() {
        let publication = Publication {
            topic: "a/b",
            payload: b"payload",
            properties: &[1, 1],
            qos: QoS::AtLeastOnce,
            retain: true,
            expires_at: Some(MonoTime::from_millis(7)),
        };
        let message = Message::new(&publication);
        assert_eq!(message.publication(), publication);
        assert_eq!(message.size(), 12);
        assert!(!message.is_expired(MonoTime::from_millis(6)));
        assert!(message.is_expired(MonoTime::from_millis(7)));
    }
}
