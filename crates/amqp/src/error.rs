use std::borrow::Cow;

use crate::Fields;

/// Error reported to a peer when a link, a session, a connection or a delivery failed (2.8.14).
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// Symbol that names the error, such as `amqp:not-found`.
    pub condition: Cow<'static, str>,
    /// Text for people.
    pub description: Option<Cow<'static, str>>,
    /// Further details, for programs.
    pub info: Fields,
}

impl Error {
    /// Creates an error with a description and no further details.
    pub fn new(
        condition: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition, description) = (condition.into(), Some(description.into()));
        Self { condition, description, info: Fields::new() }
    }
}
