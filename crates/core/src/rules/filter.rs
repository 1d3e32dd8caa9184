//! Filters of rules: conditions that select messages.

use std::fmt;
use std::str::FromStr;

use super::Properties;
use super::correlation::CorrelationFilter;
use super::sql::{Parameters, ParseError, Parser, Program};
use crate::value::Value;

/// A condition on the properties of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Every message.
    True,
    /// No message.
    False,
    /// The messages for which an expression is true.
    Sql(SqlFilter),
    /// The messages whose properties have certain values.
    Correlation(CorrelationFilter),
}

impl Filter {
    /// Returns whether the filter matches the message.
    pub fn matches(&self, message: &impl Properties) -> bool {
        match self {
            Self::True => true,
            Self::False => false,
            Self::Sql(filter) => filter.matches(message),
            Self::Correlation(filter) => filter.matches(message),
        }
    }
}

/// An expression like `color = 'red' AND sys.Label LIKE 'order-%'`.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlFilter {
    text: Box<str>,
    parameters: Box<Parameters>,
    program: Program,
}

impl SqlFilter {
    /// Parses a filter, with values for its parameters (`@name`).
    ///
    /// # Errors
    /// The text is not a condition, is longer than [`super::TEXT_MAX`], is nested deeper than
    /// [`super::DEPTH_MAX`], or has a parameter without a value.
    pub fn new(text: &str, parameters: Vec<(Box<str>, Value)>) -> Result<Self, ParseError> {
        let program = Parser::new(text, &parameters)?.filter()?;
        Ok(Self { text: text.into(), parameters: parameters.into(), program })
    }

    /// The text of the filter.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values of the parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns whether the expression is true for the message: neither false nor unknown.
    ///
    /// The cost is proportional to the length of the text, plus for each operator the size of its
    /// operands.
    pub fn matches(&self, message: &impl Properties) -> bool {
        self.program.holds(message)
    }
}

impl FromStr for SqlFilter {
    type Err = ParseError;

    /// Parses a filter without parameters.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::new(text, Vec::new())
    }
}

impl fmt::Display for SqlFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
