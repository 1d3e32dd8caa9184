use serde_amqp::Value;

use super::code;
use crate::Fields;

/// Writes a list whose items `write` appends: in the short form if it fits.
pub fn list(out: &mut Vec<u8>, write: impl FnOnce(&mut Items<'_>)) {
    compound(out, code::LIST_8, code::LIST_32, write);
}

/// Writes a map with symbols as keys.
pub(crate) fn map(out: &mut Vec<u8>, fields: &Fields) {
    compound(out, code::MAP_8, code::MAP_32, |items| {
        for (key, value) in fields.iter() {
            items.symbol(key);
            items.value(value);
        }
    });
}

/// Writes the descriptor of a value that follows.
pub(crate) fn write_descriptor(out: &mut Vec<u8>, descriptor: u64) {
    out.push(code::DESCRIBED);
    ulong(out, descriptor);
}

/// Writes any value; null for one that has no encoding, as an array of unlike elements.
pub(crate) fn write_value(out: &mut Vec<u8>, value: &Value) {
    match serde_amqp::to_vec(value) {
        Ok(bytes) => out.extend_from_slice(&bytes),
        Err(_) => out.push(code::NULL),
    }
}

/// Counts the items of a list while they are appended to it.
#[derive(Debug)]
pub struct Items<'a> {
    out: &'a mut Vec<u8>,
    count: u32,
}

impl Items<'_> {
    /// Null: nothing, or the default.
    pub fn null(&mut self) {
        self.item().push(code::NULL);
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        self.item().push(if value { code::TRUE } else { code::FALSE });
    }

    /// 8 bits.
    pub fn ubyte(&mut self, value: u8) {
        self.item().extend_from_slice(&[code::UBYTE, value]);
    }

    /// 16 bits.
    pub fn ushort(&mut self, value: u16) {
        let [high, low] = value.to_be_bytes();
        self.item().extend_from_slice(&[code::USHORT, high, low]);
    }

    /// 32 bits.
    pub fn uint(&mut self, value: u32) {
        let out = self.item();
        match u8::try_from(value) {
            Ok(0) => out.push(code::UINT_0),
            Ok(small) => out.extend_from_slice(&[code::UINT_8, small]),
            Err(_) => {
                out.push(code::UINT);
                out.extend_from_slice(&value.to_be_bytes());
            }
        }
    }

    /// 64 bits.
    pub fn ulong(&mut self, value: u64) {
        ulong(self.item(), value);
    }

    /// A string.
    pub fn string(&mut self, value: &str) {
        variable(self.item(), code::STRING_8, code::STRING_32, value.as_bytes());
    }

    /// A symbol.
    pub fn symbol(&mut self, value: &str) {
        variable(self.item(), code::SYMBOL_8, code::SYMBOL_32, value.as_bytes());
    }

    /// A binary.
    pub fn binary(&mut self, value: &[u8]) {
        variable(self.item(), code::BINARY_8, code::BINARY_32, value);
    }

    /// Any value.
    pub fn value(&mut self, value: &Value) {
        write_value(self.item(), value);
    }

    /// A map with symbols as keys.
    pub fn fields(&mut self, fields: &Fields) {
        map(self.item(), fields);
    }

    /// An array of symbols.
    pub fn symbols(&mut self, symbols: &[impl AsRef<str>]) {
        compound(self.item(), code::ARRAY_8, code::ARRAY_32, |items| {
            items.out.push(code::SYMBOL_32);
            for symbol in symbols {
                let symbol = symbol.as_ref().as_bytes();
                let out = items.item();
                out.extend_from_slice(&length(symbol).to_be_bytes());
                out.extend_from_slice(symbol);
            }
        });
    }

    /// One item that `write` encodes.
    pub fn with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(self.item());
    }

    /// `write` for what is there, else null.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.null(),
        }
    }

    fn item(&mut self) -> &mut Vec<u8> {
        self.count += 1;
        self.out
    }
}

fn compound(out: &mut Vec<u8>, short: u8, long: u8, write: impl FnOnce(&mut Items<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[short, 0, 0]);
    let mut items = Items { out, count: 0 };
    write(&mut items);
    let count = items.count;
    let content = out.len() - start - 3;
    match (u8::try_from(content + 1), u8::try_from(count)) {
        (_, Ok(0)) if short == code::LIST_8 => {
            out.truncate(start);
            out.push(code::LIST_0);
        }
        (Ok(size), Ok(count)) => out[start + 1..start + 3].copy_from_slice(&[size, count]),
        _ => {
            let size = u32::try_from(content + 4).expect("a compound value is shorter than 4 GiB");
            let mut head = [long, 0, 0, 0, 0, 0, 0, 0, 0];
            head[1..5].copy_from_slice(&size.to_be_bytes());
            head[5..].copy_from_slice(&count.to_be_bytes());
            out.splice(start..start + 3, head);
        }
    }
}

fn ulong(out: &mut Vec<u8>, value: u64) {
    match u8::try_from(value) {
        Ok(0) => out.push(code::ULONG_0),
        Ok(small) => out.extend_from_slice(&[code::ULONG_8, small]),
        Err(_) => {
            out.push(code::ULONG);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn variable(out: &mut Vec<u8>, short: u8, long: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(size) => out.extend_from_slice(&[short, size]),
        Err(_) => {
            out.push(long);
            out.extend_from_slice(&length(value).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

fn length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).expect("a text or binary is shorter than 4 GiB")
}
