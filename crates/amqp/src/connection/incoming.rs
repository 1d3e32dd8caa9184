use std::sync::Arc;

use super::event::{Delivery, IncomingId, LinkId};
use super::link::{LinkEnd, LinkState, Unfinished};
use super::session::Incoming;
use super::{Connection, Event, Failure};
use crate::Error;
use crate::frame::{DeliveryState, Performative, Role, Transfer};

impl Connection {
    /// Lets the peer have up to `window` deliveries under way or unsettled on a link on which it
    /// sends. The credit is renewed automatically once half of the window has been settled, or was
    /// sent settled. A smaller window takes effect as the credit is used. Returns `false` if the
    /// link is gone or not attached, or the peer does not send on it.
    pub fn grant(&mut self, link: LinkId, window: u32) -> bool {
        let Some(found) = self.links.get_mut(link) else { return false };
        let (LinkState::Attached, LinkEnd::Receiving(receiving)) = (&found.state, &mut found.end)
        else {
            return false;
        };
        receiving.window = window;
        self.refill(link);
        true
    }

    /// Tells the peer the outcome of a delivery and settles it; both sides forget it. Returns
    /// `false` if the delivery is gone.
    pub fn settle_incoming(&mut self, delivery: IncomingId, outcome: &DeliveryState) -> bool {
        let Some(session) = self.session_mut(delivery.session) else { return false };
        let Some(Incoming { link, id }) = session.incoming.remove(delivery.number) else {
            return false;
        };
        self.out.settle(delivery.session.channel, Role::Receiver, id, Some(outcome));
        self.forget_unsettled(link);
        true
    }

    pub(super) fn on_transfer(
        &mut self,
        channel: u16,
        transfer: Transfer,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        session.count_incoming();
        let Some(id) = session.link(transfer.handle) else {
            self.unattached(channel, transfer.handle);
            return Ok(());
        };
        let link = self.links.get_mut(id).expect("a handle has a link");
        if link.is_gone() {
            return Ok(()); // it was under way when this side detached the link
        }
        let LinkEnd::Receiving(receiving) = &mut link.end else {
            let error = Error::new("amqp:not-allowed", "A transfer on a link that receives.");
            self.end_ours(channel, Some(error));
            return Ok(());
        };

        let settled = transfer.settled == Some(true);
        let mut unfinished = match receiving.unfinished.take() {
            Some(unfinished) => {
                if transfer.delivery_id.is_some_and(|id| id != unfinished.id) {
                    self.unfinished -= unfinished.bytes.len();
                    self.end_ours(channel, Some(invalid("A delivery begins inside another.")));
                    return Ok(());
                }
                unfinished
            }
            None => {
                if receiving.credit == 0 {
                    let text = "A transfer without credit.";
                    self.fail_link(id, Error::new("amqp:link:transfer-limit-exceeded", text));
                    return Ok(());
                }
                let Some(delivery_id) = transfer.delivery_id else {
                    self.end_ours(channel, Some(invalid("A delivery begins without an id.")));
                    return Ok(());
                };
                let number = session.begin_incoming();
                receiving.credit -= 1;
                receiving.delivery_count = receiving.delivery_count.wrapping_add(1);
                if !settled {
                    receiving.unsettled += 1;
                    session.incoming.push(number, Incoming { link: id, id: delivery_id });
                }
                Unfinished {
                    number,
                    id: delivery_id,
                    tag: transfer.tag.unwrap_or_default(),
                    message_format: transfer.message_format.unwrap_or(0),
                    settled,
                    state: transfer.state,
                    bytes: Vec::new(),
                    too_long: false,
                }
            }
        };
        if settled && !unfinished.settled {
            unfinished.settled = true;
            session.incoming.remove(unfinished.number);
            receiving.unsettled = receiving.unsettled.saturating_sub(1);
        }

        let length = unfinished.bytes.len() + payload.len();
        if length as u64 > receiving.max_message_size {
            unfinished.too_long = true;
        }
        if transfer.more && !transfer.aborted {
            if unfinished.too_long {
                self.unfinished -= std::mem::take(&mut unfinished.bytes).len();
            } else {
                unfinished.bytes.extend_from_slice(payload);
                self.unfinished += payload.len();
            }
            receiving.unfinished = Some(unfinished);
            if self.unfinished > self.limits.max_unfinished {
                return Err(Failure::TooMuchUnfinished);
            }
            return Ok(());
        }

        self.unfinished -= unfinished.bytes.len();
        let delivery = IncomingId { session: session.id, number: unfinished.number };
        if transfer.aborted {
            if session.incoming.remove(delivery.number).is_some() {
                self.forget_unsettled(id);
            } else {
                self.refill(id);
            }
        } else if unfinished.too_long {
            let text = "The message is longer than the link allows.";
            let error = Error::new("amqp:link:message-size-exceeded", text);
            if !self.settle_incoming(delivery, &DeliveryState::Rejected(Some(Box::new(error)))) {
                self.refill(id);
            }
        } else {
            self.deliver(id, delivery, unfinished, payload);
        }
        Ok(())
    }

    fn deliver(&mut self, link: LinkId, id: IncomingId, whole: Unfinished, rest: &[u8]) {
        let Unfinished { tag, message_format, settled, state, mut bytes, .. } = whole;
        let message = if bytes.is_empty() {
            Arc::from(rest)
        } else {
            bytes.extend_from_slice(rest);
            Arc::from(bytes)
        };
        let delivery = Delivery { link, id, tag, message_format, message, settled, state };
        self.events.push_back(Event::Delivery(Box::new(delivery)));
        if settled {
            self.refill(link);
        }
    }

    /// Notes that a delivery of the peer was settled.
    pub(super) fn forget_unsettled(&mut self, link: LinkId) {
        if let Some(LinkEnd::Receiving(receiving)) =
            self.links.get_mut(link).map(|link| &mut link.end)
        {
            receiving.unsettled = receiving.unsettled.saturating_sub(1);
            self.refill(link);
        }
    }

    /// Gives a link the credit it lacks, if there is enough of it to be worth a frame.
    pub(super) fn refill(&mut self, link: LinkId) {
        let Some(found) = self.links.get_mut(link) else { return };
        let (LinkState::Attached, LinkEnd::Receiving(receiving)) = (&found.state, &mut found.end)
        else {
            return;
        };
        if let Some(more) = receiving.refill() {
            receiving.credit += more;
            self.write_link_flow(link, false);
        }
    }

    /// Tells the peer the state of a link. `drained` says that the flow answers a drain of the
    /// peer.
    pub(super) fn write_link_flow(&mut self, link: LinkId, drained: bool) {
        let Some(link) = self.links.get(link) else { return };
        let Some(session) = self.session(link.session) else { return };
        let mut flow = session.flow();
        flow.handle = Some(link.handle);
        match &link.end {
            LinkEnd::Sending(sending) => {
                flow.delivery_count = Some(sending.delivery_count);
                flow.link_credit = Some(sending.credit);
                flow.available = drained.then_some(0);
                flow.drain = drained;
            }
            LinkEnd::Receiving(receiving) => {
                flow.delivery_count = Some(receiving.delivery_count);
                flow.link_credit = Some(receiving.credit);
            }
        }
        self.out.frame(link.session.channel, &Performative::Flow(flow));
    }
}

fn invalid(text: &'static str) -> Error {
    Error::new("amqp:invalid-field", text)
}
