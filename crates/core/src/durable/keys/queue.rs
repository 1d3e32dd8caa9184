//! Keys of entities and of the contents of their queues.

use super::{begin, tenant};
use crate::durable::records::RecordError;
use crate::durable::wire::{Reader, utf8};
use crate::entity::{Part, SequenceNumber};
use crate::ids::QueueNumber;

/// The key of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The path by which clients address the entity; not empty.
    pub path: &'a str,
}

/// The key of an entry in an entity's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntryKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the queue.
    pub queue: QueueNumber,
    /// The part of the queue.
    pub part: Part,
    /// The sequence number of the entry; not 0.
    pub number: SequenceNumber,
}

/// The key of the body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBodyKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the queue.
    pub queue: QueueNumber,
    /// The id of the body. It is unique within the queue, whatever part the entry is in.
    pub id: u64,
}

/// The key of the state of a message session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSessionKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the queue.
    pub queue: QueueNumber,
    /// The session id.
    pub session: &'a str,
}

/// The key of the note that a message with this id was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSeenKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the queue.
    pub queue: QueueNumber,
    /// The message id.
    pub message_id: &'a str,
}

/// The key of the record up to which sequence numbers are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueNumbersKey<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The number of the queue.
    pub queue: QueueNumber,
    /// The part whose sequence numbers are reserved.
    pub part: Part,
}

impl<'a> EntityKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        begin(self.tenant, key);
        key.extend_from_slice(self.path.as_bytes());
    }

    /// Reads a key of [`ENTITIES`](super::ENTITIES).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, mut key) = tenant(key)?;
        match utf8(key.rest())? {
            "" => Err(RecordError::Malformed("the path of an entity is empty")),
            path => Ok(Self { tenant, path }),
        }
    }
}

impl<'a> QueueEntryKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        encode_queue_prefix(self.tenant, self.queue, key);
        key.push(part_byte(self.part));
        key.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads a key of [`QUEUE_ENTRIES`](super::QUEUE_ENTRIES).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, queue, mut key) = of_queue(key)?;
        let read = Self { tenant, queue, part: part(&mut key)?, number: key.u64_be()? };
        key.finish()?;
        if read.number == 0 {
            return Err(RecordError::Malformed("a sequence number is 0"));
        }
        Ok(read)
    }
}

impl<'a> QueueBodyKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        encode_queue_prefix(self.tenant, self.queue, key);
        key.extend_from_slice(&self.id.to_be_bytes());
    }

    /// Reads a key of [`QUEUE_BODIES`](super::QUEUE_BODIES).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, queue, mut key) = of_queue(key)?;
        let read = Self { tenant, queue, id: key.u64_be()? };
        key.finish().map(|()| read)
    }
}

impl<'a> QueueSessionKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        encode_queue_prefix(self.tenant, self.queue, key);
        key.extend_from_slice(self.session.as_bytes());
    }

    /// Reads a key of [`QUEUE_SESSIONS`](super::QUEUE_SESSIONS).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, queue, mut key) = of_queue(key)?;
        Ok(Self { tenant, queue, session: utf8(key.rest())? })
    }
}

impl<'a> QueueSeenKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        encode_queue_prefix(self.tenant, self.queue, key);
        key.extend_from_slice(self.message_id.as_bytes());
    }

    /// Reads a key of [`QUEUE_SEEN`](super::QUEUE_SEEN).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, queue, mut key) = of_queue(key)?;
        Ok(Self { tenant, queue, message_id: utf8(key.rest())? })
    }
}

impl<'a> QueueNumbersKey<'a> {
    /// Writes this key to `key`, in place of its contents.
    pub fn encode(&self, key: &mut Vec<u8>) {
        encode_queue_prefix(self.tenant, self.queue, key);
        key.push(part_byte(self.part));
    }

    /// Reads a key of [`QUEUE_NUMBERS`](super::QUEUE_NUMBERS).
    ///
    /// # Errors
    /// [`RecordError`] if `key` is malformed, or of a later version.
    pub fn decode(key: &'a [u8]) -> Result<Self, RecordError> {
        let (tenant, queue, mut key) = of_queue(key)?;
        let read = Self { tenant, queue, part: part(&mut key)? };
        key.finish().map(|()| read)
    }
}

/// Writes the common prefix of all keys of a queue to `key`, in place of its contents.
pub fn encode_queue_prefix(tenant: &str, queue: QueueNumber, key: &mut Vec<u8>) {
    begin(tenant, key);
    key.extend_from_slice(&queue.to_be_bytes());
}

/// Splits a key into its tenant, its queue and the part after the prefix.
fn of_queue(key: &[u8]) -> Result<(&str, QueueNumber, Reader<'_>), RecordError> {
    let (tenant, mut key) = tenant(key)?;
    Ok((tenant, key.u64_be()?, key))
}

fn part_byte(part: Part) -> u8 {
    match part {
        Part::Main => 0,
        Part::DeadLetter => 1,
        Part::TransferDeadLetter => 2,
    }
}

fn part(key: &mut Reader<'_>) -> Result<Part, RecordError> {
    match key.u8()? {
        0 => Ok(Part::Main),
        1 => Ok(Part::DeadLetter),
        2 => Ok(Part::TransferDeadLetter),
        _ => Err(RecordError::Malformed("a queue has no such part")),
    }
}
