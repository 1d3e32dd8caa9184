//! Integers and texts, as all frames contain them. Integers are big-endian.

use crate::error::FrameError;

/// Reads the fields of a frame from its front.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(FrameError::CutOff)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(FrameError::CutOff)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Value),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, FrameError> {
        let len = usize::from(self.u16()?);
        std::str::from_utf8(self.take(len)?).map_err(|_| FrameError::NotText)
    }

    /// Takes everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// # Errors
    /// Something is left.
    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::TooLong) }
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a text with its length.
///
/// # Panics
/// Panics if the text is longer than 65,535 bytes. No name, topic filter or address is.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u16(out, u16::try_from(text.len()).expect("texts of links are shorter than 64 KiB"));
    out.extend_from_slice(text.as_bytes());
}
