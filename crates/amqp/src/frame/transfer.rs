use super::{Composite, DeliveryState, Malformed, Tag, missing};
use crate::wire::{ValueRef, Writer};

/// A message or a piece of one, which stands behind it (2.7.5).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    /// Of the link.
    pub handle: u32,
    /// Of the delivery; may be absent in all frames but its first, as the next two.
    pub delivery_id: Option<u32>,
    /// What the sender calls the delivery.
    pub tag: Option<Tag>,
    /// How the message is made; 0 is the one of AMQP 1.0.
    pub message_format: Option<u32>,
    /// Whether the sender wants to hear nothing about it; `None` says what an earlier frame said.
    pub settled: Option<bool>,
    /// Whether more pieces follow.
    pub more: bool,
    /// The state at the sender, such as the transaction it belongs to.
    pub state: Option<DeliveryState>,
    /// Whether the delivery is given up, and nothing of it counts.
    pub aborted: bool,
}

impl Transfer {
    pub(super) const CODE: u64 = 0x14;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            handle: fields.uint()?.ok_or(missing("transfer: no handle"))?,
            delivery_id: fields.uint()?,
            tag: fields.binary()?.map(Tag::try_from).transpose()?,
            message_format: fields.uint()?,
            settled: fields.boolean()?,
            more: fields.boolean()?.unwrap_or(false),
            state: {
                let _receiver_settles = fields.raw()?;
                fields.raw()?.map(DeliveryState::read).transpose()?
            },
            aborted: {
                let _resume = fields.raw()?;
                fields.boolean()?.unwrap_or(false)
            },
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.handle);
            fields.value(self.delivery_id);
            fields.value(self.tag.as_deref());
            fields.value(self.message_format);
            fields.value(self.settled);
            fields.value(self.more);
            fields.value(ValueRef::Null);
            fields.optional(self.state.as_ref(), DeliveryState::write);
            fields.value(false);
            fields.value(self.aborted);
            fields.value(false);
        });
    }
}
