//! The record of a topic with a retained message.

use std::sync::Arc;

use super::{RecordError, decode_message, encode_message, put_holder, split_holder};
use crate::holder::Holder;
use crate::message::Message;

/// The retained message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedRecord {
    /// The message.
    pub message: Arc<Message>,
    /// The user who has set it, if it was one. A record that was just read has a holder of its own, which holds nothing.
    pub holder: Option<Arc<Holder>>,
}

impl RetainedRecord {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_holder(self.holder.as_deref(), out);
        encode_message(&self.message, out);
    }

    /// Reads a record, copying the message once.
    ///
    /// # Errors
    /// [`RecordError`] if `record` is malformed, or of a later version.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        let (holder, record) = split_holder(record)?;
        Ok(Self { message: Arc::new(decode_message(record)?), holder })
    }
}
