use std::borrow::Cow;

use crate::Fields;

/// What a peer is told when a link, a session, a connection or a delivery failed (2.8.14).
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// A symbol, such as `amqp:not-found`.
    pub condition: Cow<'static, str>,
    /// For people.
    pub description: Option<Cow<'static, str>>,
    /// More about it, for programs.
    pub info: Fields,
}

impl Error {
    /// An error with a description and nothing else.
    pub fn new(
        condition: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition, description) = (condition.into(), Some(description.into()));
        Self { condition, description, info: Fields::new() }
    }
}
