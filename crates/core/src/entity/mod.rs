//! Queues and subscriptions, with message sessions, in the manner of Azure Service Bus.
//!
//! An [`Entity`] is one queue, or one subscription of a topic, with its dead letters. Whoever receives from
//! one that requires sessions first gets the exclusive lock on all messages of one session, present and
//! future; what it does not settle comes back to its old place. Which message is next in a session is never
//! a question, therefore, and no session waits for another.
//!
//! *Memory leads, the store follows*: a change is made in memory and told to [`Effects`] in one go; what must
//! not be lost before it is answered waits for the batch. Locks are not stored: they end with the process.
//! Messages may be delivered before they are durable, so sequence numbers are given out of a durable
//! reservation.
//!
//! | module | what is there |
//! | --- | --- |
//! | `entity` | the entity, and the ways of a message within it |
//! | `sending`, `taking`, `settling` | messages come, are delivered, are settled |
//! | `accepting` | receivers and their locks on sessions |
//! | `state` | what the users of a session note with it |
//! | `timing` | locks, schedules and lives end |
//! | `browsing`, `counts` | looks that change nothing |
//! | `removing`, `recovery` | all goes, or comes back from the store |
//! | `messages`, `numbers` | the messages of a part, and their numbers |
//! | `plain` | a stream of messages each with a lock of its own |
//! | `sessions`, `message_session` | streams of messages under one lock each |
//! | `duplicates` | the ids of messages that were sent |
//! | `footprint` | what counts against the limit in bytes |
//! | `due`, `turns`, `ready` | what comes when, who comes first, what a queue knows of a message |
//! | `entry`, `overlay`, `part`, `properties`, `receiving`, `refusal`, `effects` | what is said to an entity, and by it |

mod accepting;
mod browsing;
mod counts;
mod due;
mod duplicates;
mod effects;
#[expect(clippy::module_inception, reason = "the module is named for what it has")]
mod entity;
mod entry;
mod footprint;
mod message_session;
mod messages;
mod numbers;
mod overlay;
mod part;
mod plain;
mod properties;
mod ready;
mod receiving;
mod recovery;
mod refusal;
mod removing;
mod sending;
mod sessions;
mod settling;
mod state;
mod taking;
mod timing;
mod turns;

pub use counts::{Counts, SessionDetails};
pub use duplicates::{SEEN_BYTES_MAX, SEEN_MAX};
pub use effects::Effects;
pub use entity::Entity;
pub use entry::{Body, Entry, Incoming, Sent, SequenceNumber, State};
pub use footprint::{MESSAGE_OVERHEAD, SEEN_OVERHEAD, SESSION_OVERHEAD, STATE_OVERHEAD};
pub use overlay::{CHANGED_BYTES_MAX, CHANGED_MAX, Overlay};
pub use part::Part;
pub use properties::Properties;
pub use receiving::{Accept, Accepted, Changes, Delivery, LockToken, Mode, Outcome, ReceiverId};
pub use refusal::Refusal;
pub use timing::AT_ONCE_MAX;

/// The most bytes of a session id or of a message id.
pub const ID_LEN_MAX: usize = 512;
