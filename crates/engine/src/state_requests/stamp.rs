//! The text of a version, written without an allocation.

use statestore_proto::{NODE, Version};

/// Maximum length of the text, in bytes: the digits of `u64::MAX` and of `u32::MAX`, two colons, and the
/// node.
const LEN_MAX: usize = 20 + 10 + 2 + NODE.len();

/// The text of a version, equal to its `Display`. Each response has one, and this takes fewer instructions.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The text is at the end, from `start` on.
    bytes: [u8; LEN_MAX],
    start: usize,
}

impl Stamp {
    /// Returns the text of `version`.
    pub fn of(version: Version) -> Self {
        let mut stamp = Self { bytes: [0; LEN_MAX], start: LEN_MAX };
        stamp.put(NODE.as_bytes());
        stamp.put(b":");
        stamp.put_number(version.counter.into(), 5);
        stamp.put(b":");
        stamp.put_number(version.wall, 15);
        stamp
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.start..]).expect("it was written as text")
    }

    /// Writes text before the text that is there.
    fn put(&mut self, text: &[u8]) {
        let end = self.start;
        self.start -= text.len();
        self.bytes[self.start..end].copy_from_slice(text);
    }

    /// Writes a number before the text that is there, with at least `digits` digits.
    fn put_number(&mut self, mut number: u64, digits: usize) {
        let mut written = 0;
        for place in self.bytes[..self.start].iter_mut().rev() {
            if number == 0 && written >= digits {
                break;
            }
            *place = b'0' + (number % 10) as u8;
            number /= 10;
            written += 1;
        }
        self.start -= written;
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
        assert_eq!(Stamp::of(Version::default()).as_str(), Version::default().to_string());
    }
}
