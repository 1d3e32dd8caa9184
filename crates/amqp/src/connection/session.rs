use std::collections::{BTreeMap, VecDeque};

use super::event::{LinkId, SessionId};
use super::ledger::Ledger;
use crate::frame::{Begin, Flow, Tag, Transfer};

/// Width of both windows of this side: the largest that peers can count. Credit bounds what a peer may
/// send, and no peer is held to a window: some clients count messages in it instead of frames.
const WINDOW: u32 = i32::MAX as u32;

/// Id of this side's first transfer frame and of its first delivery: some clients take 0 for none.
const FIRST_ID: u32 = 1;

/// One session, from the begin of the peer to its end.
#[derive(Debug)]
pub(super) struct Session {
    pub id: SessionId,
    /// This side has ended the session, and the peer has not yet.
    pub is_ending: bool,
    /// Links by handle, which is the same in both directions.
    handles: BTreeMap<u32, LinkId>,
    /// Id of the next transfer frame that the peer will send.
    next_incoming_id: u32,
    next_outgoing_id: u32,
    /// Number of transfer frames that the peer takes now.
    peer_window: u32,
    next_delivery: u64,
    /// Number of deliveries that the peer has begun, which is the number of the next one. The peer chooses
    /// the delivery ids, and clients whose threads race give one id to two deliveries, or ids that do not
    /// ascend.
    begun: u64,
    /// Deliveries of the peer that the caller has not settled.
    pub incoming: Ledger<Incoming>,
    /// Deliveries to the peer that are not settled.
    pub outgoing: Ledger<Sent>,
    /// The number of unsettled deliveries to the peer has reached its limit, and the links have not since
    /// been told that there is room again.
    pub was_full: bool,
    /// Messages and drain answers that wait for the peer's window, in order.
    pub held: VecDeque<Held>,
    /// Number of message bytes in `held`.
    pub held_bytes: usize,
}

/// An unsettled delivery of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Incoming {
    pub link: LinkId,
    /// Delivery id that the peer gave.
    pub id: u32,
}

/// An unsettled delivery to the peer.
#[derive(Debug)]
pub(super) struct Sent {
    pub link: LinkId,
    pub tag: Tag,
    /// The peer has decided the outcome, and waits for this side to settle.
    pub is_decided: bool,
}

/// Something that waits for the window of a session.
#[derive(Debug)]
pub(super) enum Held {
    /// The rest of a message.
    Message { link: LinkId, transfer: Transfer, bytes: Vec<u8>, at: usize },
    /// The answer to a drain: it must not overtake messages.
    Drained { link: LinkId },
}

impl Held {
    pub(super) fn link(&self) -> LinkId {
        match self {
            Self::Message { link, .. } | Self::Drained { link } => *link,
        }
    }

    /// Returns the number of message bytes that wait.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Message { bytes, at, .. } => bytes.len() - at,
            Self::Drained { .. } => 0,
        }
    }
}

impl Session {
    pub(super) fn new(id: SessionId, begin: &Begin) -> Self {
        Self {
            is_ending: false,
            next_incoming_id: begin.next_outgoing_id,
            peer_window: begin.incoming_window,
            ..Self::ending(id)
        }
    }

    /// Creates what remains of a session that this side has ended, until the peer ends it.
    pub(super) fn ending(id: SessionId) -> Self {
        Self {
            id,
            is_ending: true,
            handles: BTreeMap::new(),
            next_incoming_id: 0,
            next_outgoing_id: FIRST_ID,
            peer_window: 0,
            next_delivery: u64::from(FIRST_ID),
            begun: 0,
            incoming: Ledger::new(),
            outgoing: Ledger::new(),
            was_full: false,
            held: VecDeque::new(),
            held_bytes: 0,
        }
    }

    pub(super) fn begin(&self, handle_max: u32) -> Begin {
        Begin {
            remote_channel: Some(self.id.channel),
            next_outgoing_id: self.next_outgoing_id,
            incoming_window: WINDOW,
            outgoing_window: WINDOW,
            handle_max,
            properties: crate::Fields::new(),
        }
    }

    /// Builds a flow frame with the state of the session.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: WINDOW,
            ..Flow::default()
        }
    }

    pub(super) fn link(&self, handle: u32) -> Option<LinkId> {
        self.handles.get(&handle).copied()
    }

    /// Returns the links by ascending handle.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.handles.values().copied()
    }

    pub(super) fn set_link(&mut self, handle: u32, link: Option<LinkId>) {
        match link {
            Some(link) => self.handles.insert(handle, link),
            None => self.handles.remove(&handle),
        };
    }

    /// Counts a transfer frame that arrived.
    pub(super) fn count_incoming(&mut self) {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
    }

    /// Counts a delivery that the peer begins, and returns its number.
    pub(super) fn begin_incoming(&mut self) -> u64 {
        self.begun += 1;
        self.begun - 1
    }

    pub(super) fn begin_outgoing(&mut self) -> u64 {
        self.next_delivery += 1;
        self.next_delivery - 1
    }

    /// Returns the number of the delivery of ours to which this id would belong.
    pub(super) fn outgoing_number(&self, id: u32) -> u64 {
        unwrapped(self.next_delivery - 1, id)
    }

    /// Notes the window that the peer reports in a flow.
    pub(super) fn set_peer_window(&mut self, flow: &Flow) {
        let expected = flow.next_incoming_id.unwrap_or(FIRST_ID);
        let on_the_way = self.next_outgoing_id.wrapping_sub(expected);
        self.peer_window = flow.incoming_window.saturating_sub(on_the_way);
    }

    /// Uses one transfer frame of the peer's window. Returns `false` if the window is full.
    pub(super) fn take_window(&mut self) -> bool {
        let has_room = self.peer_window > 0;
        if has_room {
            self.peer_window -= 1;
            self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
        }
        has_room
    }
}

/// Returns the 64-bit number nearest to `near` whose lower 32 bits are `id` (RFC 1982).
fn unwrapped(near: u64, id: u32) -> u64 {
    let distance = id.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(distance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_ids_wrap() {
        assert_eq!(unwrapped(5, 7), 7);
        assert_eq!(unwrapped(0xFFFF_FFFE, 1), 0x1_0000_0001);
        assert_eq!(unwrapped(0x1_0000_0001, 0xFFFF_FFFE), 0xFFFF_FFFE);
        assert_eq!(unwrapped(3, u32::MAX), 0, "there is nothing before the first");
    }
}
