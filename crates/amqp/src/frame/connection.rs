use super::{Composite, Malformed, missing};
use crate::wire::{ValueRef, Writer};
use crate::{Error, Fields};

/// Begins a connection (2.7.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// Name of the container that sends this frame.
    pub container_id: String,
    /// Name of the host that a client wants to reach.
    pub hostname: Option<String>,
    /// Maximum size of a frame sent to this container, in bytes.
    pub max_frame_size: u32,
    /// Highest channel that may be used.
    pub channel_max: u16,
    /// Silence after which this container gives up, in milliseconds.
    pub idle_time_out: Option<u32>,
    /// Properties of this container.
    pub properties: Fields,
}

impl Open {
    pub(super) const CODE: u64 = 0x10;

    /// Creates an open without bounds.
    pub fn new(container_id: &str) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_time_out: None,
            properties: Fields::new(),
        }
    }

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        let open = Self {
            container_id: fields.text()?.ok_or(missing("open: no container id"))?.into(),
            hostname: fields.text()?.map(Into::into),
            max_frame_size: fields.uint()?.unwrap_or(u32::MAX),
            channel_max: fields.ushort()?.unwrap_or(u16::MAX),
            idle_time_out: fields.uint()?,
            properties: {
                for _locales_and_capabilities in 0..4 {
                    fields.raw()?;
                }
                fields.fields()?
            },
        };
        Ok(open)
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.container_id.as_str());
            fields.value(self.hostname.as_deref());
            fields.value(self.max_frame_size);
            fields.value(self.channel_max);
            fields.value(self.idle_time_out);
            for _locales_and_capabilities in 0..4 {
                fields.value(ValueRef::Null);
            }
            fields.value(&self.properties);
        });
    }
}

/// Ends a connection (2.7.9).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Close {
    /// Reason, if the connection ends because of an error.
    pub error: Option<Error>,
}

impl Close {
    pub(super) const CODE: u64 = 0x18;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self { error: fields.raw()?.map(Error::read).transpose()? })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| fields.optional(self.error.as_ref(), Error::write));
    }
}
