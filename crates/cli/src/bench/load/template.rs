//! Requests that are encoded once and sent many times.

use anyhow::Context as _;

use super::mix::Verb;

/// Encoded request, in which the digits of the key are filled in.
pub struct Template {
    bytes: Vec<u8>,
    digits_at: usize,
}

/// Key in a [`Template`]; all keys have this length.
pub const KEY: &[u8] = b"key:0000000000";
const KEY_DIGITS: usize = 10;

impl Template {
    /// Creates the template of a request for [`KEY`].
    pub fn new(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let digits_at = find(&bytes, KEY)? + KEY.len() - KEY_DIGITS;
        Ok(Self { bytes, digits_at })
    }

    /// Returns the first position of `bytes`.
    pub fn find(&self, bytes: &[u8]) -> anyhow::Result<usize> {
        find(&self.bytes, bytes)
    }

    /// Replaces the bytes at a position, for all later requests.
    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Appends the request for a key, and returns the appended bytes.
    pub fn append<'a>(&self, key: u32, output: &'a mut Vec<u8>) -> &'a mut [u8] {
        let start = output.len();
        output.extend_from_slice(&self.bytes);
        let request = &mut output[start..];
        put_decimal(&mut request[self.digits_at..self.digits_at + KEY_DIGITS], key.into());
        request
    }
}

/// Fills `digits` with a number in decimal, with leading zeros.
pub fn put_decimal(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// One request of each verb.
pub struct Templates<T> {
    pub set: T,
    pub get: T,
}

impl<T> Templates<T> {
    pub fn of(&self, verb: Verb) -> &T {
        match verb {
            Verb::Set => &self.set,
            Verb::Get => &self.get,
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> anyhow::Result<usize> {
    let found = bytes.windows(wanted.len()).position(|window| window == wanted);
    found.context("the request template lacks a field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_appended_with_its_key() {
        let template = Template::new([b"GET ", KEY, b"\r\n"].concat()).unwrap();
        let mut output = b"before ".to_vec();
        template.append(4_294_967_295, &mut output)[..3].copy_from_slice(b"SET");
        assert_eq!(output, b"before SET key:4294967295\r\n");
    }
}
