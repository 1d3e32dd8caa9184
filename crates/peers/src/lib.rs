//! What the brokers of a cluster say to each other, without IO.
//!
//! A *link* is a connection between two brokers. The broker that has opened it speaks, and the other one hears and
//! acknowledges. So each pair of brokers has links in both directions. There are five kinds:
//!
//! - The *control link* carries heartbeats, the topic filters that the speaker's clients have subscribed to, and wills that the hearer
//!   keeps.
//! - A *message link* carries messages. Each IO thread of a broker has one to each other broker.
//! - A *replication link* carries the objects that all brokers have: users and other managed objects, retained messages.
//! - A *client link* carries the bytes of one client that is connected to a broker and has its session at another one.
//! - A *move link* carries the contents of a slot that changes its broker.
//!
//! | file | what is there |
//! | --- | --- |
//! | `identity.rs` | a broker's name, address and incarnation; the purpose of a link |
//! | `error.rs` | what can be wrong with a frame, and why a link is refused |
//! | `wire.rs` | integers and texts |
//! | `frame.rs` | the frames of a link as bytes, in both directions |
//! | `common.rs` | the settings that all brokers should have in common |
//! | `heartbeat.rs` | what a broker says about itself and the others |
//! | `inquiry.rs` | requests to the state store of another broker |
//! | `handshake.rs` | the first frames of a link, in which both brokers prove that they know the secret |
//! | `placement.rs` | which broker has the session of a client |
//! | `members.rs` | the brokers of a cluster, and which of them can be reached |
//! | `announced.rs` | objects of a broker: snapshots and changes for the other brokers |
//! | `interest.rs` | the topic filters of a broker's clients |
//! | `digest.rs` | digests of the objects that all brokers have |
//! | `comparing.rs` | which of these objects a broker lists for another one |
//! | `outgoing.rs` | messages to another broker: not yet sent, or not yet acknowledged |
//!
//! `docs/formats/link.md` describes the bytes. Nothing here opens a socket, reads a clock or draws random numbers.
//!
//! *Every [`FrameError`] is the fault of the other broker.*

mod announced;
mod common;
mod comparing;
mod digest;
mod error;
mod frame;
mod handshake;
mod heartbeat;
mod identity;
mod inquiry;
mod interest;
mod members;
mod outgoing;
mod placement;
mod used;
mod wire;

pub use announced::{Announced, Part};
pub use common::CommonSettings;
pub use comparing::{Comparing, Comparison};
pub use digest::{Digest, Listed, Object, ObjectHash, PARTS, Parts};
pub use error::{FrameError, NONCE, PROOF, Refusal};
pub use frame::{
    Change, Client, Destination, Frame, HOLD_MS, Protocol, Retaining, Run, Will, decode,
};
pub use handshake::{Accepting, Dialing, HandshakeError, Outcome, Proofs, Reply};
pub use heartbeat::{Heartbeat, Seen, Support, Verdict};
pub use identity::{Identity, NAME_MAX, Purpose, is_name, origin_of};
pub use inquiry::{Inquiry, InquiryKind, Told, ToldKind};
pub use interest::Interest;
pub use members::{Event, Member, Members, State, Timing};
pub use outgoing::Outgoing;
pub use placement::{HOMES_MAX, Placement, SLOTS_MAX};
pub use used::{RATES, Used};
