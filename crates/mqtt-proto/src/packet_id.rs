use std::fmt;
use std::num::NonZeroU16;

/// A Packet Identifier, never zero (section 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The smallest identifier.
    pub const MIN: PacketId = PacketId(NonZeroU16::MIN);
    /// The largest identifier.
    pub const MAX: PacketId = PacketId(NonZeroU16::MAX);

    /// Makes a Packet Identifier of `id`, unless `id` is zero.
    #[inline]
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(PacketId(id)),
            None => None,
        }
    }

    /// The number on the wire.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The next identifier. The largest is followed by the smallest.
    #[inline]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(id) => PacketId(id),
            None => PacketId::MIN,
        }
    }
}

impl From<NonZeroU16> for PacketId {
    fn from(id: NonZeroU16) -> Self {
        PacketId(id)
    }
}

impl From<PacketId> for NonZeroU16 {
    fn from(id: PacketId) -> Self {
        id.0
    }
}

impl From<PacketId> for u16 {
    fn from(id: PacketId) -> Self {
        id.get()
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_skipped_when_identifiers_wrap() {
        assert_eq!(PacketId::new(0), None);
        assert_eq!(PacketId::MIN.next().get(), 2);
        assert_eq!(PacketId::MAX.next(), PacketId::MIN);
    }
}
