//! Ids as text.

use std::borrow::Cow;

use crate::wire::ValueRef;

/// Returns a message id or correlation id as text, the same whatever type a peer gives it: a string as
/// it is, a UUID with hyphens, a number in decimal, binary data in hexadecimal. `None` for other
/// types.
pub fn id_text(id: ValueRef<'_>) -> Option<Cow<'_, str>> {
    match id {
        ValueRef::String(text) | ValueRef::Symbol(text) => Some(text.into()),
        ValueRef::Uuid(uuid) => {
            let hex = |range: std::ops::Range<usize>| hex(&uuid[range]);
            let groups = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
            Some(groups.join("-").into())
        }
        ValueRef::Binary(bytes) => Some(hex(bytes).into()),
        other => Some(other.integer()?.to_string().into()),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
