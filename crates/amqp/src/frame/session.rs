use super::{Composite, Malformed, missing};
use crate::wire::{ValueRef, Writer};
use crate::{Error, Fields};

/// Begins a session (2.7.2).
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// Channel of the peer's begin that this one answers.
    pub remote_channel: Option<u16>,
    /// Id of the next transfer frame.
    pub next_outgoing_id: u32,
    /// Number of transfer frames that the sender of this frame takes.
    pub incoming_window: u32,
    /// Number of transfer frames that the sender of this frame may send.
    pub outgoing_window: u32,
    /// Highest handle that may be used.
    pub handle_max: u32,
    /// Properties of the session.
    pub properties: Fields,
}

impl Begin {
    pub(super) const CODE: u64 = 0x11;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            remote_channel: fields.ushort()?,
            next_outgoing_id: fields.uint()?.ok_or(missing("begin: no next outgoing id"))?,
            incoming_window: fields.uint()?.ok_or(missing("begin: no incoming window"))?,
            outgoing_window: fields.uint()?.ok_or(missing("begin: no outgoing window"))?,
            handle_max: fields.uint()?.unwrap_or(u32::MAX),
            properties: {
                for _capabilities in 0..2 {
                    fields.raw()?;
                }
                fields.fields()?
            },
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.remote_channel);
            fields.value(self.next_outgoing_id);
            fields.value(self.incoming_window);
            fields.value(self.outgoing_window);
            fields.value(self.handle_max);
            for _capabilities in 0..2 {
                fields.value(ValueRef::Null);
            }
            fields.value(&self.properties);
        });
    }
}

/// Ends a session (2.7.8).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct End {
    /// Reason, if the session ends because of an error.
    pub error: Option<Error>,
}

impl End {
    pub(super) const CODE: u64 = 0x17;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self { error: fields.raw()?.map(Error::read).transpose()? })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| fields.optional(self.error.as_ref(), Error::write));
    }
}
