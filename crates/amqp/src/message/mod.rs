//! Messages and their sections, which are located without decoding what passes through.
//!
//! A message is stored as its sender encoded it. [`Sections::split`] locates its sections when it arrives
//! and when it is delivered. [`Delivered`] is what the broker adds on delivery; the body is copied, never
//! read. Everything borrows, and nothing is allocated because a peer declared a count.

mod batch;
mod builder;
mod header;
mod outgoing;
mod properties;
mod request;
mod response;
mod rule;
mod sections;
mod text;

pub use batch::{BATCH, Batch, batch};
pub use builder::Builder;
pub use header::Header;
pub use outgoing::{Change, Delivered, Scope, State};
pub use properties::{Field, Properties};
pub use request::Request;
pub use response::Response;
pub use rule::{Correlation, Filter, Rule};
pub use sections::Sections;
pub use text::id_text;

pub use crate::wire::{Items, List, Malformed, Map, ValueRef, Writer};
