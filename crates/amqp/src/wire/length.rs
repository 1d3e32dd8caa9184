//! Lengths of encoded values.

use super::{DEPTH_MAX, Malformed, code};

/// Maximum number of elements in an array whose elements take no bytes. A longer array is refused:
/// otherwise a few bytes could stand for billions of values.
const BODILESS_MAX: u32 = 1_024;

/// Returns the length of the first value in bytes, its constructor included. The contents are not
/// checked.
#[inline]
pub(crate) fn value_len(bytes: &[u8]) -> Result<usize, Malformed> {
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

/// Returns the length of a value in bytes, without its constructor. The upper half of the constructor
/// determines it.
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

/// Splits off the first value.
#[inline]
pub(crate) fn split_value(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    Ok(bytes.split_at(value_len(bytes)?))
}

/// Returns the count and the items of a list, map or array. Its size and count take one byte each, or
/// four.
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

/// Returns the length of the first value in bytes, after checking that all of it is well-formed.
pub(crate) fn checked_len(bytes: &[u8]) -> Result<usize, Malformed> {
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

/// Checks the bytes after a constructor, and returns their length.
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
        // Some encoders leave out the constructor of an empty array.
        return Ok(());
    }
    let (constructor, mut items) = items.split_at(constructor_len(items)?);
    let constructor = constructor[constructor.len() - 1];
    if constructor >> 4 == 0x4 && count > BODILESS_MAX {
        return Err(Malformed::Length);
    }
    for _ in 0..count {
        items = &items[checked_data(constructor, items, depth)?..];
    }
    if items.is_empty() { Ok(()) } else { Err(Malformed::Length) }
}

/// Returns the length in bytes of the constructor of a value or of an array's elements: one byte, and a
/// descriptor before it if there is one.
pub(crate) fn constructor_len(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut len = 0;
    for _ in 0..DEPTH_MAX {
        match bytes.get(len) {
            Some(&code::DESCRIBED) => len += 1 + checked_len(&bytes[len + 1..])?,
            Some(_) => return Ok(len + 1),
            None => return Err(Malformed::Length),
        }
    }
    Err(Malformed::Depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_passes() {
        for bytes in [
            &[0x40][..],
            &[0x00, 0x53, 0x24, 0x45],
            &[0xC1, 0x05, 0x02, 0xA3, 0x01, b'k', 0x40],
            &[0xE0, 0x06, 0x02, 0xA3, 0x01, b'a', 0x01, b'b'],
            &[0xE0, 0x01, 0x00],
            &[0xD0, 0, 0, 0, 5, 0, 0, 0, 1, 0x41],
        ] {
            assert_eq!(checked_len(bytes), Ok(bytes.len()), "{bytes:02x?}");
            assert_eq!(value_len(bytes), Ok(bytes.len()), "{bytes:02x?}");
        }
    }

    #[test]
    fn what_would_harm_does_not() {
        let nested = |depth: u32| {
            let mut bytes = vec![0x45];
            for _ in 0..depth {
                bytes.splice(..0, [0xC0, bytes.len() as u8 + 1, 1]);
            }
            bytes
        };
        assert!(checked_len(&nested(DEPTH_MAX)).is_ok());
        for (bytes, why) in [
            (&[][..], Malformed::Truncated),
            (&[0x00; 64], Malformed::Depth),
            (&[0xF0, 0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x40], Malformed::Length),
            (&[0xD0, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xFF], Malformed::Truncated),
            (&[0xD0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1], Malformed::Truncated),
            (&[0xC1, 0x02, 0x01, 0x40], Malformed::Length),
            (&[0xC0, 0x03, 0x01, 0x40, 0x40], Malformed::Length),
            (&[0xA1, 0x01, 0xFF], Malformed::Text),
            (&[0x4F], Malformed::Type(0x4F)),
            (&nested(DEPTH_MAX + 1), Malformed::Depth),
        ] {
            assert_eq!(checked_len(bytes), Err(why), "{bytes:02x?}");
        }
    }
}
