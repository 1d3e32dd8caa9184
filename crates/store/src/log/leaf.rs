//! A leaf of the index: some neighbouring keys, packed.
//!
//! All records lie in one buffer, in the order in which they were added. The slots hold the offset of each record, in
//! key order. A record that is replaced or removed stays as waste until the leaf is packed again. So a key costs no
//! allocation, and 13 bytes besides the key and its value.
//!
//! What must hold: a record is only added if the buffer then has at most [`LEAF_LEN_MAX`] bytes, or was empty. So the
//! offset of a record always fits into a slot.

use super::frame::disk_len;
use std::cmp::Ordering;

/// Maximum length of a leaf in bytes. A leaf whose only record is longer exceeds it.
pub(super) const LEAF_LEN_MAX: usize = 4096;

/// Identifies a record: its segment, and its number within the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub segment: u32,
    pub ordinal: u32,
}

/// The value of a key, or the place of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Held(&'a [u8]),
    Stored { at: u32, len: u32, checksum: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub key: &'a [u8],
    pub place: Place,
    pub value: Value<'a>,
}

/// A record that was removed from the index, and the bytes that it takes in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone {
    pub place: Place,
    pub disk_len: u64,
}

/// Error: the leaf is full and has to be split.
#[derive(Debug)]
pub(super) struct Full;

#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    slots: Vec<u16>,
    waste: usize,
}

/// Length of the head of a record: key length 2, segment 4, ordinal 4, tag 1.
const HEAD_LEN: usize = 11;
/// Length of the place of a stored value: offset 4, length 4, checksum 8.
const STORED_LEN: usize = 16;
/// Tag of a stored value. The tag of a held value is its length.
const STORED: u8 = u8::MAX;

impl Leaf {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the live records.
    pub fn live_len(&self) -> usize {
        self.bytes.len() - self.waste
    }

