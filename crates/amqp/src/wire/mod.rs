//! The encoding of AMQP's types: part 1 of its specification. Everything that is read borrows, and
//! nothing is allocated because a peer declared a count.

mod descriptor;
mod length;
mod list;
mod value;
mod write;

pub(crate) use descriptor::described;
pub(crate) use length::{checked_len, constructor_len, split_value, value_len};
pub(crate) use list::key_text;
pub use list::{Items, List, Map};
pub use value::ValueRef;
pub use write::Writer;

/// Maximum depth of nested values.
pub(crate) const DEPTH_MAX: u32 = 32;

/// Reason why bytes are not valid AMQP.
#[derive(thiserror::Error, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the value does.
    #[error("a value is longer than its bytes")]
    Truncated,
    /// There is no type with this constructor.
    #[error("there is no type {0:#04x}")]
    Type(u8),
    /// A list, map or array is longer or shorter than it declares.
    #[error("a list, map or array has another length than it says")]
    Length,
    /// Values are nested too deeply.
    #[error("values are nested more than {DEPTH_MAX} deep")]
    Depth,
    /// Text that is not UTF-8, or a character that is not a Unicode scalar value.
    #[error("a string is not UTF-8")]
    Text,
    /// A value that must be described has no descriptor.
    #[error("a value has no descriptor")]
    Descriptor,
    /// A message has a part that is not a section.
    #[error("there is something between the sections of a message")]
    NotASection,
    /// A section comes twice, or the sections of the body are not adjacent.
    #[error("a section of a message comes twice, or parts the sections of its body")]
    Order,
    /// A section has the wrong type.
    #[error("a section of a message has the wrong type")]
    Section,
}

/// The constructors that the code uses.
pub(crate) mod code {
    pub const DESCRIBED: u8 = 0x00;
    pub const NULL: u8 = 0x40;
    pub const TRUE: u8 = 0x41;
    pub const FALSE: u8 = 0x42;
    pub const UINT_0: u8 = 0x43;
    pub const ULONG_0: u8 = 0x44;
    pub const LIST_0: u8 = 0x45;
    pub const UBYTE: u8 = 0x50;
    pub const BYTE: u8 = 0x51;
    pub const SMALL_UINT: u8 = 0x52;
    pub const SMALL_ULONG: u8 = 0x53;
    pub const SMALL_INT: u8 = 0x54;
    pub const SMALL_LONG: u8 = 0x55;
    pub const BOOLEAN: u8 = 0x56;
    pub const USHORT: u8 = 0x60;
    pub const SHORT: u8 = 0x61;
    pub const UINT: u8 = 0x70;
    pub const INT: u8 = 0x71;
    pub const FLOAT: u8 = 0x72;
    pub const CHAR: u8 = 0x73;
    pub const DECIMAL_32: u8 = 0x74;
    pub const ULONG: u8 = 0x80;
    pub const LONG: u8 = 0x81;
    pub const DOUBLE: u8 = 0x82;
    pub const TIMESTAMP: u8 = 0x83;
    pub const DECIMAL_64: u8 = 0x84;
    pub const DECIMAL_128: u8 = 0x94;
    pub const UUID: u8 = 0x98;
    pub const BINARY_8: u8 = 0xa0;
    pub const STRING_8: u8 = 0xa1;
    pub const SYMBOL_8: u8 = 0xa3;
    pub const BINARY_32: u8 = 0xb0;
    pub const STRING_32: u8 = 0xb1;
    pub const SYMBOL_32: u8 = 0xb3;
    pub const LIST_8: u8 = 0xc0;
    pub const MAP_8: u8 = 0xc1;
    pub const LIST_32: u8 = 0xd0;
    pub const MAP_32: u8 = 0xd1;
    pub const ARRAY_8: u8 = 0xe0;
    pub const ARRAY_32: u8 = 0xf0;
}
