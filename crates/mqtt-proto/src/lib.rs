//! MQTT 3.1, 3.1.1 and 5.0 packets, and the per-connection tables of the protocol.
//!
//! This crate has no sockets, tasks or clocks. Input is given as slices, packets borrow from them,
//! and encoding appends to a `Vec<u8>`. Every packet can be encoded and decoded, so that a server,
//! a client and a load generator use the same codec.
//!
//! Decoding the input of a connection:
//!
//! ```
//! use mqtt_proto::{FixedHeader, Packet, Version};
//!
//! let input = [0xC0, 0x00];
//! let header = FixedHeader::read(&input, 1024).unwrap().expect("two bytes are a whole header");
//! let body = &input[header.header_len..header.packet_len()];
//! assert_eq!(Packet::decode(Version::V5, header, body), Ok(Packet::PingReq));
//! ```
//!
//! Every [`DecodeError`] is the peer's fault, every [`EncodeError`] is the caller's. The caller has
//! to check which side may send which packet, and when.

mod error;
pub mod flow;
mod frame;
mod packet;
mod packet_id;
mod properties;
mod qos;
mod reason;
pub mod topic;
mod version;
pub mod wire;

pub use error::{DecodeError, EncodeError};
pub use frame::{FixedHeader, MAX_PACKET_LEN, MAX_REMAINING_LENGTH, PacketType};
pub use packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, Publish, RetainHandling, SubAck, Subscribe,
    SubscribeFilter, SubscribeFilters, SubscribeFiltersBuf, SubscriptionOptions, UnsubAck,
    Unsubscribe, UnsubscribeFilters, UnsubscribeFiltersBuf, Will,
};
pub use packet_id::PacketId;
pub use properties::{Properties, PropertiesBuf, Property, PropertyId, PropertySet, RawProperty};
pub use qos::QoS;
pub use reason::{ConnectReturnCode, ReasonCode};
pub use topic::TopicError;
pub use version::Version;
