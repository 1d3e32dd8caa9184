//! Lists, arrays and maps.

use super::length::{constructor_len, data_len, split_value};
use super::{Malformed, ValueRef, code};

/// A list or an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct List<'a> {
    count: u32,
    /// Constructor that all elements share, if they have none of their own.
    constructor: Option<u8>,
    items: &'a [u8],
}

impl<'a> List<'a> {
    pub(crate) const EMPTY: Self = Self { count: 0, constructor: None, items: &[] };

    pub(super) fn of((count, items): (u32, &'a [u8])) -> Self {
        Self { count, constructor: None, items }
    }

    /// Creates the list of an array's elements. Described elements are passed on without being checked.
    pub(super) fn of_array((count, items): (u32, &'a [u8])) -> Result<Self, Malformed> {
        if count == 0 && items.is_empty() {
            return Ok(Self::EMPTY);
        }
        let len = constructor_len(items)?;
        let constructor = Some(if len == 1 { items[0] } else { code::DESCRIBED });
        Ok(Self { count, constructor, items: if len == 1 { &items[1..] } else { items } })
    }

    /// Returns the declared number of elements.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Returns the encoded elements, if each has a constructor of its own; else none.
    pub(crate) fn raw(self) -> RawItems<'a> {
        RawItems(if self.constructor.is_none() { self.items } else { &[] })
    }

    /// Returns the encoded elements, and the constructor that they share if they have none of their
    /// own.
    pub(super) fn encoded(self) -> (Option<u8>, &'a [u8]) {
        // The constructor of a described type is among the bytes.
        (self.constructor.filter(|own| *own != code::DESCRIBED), self.items)
    }
}

impl<'a> IntoIterator for List<'a> {
    type Item = ValueRef<'a>;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        Items(self)
    }
}

/// Iterator over the elements of a list or an array. Ends at the first that is not well-formed;
/// [`Sections::split`] and [`Request::parse`] rule this out.
///
/// [`Sections::split`]: crate::message::Sections::split
/// [`Request::parse`]: crate::message::Request::parse
#[derive(Clone, Debug)]
pub struct Items<'a>(List<'a>);

impl<'a> Iterator for Items<'a> {
    type Item = ValueRef<'a>;

    fn next(&mut self) -> Option<ValueRef<'a>> {
        let list = &mut self.0;
        list.count = list.count.checked_sub(1)?;
        let Some(constructor) = list.constructor else {
            let (value, rest) = ValueRef::read(list.items).ok()?;
            list.items = rest;
            return Some(value);
        };
        let (data, rest) = list.items.split_at(data_len(constructor, list.items).ok()?);
        list.items = rest;
        // Such values need the constructor that they share, so they cannot be passed on singly.
        ValueRef::of(constructor, data).ok().filter(|value| !matches!(value, ValueRef::Other(_)))
    }
}

/// Iterator over adjacent encoded values.
#[derive(Clone, Debug)]
pub(crate) struct RawItems<'a>(&'a [u8]);

impl<'a> RawItems<'a> {
    /// Takes the next `count` values at most, and returns their number and their bytes.
    #[inline]
    pub(crate) fn first(&mut self, count: usize) -> (u32, &'a [u8]) {
        let all = self.0;
        let found = self.take(count).count();
        (found as u32, &all[..all.len() - self.0.len()])
    }

    /// Returns the bytes that were not taken.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for RawItems<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (value, rest) = split_value(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }
}

/// A map. Keys are compared as text, whether they are strings or symbols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map<'a>(pub(super) List<'a>);

impl<'a> Map<'a> {
    /// A map without entries.
    pub const EMPTY: Self = Self(List::EMPTY);

    /// Returns the value of a key.
    pub fn get(self, key: &str) -> Option<ValueRef<'a>> {
        let mut pairs = self.pairs();
        let (_, value) = pairs.find(|(own, _)| key_text(own) == Some(key.as_bytes()))?;
        Some(ValueRef::known(value))
    }

    /// Returns the entries whose keys are text, in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> + Clone {
        self.pairs().filter_map(|(key, value)| {
            let key = std::str::from_utf8(key_text(key)?).ok()?;
            Some((key, ValueRef::known(value)))
        })
    }

    /// Returns the number of keys and values together.
    pub fn len(self) -> usize {
        self.0.count as usize
    }

    /// Whether the map has no entries.
    pub fn is_empty(self) -> bool {
        self.0.items.is_empty()
    }

    /// Returns the encoded keys and values in pairs.
    #[inline]
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut items = self.0.raw();
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }

    /// Creates a map from `count` encoded keys and values in turn.
    pub(crate) fn of(count: u32, encoded: &'a [u8]) -> Self {
        Self(List::of((count, encoded)))
    }

    /// Returns the number of keys and values together, and their encoded bytes.
    pub(crate) fn encoded(self) -> (u32, &'a [u8]) {
        (self.0.count, self.0.items)
    }
}

/// Returns the bytes of an encoded string or symbol.
#[inline]
pub(crate) fn key_text(key: &[u8]) -> Option<&[u8]> {
    match *key.first()? {
        code::STRING_8 | code::SYMBOL_8 => key.get(2..),
        code::STRING_32 | code::SYMBOL_32 => key.get(5..),
        _ => None,
    }
}
