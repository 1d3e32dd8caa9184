//! The records of a slot, on their way from one broker to another.
//!
//! They are the keys and values of the stores (docs/formats/records.md), each with the shard that it is from. A broker
//! that takes them over gives sessions, queues and messages numbers of its own, and puts them into shards of its own.

use barid_core::ids::ShardIndex;
use barid_store::Keyspace;
use thiserror::Error;

/// The records of a slot, encoded, in the order of their keyspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(Vec<u8>);

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub shard: ShardIndex,
    pub keyspace: Keyspace,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The bytes are no records.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the records of the slot are cut off")]
pub struct Damaged;

impl Records {
    /// Takes over records that were [encoded](Self::as_bytes).
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the records, encoded: for each the shard (2 bytes), the keyspace (1), the length of the key (2), that of
    /// the value (4), the key and the value. Integers are big-endian.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a record.
    pub(super) fn push(&mut self, record: Record<'_>) {
        let Record { shard, keyspace, key, value } = record;
        let key_len = u16::try_from(key.len()).expect("engines take keys of 65,535 bytes");
        let value_len = u32::try_from(value.len()).expect("values have less than 4 GiB");
        self.0.extend_from_slice(&shard.to_be_bytes());
        self.0.push(keyspace.0);
        self.0.extend_from_slice(&key_len.to_be_bytes());
        self.0.extend_from_slice(&value_len.to_be_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// Calls `visit` with each record.
    pub(super) fn for_each<E: From<Damaged>>(
        &self,
        mut visit: impl FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let (record, behind) = split(rest).ok_or(Damaged)?;
            visit(record)?;
            rest = behind;
        }
        Ok(())
    }
}

/// Splits the first record off.
fn split(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (shard, rest) = bytes.split_first_chunk()?;
    let (keyspace, rest) = rest.split_first()?;
    let (key_len, rest) = rest.split_first_chunk()?;
    let (value_len, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(u16::from_be_bytes(*key_len).into())?;
    let value_len = usize::try_from(u32::from_be_bytes(*value_len)).ok()?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    let (shard, keyspace) = (u16::from_be_bytes(*shard), Keyspace(*keyspace));
    Some((Record { shard, keyspace, key, value }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in_and_are_never_read_beyond_the_end() {
        let wanted = [(3, 0, &b"key"[..], &b"value"[..]), (0, 16, b"k", b""), (1, 2, b"", b"v")];
        let mut records = Records::default();
        for (shard, keyspace, key, value) in wanted {
            records.push(Record { shard, keyspace: Keyspace(keyspace), key, value });
        }
        let read = |bytes: &[u8]| {
            let mut found = Vec::new();
            let result = Records::from_bytes(bytes.to_vec()).for_each(|record| {
                let Record { shard, keyspace, key, value } = record;
                found.push((shard, keyspace.0, key.to_vec(), value.to_vec()));
                Ok::<_, Damaged>(())
            });
            result.map(|()| found)
        };
        let found = read(records.as_bytes()).unwrap();
        assert!(found.iter().map(|(s, k, key, value)| (*s, *k, &key[..], &value[..])).eq(wanted));
        for len in 1..records.as_bytes().len() {
            let part = read(&records.as_bytes()[..len]);
            assert!(part.is_err() || part.unwrap().len() < wanted.len());
        }
    }
}
