//! Rules: the language of filters and actions, and their effect on messages.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod actions;
mod copies;
mod correlation;
mod cost;
mod errors;
mod filters;
mod guide;
mod message;
mod model;
mod patterns;
mod random;
