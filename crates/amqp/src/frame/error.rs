use super::{Composite, Malformed, missing};
use crate::Error;
use crate::wire::{ValueRef, Writer};

const CODE: u64 = 0x1D;

impl Error {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (CODE, mut fields, _) = Composite::read(bytes)? else {
            return Err(Malformed::Field("error: another type"));
        };
        Ok(Self {
            condition: fields.text()?.ok_or(missing("error: no condition"))?.to_owned().into(),
            description: fields.text()?.map(|text| text.to_owned().into()),
            info: fields.fields()?,
        })
    }

    /// Writes the error. All three fields are written, because some clients read the third without
    /// checking that it is there.
    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(CODE, |fields| {
            fields.value(ValueRef::Symbol(&self.condition));
            fields.value(self.description.as_deref());
            fields.value(&self.info);
        });
    }
}
