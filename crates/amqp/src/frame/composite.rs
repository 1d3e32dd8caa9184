use super::Malformed;
use crate::Fields;
use crate::wire::{ValueRef, code, described, split_value};

/// Fields of a composite value, read in order. Fields that are missing at the end are null (1.4), and
/// null is read as `None`.
#[derive(Debug, Clone)]
pub(super) struct Composite<'a> {
    left: u32,
    fields: &'a [u8],
}

impl<'a> Composite<'a> {
    /// Reads the composite value at the front of `bytes`: its descriptor, its fields, and the bytes
    /// behind it.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<(u64, Self, &'a [u8]), Malformed> {
        let (descriptor, list) = described(bytes)?;
        match ValueRef::read(list)? {
            (ValueRef::List(list), rest) => {
                let (left, fields) = (list.count(), list.raw().rest());
                Ok((descriptor, Self { left, fields }, rest))
            }
            _ => Err(Malformed::Field("composite value: no list")),
        }
    }

    /// Reads the next field in its encoded form.
    #[inline]
    pub fn raw(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if let [code::NULL, rest @ ..] = self.fields {
            self.fields = rest;
            return Ok(None);
        }
        let (field, rest) = split_value(self.fields)?;
        self.fields = rest;
        Ok(Some(field))
    }

    /// Reads a boolean.
    pub fn boolean(&mut self) -> Result<Option<bool>, Malformed> {
        self.field(|field| match field {
            [code::TRUE] | [code::BOOLEAN, 1] => Some(true),
            [code::FALSE] | [code::BOOLEAN, 0] => Some(false),
            _ => None,
        })
    }

    /// Reads an unsigned integer of any width, which must fit into 64 bits.
    pub fn ulong(&mut self) -> Result<Option<u64>, Malformed> {
        self.field(unsigned)
    }

    /// Reads an unsigned integer of any width, which must fit into 32 bits.
    pub fn uint(&mut self) -> Result<Option<u32>, Malformed> {
        self.field(|field| unsigned(field)?.try_into().ok())
    }

    /// Reads an unsigned integer of any width, which must fit into 16 bits.
    pub fn ushort(&mut self) -> Result<Option<u16>, Malformed> {
        self.field(|field| unsigned(field)?.try_into().ok())
    }

    /// Reads an unsigned integer of any width, which must fit into 8 bits.
    pub fn ubyte(&mut self) -> Result<Option<u8>, Malformed> {
        self.field(|field| unsigned(field)?.try_into().ok())
    }

    /// Reads a string or a symbol.
    pub fn text(&mut self) -> Result<Option<&'a str>, Malformed> {
        self.field(|field| ValueRef::known(field).text())
    }

    /// Reads binary data.
    pub fn binary(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        self.field(|field| ValueRef::known(field).binary())
    }

    /// Reads a map whose keys are texts; null is read as an empty one.
    pub fn fields(&mut self) -> Result<Fields, Malformed> {
        self.raw()?.map_or(Ok(Fields::new()), Fields::read)
    }

    /// Reads one symbol, or an array of symbols.
    pub fn symbols(&mut self) -> Result<Vec<&'a str>, Malformed> {
        let Some(field) = self.raw()? else { return Ok(Vec::new()) };
        let symbol = |value: ValueRef<'a>| value.text().ok_or(Malformed::Field("symbol"));
        match ValueRef::checked(field)? {
            ValueRef::Array(all) => all.into_iter().map(symbol).collect(),
            one => Ok(vec![symbol(one)?]),
        }
    }

    #[inline]
    fn field<T>(&mut self, of: impl FnOnce(&'a [u8]) -> Option<T>) -> Result<Option<T>, Malformed> {
        let Some(field) = self.raw()? else { return Ok(None) };
        of(field).map(Some).ok_or(Malformed::Field("field: another type"))
    }
}

/// Reads an unsigned integer without making a [`ValueRef`] of it first, because frames consist mostly
/// of these.
#[inline]
fn unsigned(field: &[u8]) -> Option<u64> {
    Some(match *field {
        [code::UINT_0 | code::ULONG_0] => 0,
        [code::UBYTE | code::SMALL_UINT | code::SMALL_ULONG, number] => u64::from(number),
        [code::USHORT, a, b] => u64::from(u16::from_be_bytes([a, b])),
        [code::UINT, a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
        [code::ULONG, ref number @ ..] => u64::from_be_bytes(number.try_into().ok()?),
        _ => return None,
    })
}
