//! A version as text, without an allocation.

use std::fmt::Write as _;

use statestore_proto::Version;

/// Digits of two numbers, two colons, and the node; with more digits than the padding has.
const LEN_MAX: usize = 20 + 10 + 2 + statestore_proto::NODE.len();

/// The text of a version.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl Stamp {
    /// The text of `version`.
    pub fn of(version: Version) -> Self {
        let mut stamp = Self { bytes: [0; LEN_MAX], len: 0 };
        write!(stamp, "{version}").expect("it is long enough for every version");
        stamp
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("it was written as text")
    }
}

impl std::fmt::Write for Stamp {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_fits() {
        let largest = Version { wall: u64::MAX, counter: u32::MAX };
        assert_eq!(Stamp::of(largest).as_str(), largest.to_string());
        let usual = Version { wall: 1_696_374_425_000, counter: 1 };
        assert_eq!(Stamp::of(usual).as_str(), "001696374425000:00001:StateStore");
    }
}
