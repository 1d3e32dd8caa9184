//! A value, borrowed from where it is encoded.

use super::wire::{Malformed, array_constructor_len, code, compound, data_len, value_len};

/// A value with its type, as it is on the wire.
///
/// What conforms to the same type in a peer's language comes in many types of AMQP, so the conversions
/// are tolerant: an integer is one of any width, text is a string or a symbol.
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
    /// A decimal number or a described value, with its constructor: to be passed on.
    Other(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// The value that `bytes` are from the first to the last.
    ///
    /// # Errors
    /// They are not; what is in a list, map or array is not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if value_len(bytes)? < bytes.len() {
            return Err(Malformed::Length);
        }
        if bytes[0] == code::DESCRIBED {
            return Ok(Self::Other(bytes));
        }
        Self::of(bytes[0], &bytes[1..]).map(|value| match value {
            Self::Other(_) => Self::Other(bytes),
            value => value,
        })
    }

    /// The same, of what was checked before.
    pub(super) fn known(bytes: &'a [u8]) -> Self {
        Self::parse(bytes).unwrap_or(Self::Null)
    }

    /// `data` is as long as [`data_len`] says.
    fn of(constructor: u8, data: &'a [u8]) -> Result<Self, Malformed> {
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
            BOOLEAN => Self::Bool(data[0] != 0),
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

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self == Self::Null
    }

    /// A string or a symbol.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// An integer of any type that fits.
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

    /// Milliseconds since 1970 of a timestamp or an integer.
    pub fn timestamp(self) -> Option<i64> {
        match self {
            Self::Timestamp(ms) => Some(ms),
            other => other.integer(),
        }
    }

    /// A boolean.
    pub fn boolean(self) -> Option<bool> {
        match self {
            Self::Bool(is_true) => Some(is_true),
            _ => None,
        }
    }

    /// Binary data.
    pub fn binary(self) -> Option<&'a [u8]> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A UUID, in network order.
    pub fn uuid(self) -> Option<[u8; 16]> {
        match self {
            Self::Uuid(uuid) => Some(uuid),
            _ => None,
        }
    }

    /// A map.
    pub fn map(self) -> Option<Map<'a>> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The elements of an array or a list.
    pub fn items(self) -> Option<Items<'a>> {
        match self {
            Self::Array(list) | Self::List(list) => Some(list.into_iter()),
            _ => None,
        }
    }
}

/// A list or an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct List<'a> {
    count: u32,
    /// That of all elements, where they have none of their own.
    constructor: Option<u8>,
    items: &'a [u8],
}

impl<'a> List<'a> {
    pub(super) const EMPTY: Self = Self { count: 0, constructor: None, items: &[] };

    pub(super) fn of((count, items): (u32, &'a [u8])) -> Self {
        Self { count, constructor: None, items }
    }

    /// Arrays of described values are passed on, their elements are not looked at.
    fn of_array((count, items): (u32, &'a [u8])) -> Result<Self, Malformed> {
        if count == 0 && items.is_empty() {
            return Ok(Self::EMPTY);
        }
        let len = array_constructor_len(items)?;
        let constructor = Some(if len == 1 { items[0] } else { code::DESCRIBED });
        Ok(Self { count, constructor, items: if len == 1 { &items[1..] } else { items } })
    }

    /// As many as are declared.
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// What it is made of, where each element has its own constructor.
    pub(super) fn raw(self) -> RawItems<'a> {
        RawItems(if self.constructor.is_none() { self.items } else { &[] })
    }

    pub(super) fn constructor(self) -> Option<u8> {
        self.constructor
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.items
    }
}

impl<'a> IntoIterator for List<'a> {
    type Item = ValueRef<'a>;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        Items(self)
    }
}

/// Elements of a list or an array. Ends early where they are not well-formed, which [`Sections::split`]
/// and [`Request::parse`] rule out.
///
/// [`Sections::split`]: super::Sections::split
/// [`Request::parse`]: super::Request::parse
#[derive(Clone, Debug)]
pub struct Items<'a>(List<'a>);

impl<'a> Iterator for Items<'a> {
    type Item = ValueRef<'a>;

    fn next(&mut self) -> Option<ValueRef<'a>> {
        let list = &mut self.0;
        list.count = list.count.checked_sub(1)?;
        let (len, value) = match list.constructor {
            None => {
                let len = value_len(list.items).ok()?;
                (len, ValueRef::parse(&list.items[..len]).ok()?)
            }
            Some(constructor) => {
                let len = data_len(constructor, list.items).ok()?;
                (len, ValueRef::of(constructor, &list.items[..len]).ok()?)
            }
        };
        // Without their constructor they cannot be passed on one by one.
        if list.constructor.is_some() && matches!(value, ValueRef::Other(_)) {
            return None;
        }
        list.items = &list.items[len..];
        Some(value)
    }
}

/// Encoded values one after the other.
#[derive(Clone, Debug)]
pub(super) struct RawItems<'a>(&'a [u8]);

impl<'a> RawItems<'a> {
    /// Appends the next `count` to `out`, nulls where there are none.
    #[inline]
    pub(super) fn copy(&mut self, count: usize, out: &mut Vec<u8>) {
        let all = self.0;
        let found = self.take(count).count();
        out.extend_from_slice(&all[..all.len() - self.0.len()]);
        out.resize(out.len() + count - found, code::NULL);
    }

    /// Those that were not taken.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for RawItems<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (value, rest) = self.0.split_at_checked(value_len(self.0).ok()?)?;
        self.0 = rest;
        Some(value)
    }
}

/// A map. Keys are compared as text, whether they are strings or symbols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map<'a>(List<'a>);

impl<'a> Map<'a> {
    /// A map without entries.
    pub const EMPTY: Self = Self(List::EMPTY);

    /// The value of a key.
    pub fn get(self, key: &str) -> Option<ValueRef<'a>> {
        let mut pairs = self.pairs();
        let (_, value) = pairs.find(|(own, _)| key_text(own) == Some(key.as_bytes()))?;
        Some(ValueRef::known(value))
    }

    /// Entries whose keys are text, in their order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> + Clone {
        self.pairs().filter_map(|(key, value)| {
            let key = std::str::from_utf8(key_text(key)?).ok()?;
            Some((key, ValueRef::known(value)))
        })
    }

    /// Whether it has no entries.
    pub fn is_empty(self) -> bool {
        self.0.items.is_empty()
    }

    /// Encoded keys and values.
    #[inline]
    pub(super) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut items = self.0.raw();
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }

    pub(super) fn as_list(self) -> List<'a> {
        self.0
    }
}

/// The bytes of an encoded string or symbol.
#[inline]
pub(super) fn key_text(key: &[u8]) -> Option<&[u8]> {
    match *key.first()? {
        code::STRING_8 | code::SYMBOL_8 => key.get(2..),
        code::STRING_32 | code::SYMBOL_32 => key.get(5..),
        _ => None,
    }
}
