//! The language of filters and actions: a subset of SQL-92, with its three-valued logic.
//!
//! A text becomes a [`Program`] in one pass, without a tree in between: so evaluating is a loop
//! over a flat list, and nothing that a text says can make it recurse.

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

/// How many characters a filter or an action may have.
pub const TEXT_MAX: usize = 1024;

/// How deep parentheses, NOT, signs and functions may stand in one another.
pub const DEPTH_MAX: usize = 64;

/// How many bytes a text may have that an expression puts together: a longer one is unknown.
pub const JOINED_MAX: usize = 64 * 1024;

/// What stands for `@name` in a text: the names, with or without `@`, and their values.
pub type Parameters = [(Box<str>, Value)];
