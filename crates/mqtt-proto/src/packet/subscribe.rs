use std::fmt;

use super::{put_properties, read_packet_id, read_properties};
use crate::frame::put_packet;
use crate::topic;
use crate::wire::{Reader, put_str, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, QoS, Version,
};

const QOS: u8 = 0x03;
const NO_LOCAL: u8 = 0x04;
const RETAIN_AS_PUBLISHED: u8 = 0x08;
const RETAIN_HANDLING_SHIFT: u8 = 4;
const RESERVED: u8 = 0xC0;

/// SUBSCRIBE: a request for subscriptions (section 3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The Packet Identifier, which the SUBACK repeats.
    pub packet_id: PacketId,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// The subscriptions; at least one.
    pub filters: SubscribeFilters<'a>,
}

/// The subscriptions of a SUBSCRIBE in their encoded form. They are checked as a whole when the packet is decoded, and
/// then read one by one. There may be hundreds of thousands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilters<'a> {
    wire: &'a [u8],
    count: usize,
}

/// [`SubscribeFilters`] that own their memory, for building a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeFiltersBuf {
    wire: Vec<u8>,
    count: usize,
}

/// One subscription of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The topic filter. It is well-formed, but may have more than [`topic::MAX_LEVELS`] levels.
    pub filter: &'a str,
    /// The Subscription Options.
    pub options: SubscriptionOptions,
}

/// The Subscription Options (section 3.8.3.1). Before MQTT 5 there is only the QoS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// The maximum QoS with which messages are sent for this subscription.
    pub qos: QoS,
    /// Whether messages that the subscriber itself published are not sent to it.
    pub no_local: bool,
    /// Whether messages keep the RETAIN flag that their publisher set.
    pub retain_as_published: bool,
    /// The retained messages that are sent when the subscription is made.
    pub retain_handling: RetainHandling,
}

/// Retain Handling: the retained messages that are sent to a new subscription.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RetainHandling {
    /// All matching messages.
    #[default]
    SendAtSubscribe = 0,
    /// All matching messages, unless the subscription existed already.
    SendIfNew = 1,
    /// No messages.
    DoNotSend = 2,
}

impl<'a> Subscribe<'a> {
    /// Decodes the body of a SUBSCRIBE.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let packet_id = read_packet_id(reader)?;
        let properties = read_properties(version, reader, PropertySet::SUBSCRIBE)?;
        let wire = reader.rest();
        let reader = &mut Reader::new(wire);
        let mut count = 0;
        while !reader.is_empty() {
            let filter = reader.str()?;
            topic::check_filter(filter)?;
            let options = SubscriptionOptions::decode(version, reader.u8()?)?;
            if options.no_local && topic::is_shared(filter) {
                return Err(DecodeError::NoLocalOnSharedSubscription);
            }
            count += 1;
        }
        if count == 0 {
            return Err(DecodeError::EmptyPayload);
        }
        Ok(Subscribe { packet_id, properties, filters: SubscribeFilters { wire, count } })
    }

    /// Appends the packet. Appends nothing on error.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(EncodeError::EmptyPayload);
        }
        put_packet(PacketType::Subscribe, out, |out| {
            put_u16(self.packet_id.get(), out);
            put_properties(version, self.properties, out)?;
            for SubscribeFilter { filter, options } in self.filters {
                put_str(filter, out)?;
                out.push(options.to_byte(version));
            }
            Ok(())
        })
    }
}

impl SubscribeFilters<'_> {
    /// Copies the filters that have not been read yet, so that they outlive the packet.
    pub fn to_buf(&self) -> SubscribeFiltersBuf {
        SubscribeFiltersBuf { wire: self.wire.to_vec(), count: self.count }
    }

    /// Whether all filters have been read.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for SubscribeFilters<'a> {
    type Item = SubscribeFilter<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader::new(self.wire);
        let filter = reader.str().expect("it was checked");
        // Before MQTT 5 there is only the QoS, and the other bits are 0, so the byte is also valid in MQTT 5.
        let options = reader.u8().and_then(|byte| SubscriptionOptions::decode(Version::V5, byte));
        self.wire = reader.rest();
        Some(SubscribeFilter { filter, options: options.expect("they were checked") })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for SubscribeFilters<'_> {}

