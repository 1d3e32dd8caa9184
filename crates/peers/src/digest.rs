//! Digests of the objects that all brokers of a cluster have: how two brokers find out which of their copies differ.
//!
//! The objects are divided into [`PARTS`] parts by a hash of their names. The digest of a part is a number that depends on
//! the names and the stamps of all its objects, in whatever order they came. Two brokers compare their digests, and list
//! the objects of the parts that differ.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use barid_core::stamp::Stamp;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::error::FrameError;
use crate::wire::{Reader, put_u64};

/// Number of parts. A part of a million objects has a thousand.
pub const PARTS: usize = 1_024;

/// Length of all digests as bytes.
pub(crate) const DIGESTS_LEN: usize = PARTS * 8;

/// Length of a [`Listed`] as bytes.
const LISTED_LEN: usize = 24;

/// The name of an object that all brokers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The kind of the object.
    pub kind: u8,
    /// The tenant, or nothing.
    pub tenant: &'a str,
    /// The name, unique for the kind and the tenant.
    pub name: &'a str,
}

/// A hash of the name of an object. Objects whose names have the same hash count as the same one in comparisons: among
/// 10 million there are two with a probability of 3 in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectHash(pub u64);

/// An object as brokers list it: which one it is, and its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which object it is.
    pub object: ObjectHash,
    /// Its last change.
    pub stamp: Stamp,
}

/// The digests of all parts of the objects of one broker.
pub struct Digest {
    parts: Box<[AtomicU64]>,
    objects: AtomicI64,
}

/// A set of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts([u64; PARTS / 64]);

impl Object<'_> {
    /// Returns the hash of the name.
    pub fn hash(&self) -> ObjectHash {
        let in_tenant = xxh3_64_with_seed(self.tenant.as_bytes(), self.kind.into());
        ObjectHash(xxh3_64_with_seed(self.name.as_bytes(), in_tenant))
    }
}

impl ObjectHash {
    /// The part to which the object belongs.
    pub fn part(self) -> usize {
        usize::try_from(self.0 % PARTS as u64).expect("there are few parts")
    }
}

impl Listed {
    /// What the object contributes to the digest of its part.
    fn digest(self) -> u64 {
        let mut bytes = [0; LISTED_LEN];
        bytes[..8].copy_from_slice(&self.object.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.stamp.time.to_be_bytes());
        bytes[16..].copy_from_slice(&self.stamp.origin.to_be_bytes());
        xxh3_64(&bytes)
    }

    /// Appends it to the list in a frame.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_u64(out, self.object.0);
        put_u64(out, self.stamp.time);
        put_u64(out, self.stamp.origin);
    }

    /// Reads a list.
    ///
    /// # Errors
    /// The bytes are no list.
    pub fn decode_all(bytes: &[u8]) -> Result<impl Iterator<Item = Self>, FrameError> {
        if !bytes.len().is_multiple_of(LISTED_LEN) {
            return Err(FrameError::CutOff);
        }
        Ok(bytes.chunks_exact(LISTED_LEN).map(|bytes| {
            let mut fields = Reader(bytes);
            let mut next = || fields.u64().expect("its length is known");
            Self { object: ObjectHash(next()), stamp: Stamp { time: next(), origin: next() } }
        }))
    }
}

impl Digest {
    /// Notes that an object has changed: its last change before and now. `None`: the object does not exist.
    pub fn change(&self, object: ObjectHash, before: Option<Stamp>, after: Option<Stamp>) {
        let digest =
            |stamp: Option<Stamp>| stamp.map_or(0, |stamp| Listed { object, stamp }.digest());
        let changed = digest(before) ^ digest(after);
        self.parts[object.part()].fetch_xor(changed, Ordering::Relaxed);
        let objects = i64::from(after.is_some()) - i64::from(before.is_some());
        self.objects.fetch_add(objects, Ordering::Relaxed);
    }

    /// Number of objects.
    pub fn objects(&self) -> usize {
        usize::try_from(self.objects.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the digests of all parts, as a frame contains them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DIGESTS_LEN);
        self.parts.iter().for_each(|part| put_u64(&mut bytes, part.load(Ordering::Relaxed)));
        bytes
    }

