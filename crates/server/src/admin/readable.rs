//! Bytes of clients in answers, which are JSON: a member with text, or one with Base64.

use data_encoding::BASE64;

/// Bytes as JSON can have them.
#[derive(Debug)]
pub struct Readable {
    /// The bytes, if they are UTF-8.
    pub text: Option<String>,
    /// The bytes in Base64, if they are not.
    pub base64: Option<String>,
}

impl Readable {
    /// Returns the bytes.
    pub fn whole(bytes: &[u8]) -> Self {
        Self::beginning(bytes, usize::MAX).0
    }

    /// Returns the beginning of the bytes, at most `most` of them, and whether there are more. Text that is cut within
    /// a character ends before it.
    pub fn beginning(bytes: &[u8], most: usize) -> (Self, bool) {
        let is_cut = bytes.len() > most;
        let beginning = &bytes[..bytes.len().min(most)];
        let readable = match std::str::from_utf8(beginning) {
            Ok(text) => Self::of_text(text.into()),
            Err(error) if is_cut && error.error_len().is_none() => {
                Self::of_text(String::from_utf8_lossy(&beginning[..error.valid_up_to()]).into())
            }
            Err(_) => Self { text: None, base64: Some(BASE64.encode(beginning)) },
        };
        (readable, is_cut)
    }

    fn of_text(text: String) -> Self {
        Self { text: Some(text), base64: None }
    }
}
