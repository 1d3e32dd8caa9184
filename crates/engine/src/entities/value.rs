//! Conversion of property values between their encoding in messages and their form in rules and changes.

use std::borrow::Cow;

use barid_amqp::message::ValueRef as Encoded;
use barid_core::value::{Value, ValueRef};

/// Converts a value to its encoding in a message.
pub fn encoded(value: &Value) -> Encoded<'_> {
    match value {
        Value::Null => Encoded::Null,
        Value::Bool(value) => Encoded::Bool(*value),
        Value::Long(value) => Encoded::Long(*value),
        Value::Double(value) => Encoded::Double(*value),
        Value::String(text) => Encoded::String(text),
        Value::Binary(bytes) => Encoded::Binary(bytes),
        Value::Uuid(uuid) => Encoded::Uuid(*uuid),
        Value::Timestamp(at) => Encoded::Timestamp(*at),
    }
}

/// Converts a value of a message to the form that rules use. Returns `None` for a list, map, array, decimal or
/// described value, which rules cannot use.
pub(crate) fn widened(value: Encoded<'_>) -> Option<ValueRef<'_>> {
    Some(match value {
        Encoded::Null => ValueRef::Null,
        Encoded::Bool(truth) => ValueRef::Bool(truth),
        Encoded::Float(number) => ValueRef::Double(number.into()),
        Encoded::Double(number) => ValueRef::Double(number),
        Encoded::Char(letter) => ValueRef::String(Cow::Owned(letter.to_string())),
        Encoded::Timestamp(at) => ValueRef::Timestamp(at),
        Encoded::Uuid(id) => ValueRef::Uuid(id),
        Encoded::Binary(bytes) => ValueRef::Binary(Cow::Borrowed(bytes)),
        Encoded::String(text) | Encoded::Symbol(text) => ValueRef::from(text),
        #[allow(clippy::cast_precision_loss)]
        Encoded::Ulong(number) => match i64::try_from(number) {
            Ok(number) => ValueRef::Long(number),
            Err(_) => ValueRef::Double(number as f64),
        },
        other => ValueRef::Long(other.integer()?),
    })
}

/// Like `widened`, but returns a value that owns its text and bytes.
pub fn kept(value: Encoded<'_>) -> Option<Value> {
    widened(value).map(ValueRef::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_type_of_its_own_is_widened() {
        assert_eq!(kept(Encoded::Ulong(7)), Some(Value::Long(7)));
        assert_eq!(kept(Encoded::Ulong(1 << 63)), Some(Value::Double(9_223_372_036_854_775_808.0)));
        assert_eq!(kept(Encoded::Int(-7)), Some(Value::Long(-7)));
        assert_eq!(kept(Encoded::Char('ä')), Some(Value::String("ä".into())));
        assert_eq!(kept(Encoded::Symbol("a")), Some(Value::String("a".into())));
    }
}
