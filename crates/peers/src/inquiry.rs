//! Requests to the state store of another broker, and what their clients are told.

use crate::error::FrameError;
use crate::wire::{Reader, put_text, put_u16, put_u64};

/// A request to the state store of another broker, or the end of whoever has sent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry<'a> {
    /// What it is.
    pub kind: InquiryKind,
    /// The number of the client's connection at the broker that it has reached.
    pub connection: u64,
    /// When that connection began, in milliseconds since the Unix epoch.
    pub since: u64,
    /// The number of the client's session at that broker.
    pub session: u64,
    /// The Packet Identifier of the request.
    pub packet_id: u16,
    /// Whether the request may have been sent before (DUP).
    pub is_repeated: bool,
    /// Whether the session outlives the connection, so that requests may be sent again.
    pub survives: bool,
    /// Whether the session is stored.
    pub is_stored: bool,
    /// The client's Maximum Packet Size, in bytes.
    pub max_packet_size: u32,
    /// The user to whom keys that are set belong; empty: none.
    pub user: &'a str,
    /// How many keys, and how many bytes of them, the user may have; 0: as many as it likes.
    pub user_limits: (u64, u64),
}

/// What an [`Inquiry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InquiryKind {
    /// A request.
    Request,
    /// The connection has ended: it watches nothing any more.
    ConnectionEnded,
    /// The session has ended: none of its requests comes again.
    SessionEnded,
}

/// What the client that has asked a state store is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The number of the client's connection.
    pub connection: u64,
    /// The number of its session, as the broker with the state store knows it.
    pub session: u64,
    /// What the message is.
    pub kind: ToldKind,
}

/// What a message to a client that has asked a state store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldKind {
    /// A response, to be published with the rights of the client.
    Response,
    /// A response with names of keys, of which the client gets those that it may read.
    Keys,
    /// A notification of a key that the client watches.
    Notification,
    /// There is no response, or the watches are gone: the client is to connect again.
    Busy,
    /// A question without a message: has the connection ended?
    Check,
}

impl<'a> Inquiry<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        put_u64(out, self.connection);
        put_u64(out, self.since);
        put_u64(out, self.session);
        put_u16(out, self.packet_id);
        let [repeated, survives, stored] =
            [self.is_repeated, self.survives, self.is_stored].map(u8::from);
        out.push(repeated | survives << 1 | stored << 2);
        put_u64(out, self.max_packet_size.into());
        put_text(out, self.user);
        put_u64(out, self.user_limits.0);
        put_u64(out, self.user_limits.1);
    }

    pub(crate) fn decode(fields: &mut Reader<'a>) -> Result<Self, FrameError> {
        let kind = match fields.u8()? {
            0 => InquiryKind::Request,
            1 => InquiryKind::ConnectionEnded,
            2 => InquiryKind::SessionEnded,
            _ => return Err(FrameError::Value),
        };
        let (connection, since, session) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (packet_id, flags) = (fields.u16()?, fields.u8()?);
        if flags > 0b111 {
            return Err(FrameError::Value);
        }
        Ok(Self {
            kind,
            connection,
            since,
            session,
            packet_id,
            is_repeated: flags & 1 != 0,
            survives: flags & 2 != 0,
            is_stored: flags & 4 != 0,
            max_packet_size: u32::try_from(fields.u64()?).map_err(|_| FrameError::Value)?,
            user: fields.text()?,
            user_limits: (fields.u64()?, fields.u64()?),
        })
    }
}

impl Told {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.connection);
        put_u64(out, self.session);
        out.push(self.kind as u8);
    }

    pub(crate) fn decode(fields: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            connection: fields.u64()?,
            session: fields.u64()?,
            kind: match fields.u8()? {
                0 => ToldKind::Response,
                1 => ToldKind::Keys,
                2 => ToldKind::Notification,
                3 => ToldKind::Busy,
                4 => ToldKind::Check,
                _ => return Err(FrameError::Value),
            },
        })
    }
}
