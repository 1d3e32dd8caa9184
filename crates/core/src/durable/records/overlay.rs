//! The overlay of a message: the properties changed since it was received.

use super::RecordError;
use crate::durable::wire::{Reader, put_str, put_varint};
use crate::entity::Overlay;
use crate::value::{Scope, Value};

const SYSTEM: u8 = 0;
const USER: u8 = 1;
const ANNOTATION: u8 = 2;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const LONG: u8 = 3;
const DOUBLE: u8 = 4;
const STRING: u8 = 5;
const BINARY: u8 = 6;
const UUID: u8 = 7;
const TIMESTAMP: u8 = 8;

/// Appends an overlay, in its order.
pub(super) fn put_overlay(overlay: &Overlay, out: &mut Vec<u8>) {
    put_varint(overlay.iter().count() as u64, out);
    for (scope, name, value) in overlay.iter() {
        out.push(match scope {
            Scope::System => SYSTEM,
            Scope::User => USER,
            Scope::Annotation => ANNOTATION,
        });
        put_str(name, out);
        put_value(value, out);
    }
}

/// Reads an overlay.
pub(super) fn overlay(reader: &mut Reader<'_>) -> Result<Overlay, RecordError> {
    let mut overlay = Overlay::default();
    for _ in 0..reader.varint()? {
        let scope = match reader.u8()? {
            SYSTEM => Scope::System,
            USER => Scope::User,
            ANNOTATION => Scope::Annotation,
            _ => return Err(RecordError::Malformed("a property is of no known scope")),
        };
        let name = reader.str()?;
        if overlay.get(scope, name).is_some() {
            return Err(RecordError::Malformed("a property was changed twice"));
        }
        overlay.set(scope, name, value(reader)?);
    }
    Ok(overlay)
}

fn put_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Long(number) => {
            out.push(LONG);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::Double(number) => {
            out.push(DOUBLE);
            out.extend_from_slice(&number.to_bits().to_be_bytes());
        }
        Value::String(text) => {
            out.push(STRING);
            put_str(text, out);
        }
        Value::Binary(bytes) => {
            out.push(BINARY);
            put_varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Value::Uuid(uuid) => {
            out.push(UUID);
            out.extend_from_slice(uuid);
        }
        Value::Timestamp(millis) => {
            out.push(TIMESTAMP);
            out.extend_from_slice(&millis.to_be_bytes());
        }
    }
}

fn value(reader: &mut Reader<'_>) -> Result<Value, RecordError> {
    Ok(match reader.u8()? {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        LONG => Value::Long(reader.u64_be()?.cast_signed()),
        DOUBLE => Value::Double(f64::from_bits(reader.u64_be()?)),
        STRING => Value::String(reader.str()?.into()),
        BINARY => {
            let len = reader.narrow()?;
            Value::Binary(reader.take(len)?.into())
        }
        UUID => Value::Uuid(reader.u128_be()?.to_be_bytes()),
        TIMESTAMP => Value::Timestamp(reader.u64_be()?.cast_signed()),
        _ => return Err(RecordError::Malformed("a value is of no known type")),
    })
}
