//! The record of a topic with a retained message.

use std::sync::Arc;

use super::{
    RecordError, decode_message, encode_message, put_holder, put_stamp, split_holder, stamp,
    versioned,
};
use crate::holder::Holder;
use crate::message::Message;
use crate::stamp::Stamp;

/// The version of a record that begins with a stamp. A record follows, with a version of its own, as it would be without.
const STAMPED: u8 = 3;

/// The retained message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRecord {
    /// The message. With a stamp, an empty payload says that the retained message was removed: the record is a
    /// *tombstone*.
    pub message: Arc<Message>,
    /// The user who has set it, if it was one. A record that was just read has a holder of its own, which holds nothing.
    pub holder: Option<Arc<Holder>>,
    /// Which change it is, if several brokers have the message; otherwise [`Stamp::NONE`].
    pub stamp: Stamp,
}

impl RetainedRecord {
    /// Whether the record says that the retained message was removed.
    pub fn is_tombstone(&self) -> bool {
        self.stamp != Stamp::NONE && self.message.publication().payload.is_empty()
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.stamp != Stamp::NONE {
            out.push(STAMPED);
            put_stamp(self.stamp, out);
        }
        put_holder(self.holder.as_deref(), out);
        encode_message(&self.message, out);
    }

    /// Reads a record, copying the message once.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let (stamp, record) = match record.first() {
            Some(&STAMPED) => {
                let mut reader = versioned(record, STAMPED)?;
                (stamp(&mut reader)?, reader.rest())
            }
            Some(&later) if later > STAMPED => return Err(RecordError::version(later, STAMPED)),
            _ => (Stamp::NONE, record),
        };
        let (holder, record) = split_holder(record)?;
        Ok(Self { message: Arc::new(decode_message(record)?), holder, stamp })
    }
}
