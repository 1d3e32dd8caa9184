/// A version of MQTT. The number is the protocol level on the wire.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1, protocol name `MQIsdp`.
    V3_1 = 3,
    /// MQTT 3.1.1, an OASIS standard since 2014.
    V3_1_1 = 4,
    /// MQTT 5.0, an OASIS standard since 2019.
    V5 = 5,
}

impl Version {
    /// Whether the version is MQTT 5, whose packets carry properties and reason codes.
    #[inline]
    pub fn is_v5(self) -> bool {
        self == Version::V5
    }

    /// The protocol name at the beginning of a CONNECT of this version.
    pub fn protocol_name(self) -> &'static str {
        match self {
            Version::V3_1 => "MQIsdp",
            Version::V3_1_1 | Version::V5 => "MQTT",
        }
    }

    /// Returns the version with this protocol name and level, if this crate supports it.
    pub fn from_protocol(name: &[u8], level: u8) -> Option<Self> {
        match (name, level) {
            (b"MQIsdp", 3) => Some(Version::V3_1),
            (b"MQTT", 4) => Some(Version::V3_1_1),
            (b"MQTT", 5) => Some(Version::V5),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_pairs_of_name_and_level_are_versions() {
        for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
            let name = version.protocol_name().as_bytes();
            assert_eq!(Version::from_protocol(name, version as u8), Some(version));
            assert_eq!(Version::from_protocol(name, version as u8 | 0x80), None);
        }
        assert_eq!(Version::from_protocol(b"MQTT", 3), None);
        assert_eq!(Version::from_protocol(b"MQIsdp", 4), None);
        assert_eq!(Version::from_protocol(b"mqtt", 4), None);
    }
}
