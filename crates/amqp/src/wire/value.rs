//! A value that borrows its encoded bytes.

use super::length::{checked_len, compound, constructor_len, split_value, value_len};
use super::{Items, List, Malformed, Map, code};

/// A typed value, as it is encoded.
///
/// Peers encode values of one type of their language in several AMQP types, so the conversions are
/// tolerant: an integer may have any width, and text may be a string or a symbol.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Char(char),
    /// Milliseconds since 1970, UTC.
    Timestamp(i64),
    Uuid([u8; 16]),
    Binary(&'a [u8]),
    String(&'a str),
    Symbol(&'a str),
    List(List<'a>),
    Map(Map<'a>),
    Array(List<'a>),
    /// A decimal number or a described value, with its constructor; only passed on.
    Other(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// Reads the value that `bytes` hold from the first to the last.
    ///
    /// # Errors
    /// The bytes are not one value. The contents of a list, map or array are not checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if value_len(bytes)? < bytes.len() {
            return Err(Malformed::Length);
        }
        Self::whole(bytes)
    }

    /// Reads the value like [`parse`](Self::parse), but also checks the contents of a list, map or
    /// array.
    pub(crate) fn checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        checked_len(bytes)?;
        Self::parse(bytes)
    }

    /// Reads the first value, and returns it with the bytes behind it.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (encoded, rest) = split_value(bytes)?;
        Ok((Self::whole(encoded)?, rest))
    }

    /// Reads the value `encoded`, whose length must be the one that it declares.
    #[inline]
    pub(crate) fn whole(encoded: &'a [u8]) -> Result<Self, Malformed> {
        use code::{DECIMAL_32, DECIMAL_64, DECIMAL_128, DESCRIBED};
        match encoded[0] {
            DESCRIBED | DECIMAL_32 | DECIMAL_64 | DECIMAL_128 => Ok(Self::Other(encoded)),
            constructor => Self::of(constructor, &encoded[1..]),
        }
    }

    /// Reads a value that was checked before; null if it is not well-formed after all.
    pub(crate) fn known(encoded: &'a [u8]) -> Self {
        Self::whole(encoded).unwrap_or(Self::Null)
    }

    /// Reads a value from its constructor and its data, which is as long as
    /// [`data_len`](super::length::data_len) says.
    pub(super) fn of(constructor: u8, data: &'a [u8]) -> Result<Self, Malformed> {
        use code::*;
        fn number<const N: usize>(data: &[u8]) -> [u8; N] {
            *data.first_chunk().expect("the constructor told how long its data is")
        }
        let text =
            |prefix: usize| std::str::from_utf8(&data[prefix..]).map_err(|_| Malformed::Text);
        Ok(match constructor {
            NULL => Self::Null,
            TRUE => Self::Bool(true),
            FALSE => Self::Bool(false),
            BOOLEAN if data[0] <= 1 => Self::Bool(data[0] == 1),
            UINT_0 => Self::Uint(0),
            ULONG_0 => Self::Ulong(0),
            UBYTE => Self::Ubyte(data[0]),
            BYTE => Self::Byte(data[0] as i8),
            SMALL_UINT => Self::Uint(data[0].into()),
            SMALL_ULONG => Self::Ulong(data[0].into()),
            SMALL_INT => Self::Int((data[0] as i8).into()),
            SMALL_LONG => Self::Long((data[0] as i8).into()),
            USHORT => Self::Ushort(u16::from_be_bytes(number(data))),
            SHORT => Self::Short(i16::from_be_bytes(number(data))),
            UINT => Self::Uint(u32::from_be_bytes(number(data))),
            INT => Self::Int(i32::from_be_bytes(number(data))),
            FLOAT => Self::Float(f32::from_be_bytes(number(data))),
            CHAR => {
                let number = u32::from_be_bytes(number(data));
                Self::Char(char::from_u32(number).ok_or(Malformed::Text)?)
            }
            ULONG => Self::Ulong(u64::from_be_bytes(number(data))),
            LONG => Self::Long(i64::from_be_bytes(number(data))),
            DOUBLE => Self::Double(f64::from_be_bytes(number(data))),
            TIMESTAMP => Self::Timestamp(i64::from_be_bytes(number(data))),
            UUID => Self::Uuid(number(data)),
            BINARY_8 => Self::Binary(&data[1..]),
            BINARY_32 => Self::Binary(&data[4..]),
            STRING_8 => Self::String(text(1)?),
            STRING_32 => Self::String(text(4)?),
            SYMBOL_8 => Self::Symbol(text(1)?),
            SYMBOL_32 => Self::Symbol(text(4)?),
            LIST_0 => Self::List(List::EMPTY),
            LIST_8 | LIST_32 => Self::List(List::of(compound(constructor, data)?)),
            MAP_8 | MAP_32 => Self::Map(Map(List::of(compound(constructor, data)?))),
            ARRAY_8 | ARRAY_32 => Self::Array(List::of_array(compound(constructor, data)?)?),
            DECIMAL_32 | DECIMAL_64 | DECIMAL_128 => Self::Other(data),
            _ => return Err(Malformed::Type(constructor)),
        })
    }

    /// Whether this is null.
    pub fn is_null(self) -> bool {
        self == Self::Null
    }

    /// Returns the value behind its descriptor, if it has one, else the value itself.
    pub fn undescribed(self) -> Self {
        match self {
            Self::Other(encoded) => match constructor_len(encoded) {
                Ok(len) if len > 1 => Self::known(&encoded[len - 1..]),
                _ => self,
            },
            value => value,
        }
    }

    /// Returns a string or a symbol.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer of any type, if it fits.
    pub fn integer(self) -> Option<i64> {
        Some(match self {
            Self::Ubyte(number) => number.into(),
            Self::Ushort(number) => number.into(),
            Self::Uint(number) => number.into(),
            Self::Ulong(number) => number.try_into().ok()?,
            Self::Byte(number) => number.into(),
            Self::Short(number) => number.into(),
            Self::Int(number) => number.into(),
            Self::Long(number) => number,
            _ => return None,
        })
    }

    /// Returns a timestamp or an integer, as milliseconds since 1970.
    pub fn timestamp(self) -> Option<i64> {
        match self {
            Self::Timestamp(ms) => Some(ms),
            other => other.integer(),
        }
    }

    /// Returns a boolean.
    pub fn boolean(self) -> Option<bool> {
        match self {
            Self::Bool(is_true) => Some(is_true),
            _ => None,
        }
    }

    /// Returns binary data.
    pub fn binary(self) -> Option<&'a [u8]> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a UUID, in network order.
    pub fn uuid(self) -> Option<[u8; 16]> {
        match self {
            Self::Uuid(uuid) => Some(uuid),
            _ => None,
        }
    }

    /// Returns a map.
    pub fn map(self) -> Option<Map<'a>> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the elements of an array or a list.
    pub fn items(self) -> Option<Items<'a>> {
        match self {
            Self::Array(list) | Self::List(list) => Some(list.into_iter()),
            _ => None,
        }
    }
}

/// `None` becomes null.
impl<'a, T: Into<Self>> From<Option<T>> for ValueRef<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

macro_rules! from {
    ($($of:ty => $variant:ident),*) => {
        $(impl<'a> From<$of> for ValueRef<'a> {
            fn from(value: $of) -> Self {
                Self::$variant(value)
            }
        })*
    };
}

from!(bool => Bool, u8 => Ubyte, u16 => Ushort, u32 => Uint, u64 => Ulong, i32 => Int, i64 => Long);
from!(&'a [u8] => Binary, &'a str => String);
