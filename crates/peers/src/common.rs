//! The settings that all brokers of a cluster should have in common.

use crate::error::FrameError;
use crate::wire::{Reader, put_u64};

/// Hashes of the settings that all brokers should have in common, one for each part: what a client may do must not depend on
/// the broker that it reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonSettings([u64; CommonSettings::PARTS.len()]);

impl CommonSettings {
    /// The names of the parts, as the configuration has them.
    pub const PARTS: [&str; 11] = [
        "limits",
        "tenants",
        "durability",
        "auth",
        "users",
        "keys",
        "bindings",
        "queues",
        "topics",
        "shared_subscriptions",
        "cluster.without_quorum",
    ];

    /// Creates the hashes, in the order of [`Self::PARTS`].
    pub fn new(hashes: [u64; Self::PARTS.len()]) -> Self {
        Self(hashes)
    }

    /// Returns the names of the parts that differ.
    pub fn differing(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let pairs = std::iter::zip(self.0, other.0);
        let parts = std::iter::zip(Self::PARTS, pairs);
        parts.filter(|(_, (one, other))| one != other).map(|(part, _)| part)
    }

    /// Appends the field of a frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|hash| put_u64(out, *hash));
    }

    /// Reads the field of a frame.
    ///
    /// # Errors
    /// It is too short.
    pub(crate) fn decode(fields: &mut Reader<'_>) -> Result<Self, FrameError> {
        let mut hashes = Self::default();
        for hash in &mut hashes.0 {
            *hash = fields.u64()?;
        }
        Ok(hashes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_differ_are_named() {
        let mut hashes = [7; CommonSettings::PARTS.len()];
        let one = CommonSettings::new(hashes);
        assert_eq!(one.differing(&one).count(), 0);
        (hashes[0], hashes[4]) = (8, 9);
        let other = CommonSettings::new(hashes);
        assert_eq!(one.differing(&other).collect::<Vec<_>>(), ["limits", "users"]);
    }
}
