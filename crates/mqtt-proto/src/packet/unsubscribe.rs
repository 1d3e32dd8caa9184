use std::fmt;

use super::{put_properties, read_packet_id, read_properties};
use crate::frame::put_packet;
use crate::wire::{Reader, put_str, put_u16};
use crate::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, PropertySet, Version, topic,
};

/// UNSUBSCRIBE: a request to end subscriptions (section 3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// The Packet Identifier, which the UNSUBACK repeats.
    pub packet_id: PacketId,
    /// Properties, in MQTT 5.
    pub properties: Properties<'a>,
    /// The topic filters, exactly as they were subscribed to; at least one.
    pub filters: UnsubscribeFilters<'a>,
}

/// The filters of an UNSUBSCRIBE in their encoded form. They are checked as a whole when the packet is decoded, and
/// then read one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnsubscribeFilters<'a> {
    wire: &'a [u8],
    count: usize,
}

/// [`UnsubscribeFilters`] that own their memory, for building a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsubscribeFiltersBuf {
    wire: Vec<u8>,
    count: usize,
}

impl<'a> Unsubscribe<'a> {
    /// Decodes the body of an UNSUBSCRIBE.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let reader = &mut Reader::new(body);
        let packet_id = read_packet_id(reader)?;
        let properties = read_properties(version, reader, PropertySet::UNSUBSCRIBE)?;
        let wire = reader.rest();
        let reader = &mut Reader::new(wire);
        let mut count = 0;
        while !reader.is_empty() {
            topic::check_filter(reader.str()?)?;
            count += 1;
        }
        if count == 0 {
            return Err(DecodeError::EmptyPayload);
        }
        Ok(Unsubscribe { packet_id, properties, filters: UnsubscribeFilters { wire, count } })
    }

    /// Appends the packet. Appends nothing on error.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(EncodeError::EmptyPayload);
        }
        put_packet(PacketType::Unsubscribe, out, |out| {
            put_u16(self.packet_id.get(), out);
            put_properties(version, self.properties, out)?;
            let mut filters = self.filters;
            filters.try_for_each(|filter| put_str(filter, out))
        })
    }
}

impl UnsubscribeFilters<'_> {
    /// Copies the filters that have not been read yet, so that they outlive the packet.
    pub fn to_buf(&self) -> UnsubscribeFiltersBuf {
        UnsubscribeFiltersBuf { wire: self.wire.to_vec(), count: self.count }
    }

    /// Whether all filters have been read.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for UnsubscribeFilters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader::new(self.wire);
        let filter = reader.str().expect("it was checked");
        self.wire = reader.rest();
        Some(filter)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for UnsubscribeFilters<'_> {}

impl fmt::Debug for UnsubscribeFilters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl UnsubscribeFiltersBuf {
    /// Encodes a list of filters.
    ///
    /// # Errors
    /// If a filter is longer than a string can be, or is not well-formed.
    pub fn new<'f>(filters: impl IntoIterator<Item = &'f str>) -> Result<Self, EncodeError> {
        let mut buf = Self::default();
        for filter in filters {
            topic::check_filter(filter).map_err(|_| EncodeError::TopicFilter)?;
            put_str(filter, &mut buf.wire)?;
            buf.count += 1;
        }
        Ok(buf)
    }

    /// The filters, for reading.
    pub fn as_filters(&self) -> UnsubscribeFilters<'_> {
        UnsubscribeFilters { wire: &self.wire, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::packet::testing::{check, decode};

    #[test]
    fn the_versions() {
        let filters = UnsubscribeFiltersBuf::new(["a/#", "b"]).unwrap();
        let unsubscribe = Packet::Unsubscribe(Unsubscribe {
            packet_id: PacketId::new(3).unwrap(),
            properties: Properties::EMPTY,
            filters: filters.as_filters(),
        });
        let v3 = b"\xA2\x0A\0\x03\0\x03a/#\0\x01b";
        check(Version::V3_1, &unsubscribe, v3);
        check(Version::V3_1_1, &unsubscribe, v3);
        check(Version::V5, &unsubscribe, b"\xA2\x0B\0\x03\0\0\x03a/#\0\x01b");
    }

    #[test]
    fn mqtt_3_10_3_2_there_is_a_filter() {
        let bytes = &[0xA2, 3, 0, 1, 0];
        assert_eq!(decode(Version::V5, bytes), Err(DecodeError::EmptyPayload));
        assert_eq!(decode(Version::V3_1_1, &[0xA2, 2, 0, 1]), Err(DecodeError::EmptyPayload));
        let none = UnsubscribeFiltersBuf::default();
        let empty = Unsubscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: none.as_filters(),
        };
        assert_eq!(empty.encode(Version::V5, &mut Vec::new()), Err(EncodeError::EmptyPayload));
    }

    #[test]
    fn it_carries_user_properties_only() {
        let bytes = &[0xA2, 8, 0, 1, 2, 0x0B, 1, 0, 1, b'a'];
        assert!(matches!(decode(Version::V5, bytes), Err(DecodeError::PropertyNotAllowed(_))));
    }
}