    /// Returns the parts that differ from those of another broker.
    ///
    /// # Errors
    /// The bytes are no digests.
    pub fn differing(&self, theirs: &[u8]) -> Result<Parts, FrameError> {
        if theirs.len() != DIGESTS_LEN {
            return Err(FrameError::CutOff);
        }
        let (mine, mut differing) = (self.to_bytes(), Parts::NONE);
        for (part, (mine, theirs)) in mine.chunks(8).zip(theirs.chunks(8)).enumerate() {
            if mine != theirs {
                differing.insert(part);
            }
        }
        Ok(differing)
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| AtomicU64::new(0)).collect(), objects: AtomicI64::new(0) }
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").field("objects", &self.objects()).finish_non_exhaustive()
    }
}

impl Parts {
    /// No part.
    pub const NONE: Self = Self([0; PARTS / 64]);

    /// All parts.
    pub const ALL: Self = Self([u64::MAX; PARTS / 64]);

    /// Adds a part.
    pub fn insert(&mut self, part: usize) {
        self.0[part / 64] |= 1 << (part % 64);
    }

    /// Whether a part is in the set.
    pub fn contains(&self, part: usize) -> bool {
        self.0[part / 64] & 1 << (part % 64) != 0
    }

    /// Returns the parts that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one &= other);
        both
    }

    /// Returns the parts in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..PARTS).filter(|part| self.contains(*part))
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Whether there is no part.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|bits| put_u64(out, *bits));
    }

    pub(crate) fn decode(fields: &mut Reader<'_>) -> Result<Self, FrameError> {
        let mut parts = Self::NONE;
        for bits in &mut parts.0 {
            *bits = fields.u64()?;
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectHash {
        Object { kind: 1, tenant: "acme", name }.hash()
    }

    fn stamp(time: u64) -> Stamp {
        Stamp { time, origin: 3 }
    }

    #[test]
    fn the_order_of_changes_does_not_matter() {
        let (one, other) = (Digest::default(), Digest::default());
        for name in ["a", "b", "c"] {
            one.change(object(name), None, Some(stamp(1)));
        }
        one.change(object("b"), Some(stamp(1)), Some(stamp(2)));
        one.change(object("c"), Some(stamp(1)), None);
        for (name, at) in [("b", 2), ("a", 1)] {
            other.change(object(name), None, Some(stamp(at)));
        }
        assert_eq!(one.differing(&other.to_bytes()), Ok(Parts::NONE));
        assert_eq!((one.objects(), other.objects()), (2, 2));
    }

    #[test]
    fn what_differs_is_found() {
        let (one, other) = (Digest::default(), Digest::default());
        for index in 0..5_000 {
            let object = object(&index.to_string());
            one.change(object, None, Some(stamp(index)));
            other.change(object, None, Some(stamp(index)));
        }
        other.change(object("17"), Some(stamp(17)), Some(stamp(18)));
        one.change(object("4000"), Some(stamp(4_000)), None);
        let mut expected = Parts::NONE;
        expected.insert(object("17").part());
        expected.insert(object("4000").part());
        assert_eq!(one.differing(&other.to_bytes()), Ok(expected));
        assert_eq!(one.differing(&[0; 7]), Err(FrameError::CutOff));
    }

    #[test]
    fn kind_tenant_and_name_are_told_apart() {
        let of = |kind, tenant, name| Object { kind, tenant, name }.hash();
        let all =
            [of(1, "a", "b"), of(2, "a", "b"), of(1, "b", "a"), of(1, "", "ab"), of(1, "ab", "")];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn sets_of_parts_are_sets() {
        let mut some = Parts::NONE;
        [0, 63, 64, PARTS - 1].iter().for_each(|part| some.insert(*part));
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 63, 64, PARTS - 1]);
        assert_eq!((some.len(), some.is_empty(), Parts::NONE.is_empty()), (4, false, true));
        assert_eq!((some.and(&Parts::ALL), some.and(&Parts::NONE)), (some, Parts::NONE));
        let mut bytes = Vec::new();
        some.encode(&mut bytes);
        assert_eq!((bytes.len(), Parts::decode(&mut Reader(&bytes))), (PARTS / 8, Ok(some)));
        assert!(Parts::decode(&mut Reader(&bytes[1..])).is_err());
    }

    #[test]
    fn lists_are_read_as_they_were_written() {
        let listed = Listed { object: object("a"), stamp: stamp(5) };
        let mut bytes = Vec::new();
        listed.encode(&mut bytes);
        listed.encode(&mut bytes);
        assert_eq!(Listed::decode_all(&bytes).unwrap().collect::<Vec<_>>(), [listed, listed]);
        assert!(Listed::decode_all(&bytes[1..]).is_err());
    }
}
