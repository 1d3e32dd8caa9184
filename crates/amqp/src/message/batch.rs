//! Batches: many messages in one transfer.

use super::sections::{Kind, section};
use crate::wire::{Malformed, ValueRef};

/// Message format of a batch.
pub const BATCH: u32 = 0x8001_3700;

/// Returns the messages in a batch: each data section holds one. All other sections are ignored.
pub fn batch(envelope: &[u8]) -> Batch<'_> {
    Batch(envelope)
}

/// Iterator over the messages of a batch; ends after the first that is not well-formed.
#[derive(Clone, Debug)]
pub struct Batch<'a>(&'a [u8]);

impl<'a> Iterator for Batch<'a> {
    type Item = Result<&'a [u8], Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.step() {
                Ok(None) => {}
                Ok(Some(message)) => return Some(Ok(message)),
                Err(malformed) => {
                    self.0 = &[];
                    return Some(Err(malformed));
                }
            }
        }
        None
    }
}

impl<'a> Batch<'a> {
    /// Reads the next section and returns the message in it; `None` if the section is not a data
    /// section.
    fn step(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let (kind, value) = section(self.0)?;
        let (value, rest) = ValueRef::read(value)?;
        self.0 = rest;
        match kind {
            Kind::Data => value.binary().map(Some).ok_or(Malformed::Section),
            Kind::Sequence | Kind::Value => Err(Malformed::Section),
            _ => Ok(None),
        }
    }
}