    /// Whether there is more waste than live data, and enough of it to matter.
    pub fn is_wasteful(&self) -> bool {
        self.waste > 1024.max(self.bytes.len() / 2)
    }

    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.find(key).ok().map(|index| self.entry(index))
    }

    /// Returns the index of the first entry whose key is not less than `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|index| index)
    }

    pub fn entry(&self, index: usize) -> Entry<'_> {
        let start = usize::from(self.slots[index]);
        let (head, rest) = self.bytes[start..].split_at(HEAD_LEN);
        let (key, rest) = rest.split_at(usize::from(u16::from_le_bytes([head[0], head[1]])));
        let u32_at = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
        };
        let value = match head[10] {
            STORED => Value::Stored {
                at: u32_at(rest, 0),
                len: u32_at(rest, 4),
                checksum: u64::from_le_bytes(rest[8..16].try_into().expect("8 bytes")),
            },
            len => Value::Held(&rest[..usize::from(len)]),
        };
        Entry { key, place: Place { segment: u32_at(head, 2), ordinal: u32_at(head, 6) }, value }
    }

    /// Adds an entry, or replaces the one with the same key.
    pub fn insert(&mut self, entry: &Entry<'_>) -> Result<Option<Gone>, Full> {
        let len = packed_len(entry);
        let found = self.find(entry.key);
        if let Ok(index) = found {
            let old = self.entry(index);
            let (gone, old_len) = (gone(&old), packed_len(&old));
            if old_len == len {
                let start = usize::from(self.slots[index]);
                pack(entry, &mut self.bytes[start..start + len]);
                return Ok(Some(gone));
            }
            if self.slots.len() == 1 {
                self.slots.clear();
                self.make_room(len)?;
                let start = self.append(entry, len);
                self.slots.push(start);
                return Ok(Some(gone));
            }
            self.make_room(len)?;
            self.waste += old_len;
            self.slots[index] = self.append(entry, len);
            return Ok(Some(gone));
        }
        self.make_room(len)?;
        let start = self.append(entry, len);
        self.slots.insert(found.unwrap_or_else(|index| index), start);
        Ok(None)
    }

    pub fn remove(&mut self, key: &[u8]) -> Option<Gone> {
        let index = self.find(key).ok()?;
        let entry = self.entry(index);
        let (gone, len) = (gone(&entry), packed_len(&entry));
        self.slots.remove(index);
        self.waste += len;
        Some(gone)
    }

    /// Moves the upper half of the leaf into a new leaf, so that one of the two has more room for `key`. If `key` is
    /// greater than all keys, nothing is moved and the new leaf is empty: queues grow at their end, and their leaves
    /// stay full.
    pub fn split(&mut self, key: &[u8]) -> (Box<[u8]>, Leaf) {
        if self.slots.last().is_none_or(|_| self.entry(self.len() - 1).key < key) {
            return (key.into(), Leaf::default());
        }
        let upper = self.slots.split_off(self.slots.len() / 2);
        let right = Leaf { bytes: std::mem::take(&mut self.bytes), slots: upper, waste: 0 };
        let left = Leaf { bytes: Vec::new(), slots: std::mem::take(&mut self.slots), waste: 0 };
        *self = left.packed_from(&right.bytes);
        let right = right.packed_from(&right.bytes);
        (right.entry(0).key.into(), right)
    }

    /// Removes the waste.
    pub fn pack(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        *self = self.packed_from(&bytes);
    }

    /// Appends all records of a leaf whose keys are greater.
    pub fn absorb(&mut self, right: &Leaf) {
        self.pack();
        for index in 0..right.len() {
            let entry = right.entry(index);
            let start = self.append(&entry, packed_len(&entry));
            self.slots.push(start);
        }
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let Some((&last, others)) = self.slots.split_last() else { return Err(0) };
        // The last and the first key are compared first: queues grow at one end and shrink at the other.
        match self.key_at(last).cmp(key) {
            Ordering::Less => return Err(self.slots.len()),
            Ordering::Equal => return Ok(others.len()),
            Ordering::Greater => (),
        }
        match others.first().map(|&first| self.key_at(first).cmp(key)) {
            None | Some(Ordering::Greater) => Err(0),
            Some(Ordering::Equal) => Ok(0),
            Some(Ordering::Less) => others.binary_search_by(|&start| self.key_at(start).cmp(key)),
        }
    }

    fn key_at(&self, start: u16) -> &[u8] {
        let bytes = &self.bytes[usize::from(start)..];
        &bytes[HEAD_LEN..HEAD_LEN + usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))]
    }

    fn make_room(&mut self, len: usize) -> Result<(), Full> {
        if self.slots.is_empty() {
            self.bytes.clear();
            self.waste = 0;
            return Ok(());
        }
        if self.bytes.len() + len > LEAF_LEN_MAX && self.waste >= LEAF_LEN_MAX / 4 {
            self.pack();
        }
        if self.bytes.len() + len > LEAF_LEN_MAX { Err(Full) } else { Ok(()) }
    }

    fn append(&mut self, entry: &Entry<'_>, len: usize) -> u16 {
        let start = self.bytes.len();
        let end = start + len;
        if end > self.bytes.capacity() {
            // The capacity is doubled, but not beyond the maximum length of a leaf.
            let capacity = end.max((start * 2).min(LEAF_LEN_MAX));
            self.bytes.reserve_exact(capacity - start);
        }
        self.bytes.resize(end, 0);
        pack(entry, &mut self.bytes[start..]);
        u16::try_from(start).expect("records begin within LEAF_LEN_MAX")
    }

    /// Returns a leaf with the records that the slots of this one point to in `bytes`.
    fn packed_from(&self, bytes: &[u8]) -> Leaf {
        let source = |start: &u16| {
            let record = &bytes[usize::from(*start)..];
            let key_len = usize::from(u16::from_le_bytes([record[0], record[1]]));
            let value_len = if record[10] == STORED { STORED_LEN } else { usize::from(record[10]) };
            &record[..HEAD_LEN + key_len + value_len]
        };
        let len = self.slots.iter().map(|start| source(start).len()).sum();
        let mut leaf = Leaf {
            bytes: Vec::with_capacity(len),
            slots: Vec::with_capacity(self.slots.len()),
            waste: 0,
        };
        for record in self.slots.iter().map(source) {
            leaf.slots.push(u16::try_from(leaf.bytes.len()).expect("as before, or less"));
            leaf.bytes.extend_from_slice(record);
        }
        leaf
    }
}

fn gone(entry: &Entry<'_>) -> Gone {
    let value_len = match entry.value {
        Value::Held(value) => value.len(),
        Value::Stored { len, .. } => len as usize,
    };
    Gone { place: entry.place, disk_len: disk_len(entry.key, value_len) }
}

fn packed_len(entry: &Entry<'_>) -> usize {
    let value_len = match entry.value {
        Value::Held(value) => value.len(),
        Value::Stored { .. } => STORED_LEN,
    };
    HEAD_LEN + entry.key.len() + value_len
}

fn pack(entry: &Entry<'_>, into: &mut [u8]) {
    let key_len = entry.key.len();
    into[..2].copy_from_slice(&(key_len as u16).to_le_bytes());
    into[2..6].copy_from_slice(&entry.place.segment.to_le_bytes());
    into[6..10].copy_from_slice(&entry.place.ordinal.to_le_bytes());
    let (key, value) = into[HEAD_LEN..].split_at_mut(key_len);
    key.copy_from_slice(entry.key);
    match entry.value {
        Value::Held(held) => {
            value.copy_from_slice(held);
            into[10] = held.len() as u8;
        }
        Value::Stored { at, len, checksum } => {
            value[..4].copy_from_slice(&at.to_le_bytes());
            value[4..8].copy_from_slice(&len.to_le_bytes());
            value[8..16].copy_from_slice(&checksum.to_le_bytes());
            into[10] = STORED;
        }
    }
}
