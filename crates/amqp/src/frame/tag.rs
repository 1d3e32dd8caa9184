use std::fmt;
use std::ops::Deref;

use super::Malformed;

/// Delivery tag: the sender's name for a delivery, up to 32 bytes (2.8.7).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    length: u8,
    bytes: [u8; Self::MAX_SIZE],
}

impl Tag {
    /// Maximum length of a tag, in bytes.
    pub const MAX_SIZE: usize = 32;
}

impl TryFrom<&[u8]> for Tag {
    type Error = Malformed;

    fn try_from(tag: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = [0; Self::MAX_SIZE];
        let place = bytes.get_mut(..tag.len()).ok_or(Malformed::Field("delivery tag: too long"))?;
        place.copy_from_slice(tag);
        Ok(Self { length: u8::try_from(tag.len()).expect("a tag is short"), bytes })
    }
}

impl Deref for Tag {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
