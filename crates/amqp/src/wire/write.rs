//! Encoding of values.

use super::{List, ValueRef, code};

/// Appends encoded values to a buffer: single values, the elements of a list, or the keys and
/// values of a map in turn.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    count: u32,
}

impl<'o> Writer<'o> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out, count: 0 }
    }

    /// Writes a value of any type.
    #[inline(always)]
    pub fn value<'v>(&mut self, value: impl Into<ValueRef<'v>>) {
        self.count += 1;
        put(self.out, value.into());
    }

    /// Writes `count` values that are already encoded.
    #[inline]
    pub(crate) fn encoded(&mut self, count: u32, values: &[u8]) {
        self.count += count;
        self.out.extend_from_slice(values);
    }

    /// Writes the value with `write`, or null if there is none.
    pub(crate) fn optional<T>(&mut self, value: Option<&T>, write: impl FnOnce(&T, &mut Self)) {
        match value {
            Some(value) => write(value, self),
            None => self.value(ValueRef::Null),
        }
    }

    /// Writes a key of type string and its value.
    pub fn entry<'v>(&mut self, key: &str, value: impl Into<ValueRef<'v>>) {
        self.value(key);
        self.value(value);
    }

    /// Writes a list of the values that `write` writes.
    #[inline]
    pub fn list(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.compound(code::LIST_8, write);
    }

    /// Writes a map of the keys and values that `write` writes.
    #[inline]
    pub fn map(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.compound(code::MAP_8, write);
    }

    /// Writes the one value that `write` writes, described by `descriptor`.
    #[inline]
    pub fn described(&mut self, descriptor: u64, write: impl FnOnce(&mut Writer<'_>)) {
        self.count += 1;
        self.out.push(code::DESCRIBED);
        put(self.out, ValueRef::Ulong(descriptor));
        write(&mut Writer::new(self.out));
    }

    /// Writes a list of the fields that `write` writes, described by `descriptor` (1.4).
    #[inline]
    pub fn composite(&mut self, descriptor: u64, write: impl FnOnce(&mut Writer<'_>)) {
        self.described(descriptor, |value| value.list(write));
    }

    /// Writes an array of timestamps, in milliseconds since 1970.
    pub fn timestamps(&mut self, all: impl IntoIterator<Item = i64>) {
        self.array(code::TIMESTAMP, all, |out, ms| out.extend_from_slice(&ms.to_be_bytes()));
    }

    /// Writes an array of integers of type `long`.
    pub fn longs(&mut self, all: impl IntoIterator<Item = i64>) {
        self.array(code::LONG, all, |out, number| out.extend_from_slice(&number.to_be_bytes()));
    }

    /// Writes an array of strings.
    pub fn strings<'s>(&mut self, all: impl IntoIterator<Item = &'s str>) {
        self.array(code::STRING_32, all, long_text);
    }

    /// Writes an array of symbols.
    pub(crate) fn symbols<'s>(&mut self, all: impl IntoIterator<Item = &'s str>) {
        self.array(code::SYMBOL_32, all, long_text);
    }

    fn array<T>(
        &mut self,
        constructor: u8,
        all: impl IntoIterator<Item = T>,
        element: impl Fn(&mut Vec<u8>, T),
    ) {
        self.compound(code::ARRAY_8, |array| {
            array.out.push(constructor);
            for one in all {
                element(array.out, one);
                array.count += 1;
            }
        });
    }

    /// Writes a list, map or array in the short form if it fits. Few do not fit; their contents are
    /// moved to make room for the long form.
    #[inline]
    fn compound(&mut self, constructor: u8, write: impl FnOnce(&mut Writer<'_>)) {
        self.count += 1;
        let start = self.out.len();
        self.out.extend_from_slice(&[constructor, 0, 0]);
        let mut inner = Writer::new(self.out);
        write(&mut inner);
        let count = inner.count;
        let size = self.out.len() - start - 2;
        match (u8::try_from(size), u8::try_from(count)) {
            (_, Ok(0)) if constructor == code::LIST_8 => {
                self.out.truncate(start);
                self.out.push(code::LIST_0);
            }
            (Ok(size), Ok(count)) => self.out[start + 1..start + 3].copy_from_slice(&[size, count]),
            _ => widen(self.out, start, count),
        }
    }
}

/// Converts the compound value at the end of `out`, which begins at `start`, to the long form.
#[cold]
fn widen(out: &mut Vec<u8>, start: usize, count: u32) {
    let size = len_u32(out.len() - start - 3 + 4);
    let mut head = [out[start] | 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
    head[1..5].copy_from_slice(&size.to_be_bytes());
    head[5..].copy_from_slice(&count.to_be_bytes());
    out.splice(start..start + 3, head);
}

fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a value is shorter than 4 GiB")
}

#[inline(always)]
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
        ValueRef::List(list) => whole(out, LIST_8, list),
        ValueRef::Map(map) => whole(out, MAP_8, map.0),
        ValueRef::Array(list) => whole(out, ARRAY_8, list),
        ValueRef::Other(encoded) => out.extend_from_slice(encoded),
    }
}

#[inline]
fn fixed<const N: usize>(out: &mut Vec<u8>, constructor: u8, data: [u8; N]) {
    out.push(constructor);
    out.extend_from_slice(&data);
}

#[inline]
fn variable(out: &mut Vec<u8>, constructor_8: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(len) => out.extend_from_slice(&[constructor_8, len]),
        Err(_) => fixed(out, constructor_8 | 0x10, len_u32(bytes.len()).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

fn long_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&len_u32(text.len()).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn whole(out: &mut Vec<u8>, constructor: u8, list: List<'_>) {
    let (own, encoded) = list.encoded();
    Writer::new(out).compound(constructor, |items| {
        items.out.extend(own);
        items.encoded(list.count(), encoded);
    });
}
