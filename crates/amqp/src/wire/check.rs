use super::{Malformed, code};

/// How deep values of frames may be nested; what clients send has a depth of three or four.
pub const MAX_DEPTH: usize = 16;

/// How many descriptors may stand before one value.
const MAX_DESCRIPTORS: usize = 4;

/// The length of the value at the front of `bytes`, none of which is nested deeper than `depth`.
///
/// What passes can be read without harm: every length lies within its parent, every text is UTF-8,
/// and no list, map or array claims more elements than it has bytes, so that nothing is allocated for
/// a count alone.
pub fn check(bytes: &[u8], depth: usize) -> Result<usize, Malformed> {
    let (at, code) = constructor(bytes)?;
    Ok(at + check_data(code, &bytes[at..], depth)?)
}

/// The length of the value at the front of `bytes`, of which only the outside is looked at.
pub(super) fn length(bytes: &[u8]) -> Result<usize, Malformed> {
    let (at, code) = constructor(bytes)?;
    Ok(at + split(code, &bytes[at..])?.0)
}

/// Where the data of a value begins, and of which type they are: behind its descriptors.
pub(super) fn constructor(bytes: &[u8]) -> Result<(usize, u8), Malformed> {
    let mut at = 0;
    for _ in 0..=MAX_DESCRIPTORS {
        match *bytes.get(at).ok_or(Malformed("value: it is cut off"))? {
            code::DESCRIBED => {
                let code = *bytes.get(at + 1).ok_or(Malformed("descriptor"))?;
                at += 2;
                match code {
                    code::ULONG_0
                    | code::ULONG_8
                    | code::ULONG
                    | code::SYMBOL_8
                    | code::SYMBOL_32 => at += check_data(code, &bytes[at..], 0)?,
                    _ => return Err(Malformed("descriptor: neither ulong nor symbol")),
                }
            }
            code => return Ok((at + 1, code)),
        }
    }
    Err(Malformed("value: described too often"))
}

/// How long the data of a value are, its size field included, and what lies behind that field.
pub(super) fn split(code: u8, data: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    const CUT: Malformed = Malformed("value: it is cut off");
    let (prefix, size) = match code >> 4 {
        0x4 => (0, 0),
        fixed @ 0x5..=0x9 => (0, 1 << (fixed - 5)),
        0xA | 0xC | 0xE => (1, usize::from(*data.first().ok_or(CUT)?)),
        0xB | 0xD | 0xF => (4, number(data).ok_or(CUT)? as usize),
        _ => return Err(Malformed("value: unknown type")),
    };
    let inside = data.get(prefix..).and_then(|data| data.get(..size)).ok_or(CUT)?;
    Ok((prefix + size, inside))
}

/// The count of a compound value or array, and what lies behind it.
pub(super) fn count(code: u8, inside: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    const CUT: Malformed = Malformed("compound value: no count");
    let (count, items) = match code >> 4 {
        0xC | 0xE => (usize::from(*inside.first().ok_or(CUT)?), &inside[1..]),
        _ => (number(inside).ok_or(CUT)? as usize, &inside[4..]),
    };
    if count > items.len() {
        return Err(Malformed("compound value: more elements than bytes"));
    }
    Ok((count, items))
}

fn check_data(code: u8, data: &[u8], depth: usize) -> Result<usize, Malformed> {
    let (length, inside) = split(code, data)?;
    match code {
        code::NULL | code::TRUE | code::FALSE | code::UINT_0 | code::ULONG_0 | code::LIST_0 => {}
        // Numbers and other types of a fixed width (1.6).
        0x50..=0x56 | 0x60 | 0x61 | 0x70..=0x74 | 0x80..=0x84 | 0x94 | 0x98 => {}
        code::BINARY_8 | code::BINARY_32 => {}
        code::STRING_8 | code::STRING_32 | code::SYMBOL_8 | code::SYMBOL_32 => {
            std::str::from_utf8(inside).map_err(|_| Malformed("text: no UTF-8"))?;
        }
        code::LIST_8 | code::LIST_32 | code::MAP_8 | code::MAP_32 => {
            let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
            let (count, mut items) = count(code, inside)?;
            if matches!(code, code::MAP_8 | code::MAP_32) && count % 2 != 0 {
                return Err(Malformed("map: a key without a value"));
            }
            for _ in 0..count {
                items = &items[check(items, depth)?..];
            }
            whole(items)?;
        }
        code::ARRAY_8 | code::ARRAY_32 => {
            let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
            let (count, items) = count(code, inside)?;
            if items.is_empty() {
                // Some write an empty array without a constructor.
                return Ok(length);
            }
            let (at, element) = constructor(items)?;
            let mut items = &items[at..];
            for _ in 0..count {
                items = &items[check_data(element, items, depth)?..];
            }
            whole(items)?;
        }
        _ => return Err(Malformed("value: unknown type")),
    }
    Ok(length)
}

const TOO_DEEP: Malformed = Malformed("value: nested too deep");

fn whole(rest: &[u8]) -> Result<(), Malformed> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Malformed("compound value: bytes behind its elements"))
    }
}

fn number(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
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
            assert_eq!(check(bytes, MAX_DEPTH), Ok(bytes.len()), "{bytes:02x?}");
            assert_eq!(length(bytes), Ok(bytes.len()), "{bytes:02x?}");
        }
    }

    #[test]
    fn what_would_harm_does_not() {
        let nested = |depth: usize| {
            let mut bytes = vec![0x45];
            for _ in 0..depth {
                bytes.splice(..0, [0xC0, bytes.len() as u8 + 1, 1]);
            }
            bytes
        };
        assert!(check(&nested(MAX_DEPTH), MAX_DEPTH).is_ok());
        for bytes in [
            &[][..],
            &[0x00; 64],
            &[0xF0, 0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x40],
            &[0xD0, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0xD0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1],
            &[0xC1, 0x02, 0x01, 0x40],
            &[0xC0, 0x03, 0x01, 0x40, 0x40],
            &[0xA1, 0x01, 0xFF],
            &[0x4F],
            &nested(MAX_DEPTH + 1),
        ] {
            assert!(check(bytes, MAX_DEPTH).is_err(), "{bytes:02x?}");
        }
    }
}
