use super::{Composite, DeliveryState, Malformed, Role, missing};
use crate::wire::Writer;

/// The state of deliveries (2.7.6).
#[derive(Debug, Clone, PartialEq)]
pub struct Disposition {
    /// Of who says this: a receiver speaks of deliveries it got, a sender of those it made.
    pub role: Role,
    /// The first delivery.
    pub first: u32,
    /// The last delivery; `None` for only one.
    pub last: Option<u32>,
    /// Whether who says this has forgotten the deliveries.
    pub settled: bool,
    /// What is known of them.
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
