//! Queues and subscriptions, with message sessions, in the manner of Azure Service Bus.

mod counts;
mod effects;
mod entry;
mod overlay;
mod part;
mod properties;
mod receiving;
mod refusal;

pub use counts::{Counts, SessionDetails};
pub use effects::Effects;
pub use entry::{Body, Entry, Incoming, Sent, SequenceNumber, State};
pub use overlay::{Overlay, Scope};
pub use part::Part;
pub use properties::Properties;
pub use receiving::{Accept, Accepted, Changes, Delivery, LockToken, Mode, Outcome, ReceiverId};
pub use refusal::Refusal;

/// The most bytes of a session id or of a message id.
pub const ID_LEN_MAX: usize = 512;
