use serde_amqp::Value;

use super::{MAX_DEPTH, Malformed, check, code};
use crate::Fields;

/// The fields of a composite value, read one after the other. Fields that are missing at its end are
/// null (1.4), and a null is a `None`.
#[derive(Debug, Clone)]
pub struct List<'a> {
    left: usize,
    items: &'a [u8],
}

impl<'a> List<'a> {
    /// The list at the front of `bytes`, and what lies behind it.
    pub fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (&code, data) = bytes.split_first().ok_or(Malformed("list: it is cut off"))?;
        match code {
            code::LIST_0 => Ok((Self { left: 0, items: &[] }, data)),
            code::LIST_8 | code::LIST_32 => {
                let (length, inside) = check::split(code, data)?;
                let (left, items) = check::count(code, inside)?;
                Ok((Self { left, items }, &data[length..]))
            }
            _ => Err(Malformed("list: another type")),
        }
    }

    /// The next field as it is encoded.
    pub fn raw(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let (field, rest) = match self.items {
            [code::NULL, rest @ ..] => (None, rest),
            items => {
                let (field, rest) = items.split_at(check::length(items)?);
                (Some(field), rest)
            }
        };
        self.items = rest;
        Ok(field)
    }

    /// Whether there are fields that have not been read.
    pub fn has_more(&self) -> bool {
        self.left > 0
    }

    /// A boolean.
    pub fn boolean(&mut self) -> Result<Option<bool>, Malformed> {
        self.raw()?
            .map(|field| match field {
                [code::TRUE] | [code::BOOLEAN, 1] => Ok(true),
                [code::FALSE] | [code::BOOLEAN, 0] => Ok(false),
                _ => Err(Malformed("boolean")),
            })
            .transpose()
    }

    /// An unsigned number of any width, which must fit into 64 bits.
    pub fn ulong(&mut self) -> Result<Option<u64>, Malformed> {
        self.raw()?.map(|field| number(field).ok_or(Malformed("number"))).transpose()
    }

    /// An unsigned number of any width, which must fit into 32 bits.
    pub fn uint(&mut self) -> Result<Option<u32>, Malformed> {
        self.narrow()
    }

    /// An unsigned number of any width, which must fit into 16 bits.
    pub fn ushort(&mut self) -> Result<Option<u16>, Malformed> {
        self.narrow()
    }

    /// An unsigned number of any width, which must fit into 8 bits.
    pub fn ubyte(&mut self) -> Result<Option<u8>, Malformed> {
        self.narrow()
    }

    /// A string or a symbol.
    pub fn text(&mut self) -> Result<Option<&'a str>, Malformed> {
        self.raw()?.map(text).transpose()
    }

    /// A binary.
    pub fn binary(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        self.raw()?.map(binary).transpose()
    }

    /// A map with texts as keys; null is an empty one.
    pub fn fields(&mut self) -> Result<Fields, Malformed> {
        self.raw()?.map_or(Ok(Fields::new()), fields)
    }

    /// One symbol, or an array of them.
    pub fn symbols(&mut self) -> Result<Vec<&'a str>, Malformed> {
        self.raw()?.map_or(Ok(Vec::new()), symbols)
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Result<Option<T>, Malformed> {
        self.ulong()?
            .map(|number| T::try_from(number).map_err(|_| Malformed("number: too big")))
            .transpose()
    }
}

/// Any value, nested not deeper than [`MAX_DEPTH`].
pub fn value(bytes: &[u8]) -> Result<Value, Malformed> {
    check(bytes, MAX_DEPTH)?;
    serde_amqp::from_slice(bytes).map_err(|_| Malformed("value"))
}

/// A map whose keys are symbols or strings.
pub fn fields(bytes: &[u8]) -> Result<Fields, Malformed> {
    let (&code, data) = bytes.split_first().ok_or(Malformed("map: it is cut off"))?;
    if !matches!(code, code::MAP_8 | code::MAP_32) {
        return Err(Malformed("map: another type"));
    }
    let (count, mut items) = check::count(code, check::split(code, data)?.1)?;
    let mut fields = Fields::new();
    for _ in 0..count / 2 {
        let (key, rest) = items.split_at(check::length(items)?);
        let (item, rest) = rest.split_at(check::length(rest)?);
        fields.push(text(key)?, value(item)?);
        items = rest;
    }
    Ok(fields)
}

pub(super) fn number(field: &[u8]) -> Option<u64> {
    Some(match *field {
        [code::UINT_0 | code::ULONG_0] => 0,
        [code::UBYTE | code::UINT_8 | code::ULONG_8, number] => u64::from(number),
        [code::USHORT, a, b] => u64::from(u16::from_be_bytes([a, b])),
        [code::UINT, a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
        [code::ULONG, ref number @ ..] => u64::from_be_bytes(number.try_into().ok()?),
        _ => return None,
    })
}

pub(crate) fn text(field: &[u8]) -> Result<&str, Malformed> {
    let inside = match *field {
        [code::STRING_8 | code::SYMBOL_8, _, ref inside @ ..] => inside,
        [code::STRING_32 | code::SYMBOL_32, _, _, _, _, ref inside @ ..] => inside,
        _ => return Err(Malformed("text: another type")),
    };
    std::str::from_utf8(inside).map_err(|_| Malformed("text: no UTF-8"))
}

fn binary(field: &[u8]) -> Result<&[u8], Malformed> {
    match *field {
        [code::BINARY_8, _, ref inside @ ..] => Ok(inside),
        [code::BINARY_32, _, _, _, _, ref inside @ ..] => Ok(inside),
        _ => Err(Malformed("binary: another type")),
    }
}

fn symbols(field: &[u8]) -> Result<Vec<&str>, Malformed> {
    let (&code, data) = field.split_first().ok_or(Malformed("array: it is cut off"))?;
    if !matches!(code, code::ARRAY_8 | code::ARRAY_32) {
        return text(field).map(|symbol| vec![symbol]);
    }
    check(field, 1)?;
    let (count, items) = check::count(code, check::split(code, data)?.1)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let (at, element) = check::constructor(items)?;
    if !matches!(element, code::SYMBOL_8 | code::SYMBOL_32 | code::STRING_8 | code::STRING_32) {
        return Err(Malformed("array: not of symbols"));
    }
    let mut items = &items[at..];
    (0..count)
        .map(|_| {
            let (length, inside) = check::split(element, items)?;
            items = &items[length..];
            std::str::from_utf8(inside).map_err(|_| Malformed("text: no UTF-8"))
        })
        .collect()
}
