use super::{Composite, Malformed, Terminus, missing};
use crate::wire::{ValueRef, Writer};
use crate::{Error, Fields};

/// Which end of a link speaks (2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Who says this sends messages.
    Sender,
    /// Who says this receives messages.
    Receiver,
}

impl Role {
    /// That of the other end.
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

/// How the sender of a link settles (2.8.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SenderSettles {
    /// No delivery before the receiver has a state for it.
    Unsettled,
    /// Every delivery when it is sent.
    Settled,
    /// As each delivery says.
    #[default]
    Mixed,
}

/// How the receiver of a link settles (2.8.3).
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
    /// Names the link, together with the containers and the direction.
    pub name: String,
    /// The number of the link in frames of who says this.
    pub handle: u32,
    /// Of who says this.
    pub role: Role,
    /// How the sender settles.
    pub sender_settles: SenderSettles,
    /// How the receiver settles.
    pub receiver_settles: ReceiverSettles,
    /// Where messages come from; `None` in an answer that refuses.
    pub source: Option<Terminus>,
    /// Where messages go to; `None` in an answer that refuses.
    pub target: Option<Terminus>,
    /// Must stand there when who says this sends.
    pub initial_delivery_count: Option<u32>,
    /// In bytes; `None` and 0 mean any.
    pub max_message_size: Option<u64>,
    /// About the link.
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

    /// The properties are a map even if there are none: there are clients that look into it.
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
    /// Of the link.
    pub handle: u32,
    /// Whether the link is closed, not only left to be attached again.
    pub closed: bool,
    /// Why, if not because all is done.
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
