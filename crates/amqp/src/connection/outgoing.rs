use std::sync::Arc;

use super::Connection;
use super::Event;
use super::event::{Disposition, LinkId, OutgoingId, SessionId};
use super::link::{Link, LinkEnd, LinkState, Sending};
use super::output::Output;
use super::parts::Parts;
use super::session::{Held, Sent, Session};
use crate::frame::{self, DeliveryState, HEADER_SIZE, Role, Tag, Transfer};
use crate::wire::Writer;

/// Reason why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The link is gone, or not attached, or the peer does not receive on it.
    #[error("there is no such link to the peer")]
    NoLink,
    /// The peer gave no credit, or has too many unsettled deliveries: see [`Connection::credit`].
    #[error("the link has no credit")]
    NoCredit,
    /// The tag is longer than [`Tag::MAX_SIZE`].
    #[error("the delivery tag is too long")]
    TagTooLong,
}

impl Connection {
    /// Returns the number of messages that may be sent on a link now: the peer's credit, bounded by the room
    /// for unsettled deliveries. 0 for a link that is gone.
    pub fn credit(&self, link: LinkId) -> u32 {
        let Some(Link {
            session, state: LinkState::Attached, end: LinkEnd::Sending(sending), ..
        }) = self.links.get(link)
        else {
            return 0;
        };
        let unsettled = self.session(*session).map_or(0, |session| session.outgoing.len());
        let room = self.limits.max_unsettled.saturating_sub(unsettled);
        let room = room.min(self.limits.max_unsettled_total.saturating_sub(self.unsettled));
        sending.credit.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// Sends the message whose bytes are `parts` in as many frames as it needs. Bytes that do not fit into
    /// the peer's window are copied and sent later; they count in [`queued_bytes`](Self::queued_bytes).
    pub fn send(
        &mut self,
        link: LinkId,
        tag: &[u8],
        settled: bool,
        message_format: u32,
        parts: &[&[u8]],
    ) -> Result<OutgoingId, SendError> {
        let tag = Tag::try_from(tag).map_err(|_| SendError::TagTooLong)?;
        let has_credit = self.credit(link) > 0;
        let found = self.links.get_mut(link).ok_or(SendError::NoLink)?;
        let (LinkState::Attached, LinkEnd::Sending(sending)) = (&found.state, &mut found.end)
        else {
            return Err(SendError::NoLink);
        };
        if !has_credit {
            return Err(SendError::NoCredit);
        }
        sending.credit -= 1;
        sending.delivery_count = sending.delivery_count.wrapping_add(1);
        let session = self.sessions[usize::from(found.session.channel)]
            .as_mut()
            .expect("a link has a session");
        let number = session.begin_outgoing();
        if !settled {
            session.outgoing.push(number, Sent { link, tag, is_decided: false });
            session.was_full |= session.outgoing.len() >= self.limits.max_unsettled;
            self.unsettled += 1;
            self.was_full |= self.unsettled >= self.limits.max_unsettled_total;
        }
        let mut transfer = Transfer {
            handle: found.handle,
            delivery_id: Some(number as u32),
            tag: Some(tag),
            message_format: Some(message_format),
            settled: Some(settled),
            ..Transfer::default()
        };
        let mut parts = Parts::new(parts);
        let max = self.peer.max_frame_size;
        if !session.held.is_empty()
            || !write_frames(&mut self.out, session, max, &mut transfer, &mut parts)
        {
            let mut bytes = Vec::with_capacity(parts.len());
            parts.take(usize::MAX, &mut bytes);
            session.held_bytes += bytes.len();
            self.held += bytes.len();
            session.held.push_back(Held::Message { link, transfer, bytes, at: 0 });
        }
        Ok(OutgoingId { session: session.id, number })
    }

    /// Answers [`Event::Drain`]: all available messages have been sent, and the remaining credit is given up.
    /// Returns `false` if the link is gone or the peer does not drain it.
    pub fn drained(&mut self, link: LinkId) -> bool {
        let Some(found) = self.links.get_mut(link) else { return false };
        let (LinkState::Attached, LinkEnd::Sending(sending @ Sending { drain: true, .. })) =
            (&found.state, &mut found.end)
        else {
            return false;
        };
        sending.delivery_count = sending.delivery_count.wrapping_add(sending.credit);
        sending.credit = 0;
        sending.drain = false;
        let is_held = std::mem::replace(&mut sending.drain_held, true);
        let id = found.session;
        let session = self.session_mut(id).expect("a link has a session");
        if session.held.is_empty() {
            self.write_drained(link);
        } else if !is_held {
            session.held.push_back(Held::Drained { link });
        }
        true
    }

    /// Tells the peer that a delivery is settled, with the outcome that the peer reported or another; both
    /// sides forget it. Returns `false` if the delivery is gone: settled by the peer, or ended with its link.
    pub fn settle_outgoing(
        &mut self,
        delivery: OutgoingId,
        outcome: Option<&DeliveryState>,
    ) -> bool {
        let Some(session) = self.session_mut(delivery.session) else { return false };
        let Some(sent) = session.outgoing.remove(delivery.number) else { return false };
        self.unsettled -= 1;
        self.out.settle(delivery.session.channel, Role::Sender, delivery.number as u32, outcome);
        if sent.is_decided {
            self.let_go(sent.link);
        }
        self.tell_of_room(delivery.session);
        true
    }

    pub(super) fn on_disposition(&mut self, channel: u16, said: &frame::Disposition) {
        match said.role {
            Role::Receiver => self.on_outcome(channel, said),
            Role::Sender if said.settled => self.on_settled_by_sender(channel, said),
            Role::Sender => {}
        }
    }

    /// Handles the peer's outcome for deliveries of ours. The first outcome holds: for a delivery that the
    /// peer has decided and whose echo it waits for, only settling, which means that it needs no echo, still
    /// counts.
    fn on_outcome(&mut self, channel: u16, said: &frame::Disposition) {
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        let mut first = session.outgoing_number(said.first);
        let last = session.outgoing_number(said.last.unwrap_or(said.first));
        let state = said.state.clone().map(Arc::new);
        let decides = said.state.as_ref().is_some_and(DeliveryState::is_outcome);
        if !decides && !said.settled {
            return;
        }
        let mut gone = Vec::new();
        while let Some((number, sent)) = session.outgoing.first_in_mut(first, last) {
            self.looked_at += 1;
            first = number + 1;
            let (link, was_decided) = (sent.link, sent.is_decided);
            if !was_decided {
                sent.is_decided = true;
                self.events.push_back(Event::Disposition(Disposition {
                    link,
                    delivery: OutgoingId { session: session.id, number },
                    tag: sent.tag,
                    state: state.clone(),
                    settled: said.settled,
                }));
            }
            if said.settled {
                session.outgoing.remove(number);
                self.unsettled -= 1;
                if was_decided {
                    gone.push(link);
                }
            }
        }
        let id = session.id;
        for link in gone {
            self.let_go(link);
        }
        if said.settled {
            self.tell_of_room(id);
        }
    }

    /// Handles the settling, by the peer, of deliveries that it sent.
    fn on_settled_by_sender(&mut self, channel: u16, said: &frame::Disposition) {
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        self.looked_at += session.incoming.len();
        let (first, last) = (said.first, said.last.unwrap_or(said.first));
        let mut settled = Vec::new();
        session.incoming.retain(|incoming| {
            // Delivery ids wrap (RFC 1982).
            let is_it = incoming.id.wrapping_sub(first) <= last.wrapping_sub(first);
            if is_it {
                settled.push(incoming.link);
            }
            !is_it
        });
        for link in settled {
            self.forget_unsettled(link);
        }
    }

    /// Reports credit on the links of a session after deliveries were settled, if the limit had been reached
    /// and at least a quarter of the deliveries have gone since. Each link is told once: otherwise a session
    /// with many links would cost much for each delivery.
    pub(super) fn tell_of_room(&mut self, id: SessionId) {
        let is_room = |len: usize, max: usize| len <= max / 4 * 3 + max % 4 * 3 / 4;
        let mut links = Vec::new();
        let max = self.limits.max_unsettled;
        if let Some(session) = self.session_mut(id)
            && session.was_full
            && is_room(session.outgoing.len(), max)
        {
            session.was_full = false;
            links.extend(session.links());
        }
        if self.was_full && is_room(self.unsettled, self.limits.max_unsettled_total) {
            self.was_full = false;
            links = self.sessions.iter().flatten().flat_map(|session| session.links()).collect();
        }
        self.looked_at += links.len();
        links.retain(|link| self.credit(*link) > 0);
        self.events.extend(links.into_iter().map(|link| Event::Credit { link }));
    }

    /// Tells the peer that the credit of a link is used up.
    fn write_drained(&mut self, link: LinkId) {
        if let Some(Link { end: LinkEnd::Sending(sending), .. }) = self.links.get_mut(link) {
            sending.drain_held = false;
            self.write_link_flow(link, true);
        }
    }

    /// Sends what waited for the peer's window, as far as the window is open.
    pub(super) fn send_held(&mut self, channel: u16) {
        let place = usize::from(channel);
        while let Some(session) = self.sessions[place].as_mut()
            && let Some(held) = session.held.pop_front()
        {
            match held {
                Held::Drained { link } => self.write_drained(link),
                Held::Message { link, mut transfer, bytes, at } => {
                    let rest = [&bytes[at..]];
                    let mut parts = Parts::new(&rest);
                    let before = parts.len();
                    let max = self.peer.max_frame_size;
                    let is_done =
                        write_frames(&mut self.out, session, max, &mut transfer, &mut parts);
                    let left = parts.len();
                    session.held_bytes -= before - left;
                    self.held -= before - left;
                    if !is_done {
                        let at = bytes.len() - left;
                        session.held.push_front(Held::Message { link, transfer, bytes, at });
                        return;
                    }
                }
            }
        }
    }
}

/// Writes frames of a delivery while the peer's window has room for them. Returns whether all are written.
fn write_frames(
    out: &mut Output,
    session: &mut Session,
    max_frame_size: usize,
    transfer: &mut Transfer,
    parts: &mut Parts<'_>,
) -> bool {
    while session.take_window() {
        let out = out.bytes();
        let start = frame::begin(out, session.id.channel);
        transfer.more = false;
        transfer.write(&mut Writer::new(out));
        let room = max_frame_size - (out.len() - start);
        if parts.len() > room {
            out.truncate(start + HEADER_SIZE);
            transfer.more = true;
            transfer.write(&mut Writer::new(out));
        }
        parts.take(room, out);
        frame::end(out, start);
        if !transfer.more {
            return true;
        }
    }
    false
}
