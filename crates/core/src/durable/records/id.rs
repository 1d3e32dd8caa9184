//! Encoding of session ids and message ids. Most are UUIDs in hexadecimal, which take half the
//! space in binary.

use super::RecordError;
use crate::durable::wire::{Reader, put_varint, utf8};

/// A UUID in its usual form: `6ba7b810-9dad-11d1-80b4-00c04fd430c8`.
const HYPHENATED: u64 = 0;
/// A UUID without hyphens.
const SIMPLE: u64 = 1;
/// Added to the length of any other text.
const OTHER: u64 = 2;

const HYPHENATED_LEN: usize = 36;
const SIMPLE_LEN: usize = 32;
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// An id that was read.
pub(super) enum Id<'a> {
    /// A text, borrowed from the record.
    Text(&'a str),
    /// A UUID, converted to text: the buffer, and how much of it is used.
    Uuid([u8; HYPHENATED_LEN], usize),
}

impl Id<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Uuid(text, len) => {
                str::from_utf8(&text[..*len]).expect("hexadecimal digits and hyphens")
            }
        }
    }
}

/// Appends an id.
pub(super) fn put_id(id: &str, out: &mut Vec<u8>) {
    match uuid(id) {
        Some(uuid) => {
            put_varint(if id.len() == SIMPLE_LEN { SIMPLE } else { HYPHENATED }, out);
            out.extend_from_slice(&uuid);
        }
        None => {
            put_varint(id.len() as u64 + OTHER, out);
            out.extend_from_slice(id.as_bytes());
        }
    }
}

/// Reads an id.
pub(super) fn id<'a>(reader: &mut Reader<'a>) -> Result<Id<'a>, RecordError> {
    match reader.varint()? {
        HYPHENATED => Ok(write_out(reader.take(16)?, true)),
        SIMPLE => Ok(write_out(reader.take(16)?, false)),
        len => {
            let len = usize::try_from(len - OTHER).unwrap_or(usize::MAX);
            let text = utf8(reader.take(len)?)?;
            match uuid(text) {
                None => Ok(Id::Text(text)),
                Some(_) => Err(RecordError::Malformed("a UUID is written as a text")),
            }
        }
    }
}

/// Returns the bytes of a text that is a UUID in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    let hyphenated = match text.len() {
        HYPHENATED_LEN => HYPHENS.iter().all(|at| text[*at] == b'-').then_some(true)?,
        SIMPLE_LEN => false,
        _ => return None,
    };
    let mut uuid = [0; 16];
    let mut at = 0;
    for byte in &mut uuid {
        if hyphenated && HYPHENS.contains(&at) {
            at += 1;
        }
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(uuid)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn write_out(uuid: &[u8], hyphenated: bool) -> Id<'static> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; HYPHENATED_LEN];
    let mut at = 0;
    for byte in uuid {
        if hyphenated && HYPHENS.contains(&at) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xF)];
        at += 2;
    }
    Id::Uuid(text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_id(text, &mut bytes);
        bytes
    }

    #[test]
    fn every_id_has_one_form() {
        for (text, len) in [
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 17),
            ("6ba7b8109dad11d180b400c04fd430c8", 17),
            ("6BA7B810-9DAD-11D1-80B4-00C04FD430C8", 37),
            ("6ba7b8109-dad-11d1-80b4-00c04fd430c8", 37),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c-", 37),
            ("-ba7b8109dad11d180b400c04fd430c8", 33),
            ("order 7", 8),
            ("ß", 3),
            ("", 1),
        ] {
            let bytes = written(text);
            assert_eq!(bytes.len(), len, "{text:?}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(id(&mut reader).map(|id| id.as_str() == text), Ok(true), "{text:?}");
            reader.finish().expect("nothing is left");
        }
        for text in ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b8109dad11d180b400c04fd430c8"] {
            let mut bytes = vec![text.len() as u8 + 2];
            bytes.extend_from_slice(text.as_bytes());
            assert!(id(&mut Reader::new(&bytes)).is_err(), "{text} as a text");
        }
    }
}
