//! Bytes of clients in answers, which are JSON.

use data_encoding::BASE64;

/// Bytes as JSON can have them.
#[derive(Debug)]
pub enum Readable {
    /// The bytes are UTF-8.
    Text(String),
    /// They are not, and are written in Base64.
    Base64(String),
}

impl Readable {
    /// Returns the beginning of the bytes, at most `most` of them, and whether there are more. Text that is cut within
    /// a character ends before it.
    pub fn beginning(bytes: &[u8], most: usize) -> (Self, bool) {
        let is_cut = bytes.len() > most;
        let beginning = &bytes[..bytes.len().min(most)];
        let readable = match std::str::from_utf8(beginning) {
            Ok(text) => Self::Text(text.into()),
            Err(error) if is_cut && error.error_len().is_none() => {
                Self::Text(String::from_utf8_lossy(&beginning[..error.valid_up_to()]).into())
            }
            Err(_) => Self::Base64(BASE64.encode(beginning)),
        };
        (readable, is_cut)
    }
}
