//! Where a value ends: part 1 of the specification of AMQP 1.0.

/// Values may be nested so deeply.
pub(super) const DEPTH_MAX: u32 = 32;

/// An array of values that take no bytes may have so many.
const BODILESS_MAX: u32 = 1_024;

/// Why bytes are no message.
#[derive(thiserror::Error, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A value goes on where its bytes end.
    #[error("a value is longer than its bytes")]
    Truncated,
    /// There is no type with this constructor.
    #[error("there is no type {0:#04x}")]
    Type(u8),
    /// A list, map or array is not as long as it says.
    #[error("a list, map or array has another length than it says")]
    Length,
    /// Values in values in values.
    #[error("values are nested more than {DEPTH_MAX} deep")]
    Depth,
    /// Text that is not UTF-8, or a character that does not exist.
    #[error("a string is not UTF-8")]
    Text,
    /// Something else than a section.
    #[error("there is something between the sections of a message")]
    NotASection,
    /// Sections come in a fixed order, and most of them once.
    #[error("the sections of a message are in the wrong order")]
    Order,
    /// A section holds another type than it must.
    #[error("a section of a message has the wrong type")]
    Section,
}

/// The constructors that have to be known by name.
pub(super) mod code {
    pub const DESCRIBED: u8 = 0x00;
    pub const NULL: u8 = 0x40;
    pub const TRUE: u8 = 0x41;
    pub const FALSE: u8 = 0x42;
    pub const UINT_0: u8 = 0x43;
    pub const ULONG_0: u8 = 0x44;
    pub const LIST_0: u8 = 0x45;
    pub const UBYTE: u8 = 0x50;
    pub const BYTE: u8 = 0x51;
    pub const SMALL_UINT: u8 = 0x52;
    pub const SMALL_ULONG: u8 = 0x53;
    pub const SMALL_INT: u8 = 0x54;
    pub const SMALL_LONG: u8 = 0x55;
    pub const BOOLEAN: u8 = 0x56;
    pub const USHORT: u8 = 0x60;
    pub const SHORT: u8 = 0x61;
    pub const UINT: u8 = 0x70;
    pub const INT: u8 = 0x71;
    pub const FLOAT: u8 = 0x72;
    pub const CHAR: u8 = 0x73;
    pub const DECIMAL_32: u8 = 0x74;
    pub const ULONG: u8 = 0x80;
    pub const LONG: u8 = 0x81;
    pub const DOUBLE: u8 = 0x82;
    pub const TIMESTAMP: u8 = 0x83;
    pub const DECIMAL_64: u8 = 0x84;
    pub const DECIMAL_128: u8 = 0x94;
    pub const UUID: u8 = 0x98;
    pub const BINARY_8: u8 = 0xa0;
    pub const STRING_8: u8 = 0xa1;
    pub const SYMBOL_8: u8 = 0xa3;
    pub const BINARY_32: u8 = 0xb0;
    pub const STRING_32: u8 = 0xb1;
    pub const SYMBOL_32: u8 = 0xb3;
    pub const LIST_8: u8 = 0xc0;
    pub const MAP_8: u8 = 0xc1;
    pub const LIST_32: u8 = 0xd0;
    pub const MAP_32: u8 = 0xd1;
    pub const ARRAY_8: u8 = 0xe0;
    pub const ARRAY_32: u8 = 0xf0;
}

