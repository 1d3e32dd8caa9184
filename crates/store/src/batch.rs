//! Changes that become durable together.

use crate::Keyspace;

/// Puts and removals, in the order in which they are applied. A later change of a key overrides an
/// earlier one.
///
/// All keys and values lie in one buffer, whose memory [`clear`](Self::clear) keeps: a batch that
/// is reused does not allocate.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    bytes: Vec<u8>,
    records: Vec<Record>,
    puts: usize,
    urgent: bool,
}

/// A change. Its key and value lie in [`Batch::bytes`], after those of the record before it.
#[derive(Debug, Clone, Copy)]
struct Record {
    keyspace: Keyspace,
    key_len: u16,
    /// Length of the value. `None`: the key is removed.
    value_len: Option<u32>,
}

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Gives the key this value.
    Put(Keyspace, &'a [u8], &'a [u8]),
    /// Removes the key, if it exists.
    Remove(Keyspace, &'a [u8]),
}

impl Batch {
    /// Creates a batch without changes.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets `key` to `value`.
    ///
    /// # Panics
    ///
    /// If the key does not have 1 to 65535 bytes or the value has 2^32 bytes or more.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.put_parts(keyspace, key, &[value]);
    }

    /// Sets `key` to the concatenation of several parts.
    ///
    /// # Panics
    ///
    /// As [`put`](Self::put).
    pub fn put_parts(&mut self, keyspace: Keyspace, key: &[u8], value: &[&[u8]]) {
        let value_len = value.iter().map(|part| part.len()).sum::<usize>();
        let value_len = u32::try_from(value_len).expect("values have less than 2^32 bytes");
        self.push(keyspace, key, Some(value_len));
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.puts += 1;
    }

    /// Sets `key` to the value that `encode` appends.
    ///
    /// # Panics
    ///
    /// As [`put`](Self::put).
    pub fn put_with(&mut self, keyspace: Keyspace, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.push(keyspace, key, Some(0));
        let before = self.bytes.len();
        encode(&mut self.bytes);
        let len = u32::try_from(self.bytes.len() - before);
        let len = len.expect("values have less than 2^32 bytes");
        self.records.last_mut().expect("it was pushed").value_len = Some(len);
        self.puts += 1;
    }

    /// Removes `key`.
    ///
    /// # Panics
    ///
    /// If the key does not have 1 to 65535 bytes.
    pub fn remove(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.push(keyspace, key, None);
    }

    fn push(&mut self, keyspace: Keyspace, key: &[u8], value_len: Option<u32>) {
        assert!(!key.is_empty(), "keys have 1 byte at least");
        let key_len = u16::try_from(key.len()).expect("keys have 65535 bytes at most");
        self.bytes.extend_from_slice(key);
        self.records.push(Record { keyspace, key_len, value_len });
    }

    /// Marks the batch as urgent: it is committed even if less space is free than the reserve. The
    /// reserve exists for such batches.
    pub fn set_urgent(&mut self) {
        self.urgent = true;
    }

    /// Whether a commit of this batch is refused when there is too little free space.
    pub fn needs_room(&self) -> bool {
        !self.urgent && !self.only_removes()
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the batch has no puts. Such a batch is committed even when the disk is full.
    pub fn only_removes(&self) -> bool {
        self.puts == 0
    }

    /// Removes all changes, and keeps the memory for reuse.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.puts = 0;
        self.urgent = false;
    }

    /// Iterates over the changes, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        let mut rest = self.bytes.as_slice();
        let mut take = move |len: usize| {
            let (taken, behind) = rest.split_at(len);
            rest = behind;
            taken
        };
        self.records.iter().map(move |record| {
            let key = take(usize::from(record.key_len));
            match record.value_len {
                Some(len) => Change::Put(record.keyspace, key, take(len as usize)),
                None => Change::Remove(record.keyspace, key),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Keyspace = Keyspace(0);
    const B: Keyspace = Keyspace(1);

    #[test]
    fn changes_come_back_in_their_order() {
        let mut batch = Batch::new();
        batch.put(A, b"key", b"value");
        batch.remove(B, b"key");
        batch.put(B, b"k", b"");
        batch.put_parts(A, b"parts", &[b"one", b"", b"two"]);
        let changes: Vec<Change<'_>> = batch.iter().collect();
        assert_eq!(
            changes,
            [
                Change::Put(A, b"key", b"value"),
                Change::Remove(B, b"key"),
                Change::Put(B, b"k", b""),
                Change::Put(A, b"parts", b"onetwo"),
            ]
        );
        assert_eq!((batch.len(), batch.bytes()), (4, 23));
        assert!(!batch.only_removes());
    }

    #[test]
    fn a_cleared_batch_is_empty() {
        let mut batch = Batch::new();
        batch.put(A, b"key", b"value");
        batch.clear();
        assert!(batch.is_empty() && batch.only_removes() && batch.bytes() == 0);
        assert_eq!(batch.iter().count(), 0);
    }

    #[test]
    #[should_panic(expected = "1 byte")]
    fn a_key_has_at_least_one_byte() {
        Batch::new().remove(A, b"");
    }
}
