//! A PUBLISH as it lies in a buffer.

use std::ops::Range;

use mqtt_proto::{DecodeError, FixedHeader, PacketId, Publish, QoS, Version};

use super::Run;

/// A PUBLISH in a buffer: its fields, and the positions of its parts.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub(super) frame: Range<usize>,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The packet identifier, for QoS 1 and 2.
    pub id: Option<PacketId>,
    /// Position of the topic; empty if the packet has only an alias.
    pub topic: Range<usize>,
    /// Whether the topic is the topic of the run. Undefined if the topic is empty.
    pub same_topic: bool,
    pub(super) properties: Range<usize>,
    /// Message Expiry Interval.
    pub expiry: Option<u32>,
    /// Topic Alias.
    pub alias: Option<u16>,
    /// Whether there is a Subscription Identifier, which a client must not send.
    pub has_identifier: bool,
}

impl Parsed {
    /// Position of the payload.
    pub fn payload(&self) -> Range<usize> {
        self.properties.end..self.frame.end
    }
}

impl Run {
    /// Decodes the PUBLISH that lies at `frame` in `bytes`. A topic that equals that of the run is not
    /// validated again.
    #[inline]
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
            // The decoder returns the known topic itself, so its bytes are not compared again.
            same_topic: std::ptr::eq(publish.topic, &*self.topic),
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
}
