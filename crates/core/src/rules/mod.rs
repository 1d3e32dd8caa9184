//! Rules of a topic's subscription: which messages it takes, and what it changes in them.

mod value;

pub use value::Value;
