//! Queues and subscriptions, with message sessions, in the manner of Azure Service Bus.
//!
//! An [`Entity`] is one queue, or one subscription of a topic, with its dead letters. A receiver on an entity that
//! requires sessions first gets the exclusive lock on all messages of one session, present and future; messages that it
//! does not settle return to their places. Therefore the order within a session is always determined, and no session
//! waits for another.
//!
//! *Memory leads, the store follows*: a change is made in memory and passed to [`Effects`] in one step; an answer about
//! a change that must not be lost waits for the batch. Locks are not stored: they end with the process. Messages may be
//! delivered before they are durable, so sequence numbers are assigned out of a durable reservation.
//!
//! | module | contents |
//! | --- | --- |
//! | `entity` | the entity, and the movement of a message within it |
//! | `sending`, `taking`, `settling` | sending, delivery and settlement of messages |
//! | `resubmitting` | dead letters that wait for receivers again |
//! | `accepting` | receivers and their locks on sessions |
//! | `state` | the state that users set for a session |
//! | `timing` | the end of locks, schedules and times to live |
//! | `browsing`, `counts` | queries that change nothing |
//! | `removing`, `recovery` | removal of everything, and recovery from the store |
//! | `messages`, `numbers` | the messages of a part, and their numbers |
//! | `plain` | a stream of messages each with a lock of its own |
//! | `sessions`, `message_session` | streams of messages under one lock each |
//! | `duplicates` | the ids of messages that were sent |
//! | `footprint` | the bytes that count against the limit |
//! | `due`, `turns`, `ready` | order by time, order of arrival, and the queue's view of a message |
//! | `entry`, `overlay`, `part`, `properties`, `receiving`, `refusal`, `effects` | parameters and results of the
//! commands |

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
mod resubmitting;
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

/// Maximum length of a session id or a message id, in bytes; a longer one is refused as [`Refusal::IdTooLong`].
pub const ID_LEN_MAX: usize = 512;
