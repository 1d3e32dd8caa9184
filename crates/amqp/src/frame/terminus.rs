use super::Malformed;
use crate::Fields;
use crate::wire::{ValueRef, Writer, checked_len, described};

const SOURCE: u64 = 0x28;
const TARGET: u64 = 0x29;
const COORDINATOR: u64 = 0x30;

/// Maximum number of fields. A source, the longest terminus, has eleven, and each field is kept in
/// memory on its own.
const FIELDS_MAX: usize = 16;

const ADDRESS: usize = 0;
const DYNAMIC: usize = 4;
const FILTER: usize = 7;

/// The node that the messages of a link come from or go to: a source (3.5.3), a target (3.5.4), or
/// the transaction coordinator (4.5.1).
///
/// The fields are kept as they were encoded, so that an answer repeats the peer's bytes exactly,
/// including fields that are unknown here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminus {
    code: u64,
    fields: Vec<Box<[u8]>>,
}

impl Terminus {
    /// Creates a source with this address.
    pub fn source(address: &str) -> Self {
        Self { code: SOURCE, fields: Vec::new() }.with_address(address)
    }

    /// Creates a target with this address.
    pub fn target(address: &str) -> Self {
        Self { code: TARGET, fields: Vec::new() }.with_address(address)
    }

    /// Creates the transaction coordinator.
    pub fn coordinator() -> Self {
        Self { code: COORDINATOR, fields: Vec::new() }
    }

    /// Whether this is the transaction coordinator instead of a node.
    pub fn is_coordinator(&self) -> bool {
        self.code == COORDINATOR
    }

    /// Returns the address of the node; `None` for a node that is yet to be created, and for the
    /// coordinator.
    pub fn address(&self) -> Option<&str> {
        if self.is_coordinator() {
            return None;
        }
        self.field(ADDRESS).text()
    }

    /// Whether the node is to be created for this link.
    pub fn is_dynamic(&self) -> bool {
        !self.is_coordinator() && self.field(DYNAMIC) == ValueRef::Bool(true)
    }

    /// Returns the length of all fields, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.fields.iter().map(|field| field.len()).sum()
    }

    /// Returns the filter of a source; `None` if there is none, not even an empty map.
    ///
    /// A filter is as the peer wrote it, bare or [described](ValueRef::undescribed).
    pub fn filter(&self) -> Option<Fields> {
        if self.code != SOURCE {
            return None;
        }
        Fields::read(self.raw(FILTER)?).ok()
    }

    /// Replaces the address.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        self.with_field(ADDRESS, address)
    }

    /// Replaces the filter of a source.
    #[must_use]
    pub fn with_filter(self, filter: &Fields) -> Self {
        self.with_field(FILTER, filter)
    }

    /// Asks for the node to be created for the link.
    #[must_use]
    pub fn dynamic(self) -> Self {
        self.with_field(DYNAMIC, true)
    }

    fn with_field<'v>(mut self, index: usize, value: impl Into<ValueRef<'v>>) -> Self {
        let mut encoded = Vec::new();
        Writer::new(&mut encoded).value(value);
        if self.fields.len() <= index {
            self.fields.resize(index + 1, Box::new([0x40]));
        }
        self.fields[index] = encoded.into();
        self
    }

    /// Returns a field that is not null, in its encoded form.
    fn raw(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index).map(AsRef::as_ref).filter(|field| *field != [0x40])
    }

    fn field(&self, index: usize) -> ValueRef<'_> {
        self.raw(index).map_or(ValueRef::Null, ValueRef::known)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        checked_len(bytes)?;
        let (code, list) = described(bytes)?;
        let (SOURCE | TARGET | COORDINATOR, ValueRef::List(list)) = (code, ValueRef::parse(list)?)
        else {
            return Err(Malformed::Field("terminus: unknown"));
        };
        let terminus =
            Self { code, fields: list.raw().take(FIELDS_MAX + 1).map(Into::into).collect() };
        if terminus.fields.len() > FIELDS_MAX {
            return Err(Malformed::Field("terminus: too many fields"));
        }
        if code == SOURCE && terminus.raw(FILTER).is_some() && terminus.filter().is_none() {
            return Err(Malformed::Field("source: filter"));
        }
        Ok(terminus)
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.composite(self.code, |fields| {
            for field in &self.fields {
                fields.encoded(1, field);
            }
        });
    }
}
