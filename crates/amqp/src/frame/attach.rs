use super::{Composite, Malformed, Terminus, missing};
use crate::wire::{ValueRef, Writer};
use crate::{Error, Fields};

/// End of a link that a frame's sender is (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The sender of the frame sends messages on the link.
    Sender,
    /// The sender of the frame receives messages on the link.
    Receiver,
}

impl Role {
    /// Returns the role of the other end.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    pub(super) fn from_wire(receiver: bool) -> Self {
        if receiver { Self::Receiver } else { Self::Sender }
    }

    pub(super) fn to_wire(self) -> bool {
        self == Self::Receiver
    }
}

/// When the sender of a link settles its deliveries (2.8.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SenderSettles {
    /// Not before the receiver has reported a state.
    Unsettled,
    /// At once: every delivery is sent settled.
    Settled,
    /// As each delivery says.
    #[default]
    Mixed,
}

/// When the receiver of a link settles its deliveries (2.8.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReceiverSettles {
    /// Before the sender does.
    #[default]
    First,
    /// After the sender has.
    Second,
}

/// Begins a link (2.7.3).
#[derive(Debug, Clone, PartialEq)]
pub struct Attach {
    /// Name of the link, unique together with the two containers and the direction.
    pub name: String,
    /// Number by which the frame's sender calls the link.
    pub handle: u32,
    /// Role of the frame's sender.
    pub role: Role,
    /// When the sender of the link settles.
    pub sender_settles: SenderSettles,
    /// When the receiver of the link settles.
    pub receiver_settles: ReceiverSettles,
    /// Node that messages come from; `None` in an answer that refuses the link.
    pub source: Option<Terminus>,
    /// Node that messages go to; `None` in an answer that refuses the link.
    pub target: Option<Terminus>,
    /// Initial delivery count; required if the frame's sender is the sender of the link.
    pub initial_delivery_count: Option<u32>,
    /// Maximum message size in bytes; `None` and 0 mean any.
    pub max_message_size: Option<u64>,
    /// Properties of the link.
    pub properties: Fields,
}

impl Attach {
    pub(super) const CODE: u64 = 0x12;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            name: fields.text()?.ok_or(missing("attach: no name"))?.into(),
            handle: fields.uint()?.ok_or(missing("attach: no handle"))?,
            role: Role::from_wire(fields.boolean()?.ok_or(missing("attach: no role"))?),
            sender_settles: match fields.ubyte()? {
                Some(0) => SenderSettles::Unsettled,
                Some(1) => SenderSettles::Settled,
                None | Some(2) => SenderSettles::Mixed,
                Some(_) => return Err(Malformed::Field("attach: unknown sender's settle mode")),
            },
            receiver_settles: match fields.ubyte()? {
                None | Some(0) => ReceiverSettles::First,
                Some(1) => ReceiverSettles::Second,
                Some(_) => return Err(Malformed::Field("attach: unknown receiver's settle mode")),
            },
            source: fields.raw()?.map(Terminus::read).transpose()?,
            target: fields.raw()?.map(Terminus::read).transpose()?,
            initial_delivery_count: {
                for _unsettled_and_whether_it_is_incomplete in 0..2 {
                    fields.raw()?;
                }
                fields.uint()?
            },
            max_message_size: fields.ulong()?,
            properties: {
                for _capabilities in 0..2 {
                    fields.raw()?;
                }
                fields.fields()?
            },
        })
    }

    /// Writes the frame. The properties are a map even if there are none, because some clients look
    /// into it.
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.name.as_str());
            fields.value(self.handle);
            fields.value(self.role.to_wire());
            fields.value(self.sender_settles as u8);
            fields.value(self.receiver_settles as u8);
            fields.optional(self.source.as_ref(), Terminus::write);
            fields.optional(self.target.as_ref(), Terminus::write);
            fields.value(ValueRef::Null);
            fields.value(false);
            fields.value(self.initial_delivery_count);
            fields.value(self.max_message_size);
            for _capabilities in 0..2 {
                fields.value(ValueRef::Null);
            }
            fields.value(&self.properties);
        });
    }
}

/// Ends a link (2.7.7).
#[derive(Debug, Clone, PartialEq)]
pub struct Detach {
    /// Handle of the link.
    pub handle: u32,
    /// Whether the link is closed for good; otherwise it may be attached again.
    pub closed: bool,
    /// Reason, if the link ends because of an error.
    pub error: Option<Error>,
}

impl Detach {
    pub(super) const CODE: u64 = 0x16;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            handle: fields.uint()?.ok_or(missing("detach: no handle"))?,
            closed: fields.boolean()?.unwrap_or(false),
            error: fields.raw()?.map(Error::read).transpose()?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.handle);
            fields.value(self.closed);
            fields.optional(self.error.as_ref(), Error::write);
        });
    }
}
