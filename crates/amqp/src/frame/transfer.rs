use super::{Composite, DeliveryState, Malformed, Tag, missing};
use crate::wire::{ValueRef, Writer};

/// A message or a piece of one, whose bytes follow the performative (2.7.5).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    /// Handle of the link.
    pub handle: u32,
    /// Id of the delivery. Required in the first frame of a delivery only, like the next two
    /// fields.
    pub delivery_id: Option<u32>,
    /// Delivery tag that the sender gave.
    pub tag: Option<Tag>,
    /// Message format; 0 is that of AMQP 1.0.
    pub message_format: Option<u32>,
    /// Whether the sender has settled the delivery; `None` means as an earlier frame said.
    pub settled: Option<bool>,
    /// Whether more pieces follow.
    pub more: bool,
    /// State at the sender, such as the transaction the delivery belongs to.
    pub state: Option<DeliveryState>,
    /// Whether the sender gives the delivery up; nothing of it counts.
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
