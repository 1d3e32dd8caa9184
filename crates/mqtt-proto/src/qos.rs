use crate::DecodeError;

/// Quality of Service: the delivery guarantee of a message (section 4.3).
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QoS {
    /// QoS 0: sent once, never acknowledged.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: sent until acknowledged.
    AtLeastOnce = 1,
    /// QoS 2: acknowledged in two steps, so that the message is not delivered twice.
    ExactlyOnce = 2,
}

impl QoS {
    /// Returns the QoS with the two bits `bits`. The value 3 gives `None`.
    #[inline]
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }
}

impl TryFrom<u8> for QoS {
    type Error = DecodeError;

    fn try_from(bits: u8) -> Result<Self, DecodeError> {
        QoS::from_bits(bits).ok_or(DecodeError::QoS3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_is_no_qos() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            assert_eq!(QoS::try_from(qos as u8), Ok(qos));
        }
        assert_eq!(QoS::try_from(3), Err(DecodeError::QoS3));
    }
}
