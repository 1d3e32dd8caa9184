use crate::frame::{Attach, DeliveryState, Tag};

use super::event::{LinkId, SessionId};

/// One link, from the attach of the peer to its detach.
#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub session: SessionId,
    /// The same handle in both directions, so that one table is enough: whenever a handle of the peer
    /// is free, so is ours.
    pub handle: u32,
    pub state: LinkState,
    pub end: LinkEnd,
}

/// State of a link.
///
/// ```text
///            attach                accept_attach               detach of the peer
///   (none) ─────────▶ Requested ─────────────────▶ Attached ──────────────────────▶ (none)
///                         │ refuse_attach             │ detach                         ▲
///                         ▼                           ▼          detach of the peer    │
///                         └──────────────────────▶ Detaching ──────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) enum LinkState {
    /// The peer waits for an answer to this attach.
    Requested(Box<Attach>),
    Attached,
    /// Detached by this side and gone for the caller; the detach of the peer is outstanding.
    Detaching,
    /// Detached by the peer and gone for the caller. Before this side answers the detach, it echoes
    /// the outcomes that the peer has decided.
    Leaving {
        /// Number of decided deliveries that are not yet echoed.
        decided: usize,
        /// Whether the peer closed the link.
        closed: bool,
    },
}

#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The peer receives.
    Sending(Sending),
    /// The peer sends.
    Receiving(Receiving),
}

/// Counters of a link that sends to the peer.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub delivery_count: u32,
    pub credit: u32,
    /// The peer drains the link and waits until the credit is used up.
    pub drain: bool,
    /// The answer to a drain already waits for the session's window, and is not queued a second time.
    pub drain_held: bool,
}

/// Counters of a link that receives from the peer.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub delivery_count: u32,
    /// Number of deliveries that may still begin.
    pub credit: u32,
    /// Number of deliveries that the caller has not settled.
    pub unsettled: u32,
    /// Maximum of `credit` and `unsettled` together.
    pub window: u32,
    pub max_message_size: u64,
    pub unfinished: Option<Unfinished>,
}

/// A delivery whose last frame has not arrived.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub number: u64,
    /// Delivery id that the peer gave.
    pub id: u32,
    pub tag: Tag,
    pub message_format: u32,
    pub settled: bool,
    pub state: Option<DeliveryState>,
    pub bytes: Vec<u8>,
    /// The message exceeds the maximum size: none of its bytes are kept.
    pub too_long: bool,
}

impl Link {
    /// Whether the link has ended for the caller.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, LinkState::Detaching | LinkState::Leaving { .. })
    }

    /// Number of bytes held here of an unfinished message.
    pub(super) fn unfinished(&self) -> usize {
        match &self.end {
            LinkEnd::Receiving(Receiving { unfinished: Some(unfinished), .. }) => {
                unfinished.bytes.len()
            }
            _ => 0,
        }
    }
}

impl Receiving {
    /// Returns the credit to add now: `None` unless it is worth a frame.
    pub(super) fn refill(&self) -> Option<u32> {
        let wanted = self.window.saturating_sub(self.credit).saturating_sub(self.unsettled);
        (wanted > 0 && wanted >= self.window / 2).then_some(wanted)
    }
}

/// The links of a connection.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Option<Link>>,
    free: Vec<u32>,
    serial: u32,
}

impl Links {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, make: impl FnOnce(LinkId) -> Link) -> &mut Link {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("links are bounded")
        });
        self.serial = self.serial.wrapping_add(1);
        let link = make(LinkId { slot, serial: self.serial });
        self.slots[slot as usize].insert(link)
    }

    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|link| link.id == id)
    }

    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|link| link.id == id)
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let place = self.slots.get_mut(id.slot as usize)?;
        let link = place.take_if(|link| link.id == id)?;
        self.free.push(id.slot);
        Some(link)
    }
}
