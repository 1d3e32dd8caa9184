use super::{Composite, DeliveryState, Malformed, Role, missing};
use crate::wire::Writer;

/// The state of deliveries (2.7.6).
#[derive(Debug, Clone, PartialEq)]
pub struct Disposition {
    /// Role of the frame's sender: a receiver speaks of deliveries that it got, a sender of those
    /// that it made.
    pub role: Role,
    /// Id of the first delivery.
    pub first: u32,
    /// Id of the last delivery; `None` if there is only one.
    pub last: Option<u32>,
    /// Whether the frame's sender has settled the deliveries.
    pub settled: bool,
    /// State of the deliveries.
    pub state: Option<DeliveryState>,
}

impl Disposition {
    pub(super) const CODE: u64 = 0x15;

    pub(super) fn read(fields: &mut Composite<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            role: Role::from_wire(fields.boolean()?.ok_or(missing("disposition: no role"))?),
            first: fields.uint()?.ok_or(missing("disposition: no first delivery"))?,
            last: fields.uint()?,
            settled: fields.boolean()?.unwrap_or(false),
            state: fields.raw()?.map(DeliveryState::read).transpose()?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(Self::CODE, |fields| {
            fields.value(self.role.to_wire());
            fields.value(self.first);
            fields.value(self.last);
            fields.value(self.settled);
            fields.optional(self.state.as_ref(), DeliveryState::write);
            fields.value(false);
        });
    }
}
