use super::{Composite, Malformed, missing};
use crate::wire::{ValueRef, Writer};

/// Windows of a session, and credit of a link if there is a handle (2.7.4).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flow {
    /// Id of the next transfer frame that the flow's sender expects; `None` before it knows.
    pub next_incoming_id: Option<u32>,
    /// Number of transfer frames that the flow's sender takes.
    pub incoming_window: u32,
    /// Id of the next transfer frame of the flow's sender.
    pub next_outgoing_id: u32,
    /// Number of transfer frames that the flow's sender may send.
    pub outgoing_window: u32,
    /// Handle of the link that the following fields are about.
    pub handle: Option<u32>,
    /// Number of deliveries that the sending end has begun or given up; `None` from a receiver that
    /// does not know it.
    pub delivery_count: Option<u32>,
    /// Number of deliveries that may be sent, counted from `delivery_count`.
    pub link_credit: Option<u32>,
    /// Number of messages that the sending end has.
    pub available: Option<u32>,
    /// Whether the sending end shall send the messages that it has, and give up the rest of the credit.
    pub drain: bool,
    /// Whether the other end shall answer with its state.
    pub echo: bool,
}

impl Flow {
    pub(super) const CODE: u64 = 0x13;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            next_incoming_id: fields.uint()?,
            incoming_window: fields.uint()?.ok_or(missing("flow: no incoming window"))?,
            next_outgoing_id: fields.uint()?.ok_or(missing("flow: no next outgoing id"))?,
            outgoing_window: fields.uint()?.ok_or(missing("flow: no outgoing window"))?,
            handle: fields.uint()?,
            delivery_count: fields.uint()?,
            link_credit: fields.uint()?,
            available: fields.uint()?,
            drain: fields.boolean()?.unwrap_or(false),
            echo: fields.boolean()?.unwrap_or(false),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.next_incoming_id);
            fields.value(self.incoming_window);
            fields.value(self.next_outgoing_id);
            fields.value(self.outgoing_window);
            fields.value(self.handle);
            fields.value(self.delivery_count);
            fields.value(self.link_credit);
            fields.value(self.available);
            fields.value(self.drain);
            fields.value(self.echo);
            fields.value(ValueRef::Null);
        });
    }
}
