use crate::frame::{Attach, DeliveryState, Tag};

use super::event::{LinkId, SessionId};

/// One link, from the attach of the peer to its detach.
#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub session: SessionId,
    /// The same in both directions, so that there is one table: whenever the peer's is free, ours is.
    pub handle: u32,
    pub state: LinkState,
    pub end: LinkEnd,
}

/// ```text
///            attach                accept_attach               detach of the peer
///   (none) ─────────▶ Requested ─────────────────▶ Attached ──────────────────────▶ (none)
///                         │ refuse_attach             │ detach                         ▲
///                         ▼                           ▼          detach of the peer    │
///                         └──────────────────────▶ Detaching ──────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) enum LinkState {
    /// The peer waits for an answer to this.
    Requested(Box<Attach>),
    Attached,
    /// Gone for the caller; the peer has not said so yet.
    Detaching,
    /// Gone for the peer and for the caller. The peer hears what it has decided before it hears that.
    Leaving {
        /// Of so many deliveries.
        decided: usize,
        /// Whether the peer closed it.
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

/// What a link that sends to the peer counts.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub delivery_count: u32,
    pub credit: u32,
    /// The peer waits to hear that the credit is used up.
    pub drain: bool,
    /// That it is used up waits for the window of the session, and need not wait there twice.
    pub drain_held: bool,
}

/// What a link that receives from the peer counts.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub delivery_count: u32,
    /// How many deliveries may still begin.
    pub credit: u32,
    /// How many the caller has not settled.
    pub unsettled: u32,
    /// How many both may be together.
    pub window: u32,
    pub max_message_size: u64,
    pub unfinished: Option<Unfinished>,
}

/// A delivery of which there are more frames to come.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub number: u64,
    /// What the peer calls the delivery.
    pub id: u32,
    pub tag: Tag,
    pub message_format: u32,
    pub settled: bool,
    pub state: Option<DeliveryState>,
    pub bytes: Vec<u8>,
    /// It is longer than may be: nothing of it is kept.
    pub too_long: bool,
}

impl Link {
    /// Whether it has ended for the caller.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, LinkState::Detaching | LinkState::Leaving { .. })
    }

    /// How many bytes of a message are held here.
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
    /// The credit to add now: none before it is worth a frame.
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
