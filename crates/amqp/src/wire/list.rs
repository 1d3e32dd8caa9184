//! Values of many values.

use super::length::{constructor_len, data_len, split_value};
use super::{Malformed, ValueRef, code};

/// A list or an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct List<'a> {
    count: u32,
    /// That of all elements, where they have none of their own.
    constructor: Option<u8>,
    items: &'a [u8],
}

impl<'a> List<'a> {
    pub(crate) const EMPTY: Self = Self { count: 0, constructor: None, items: &[] };

    pub(super) fn of((count, items): (u32, &'a [u8])) -> Self {
        Self { count, constructor: None, items }
    }

    /// Arrays of described values are passed on, their elements are not looked at.
    pub(super) fn of_array((count, items): (u32, &'a [u8])) -> Result<Self, Malformed> {
        if count == 0 && items.is_empty() {
            return Ok(Self::EMPTY);
        }
        let len = constructor_len(items)?;
        let constructor = Some(if len == 1 { items[0] } else { code::DESCRIBED });
        Ok(Self { count, constructor, items: if len == 1 { &items[1..] } else { items } })
    }

    /// As many as are declared.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// What it is made of, where each element has its own constructor.
    pub(crate) fn raw(self) -> RawItems<'a> {
        RawItems(if self.constructor.is_none() { self.items } else { &[] })
    }

    /// They as they are encoded, with the constructor that all have if they have none of their own.
    pub(super) fn encoded(self) -> (Option<u8>, &'a [u8]) {
        // That of a described type is among the bytes.
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

/// Elements of a list or an array. Ends early where they are not well-formed, which [`Sections::split`]
/// and [`Request::parse`] rule out.
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
        // Without their constructor they cannot be passed on one by one.
        ValueRef::of(constructor, data).ok().filter(|value| !matches!(value, ValueRef::Other(_)))
    }
}

/// Encoded values one after the other.
#[derive(Clone, Debug)]
pub(crate) struct RawItems<'a>(&'a [u8]);

impl<'a> RawItems<'a> {
    /// The next `count`, and how many of them there are.
    #[inline]
    pub(crate) fn first(&mut self, count: usize) -> (u32, &'a [u8]) {
        let all = self.0;
        let found = self.take(count).count();
        (found as u32, &all[..all.len() - self.0.len()])
    }

    /// Those that were not taken.
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

    /// How many keys and values it has.
    pub fn len(self) -> usize {
        self.0.count as usize
    }

    /// Whether it has no entries.
    pub fn is_empty(self) -> bool {
        self.0.items.is_empty()
    }

    /// Encoded keys and values.
    #[inline]
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let mut items = self.0.raw();
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }

    /// Of `count` encoded keys and values in turn.
    pub(crate) fn of(count: u32, encoded: &'a [u8]) -> Self {
        Self(List::of((count, encoded)))
    }

    /// How many keys and values there are, and they as they are encoded.
    pub(crate) fn encoded(self) -> (u32, &'a [u8]) {
        (self.0.count, self.0.items)
    }
}

/// The bytes of an encoded string or symbol.
#[inline]
pub(crate) fn key_text(key: &[u8]) -> Option<&[u8]> {
    match *key.first()? {
        code::STRING_8 | code::SYMBOL_8 => key.get(2..),
        code::STRING_32 | code::SYMBOL_32 => key.get(5..),
        _ => None,
    }
}
