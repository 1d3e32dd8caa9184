//! Values of message properties.

use std::borrow::Cow;
use std::fmt;

/// The namespace of a changed property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Scope {
    /// The message's properties: `Label`, `CorrelationId`, `SessionId`, …
    System = 0,
    /// Application properties.
    User = 1,
    /// Message annotations.
    Annotation = 2,
}

/// The value of a message's property, as rules see it.
///
/// AMQP has more types than SQL: an adapter widens every integer to [`Value::Long`] (a `ulong`
/// above its range to [`Value::Double`]), every decimal and `float` to [`Value::Double`] and makes
/// a symbol or a `char` a [`Value::String`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value. A property that is `Null` exists, and IS NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Long(i64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Box<str>),
    /// Bytes.
    Binary(Box<[u8]>),
    /// A UUID, in network byte order.
    Uuid([u8; 16]),
    /// A point in time: milliseconds since the Unix epoch.
    Timestamp(i64),
}

/// A [`Value`] that can borrow its text and bytes; expressions compute with it.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// No value, or an unknown value: expressions do not distinguish the two.
    Null,
    /// A boolean, or the truth of a condition.
    Bool(bool),
    /// An integer.
    Long(i64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Cow<'a, str>),
    /// Bytes.
    Binary(Cow<'a, [u8]>),
    /// A UUID, in network byte order.
    Uuid([u8; 16]),
    /// A point in time: milliseconds since the Unix epoch.
    Timestamp(i64),
}

impl Value {
    /// Approximate size of the value, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
            _ => size_of::<Self>(),
        }
    }

    /// Borrows the value.
    pub fn borrow(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(truth) => ValueRef::Bool(*truth),
            Self::Long(number) => ValueRef::Long(*number),
            Self::Double(number) => ValueRef::Double(*number),
            Self::String(text) => ValueRef::String(Cow::Borrowed(text)),
            Self::Binary(bytes) => ValueRef::Binary(Cow::Borrowed(bytes)),
            Self::Uuid(id) => ValueRef::Uuid(*id),
            Self::Timestamp(at) => ValueRef::Timestamp(*at),
        }
    }
}

impl ValueRef<'_> {
    /// Converts into a value that owns its data.
    pub fn into_owned(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(truth),
            Self::Long(number) => Value::Long(number),
            Self::Double(number) => Value::Double(number),
            Self::String(text) => Value::String(text.into()),
            Self::Binary(bytes) => Value::Binary(bytes.into()),
            Self::Uuid(id) => Value::Uuid(id),
            Self::Timestamp(at) => Value::Timestamp(at),
        }
    }
}

impl<'a> From<&'a str> for ValueRef<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Long(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

/// A UUID in text form: `6ba7b810-9dad-11d1-80b4-00c04fd430c8`.
pub(super) struct WrittenUuid<'a>(pub &'a [u8; 16]);

impl fmt::Display for WrittenUuid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
