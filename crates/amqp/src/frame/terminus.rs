use serde_amqp::Value;

use crate::Fields;
use crate::wire::{self, List, MAX_DEPTH, Malformed, check};

const SOURCE: u64 = 0x28;
const TARGET: u64 = 0x29;
const COORDINATOR: u64 = 0x30;

const ADDRESS: usize = 0;
const DYNAMIC: usize = 4;
const FILTER: usize = 7;

/// Where the messages of a link come from or go to: a source (3.5.3), a target (3.5.4), or the
/// coordinator of transactions (4.5.1).
///
/// Its fields are kept as they are encoded, so that an answer repeats what the peer wrote byte for
/// byte, also what is unknown here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminus {
    code: u64,
    fields: Vec<Box<[u8]>>,
}

impl Terminus {
    /// The source with this address.
    pub fn source(address: &str) -> Self {
        Self { code: SOURCE, fields: Vec::new() }.with_address(address)
    }

    /// The target with this address.
    pub fn target(address: &str) -> Self {
        Self { code: TARGET, fields: Vec::new() }.with_address(address)
    }

    /// The coordinator of transactions.
    pub fn coordinator() -> Self {
        Self { code: COORDINATOR, fields: Vec::new() }
    }

    /// Whether it is no node but the coordinator of transactions.
    pub fn is_coordinator(&self) -> bool {
        self.code == COORDINATOR
    }

    /// The name of the node; `None` for one that is still to be made, and for the coordinator.
    pub fn address(&self) -> Option<&str> {
        if self.is_coordinator() {
            return None;
        }
        wire::text(self.field(ADDRESS)?).ok()
    }

    /// Whether the node is to be made for this link.
    pub fn is_dynamic(&self) -> bool {
        !self.is_coordinator() && matches!(self.field(DYNAMIC), Some([0x41] | [0x56, 1]))
    }

    /// Which messages are wanted of a source: `None` if nothing is said, not even with an empty map.
    ///
    /// A filter stands there as the peer wrote it, bare or as a [`Value::Described`].
    pub fn filter(&self) -> Option<Fields> {
        if self.code != SOURCE {
            return None;
        }
        wire::fields(self.field(FILTER)?).ok()
    }

    /// The same with another address.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        self.with_field(ADDRESS, &Value::String(address.into()))
    }

    /// The same source with another filter.
    #[must_use]
    pub fn with_filter(mut self, filter: &Fields) -> Self {
        let mut bytes = Vec::new();
        wire::map(&mut bytes, filter);
        self.put(FILTER, bytes);
        self
    }

    /// The same node, to be made for the link.
    #[must_use]
    pub fn dynamic(self) -> Self {
        self.with_field(DYNAMIC, &Value::Bool(true))
    }

    fn with_field(mut self, index: usize, value: &Value) -> Self {
        let mut bytes = Vec::new();
        wire::write_value(&mut bytes, value);
        self.put(index, bytes);
        self
    }

    fn put(&mut self, index: usize, bytes: Vec<u8>) {
        if self.fields.len() <= index {
            self.fields.resize(index + 1, Box::new([0x40]));
        }
        self.fields[index] = bytes.into();
    }

    fn field(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index).map(AsRef::as_ref).filter(|field| *field != [0x40])
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        check(bytes, MAX_DEPTH)?;
        let (code, list) = wire::described(bytes)?;
        if !matches!(code, SOURCE | TARGET | COORDINATOR) {
            return Err(Malformed("terminus: unknown"));
        }
        let (mut list, _) = List::read(list)?;
        let mut fields = Vec::new();
        while list.has_more() {
            fields.push(list.raw()?.unwrap_or(&[0x40]).into());
        }
        let terminus = Self { code, fields };
        if code == SOURCE && terminus.field(FILTER).is_some() && terminus.filter().is_none() {
            return Err(Malformed("source: filter"));
        }
        Ok(terminus)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        wire::write_descriptor(out, self.code);
        wire::list(out, |items| {
            for field in &self.fields {
                items.with(|out| out.extend_from_slice(field));
            }
        });
    }
}