/// Bytes of the first value, its constructor included. What is in it is not looked at.
#[inline]
pub(super) fn value_len(bytes: &[u8]) -> Result<usize, Malformed> {
    let (&constructor, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
    if constructor == code::DESCRIBED {
        return described_len(bytes, DEPTH_MAX);
    }
    Ok(1 + data_len(constructor, rest)?)
}

#[cold]
fn described_len(bytes: &[u8], depth: u32) -> Result<usize, Malformed> {
    if bytes.first() != Some(&code::DESCRIBED) {
        return value_len(bytes);
    }
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    let descriptor = 1 + described_len(&bytes[1..], depth)?;
    Ok(descriptor + described_len(&bytes[descriptor..], depth)?)
}

/// Bytes of a value after its constructor, of which the upper half tells them.
#[inline]
pub(super) fn data_len(constructor: u8, data: &[u8]) -> Result<usize, Malformed> {
    let len = match constructor >> 4 {
        0x4 => 0,
        0x5 => 1,
        0x6 => 2,
        0x7 => 4,
        0x8 => 8,
        0x9 => 16,
        0xa | 0xc | 0xe => 1 + usize::from(*data.first().ok_or(Malformed::Truncated)?),
        0xb | 0xd | 0xf => {
            let size = data.first_chunk().ok_or(Malformed::Truncated)?;
            4usize.saturating_add(u32::from_be_bytes(*size) as usize)
        }
        _ => return Err(Malformed::Type(constructor)),
    };
    if len > data.len() { Err(Malformed::Truncated) } else { Ok(len) }
}

/// The first value and what follows it.
#[inline]
pub(super) fn split_value(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    Ok(bytes.split_at(value_len(bytes)?))
}

/// What a list, map or array has in it: after their size comes their count, each in one byte or in four.
#[inline]
pub(super) fn compound(constructor: u8, data: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    if constructor & 0x10 == 0 {
        let (count, items) =
            data.get(1..).and_then(<[u8]>::split_first).ok_or(Malformed::Length)?;
        Ok((u32::from(*count), items))
    } else {
        let (count, items) =
            data.get(4..).and_then(<[u8]>::split_first_chunk).ok_or(Malformed::Length)?;
        Ok((u32::from_be_bytes(*count), items))
    }
}

/// Bytes of the first value, which is well-formed all through.
pub(super) fn checked_len(bytes: &[u8]) -> Result<usize, Malformed> {
    checked_value(bytes, DEPTH_MAX)
}

fn checked_value(bytes: &[u8], depth: u32) -> Result<usize, Malformed> {
    let (&constructor, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
    if constructor == code::DESCRIBED {
        let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
        let descriptor = 1 + checked_value(rest, depth)?;
        return Ok(descriptor + checked_value(&bytes[descriptor..], depth)?);
    }
    Ok(1 + checked_data(constructor, rest, depth)?)
}

/// Bytes after a constructor.
fn checked_data(constructor: u8, rest: &[u8], depth: u32) -> Result<usize, Malformed> {
    use code::*;
    let len = data_len(constructor, rest)?;
    let data = &rest[..len];
    let text = |prefix: usize| std::str::from_utf8(&data[prefix..]).map_err(|_| Malformed::Text);
    match constructor {
        NULL..=ULONG_0 | UBYTE..=SMALL_LONG | USHORT | SHORT | UINT..=FLOAT | DECIMAL_32 => {}
        ULONG..=DECIMAL_64 | DECIMAL_128 | UUID | BINARY_8 | BINARY_32 | LIST_0 => {}
        BOOLEAN if data[0] <= 1 => {}
        CHAR => {
            let number = data.first_chunk().map_or(u32::MAX, |chunk| u32::from_be_bytes(*chunk));
            char::from_u32(number).ok_or(Malformed::Text)?;
        }
        STRING_8 | SYMBOL_8 => drop(text(1)?),
        STRING_32 | SYMBOL_32 => drop(text(4)?),
        LIST_8 | LIST_32 | MAP_8 | MAP_32 => {
            let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
            let (count, mut items) = compound(constructor, data)?;
            for _ in 0..count {
                items = &items[checked_value(items, depth)?..];
            }
            let is_map = constructor & 0x0f == 1;
            if !items.is_empty() || (is_map && count % 2 == 1) {
                return Err(Malformed::Length);
            }
        }
        ARRAY_8 | ARRAY_32 => checked_array(compound(constructor, data)?, depth)?,
        _ => return Err(Malformed::Type(constructor)),
    }
    Ok(len)
}

fn checked_array((count, items): (u32, &[u8]), depth: u32) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::Depth)?;
    if count == 0 && items.is_empty() {
        // Some encoders leave out the type of nothing.
        return Ok(());
    }
    let constructor_len = array_constructor_len(items)?;
    let constructor = items[constructor_len - 1];
    let mut items = &items[constructor_len..];
    if constructor >> 4 == 0x4 && count > BODILESS_MAX {
        return Err(Malformed::Length);
    }
    for _ in 0..count {
        items = &items[checked_data(constructor, items, depth)?..];
    }
    if items.is_empty() { Ok(()) } else { Err(Malformed::Length) }
}

/// The constructor that all elements have: one byte, or a descriptor before it.
pub(super) fn array_constructor_len(items: &[u8]) -> Result<usize, Malformed> {
    let mut len = 0;
    for _ in 0..DEPTH_MAX {
        match items.get(len) {
            Some(&code::DESCRIBED) => len += 1 + checked_len(&items[len + 1..])?,
            Some(_) => return Ok(len + 1),
            None => return Err(Malformed::Length),
        }
    }
    Err(Malformed::Depth)
}
