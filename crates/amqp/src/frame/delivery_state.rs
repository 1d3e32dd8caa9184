use super::{Composite, Malformed};
use crate::wire::Writer;
use crate::{Error, Fields};

const RECEIVED: u64 = 0x23;
const ACCEPTED: u64 = 0x24;
const REJECTED: u64 = 0x25;
const RELEASED: u64 = 0x26;
const MODIFIED: u64 = 0x27;
const DECLARED: u64 = 0x33;
const TRANSACTIONAL: u64 = 0x34;

/// State or outcome of a delivery (3.4, 4.5).
#[derive(Debug, Clone, PartialEq)]
pub enum DeliveryState {
    /// A part of the message has been received.
    Received {
        /// Section of the message in which the rest begins.
        section_number: u32,
        /// Offset in that section, in bytes.
        section_offset: u64,
    },
    /// The message was taken.
    Accepted,
    /// The message is invalid.
    Rejected(Option<Box<Error>>),
    /// The message was not processed, and may be delivered again.
    Released,
    /// The message was not taken, and is to be changed.
    Modified(Modified),
    /// A transaction was begun.
    Declared {
        /// The id of the transaction.
        transaction: Vec<u8>,
    },
    /// The delivery belongs to a transaction.
    Transactional {
        /// The id of the transaction.
        transaction: Vec<u8>,
        /// Outcome that holds if the transaction succeeds.
        outcome: Option<Box<DeliveryState>>,
    },
}

/// Changes to a message that was not taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Modified {
    /// Whether this counts as a failed attempt.
    pub delivery_failed: bool,
    /// Whether the message must not come to this receiver again.
    pub undeliverable_here: bool,
    /// Annotations to be merged into those of the message.
    pub message_annotations: Fields,
}

impl DeliveryState {
    /// Whether this state is an outcome of the delivery (3.4). This crate has no transactions, so a state
    /// that names a transaction decides nothing.
    pub fn is_outcome(&self) -> bool {
        matches!(self, Self::Accepted | Self::Rejected(_) | Self::Released | Self::Modified(_))
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read_nested(bytes, true)
    }

    fn read_nested(bytes: &[u8], may_be_transactional: bool) -> Result<Self, Malformed> {
        let (code, mut fields, _) = Composite::read(bytes)?;
        Ok(match code {
            ACCEPTED => Self::Accepted,
            REJECTED => Self::Rejected(fields.raw()?.map(Error::read).transpose()?.map(Box::new)),
            RELEASED => Self::Released,
            MODIFIED => Self::Modified(Modified {
                delivery_failed: fields.boolean()?.unwrap_or(false),
                undeliverable_here: fields.boolean()?.unwrap_or(false),
                message_annotations: fields.fields()?,
            }),
            RECEIVED => Self::Received {
                section_number: fields.uint()?.unwrap_or(0),
                section_offset: fields.ulong()?.unwrap_or(0),
            },
            DECLARED => Self::Declared { transaction: fields.binary()?.unwrap_or(&[]).into() },
            TRANSACTIONAL if may_be_transactional => Self::Transactional {
                transaction: fields.binary()?.unwrap_or(&[]).into(),
                outcome: fields
                    .raw()?
                    .map(|outcome| Self::read_nested(outcome, false))
                    .transpose()?
                    .map(Box::new),
            },
            _ => return Err(Malformed::Field("delivery state: unknown")),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Accepted => writer.composite(ACCEPTED, |_| {}),
            Self::Released => writer.composite(RELEASED, |_| {}),
            Self::Rejected(error) => {
                writer
                    .composite(REJECTED, |fields| fields.optional(error.as_deref(), Error::write));
            }
            Self::Modified(modified) => writer.composite(MODIFIED, |fields| {
                fields.value(modified.delivery_failed);
                fields.value(modified.undeliverable_here);
                fields.value(&modified.message_annotations);
            }),
            Self::Received { section_number, section_offset } => {
                writer.composite(RECEIVED, |fields| {
                    fields.value(*section_number);
                    fields.value(*section_offset);
                });
            }
            Self::Declared { transaction } => {
                writer.composite(DECLARED, |fields| fields.value(transaction.as_slice()));
            }
            Self::Transactional { transaction, outcome } => {
                writer.composite(TRANSACTIONAL, |fields| {
                    fields.value(transaction.as_slice());
                    fields.optional(outcome.as_deref(), Self::write);
                });
            }
        }
    }
}
