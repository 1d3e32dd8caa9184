//! The part of RESP3 that the protocol uses: arrays of bulk strings, simple strings, errors and
//! integers.
//!
//! Bulk strings hold any bytes, so everything is read by length, never by line. A declared length
//! is only compared with the bytes that exist; it never determines an allocation.

/// Reads from the front of a payload. Every method returns `None` if the bytes do not conform.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// Reads the header of an array. Returns the number of elements that follow.
    #[inline]
    pub fn array(&mut self) -> Option<usize> {
        self.header(b'*')
    }

    /// Reads a bulk string.
    #[inline]
    pub fn bulk(&mut self) -> Option<&'a [u8]> {
        let len = self.header(b'$')?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest.strip_prefix(b"\r\n")?;
        Some(bytes)
    }

    /// Checks that nothing follows.
    #[inline]
    pub fn finish(self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }

    #[inline]
    fn header(&mut self, kind: u8) -> Option<usize> {
        let (first, mut rest) = self.rest.split_first()?;
        if *first != kind {
            return None;
        }
        let mut number: Option<usize> = None;
        loop {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            match byte {
                b'0'..=b'9' => {
                    let digit = usize::from(byte - b'0');
                    number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?);
                }
                b'\r' => break,
                _ => return None,
            }
        }
        self.rest = rest.strip_prefix(b"\n")?;
        number
    }
}

/// Parses a number that consists of decimal digits only.
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

pub(crate) fn push_array(out: &mut Vec<u8>, len: usize) {
    push_header(out, b'*', len as u64);
}

pub(crate) fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    push_header(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a bulk string with the digits of `number`.
pub(crate) fn push_bulk_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; MAX_DIGITS];
    push_bulk(out, decimal(number, &mut digits));
}

fn push_header(out: &mut Vec<u8>, kind: u8, number: u64) {
    let mut digits = [0; MAX_DIGITS];
    out.push(kind);
    out.extend_from_slice(decimal(number, &mut digits));
    out.extend_from_slice(b"\r\n");
}

/// Maximum number of decimal digits of a `u64`.
const MAX_DIGITS: usize = 20;

fn decimal(mut number: u64, digits: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut at = MAX_DIGITS;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        for (input, expected) in [
            ("*0\r\n", Some(0)),
            ("*6\r\n", Some(6)),
            ("*0012\r\n", Some(12)),
            ("*18446744073709551615\r\n", Some(usize::MAX)),
            ("*18446744073709551616\r\n", None),
            ("*99999999999999999999999\r\n", None),
            ("*-1\r\n", None),
            ("*+1\r\n", None),
            ("* 1\r\n", None),
            ("*1 \r\n", None),
            ("*\r\n", None),
            ("*1\n", None),
            ("*1\r", None),
            ("*1", None),
            ("*", None),
            ("", None),
            ("$1\r\n", None),
        ] {
            assert_eq!(Reader::new(input.as_bytes()).array(), expected, "{input:?}");
        }
    }

    #[test]
    fn decimals_of_both_ends() {
        for number in [0, 9, 10, u64::MAX] {
            let mut out = Vec::new();
            push_bulk_decimal(&mut out, number);
            let text = number.to_string();
            assert_eq!(out, format!("${}\r\n{text}\r\n", text.len()).into_bytes());
            assert_eq!(parse_decimal(text.as_bytes()), Some(number));
        }
        for text in ["", "-1", "+1", "1 ", "0x1", "18446744073709551616"] {
            assert_eq!(parse_decimal(text.as_bytes()), None, "{text:?}");
        }
    }
}
