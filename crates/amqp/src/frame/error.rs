use super::{composite, missing};
use crate::Error;
use crate::wire::{self, Items, List, Malformed};

const CODE: u64 = 0x1D;

impl Error {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (CODE, list) = wire::described(bytes)? else {
            return Err(Malformed("error: another type"));
        };
        let (mut fields, _) = List::read(list)?;
        Ok(Self {
            condition: fields.text()?.ok_or(missing("error: no condition"))?.to_owned().into(),
            description: fields.text()?.map(|text| text.to_owned().into()),
            info: fields.fields()?,
        })
    }

    /// All three fields stand there: there are clients that take the third without looking.
    pub(super) fn write_optional(error: Option<&Self>, items: &mut Items<'_>) {
        items.optional(error, |items, error| {
            items.with(|out| {
                composite(out, CODE, |items| {
                    items.symbol(&error.condition);
                    items.optional(error.description.as_deref(), |items, text| items.string(text));
                    items.fields(&error.info);
                });
            });
        });
    }
}
