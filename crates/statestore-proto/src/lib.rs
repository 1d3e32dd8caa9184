//! The state store protocol of the Azure IoT Operations MQTT broker: keys and values over MQTT 5.
//!
//! A request is a PUBLISH to [`topics::INVOKE`] whose payload is a [`Command`]. Its response is a
//! PUBLISH to the response topic whose payload is a [`Reply`]. Clients that watch a key are told of
//! changes by [`Notification`]s. Payloads are written in a small part of RESP3. Every change has a
//! [`Version`], a reading of a hybrid logical clock, which also serves as a fencing token.
//!
//! This crate has no sockets, tasks or clocks. Input is given as slices, decoded values borrow from
//! them, and encoding appends to a `Vec<u8>`. Everything can be encoded and decoded, so that the
//! broker and its clients use the same codec.
//!
//! ```
//! use statestore_proto::{Command, Reply};
//!
//! let request = b"*2\r\n$3\r\nGET\r\n$5\r\nspeed\r\n";
//! assert_eq!(Command::decode(request), Ok(Command::Get { key: b"speed" }));
//!
//! let mut response = Vec::new();
//! Reply::Value(b"42").encode(&mut response);
//! assert_eq!(response, b"$2\r\n42\r\n");
//! ```
//!
//! A [`Refusal`] is always caused by the request; nothing in this crate fails for another reason.

mod command;
mod glob;
mod hlc;
mod notification;
pub mod properties;
mod refusal;
mod reply;
mod resp;
pub mod topics;

pub use command::{Command, Condition, PATTERN_MAX, Verb};
pub use glob::Glob;
pub use hlc::{DRIFT_MAX_MS, Hlc, NODE, Version};
pub use notification::Notification;
pub use refusal::Refusal;
pub use reply::Reply;
