//! Server side of AMQP 1.0, without IO: connections, sessions, links, SASL and messages.
//!
//! There is no socket, no task and no clock here. [`receive`](Connection::receive) takes the input of
//! a [`Connection`], [`next_event`](Connection::next_event) returns its [events](Event),
//! [`output`](Connection::output) holds the bytes for the peer, and the other methods are commands. An
//! adapter handles its input like this:
//!
//! ```
//! use barid_amqp::{AttachAnswer, Connection, DeliveryState, Error, Event, Limits, SaslOutcome};
//!
//! fn on_input(connection: &mut Connection, input: &mut Vec<u8>) {
//!     loop {
//!         // A failure has queued a close for the peer and ended all links; events tell of them.
//!         let consumed = connection.receive(input).unwrap_or(input.len());
//!         input.drain(..consumed);
//!         while let Some(event) = connection.next_event() {
//!             match event {
//!                 Event::SaslInit { mechanism, .. } => {
//!                     // Now or at any later time.
//!                     let is_known = mechanism == "ANONYMOUS";
//!                     let outcome = if is_known { SaslOutcome::Ok } else { SaslOutcome::Auth };
//!                     connection.sasl_outcome(outcome);
//!                 }
//!                 Event::Attach(request) if request.address() == Some("sq") => {
//!                     // Now or at any later time; links that have gone meanwhile take no answer.
//!                     connection.accept_attach(
//!                         request.link,
//!                         AttachAnswer { credit: 1000, ..AttachAnswer::default() },
//!                     );
//!                 }
//!                 Event::Attach(request) => {
//!                     connection.refuse_attach(
//!                         request.link,
//!                         Error::new("amqp:not-found", "There is no such node."),
//!                     );
//!                 }
//!                 Event::Delivery(delivery) => {
//!                     connection.settle_incoming(delivery.id, &DeliveryState::Accepted);
//!                 }
//!                 Event::Credit { link } => {
//!                     let message = [0x00, 0x53, 0x77, 0xA1, 0x02, b'h', b'i'];
//!                     while connection.credit(link) > 0 {
//!                         let _ = connection.send(link, &[0; 16], false, 0, &[&message]);
//!                     }
//!                 }
//!                 Event::Drain { link } => {
//!                     connection.drained(link);
//!                 }
//!                 Event::Disposition(disposition) => {
//!                     connection.settle_outgoing(disposition.delivery, disposition.state.as_deref());
//!                 }
//!                 Event::Opened(_) | Event::Detached { .. } | Event::Closed { .. } => {}
//!             }
//!         }
//!         if consumed == 0 {
//!             break; // write `connection.output()` to the socket; close it if `is_closed()`
//!         }
//!     }
//! }
//!
//! let mut connection = Connection::new("broker", Limits::default());
//! let mut input = b"AMQP\x00\x01\x00\x00".to_vec();
//! on_input(&mut connection, &mut input);
//! assert!(input.is_empty());
//! assert_eq!(connection.output(), b"AMQP\x00\x01\x00\x00");
//! ```
//!
//! When the socket is gone, [`abort`](Connection::abort) ends everything: each link that was reported
//! by [`Event::Attach`] and not ended by the adapter is reported by [`Event::Detached`], exactly once.
//!
//! Clients in tests and load generators use [`frame`], whose codec works in both directions.
//!
//! Every [`Failure`] is the peer's fault. A command on a link or delivery that is gone does nothing
//! and reports that: peers end things at any time, and nothing may be written on what has ended.

mod connection;
pub mod frame;
pub mod message;

mod error;
mod fields;
mod wire;

pub use connection::{
    AttachAnswer, AttachRequest, Connection, Delivery, Disposition, Event, Failure, IncomingId,
    Limits, LinkId, OutgoingId, SaslOutcome, SendError, SessionId,
};
pub use error::Error;
pub use fields::Fields;
pub use frame::{DeliveryState, Modified, ReceiverSettles, Role, SenderSettles, Tag, Terminus};
