//! Encoding of values.

use super::value::{List, ValueRef};
use super::wire::code;

/// Appends values to bytes: at the top, in a list, or keys and values in turn in a map.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    count: u32,
}

impl<'o> Writer<'o> {
    /// Appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, count: 0 }
    }

    /// A value of any type.
    pub fn value(&mut self, value: ValueRef<'_>) {
        self.count += 1;
        put(self.out, value);
    }

    /// A key of type string with its value.
    pub fn entry(&mut self, key: &str, value: ValueRef<'_>) {
        self.value(ValueRef::String(key));
        self.value(value);
    }

    /// A list of what `write` writes.
    pub fn list(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.compound(code::LIST_32, write);
    }

    /// A map of the keys and values that `write` writes.
    pub fn map(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.compound(code::MAP_32, write);
    }

    /// The one value that `write` writes, described by `descriptor`.
    pub fn described(&mut self, descriptor: u64, write: impl FnOnce(&mut Writer<'_>)) {
        self.count += 1;
        self.out.push(code::DESCRIBED);
        put(self.out, ValueRef::Ulong(descriptor));
        write(&mut Writer::new(self.out));
    }

    /// An array of timestamps, milliseconds since 1970.
    pub fn timestamps(&mut self, all: impl IntoIterator<Item = i64>) {
        self.array(code::TIMESTAMP, all, |out, ms| out.extend_from_slice(&ms.to_be_bytes()));
    }

    /// An array of integers of type `long`.
    pub fn longs(&mut self, all: impl IntoIterator<Item = i64>) {
        self.array(code::LONG, all, |out, number| out.extend_from_slice(&number.to_be_bytes()));
    }

    /// An array of strings.
    pub fn strings<'s>(&mut self, all: impl IntoIterator<Item = &'s str>) {
        self.array(code::STRING_32, all, |out, text| {
            out.extend_from_slice(&len_u32(text.len()).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        });
    }

    fn compound(&mut self, constructor: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.count += 1;
        let start = begin(self.out, constructor);
        let mut inner = Writer::new(self.out);
        write(&mut inner);
        let count = inner.count;
        end(self.out, start, count);
    }

    fn array<T>(
        &mut self,
        constructor: u8,
        all: impl IntoIterator<Item = T>,
        element: impl Fn(&mut Vec<u8>, T),
    ) {
        self.count += 1;
        let start = begin(self.out, code::ARRAY_32);
        self.out.push(constructor);
        let mut count = 0;
        for one in all {
            element(self.out, one);
            count += 1;
        }
        end(self.out, start, count);
    }
}

/// Begins a list, map or array; [`end`] wants where it begins.
#[inline]
pub(super) fn begin(out: &mut Vec<u8>, constructor: u8) -> usize {
    let start = out.len() + 1;
    out.extend_from_slice(&[constructor, 0, 0, 0, 0, 0, 0, 0, 0]);
    start
}

/// Ends a list, map or array of `count` elements.
#[inline]
pub(super) fn end(out: &mut [u8], start: usize, count: u32) {
    let size = len_u32(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&count.to_be_bytes());
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a message is smaller than 4 GiB")
}

fn put(out: &mut Vec<u8>, value: ValueRef<'_>) {
    use code::*;
    match value {
        ValueRef::Null => out.push(NULL),
        ValueRef::Bool(true) => out.push(TRUE),
        ValueRef::Bool(false) => out.push(FALSE),
        ValueRef::Ubyte(number) => out.extend_from_slice(&[UBYTE, number]),
        ValueRef::Ushort(number) => fixed(out, USHORT, number.to_be_bytes()),
        ValueRef::Uint(0) => out.push(UINT_0),
        ValueRef::Uint(number) => match u8::try_from(number) {
            Ok(small) => out.extend_from_slice(&[SMALL_UINT, small]),
            Err(_) => fixed(out, UINT, number.to_be_bytes()),
        },
        ValueRef::Ulong(0) => out.push(ULONG_0),
        ValueRef::Ulong(number) => match u8::try_from(number) {
            Ok(small) => out.extend_from_slice(&[SMALL_ULONG, small]),
            Err(_) => fixed(out, ULONG, number.to_be_bytes()),
        },
        ValueRef::Byte(number) => fixed(out, BYTE, number.to_be_bytes()),
        ValueRef::Short(number) => fixed(out, SHORT, number.to_be_bytes()),
        ValueRef::Int(number) => match i8::try_from(number) {
            Ok(small) => fixed(out, SMALL_INT, small.to_be_bytes()),
            Err(_) => fixed(out, INT, number.to_be_bytes()),
        },
        ValueRef::Long(number) => match i8::try_from(number) {
            Ok(small) => fixed(out, SMALL_LONG, small.to_be_bytes()),
            Err(_) => fixed(out, LONG, number.to_be_bytes()),
        },
        ValueRef::Float(number) => fixed(out, FLOAT, number.to_be_bytes()),
        ValueRef::Double(number) => fixed(out, DOUBLE, number.to_be_bytes()),
        ValueRef::Char(character) => fixed(out, CHAR, u32::from(character).to_be_bytes()),
        ValueRef::Timestamp(ms) => fixed(out, TIMESTAMP, ms.to_be_bytes()),
        ValueRef::Uuid(uuid) => fixed(out, UUID, uuid),
        ValueRef::Binary(bytes) => variable(out, BINARY_8, bytes),
        ValueRef::String(text) => variable(out, STRING_8, text.as_bytes()),
        ValueRef::Symbol(text) => variable(out, SYMBOL_8, text.as_bytes()),
        ValueRef::List(list) => whole(out, LIST_32, list),
        ValueRef::Map(map) => whole(out, MAP_32, map.as_list()),
        ValueRef::Array(list) => whole(out, ARRAY_32, list),
        ValueRef::Other(encoded) => out.extend_from_slice(encoded),
    }
}

#[inline]
fn fixed<const N: usize>(out: &mut Vec<u8>, constructor: u8, data: [u8; N]) {
    out.push(constructor);
    out.extend_from_slice(&data);
}

#[inline]
pub(super) fn variable(out: &mut Vec<u8>, constructor_8: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(len) => out.extend_from_slice(&[constructor_8, len]),
        Err(_) => fixed(out, constructor_8 | 0x10, len_u32(bytes.len()).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

fn whole(out: &mut Vec<u8>, constructor: u8, list: List<'_>) {
    let start = begin(out, constructor);
    // That of a described type is among the bytes.
    if let Some(own) = list.constructor().filter(|own| *own != code::DESCRIBED) {
        out.push(own);
    }
    out.extend_from_slice(list.bytes());
    end(out, start, list.count());
}
