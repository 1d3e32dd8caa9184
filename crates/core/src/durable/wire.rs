//! Reading and writing of the pieces of records and keys, with bounds checks.
//!
//! A *varint* is an unsigned integer, seven bits a byte, the lowest first, in its shortest form. A
//! *string* is its length in bytes as a varint, followed by that many bytes of UTF-8.

use super::records::RecordError;

/// Reads pieces from the front of a slice, one after the other, and borrows from it.
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], RecordError> {
        let (taken, left) = self.left.split_at_checked(n).ok_or(TRUNCATED)?;
        self.left = left;
        Ok(taken)
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub fn u8(&mut self) -> Result<u8, RecordError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16_be(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u64_be(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn u128_be(&mut self) -> Result<u128, RecordError> {
        self.array().map(u128::from_be_bytes)
    }

    pub fn varint(&mut self) -> Result<u64, RecordError> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let overflows = value >> shift != bits;
                let is_padded = byte == 0 && shift > 0;
                return if overflows || is_padded { Err(INTEGER) } else { Ok(value) };
            }
        }
        Err(INTEGER)
    }

    /// Reads a varint that must fit into a smaller type.
    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, RecordError> {
        T::try_from(self.varint()?).map_err(|_| INTEGER)
    }

    pub fn str(&mut self) -> Result<&'a str, RecordError> {
        let len = self.narrow()?;
        utf8(self.take(len)?)
    }

    /// Checks that no bytes remain.
    pub fn finish(&self) -> Result<(), RecordError> {
        if self.left.is_empty() { Ok(()) } else { Err(RecordError::Malformed("it is too long")) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(TRUNCATED)?;
        self.left = left;
        Ok(*taken)
    }
}

const TRUNCATED: RecordError = RecordError::Malformed("it is too short");
const INTEGER: RecordError = RecordError::Malformed("an integer is out of range");

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, RecordError> {
    std::str::from_utf8(bytes).map_err(|_| RecordError::Malformed("a string is not UTF-8"))
}

pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_str(text: &str, out: &mut Vec<u8>) {
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Returns `bit` if `condition` holds, else 0; for composing flags.
pub(super) fn flag(condition: bool, bit: u8) -> u8 {
    if condition { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<u64, RecordError> {
        let mut reader = Reader::new(bytes);
        let value = reader.varint()?;
        reader.finish().map(|()| value)
    }

    #[test]
    fn every_varint_has_one_form() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(read(&bytes), Ok(value));
        }
        assert_eq!(read(&[0x80, 0x00]), Err(INTEGER), "padded");
        assert_eq!(read(&[0xFF; 10]), Err(INTEGER), "without an end");
        assert_eq!(
            read(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02]),
            Err(INTEGER)
        );
        assert_eq!(read(&[0x80]), Err(TRUNCATED));
    }

    #[test]
    fn a_declared_length_is_not_believed() {
        let mut bytes = Vec::new();
        put_varint(u64::MAX, &mut bytes);
        assert!(Reader::new(&bytes).str().is_err());
    }
}
