//! The encoding of AMQP's types (1.2 to 1.6), as far as frames need it; values that are only handed
//! on are [`Value`](serde_amqp::Value)s, which `serde_amqp` reads after [`check`] has bounded them.

mod check;
mod descriptor;
mod read;
mod write;

pub use check::{MAX_DEPTH, check};
pub(crate) use descriptor::described;
pub(crate) use read::text;
pub use read::{List, fields, value};
pub use write::{Items, list};
pub(crate) use write::{map, write_descriptor, write_value};

/// Bytes that are no AMQP, or not the AMQP that is expected here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// The constructors of the types that frames are made of.
pub(crate) mod code {
    pub const DESCRIBED: u8 = 0x00;
    pub const NULL: u8 = 0x40;
    pub const TRUE: u8 = 0x41;
    pub const FALSE: u8 = 0x42;
    pub const BOOLEAN: u8 = 0x56;
    pub const UBYTE: u8 = 0x50;
    pub const USHORT: u8 = 0x60;
    pub const UINT_0: u8 = 0x43;
    pub const UINT_8: u8 = 0x52;
    pub const UINT: u8 = 0x70;
    pub const ULONG_0: u8 = 0x44;
    pub const ULONG_8: u8 = 0x53;
    pub const ULONG: u8 = 0x80;
    pub const BINARY_8: u8 = 0xA0;
    pub const BINARY_32: u8 = 0xB0;
    pub const STRING_8: u8 = 0xA1;
    pub const STRING_32: u8 = 0xB1;
    pub const SYMBOL_8: u8 = 0xA3;
    pub const SYMBOL_32: u8 = 0xB3;
    pub const LIST_0: u8 = 0x45;
    pub const LIST_8: u8 = 0xC0;
    pub const LIST_32: u8 = 0xD0;
    pub const MAP_8: u8 = 0xC1;
    pub const MAP_32: u8 = 0xD1;
    pub const ARRAY_8: u8 = 0xE0;
    pub const ARRAY_32: u8 = 0xF0;
}
