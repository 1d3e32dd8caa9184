//! The data types of section 1.5: bounds-checked reading, and appending.

use crate::{DecodeError, EncodeError};

/// The largest value of a Variable Byte Integer.
pub const MAX_VARINT: u32 = 268_435_455;

/// Reads fields one after the other from a slice, and borrows from it.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { left: bytes }
    }

    /// Number of bytes that have not been read.
    #[inline]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Whether all bytes have been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Reads the next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(n).ok_or(DecodeError::Truncated)?;
        self.left = left;
        Ok(taken)
    }

    /// Reads all remaining bytes.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a Two Byte Integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a Four Byte Integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a Variable Byte Integer, which must be in its shortest form (MQTT-1.5.5-1).
    #[inline]
    pub fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for i in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << (7 * i);
            if byte & 0x80 == 0 {
                let padded = byte == 0 && i > 0;
                return if padded { Err(DecodeError::VariableByteInteger) } else { Ok(value) };
            }
        }
        Err(DecodeError::VariableByteInteger)
    }

    /// Reads Binary Data: a length of two bytes, and as many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// Reads a UTF-8 Encoded String, which must not have U+0000 (MQTT-1.5.4-1, MQTT-1.5.4-2).
    #[inline]
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        let string = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8)?;
        let has_nul = !is_ascii_without_nul(bytes) && bytes.contains(&0);
        if has_nul { Err(DecodeError::NulInString) } else { Ok(string) }
    }

    /// Skips a UTF-8 Encoded String. Checks it as [`str`](Self::str) does, in fewer instructions.
    #[inline]
    pub fn skip_str(&mut self) -> Result<(), DecodeError> {
        let string = *self;
        if is_ascii_without_nul(self.bytes()?) {
            return Ok(());
        }
        *self = string;
        self.str().map(drop)
    }

    /// Checks that all bytes have been read.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.left = left;
        Ok(*taken)
    }
}

/// Whether all bytes are ASCII characters other than NUL. Names and values of properties nearly always are, and most are
/// short: eight bytes are looked at together. May return false for a string that has a NUL.
#[inline]
fn is_ascii_without_nul(bytes: &[u8]) -> bool {
    /// Whether a byte of the word is NUL or not ASCII: the highest bit of a byte is set in the word itself if it is not
    /// ASCII, and after subtracting 1 if it is NUL.
    fn has_other(word: [u8; 8]) -> bool {
        const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
        const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
        let word = u64::from_ne_bytes(word);
        (word | word.wrapping_sub(ONES)) & HIGH != 0
    }
    let (words, rest) = bytes.as_chunks::<8>();
    if words.iter().any(|word| has_other(*word)) {
        return false;
    }
    match bytes.last_chunk::<8>() {
        // Overlaps the last whole word.
        Some(last) => !has_other(*last),
        None => rest.iter().all(|byte| (0x01..0x80).contains(byte)),
    }
}

/// Appends a Two Byte Integer.
#[inline]
pub fn put_u16(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a Four Byte Integer.
#[inline]
pub fn put_u32(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a Variable Byte Integer; `value` must be at most [`MAX_VARINT`].
#[inline]
pub fn put_varint(mut value: u32, out: &mut Vec<u8>) {
    debug_assert!(value <= MAX_VARINT);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number of bytes that [`put_varint`] appends for `value`.
#[inline]
pub fn varint_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends Binary Data.
///
/// # Errors
/// [`EncodeError::FieldTooLong`] above 65,535 bytes.
#[inline]
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)?;
    put_u16(len, out);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends a UTF-8 Encoded String. The caller must ensure that it has no U+0000.
///
/// # Errors
/// [`EncodeError::FieldTooLong`] above 65,535 bytes.
#[inline]
pub fn put_str(string: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    put_bytes(string.as_bytes(), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_survive_and_have_the_length_foretold() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, MAX_VARINT] {
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out.len(), varint_len(value as usize));
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn skipping_a_string_finds_what_reading_it_finds() {
        for len in 0..40 {
            for at in 0..len.max(1) {
                for byte in [0, 1, b'a', 0x7F, 0x80, 0xC3, 0xFF] {
                    let mut bytes = vec![0, len as u8];
                    bytes.extend(std::iter::repeat_n(b'x', len));
                    if let Some(changed) = bytes.get_mut(2 + at) {
                        *changed = byte;
                    }
                    bytes.push(b'e');
                    let (mut skipped, mut read) = (Reader::new(&bytes), Reader::new(&bytes));
                    assert_eq!(skipped.skip_str(), read.str().map(drop), "{bytes:?}");
                    assert_eq!(skipped.len(), read.len());
                }
            }
        }
    }

    #[test]
    fn mqtt_1_5_5_1_varints_are_short() {
        for bytes in [&[0x80, 0x00][..], &[0xFF, 0x80, 0x00], &[0x80, 0x80, 0x80, 0x80, 0x01]] {
            assert_eq!(Reader::new(bytes).varint(), Err(DecodeError::VariableByteInteger));
        }
        assert_eq!(Reader::new(&[0x80]).varint(), Err(DecodeError::Truncated));
    }

    #[test]
    fn mqtt_1_5_4_1_surrogates_and_overlong_forms_are_no_utf_8() {
        for bytes in [&[0, 3, 0xED, 0xA0, 0x80][..], &[0, 2, 0xC0, 0x80], &[0, 1, 0xFF]] {
            assert_eq!(Reader::new(bytes).str(), Err(DecodeError::InvalidUtf8));
        }
    }

    #[test]
    fn mqtt_1_5_4_2_no_nul() {
        assert_eq!(Reader::new(&[0, 2, b'a', 0]).str(), Err(DecodeError::NulInString));
    }

    #[test]
    fn mqtt_1_5_4_3_a_byte_order_mark_is_kept() {
        assert_eq!(Reader::new(&[0, 4, 0xEF, 0xBB, 0xBF, b'a']).str(), Ok("\u{FEFF}a"));
    }

    #[test]
    fn a_length_past_the_end_is_truncated() {
        assert_eq!(Reader::new(&[0, 2, b'a']).str(), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&[0]).u16(), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&[0, 1, 2]).u32(), Err(DecodeError::Truncated));
    }

    #[test]
    fn fields_end_at_65_535_bytes() {
        let mut out = Vec::new();
        assert_eq!(put_bytes(&vec![0; 65_536], &mut out), Err(EncodeError::FieldTooLong));
        assert!(out.is_empty());
        assert_eq!(put_bytes(&vec![0; 65_535], &mut out), Ok(()));
    }
}