impl fmt::Debug for SubscribeFilters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl SubscribeFiltersBuf {
    /// Encodes a list of subscriptions.
    ///
    /// # Errors
    /// If a filter is longer than a string can be, or is not well-formed.
    pub fn new<'f>(
        filters: impl IntoIterator<Item = SubscribeFilter<'f>>,
    ) -> Result<Self, EncodeError> {
        let mut buf = Self::default();
        for SubscribeFilter { filter, options } in filters {
            topic::check_filter(filter).map_err(|_| EncodeError::TopicFilter)?;
            put_str(filter, &mut buf.wire)?;
            buf.wire.push(options.to_byte(Version::V5));
            buf.count += 1;
        }
        Ok(buf)
    }

    /// The subscriptions, for reading.
    pub fn as_filters(&self) -> SubscribeFilters<'_> {
        SubscribeFilters { wire: &self.wire, count: self.count }
    }
}

impl SubscriptionOptions {
    fn decode(version: Version, byte: u8) -> Result<Self, DecodeError> {
        let reserved = if version.is_v5() { RESERVED } else { !QOS };
        if byte & reserved != 0 {
            return Err(DecodeError::ReservedSubscriptionOptions);
        }
        let retain_handling = match byte >> RETAIN_HANDLING_SHIFT & 3 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(DecodeError::RetainHandling3),
        };
        Ok(SubscriptionOptions {
            qos: QoS::from_bits(byte & QOS).ok_or(DecodeError::SubscriptionQoS3)?,
            no_local: byte & NO_LOCAL != 0,
            retain_as_published: byte & RETAIN_AS_PUBLISHED != 0,
            retain_handling,
        })
    }

    fn to_byte(self, version: Version) -> u8 {
        let mut byte = self.qos as u8;
        if version.is_v5() {
            if self.no_local {
                byte |= NO_LOCAL;
            }
            if self.retain_as_published {
                byte |= RETAIN_AS_PUBLISHED;
            }
            byte |= (self.retain_handling as u8) << RETAIN_HANDLING_SHIFT;
        }
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReasonCode;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    fn filter(filter: &str, qos: QoS) -> SubscribeFilter<'_> {
        SubscribeFilter { filter, options: SubscriptionOptions { qos, ..Default::default() } }
    }

    #[test]
    fn the_versions() {
        let filters = [filter("a/+", QoS::AtMostOnce), filter("#", QoS::ExactlyOnce)];
        let filters = SubscribeFiltersBuf::new(filters).unwrap();
        let subscribe = Packet::Subscribe(Subscribe {
            packet_id: PacketId::new(10).unwrap(),
            properties: Properties::EMPTY,
            filters: filters.as_filters(),
        });
        let v3 = b"\x82\x0C\0\x0A\0\x03a/+\0\0\x01#\x02";
        check(Version::V3_1, &subscribe, v3);
        check(Version::V3_1_1, &subscribe, v3);
        check(Version::V5, &subscribe, b"\x82\x0D\0\x0A\0\0\x03a/+\0\0\x01#\x02");
    }

    #[test]
    fn all_options_and_properties() {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::DoNotSend,
        };
        let filters = SubscribeFiltersBuf::new([SubscribeFilter { filter: "a", options }]).unwrap();
        let subscribe = Packet::Subscribe(Subscribe {
            packet_id: PacketId::MAX,
            properties: Properties::from_validated(&[0x0B, 0x80, 0x01]),
            filters: filters.as_filters(),
        });
        check(Version::V5, &subscribe, b"\x82\x0A\xFF\xFF\x03\x0B\x80\x01\0\x01a\x2D");
        let mut out = Vec::new();
        subscribe.encode(Version::V3_1_1, &mut out).unwrap();
        assert_eq!(out, b"\x82\x06\xFF\xFF\0\x01a\x01", "only the QoS existed before 5");
    }

    #[test]
    fn mqtt_3_8_3_options_that_do_not_exist() {
        let v5 = |options| decode_error(Version::V5, &[0x82, 7, 0, 1, 0, 0, 1, b'a', options]);
        assert_eq!(v5(0x03), DecodeError::SubscriptionQoS3);
        assert_eq!(v5(0x30), DecodeError::RetainHandling3);
        assert_eq!(v5(0x40), DecodeError::ReservedSubscriptionOptions);
        assert_eq!(v5(0x80), DecodeError::ReservedSubscriptionOptions);
        let v3 = |options| decode_error(Version::V3_1_1, &[0x82, 6, 0, 1, 0, 1, b'a', options]);
        for bit in 2..8 {
            assert_eq!(v3(1 << bit), DecodeError::ReservedSubscriptionOptions);
        }
        assert_eq!(v3(3), DecodeError::SubscriptionQoS3);
    }

    #[test]
    fn mqtt_3_8_3_2_there_is_a_filter() {
        assert_eq!(decode_error(Version::V5, &[0x82, 3, 0, 1, 0]), DecodeError::EmptyPayload);
        assert_eq!(decode_error(Version::V3_1, &[0x82, 2, 0, 1]), DecodeError::EmptyPayload);
        let none = SubscribeFiltersBuf::default();
        let subscribe = Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: none.as_filters(),
        };
        assert_eq!(subscribe.encode(Version::V5, &mut Vec::new()), Err(EncodeError::EmptyPayload));
    }

    #[test]
    fn mqtt_3_8_3_4_no_local_is_not_for_shared_subscriptions() {
        let bytes = b"\x82\x10\0\x01\0\0\x0A$share/g/a\x04";
        let error = decode_error(Version::V5, bytes);
        assert_eq!(error, DecodeError::NoLocalOnSharedSubscription);
        assert_eq!(error.reason_code(), ReasonCode::ProtocolError);
    }

    #[test]
    fn mqtt_4_7_a_filter_that_is_not_well_formed_is_malformed() {
        for filter in ["", "a#", "a+b", "#/a", "$share/g", "$share//a", "$share/+/a"] {
            let mut body = vec![0, 1];
            put_str(filter, &mut body).unwrap();
            body.push(0);
            let error = Subscribe::decode(Version::V3_1_1, &body).unwrap_err();
            assert_eq!(error.reason_code(), ReasonCode::MalformedPacket, "{filter}");
        }
        let deep = "/".repeat(topic::MAX_LEVELS);
        let filters = SubscribeFiltersBuf::new([filter(&deep, QoS::AtMostOnce)]).unwrap();
        let wire = [&[0, 1], &filters.wire[..]].concat();
        assert!(Subscribe::decode(Version::V3_1_1, &wire).is_ok(), "this limit is ours");
    }

    #[test]
    fn what_is_left_can_be_kept() {
        let filters = [filter("a", QoS::AtMostOnce), filter("b/#", QoS::ExactlyOnce)];
        let all = SubscribeFiltersBuf::new(filters).unwrap();
        let mut left = all.as_filters();
        assert_eq!((left.next(), left.len()), (Some(filters[0]), 1));
        let kept = left.to_buf();
        assert_eq!(kept.as_filters().collect::<Vec<_>>(), [filters[1]]);
        assert!(left.next().is_some() && left.next().is_none() && left.is_empty());
    }

    #[test]
    fn a_filter_without_options_is_cut_off() {
        let bytes = b"\x82\x05\0\x01\0\x01a";
        assert_eq!(decode_error(Version::V3_1_1, bytes), DecodeError::Truncated);
    }

    fn decode_error(version: Version, bytes: &[u8]) -> DecodeError {
        decode(version, bytes).unwrap_err()
    }
}
