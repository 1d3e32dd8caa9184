//! The language of filters and actions: a subset of SQL-92, with its three-valued logic.
//!
//! A text is compiled to a [`Program`] in one pass, without a syntax tree. Evaluating is a loop
//! over a flat list of instructions, so no text can make it recurse.

mod error;
mod like;
mod operators;
mod parser;
mod program;
mod tokens;

pub use error::{ParseError, Reason};
pub(super) use operators::equal;
pub(super) use parser::{Parser, Target};
pub(super) use program::Program;

use crate::value::Value;

/// Maximum length of a filter or an action, in characters; a longer text is refused.
pub const TEXT_MAX: usize = 1024;

/// Maximum nesting of parentheses, NOT, signs and functions; a deeper expression is refused.
pub const DEPTH_MAX: usize = 64;

/// Maximum length, in bytes, of a text that an expression concatenates; a longer one is unknown.
pub const JOINED_MAX: usize = 64 * 1024;

/// The values of the parameters `@name` in a text, by name with or without `@`.
pub type Parameters = [(Box<str>, Value)];
