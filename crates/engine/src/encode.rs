//! PUBLISH packets as the broker sends them.
//!
//! A message keeps its MQTT 5 properties in wire form, so they are only copied. The properties that belong to
//! one hop come before them: the remaining Message Expiry Interval, Subscription Identifiers, Topic Alias.

use std::num::NonZeroU32;

use barid_core::message::Publication;
use barid_core::time::MonoTime;
use mqtt_proto::QoS;
use mqtt_proto::flow::AliasUse;
use mqtt_proto::wire::{put_varint, varint_len};

const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
const TOPIC_ALIAS: u8 = 0x23;

/// A PUBLISH to one client.
#[derive(Clone, Copy, Debug)]
pub struct PublishFrame<'a> {
    /// The message.
    pub publication: Publication<'a>,
    /// The QoS it is delivered with.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The DUP flag.
    pub dup: bool,
    /// The packet identifier; 0 for QoS 0, or if it is filled in later.
    pub id: u16,
    /// Subscription Identifiers.
    pub identifiers: &'a [NonZeroU32],
    /// Whether a Topic Alias is defined for the topic, or stands for it.
    pub alias: AliasUse,
    /// The current time, from which the remaining Message Expiry Interval counts.
    pub now: MonoTime,
}

/// Positions of the parts of an encoded PUBLISH in the output buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Start of the packet.
    pub start: usize,
    /// Start of the packet identifier, if there is one.
    pub id: usize,
    /// Start of the properties that the message keeps, behind those of this hop.
    pub properties: usize,
    /// Start of the payload.
    pub payload: usize,
    /// End of the packet.
    pub end: usize,
}

impl PublishFrame<'_> {
    /// Number of bytes of the whole packet.
    pub fn len(&self, v5: bool) -> usize {
        let body = self.body_len(v5);
        1 + varint_len(body) + body
    }

    /// Appends the packet.
    pub fn put(&self, v5: bool, out: &mut Vec<u8>) -> Layout {
        out.reserve(5 + self.body_len(v5));
        let layout = self.put_head(v5, out);
        out.extend_from_slice(self.publication.payload);
        layout
    }

    /// Appends the packet without its payload. The layout is that of the whole packet.
    pub fn put_head(&self, v5: bool, out: &mut Vec<u8>) -> Layout {
        let body_len = self.body_len(v5);
        let start = out.len();
        out.push(flags(self.qos, self.retain, self.dup));
        put_varint(u32::try_from(body_len).expect("packets are at most 256 MiB"), out);
        let topic = self.topic();
        out.extend_from_slice(&u16_len(topic.len()));
        out.extend_from_slice(topic.as_bytes());
        let id = out.len();
        if self.qos != QoS::AtMostOnce {
            out.extend_from_slice(&self.id.to_be_bytes());
        }
        let mut properties = out.len();
        if v5 {
            let len = self.properties_len();
            put_varint(u32::try_from(len).expect("packets are at most 256 MiB"), out);
            self.put_hop_properties(out);
            properties = out.len();
            out.extend_from_slice(self.publication.properties);
        }
        let payload = out.len();
        let end = payload + self.publication.payload.len();
        Layout { start, id, properties, payload, end }
    }

    fn topic(&self) -> &str {
        if let AliasUse::Use(_) = self.alias { "" } else { self.publication.topic }
    }

    fn body_len(&self, v5: bool) -> usize {
        let id = if self.qos == QoS::AtMostOnce { 0 } else { 2 };
        let properties = if v5 {
            let len = self.properties_len();
            varint_len(len) + len
        } else {
            0
        };
        2 + self.topic().len() + id + properties + self.publication.payload.len()
    }

    fn properties_len(&self) -> usize {
        let expiry = if self.publication.expires_at.is_some() { 5 } else { 0 };
        let alias = if matches!(self.alias, AliasUse::None) { 0 } else { 3 };
        let identifiers: usize =
            self.identifiers.iter().map(|id| 1 + varint_len(id.get() as usize)).sum();
        expiry + alias + identifiers + self.publication.properties.len()
    }

    fn put_hop_properties(&self, out: &mut Vec<u8>) {
        if let Some(at) = self.publication.expires_at {
            let seconds = at.since(self.now).as_millis().div_ceil(1_000);
            out.push(MESSAGE_EXPIRY_INTERVAL);
            out.extend_from_slice(&u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes());
        }
        for identifier in self.identifiers {
            out.push(SUBSCRIPTION_IDENTIFIER);
            put_varint(identifier.get(), out);
        }
        if let AliasUse::Define(alias) | AliasUse::Use(alias) = self.alias {
            out.push(TOPIC_ALIAS);
            out.extend_from_slice(&alias.to_be_bytes());
        }
    }
}

/// The first byte of a PUBLISH.
pub fn flags(qos: QoS, retain: bool, dup: bool) -> u8 {
    0x30 | u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(retain)
}

/// Whether the first byte of a PUBLISH has the DUP flag.
pub fn is_dup(first: u8) -> bool {
    first & 0x08 != 0
}

fn u16_len(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("topics are at most 65,535 bytes").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_proto::{FixedHeader, Packet, Version};

    fn frame(alias: AliasUse, identifiers: &[NonZeroU32]) -> PublishFrame<'_> {
        PublishFrame {
            publication: Publication {
                topic: "a/b",
                payload: b"hello",
                properties: &[0x01, 0x01],
                qos: QoS::AtLeastOnce,
                retain: false,
                expires_at: Some(MonoTime::from_millis(10_500)),
            },
            qos: QoS::AtLeastOnce,
            retain: true,
            dup: true,
            id: 7,
            identifiers,
            alias,
            now: MonoTime::from_millis(1_000),
        }
    }

    #[test]
    fn what_is_put_is_what_the_codec_reads() {
        let identifiers = [NonZeroU32::new(5).unwrap(), NonZeroU32::new(300).unwrap()];
        for (version, alias) in [
            (Version::V3_1_1, AliasUse::None),
            (Version::V5, AliasUse::None),
            (Version::V5, AliasUse::Define(3)),
            (Version::V5, AliasUse::Use(3)),
        ] {
            let v5 = version == Version::V5;
            let frame = frame(alias, &identifiers);
            let mut out = vec![9];
            let layout = frame.put(v5, &mut out);
            assert_eq!((layout.start, layout.end), (1, out.len()));
            assert_eq!(out.len() - 1, frame.len(v5));
            let packet = &out[1..];
            let header = FixedHeader::read(packet, usize::MAX).unwrap().unwrap();
            let Packet::Publish(publish) =
                Packet::decode(version, header, &packet[header.header_len..]).unwrap()
            else {
                panic!()
            };
            assert_eq!((publish.dup, publish.retain, publish.payload), (true, true, &b"hello"[..]));
            assert_eq!(publish.packet_id.unwrap().get(), 7);
            assert_eq!(&out[layout.id..layout.id + 2], [0, 7]);
            assert_eq!(&out[layout.payload..], b"hello");
            assert_eq!(publish.topic.is_empty(), matches!(alias, AliasUse::Use(_)));
            if v5 {
                assert_eq!(publish.properties.message_expiry_interval(), Some(10));
                assert_eq!(
                    publish.properties.subscription_identifiers().collect::<Vec<_>>().len(),
                    2
                );
                assert_eq!(&out[layout.properties..layout.payload], [1, 1]);
            }
        }
    }
}
