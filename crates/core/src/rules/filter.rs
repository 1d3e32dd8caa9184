//! Which messages a rule is for.

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
    /// Those that an expression is true of.
    Sql(SqlFilter),
    /// Those whose properties have certain values.
    Correlation(CorrelationFilter),
}

impl Filter {
    /// Whether it is true of the message.
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
    /// The filter that the text says, with the values of the parameters (`@name`) in it.
    ///
    /// # Errors
    /// It is no condition, or longer than [`super::TEXT_MAX`], or nested deeper than
    /// [`super::DEPTH_MAX`], or has a parameter without a value.
    pub fn new(text: &str, parameters: Vec<(Box<str>, Value)>) -> Result<Self, ParseError> {
        let program = Parser::new(text, &parameters)?.filter()?;
        Ok(Self { text: text.into(), parameters: parameters.into(), program })
    }

    /// The text it was made of.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters it was made with.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether the expression is true of the message: neither false nor unknown.
    ///
    /// Costs the length of the text, and for each operator the size of what it works on.
    pub fn matches(&self, message: &impl Properties) -> bool {
        self.program.holds(message)
    }
}

impl FromStr for SqlFilter {
    type Err = ParseError;

    /// A filter without parameters.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::new(text, Vec::new())
    }
}

impl fmt::Display for SqlFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
