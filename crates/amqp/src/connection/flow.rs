use super::link::{LinkEnd, LinkState};
use super::{Connection, Event};
use crate::frame::{Flow, Performative};

impl Connection {
    pub(super) fn on_flow(&mut self, channel: u16, flow: &Flow) {
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        session.set_peer_window(flow);
        match flow.handle {
            Some(handle) => {
                self.send_held(channel);
                self.on_link_flow(channel, handle, flow);
            }
            None => {
                let answer = flow.echo.then(|| session.flow());
                self.send_held(channel);
                if let Some(answer) = answer {
                    self.out.frame(channel, &Performative::Flow(answer));
                }
            }
        }
    }

    fn on_link_flow(&mut self, channel: u16, handle: u32, flow: &Flow) {
        let session = self.sessions[usize::from(channel)].as_ref().expect("the session is there");
        let Some(id) = session.link(handle) else { return self.unattached(channel, handle) };
        let link = self.links.get_mut(id).expect("a handle has a link");
        let is_attached = match link.state {
            LinkState::Requested(_) => false,
            LinkState::Attached => true,
            LinkState::Detaching | LinkState::Leaving { .. } => return,
        };
        match &mut link.end {
            LinkEnd::Sending(sending) => {
                // The peer counts its credit from the delivery count that it has seen. Before it
                // knows a count, that is the initial 0.
                if let Some(credit) = flow.link_credit {
                    let given = flow.delivery_count.unwrap_or(0).wrapping_add(credit);
                    let left = given.wrapping_sub(sending.delivery_count).cast_signed();
                    sending.credit = u32::try_from(left).unwrap_or(0);
                }
                sending.drain = flow.drain;
                if is_attached {
                    self.events.push_back(match flow.drain {
                        true => Event::Drain { link: id },
                        false => Event::Credit { link: id },
                    });
                }
            }
            LinkEnd::Receiving(receiving) => {
                // A sender that gives up credit counts it as used.
                let count = flow.delivery_count.unwrap_or(receiving.delivery_count);
                let given_up = count.wrapping_sub(receiving.delivery_count).cast_signed();
                if let Ok(given_up) = u32::try_from(given_up) {
                    receiving.delivery_count = count;
                    receiving.credit = receiving.credit.saturating_sub(given_up);
                }
                self.refill(id);
            }
        }
        if flow.echo && is_attached {
            self.write_link_flow(id, false);
        }
    }
}
