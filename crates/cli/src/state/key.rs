//! Keys, which may be any bytes, as text on the command line.

use anyhow::{Context as _, bail};
use data_encoding::{BASE64, HEXUPPER, HEXUPPER_PERMISSIVE};

/// Notation of keys on the command line and on standard output
#[derive(clap::Args, Clone, Copy, Default)]
pub struct Notation {
    /// Keys are in hexadecimal digits
    #[arg(long, conflicts_with = "base64")]
    hex: bool,
    /// Keys are in Base64
    #[arg(long)]
    base64: bool,
}

impl Notation {
    /// Decodes a key in this notation.
    pub fn read(self, text: &str) -> anyhow::Result<Vec<u8>> {
        let key = if self.hex {
            HEXUPPER_PERMISSIVE.decode(text.as_bytes())
        } else if self.base64 {
            BASE64.decode(text.as_bytes())
        } else {
            Ok(text.as_bytes().to_vec())
        };
        let key = key.with_context(|| {
            format!("`{text}` is not {}", if self.hex { "hexadecimal" } else { "Base64" })
        })?;
        if key.is_empty() {
            bail!("a key has at least one byte");
        }
        Ok(key)
    }

    /// Encodes a key in this notation. Without an option the key is unchanged.
    pub fn write(self, key: &[u8]) -> Vec<u8> {
        if self.hex {
            HEXUPPER.encode(key).into_bytes()
        } else if self.base64 {
            BASE64.encode(key).into_bytes()
        } else {
            key.to_vec()
        }
    }
}

/// Formats a key, or any other bytes, for use in a sentence.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("`{}`", text.escape_debug()),
        Err(_) => format!("0x{}", HEXUPPER.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Notation = Notation { hex: false, base64: false };
    const HEX: Notation = Notation { hex: true, base64: false };
    const BASE64: Notation = Notation { hex: false, base64: true };

    #[test]
    fn read_and_written() {
        for (notation, text, key) in [
            (TEXT, "SOMEKEY", &b"SOMEKEY"[..]),
            (TEXT, "ü", "ü".as_bytes()),
            (HEX, "00FF0A", b"\0\xFF\n"),
            (BASE64, "AP8K", b"\0\xFF\n"),
        ] {
            assert_eq!(notation.read(text).unwrap(), key);
            assert_eq!(notation.write(key), text.as_bytes());
        }
        assert_eq!(HEX.read("00ff0a").unwrap(), b"\0\xFF\n");
    }

    #[test]
    fn mistakes() {
        for (notation, text, expected) in [
            (TEXT, "", "at least one byte"),
            (HEX, "", "at least one byte"),
            (HEX, "0", "is not hexadecimal"),
            (HEX, "0g", "is not hexadecimal"),
            (BASE64, "AP8", "is not Base64"),
        ] {
            let error = format!("{:#}", notation.read(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn in_a_sentence() {
        assert_eq!(shown(b"a/b"), "`a/b`");
        assert_eq!(shown(b"a\n\x1B"), r"`a\n\u{1b}`");
        assert_eq!(shown(b"\xFF\0"), "0xFF00");
    }
}
