//! Responses, and the links on which they go.

use barid_amqp::message::{Response, ValueRef, Writer};
use barid_amqp::{Error, LinkId, SessionId};

use crate::amqp::container::{Container, RESPONDING_MAX};
use crate::amqp::link::Link;
use crate::amqp::refusals::condition;

/// Responses that may wait on a link.
const RESPONSES_MAX: usize = 1_000;

/// To whom a response goes.
#[derive(Debug)]
pub struct Addressee {
    pub(super) link: LinkId,
    /// The message id of the request, encoded, so that its type is kept.
    pub(super) correlation_id: Vec<u8>,
}

impl Container {
    /// The link on which to respond: the one whose target or, failing that, whose name is in `reply_to`; for a
    /// client that says neither, the one that comes from the same node.
    pub(super) fn response_link(
        &self,
        session: SessionId,
        reply_to: Option<&str>,
        node: &str,
    ) -> Option<LinkId> {
        let links = || {
            self.links.iter().filter_map(|(id, link)| match link {
                Link::Responses(link) if link.session == session => Some((*id, link)),
                _ => None,
            })
        };
        let by_target = |to: &str| links().find(|(_, link)| link.target.as_deref() == Some(to));
        let by_name = |to: &str| links().find(|(_, link)| *link.name == *to);
        // Several receivers of one client may have the same address: the right node comes first.
        let by_both = |to: &str| {
            links().find(|(_, link)| *link.node == *node && link.target.as_deref() == Some(to))
        };
        let named =
            reply_to.and_then(|to| by_both(to).or_else(|| by_target(to)).or_else(|| by_name(to)));
        named.or_else(|| links().find(|(_, link)| *link.node == *node)).map(|(id, _)| id)
    }

    /// Sends a response, or keeps it until the client gives credit. While too many are kept, a link without
    /// credit ends: nothing else would make room.
    pub(in crate::amqp) fn respond(&mut self, link: LinkId, message: Vec<u8>) {
        let Some(Link::Responses(responses)) = self.links.get_mut(&link) else {
            self.responding -= message.len();
            return;
        };
        responses.bytes += message.len();
        responses.waiting.push_back(message);
        self.send_responses(link);
    }

    pub(in crate::amqp) fn send_responses(&mut self, link: LinkId) {
        while self.engine.credit(link) > 0 {
            if self.is_backed_up(link) {
                self.note_busy(link);
                break;
            }
            let Some(Link::Responses(responses)) = self.links.get_mut(&link) else { return };
            let Some(message) = responses.waiting.pop_front() else { return };
            responses.bytes -= message.len();
            self.responding -= message.len();
            let number = self.responses.to_be_bytes();
            self.responses += 1;
            if self.engine.send(link, &number, true, 0, &[&message]).is_err() {
                return;
            }
        }
        let waits_for_credit = self.engine.credit(link) == 0;
        if let Some(Link::Responses(responses)) = self.links.get(&link)
            && !responses.waiting.is_empty()
            && (self.responding > RESPONDING_MAX && waits_for_credit
                || responses.waiting.len() > RESPONSES_MAX)
        {
            let text = "Too many responses wait.";
            self.engine.detach(link, Some(Error::new(condition::RESOURCE_LIMIT, text)));
            self.responding -= responses.bytes;
            self.links.remove(&link);
        }
    }
}

impl Addressee {
    /// The bytes of a response.
    pub fn encode(
        &self,
        status: u16,
        description: &str,
        condition: Option<&str>,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Vec<u8> {
        let correlation_id = ValueRef::parse(&self.correlation_id).unwrap_or(ValueRef::Null);
        let mut message = Vec::new();
        Response { status, description, condition, correlation_id }.encode(body, &mut message);
        message
    }
}
