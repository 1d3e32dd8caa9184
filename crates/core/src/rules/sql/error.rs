//! Why a text is no filter and no action.

use std::fmt;

/// An expression that was refused: where, and what was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The place in the text: characters, from 1.
    pub at: usize,
    /// What was wrong there.
    pub reason: Reason,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something else should stand here.
    Expected {
        /// What should.
        what: &'static str,
        /// What does.
        found: Box<str>,
    },
    /// More than [`crate::rules::TEXT_MAX`] characters.
    TooLong,
    /// Parentheses, NOT, signs and functions in one another more than [`crate::rules::DEPTH_MAX`] times.
    TooDeep,
    /// A text or a name that begins here has no end.
    Unterminated(&'static str),
    /// No integer of 64 bits, or no finite number.
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
