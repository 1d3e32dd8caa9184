//! Errors of parsing filters and actions.

use std::fmt;

/// Error of parsing a filter or an action: the place and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The place in the text, in characters from 1.
    pub at: usize,
    /// The reason.
    pub reason: Reason,
}

/// The reason for which an expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something else was expected here.
    Expected {
        /// The expected token or construct.
        what: &'static str,
        /// The token or construct that was found.
        found: Box<str>,
    },
    /// The text has more than [`crate::rules::TEXT_MAX`] characters.
    TooLong,
    /// Parentheses, NOT, signs and functions are nested more than [`crate::rules::DEPTH_MAX`] times.
    TooDeep,
    /// A text or a name that begins here is not terminated.
    Unterminated(&'static str),
    /// The number does not fit into a 64-bit integer, or is not a finite number.
    NumberTooLarge,
    /// A property with `sys.` that does not exist.
    NoSystemProperty(Box<str>),
    /// A system property that an action cannot change.
    NotSettable(&'static str),
    /// A parameter without a value.
    NoParameter(Box<str>),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.reason)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected { what, found } => write!(f, "expected {what}, found {found}"),
            Self::TooLong => write!(f, "more than {} characters", crate::rules::TEXT_MAX),
            Self::TooDeep => write!(f, "nested more than {} times", crate::rules::DEPTH_MAX),
            Self::Unterminated(what) => write!(f, "{what} begins here and does not end"),
            Self::NumberTooLarge => write!(f, "the number is too large"),
            Self::NoSystemProperty(name) => write!(f, "there is no system property sys.{name}"),
            Self::NotSettable(name) => write!(f, "an action cannot change sys.{name}"),
            Self::NoParameter(name) => write!(f, "the parameter @{name} has no value"),
        }
    }
}
