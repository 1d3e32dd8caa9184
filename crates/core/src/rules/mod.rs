//! Rules of a topic's subscription: the messages that it accepts, and the changes made in them.
//!
//! A [`Rule`] has a [`Filter`] and may have an [`Action`]. Both use the [`Properties`] of a
//! message, never its body. `docs/rules.md` describes their language.

mod action;
mod correlation;
mod filter;
mod properties;
mod rule;
mod sql;

pub use action::{Action, Change};
pub use correlation::CorrelationFilter;
pub use filter::{Filter, SqlFilter};
pub use properties::{Properties, SystemProperty, same_name};
pub use rule::{Copies, DEFAULT_RULE, RULE_NAME, Rule};
pub use sql::{DEPTH_MAX, JOINED_MAX, Parameters, ParseError, Reason, TEXT_MAX};
