//! What a property of a message can be.

/// The value of a message's property, as rules see it.
///
/// AMQP has more types than SQL: an adapter widens every integer to [`Value::Long`] (a `ulong`
/// above its range to [`Value::Double`]), every decimal and `float` to [`Value::Double`] and a
/// symbol to [`Value::String`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value. A property that is `Null` exists and IS NULL.
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

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}
