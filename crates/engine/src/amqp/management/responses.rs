//! Responses, and the links on which they are sent.

use barid_amqp::message::{Response, ValueRef, Writer};
use barid_amqp::{Error, LinkId, SessionId};

use crate::amqp::container::{Container, RESPONDING_MAX};
use crate::amqp::link::Link;
use crate::amqp::refusals::{condition, status_of};

/// Maximum number of responses that wait on a link. With more, the link is ended.
const RESPONSES_MAX: usize = 1_000;

/// The destination of a response.
#[derive(Debug)]
pub struct Addressee {
    pub(super) link: LinkId,
    /// The message id of the request, encoded, so that its type is kept.
    pub(super) correlation_id: Vec<u8>,
}

impl Container {
    /// Returns the link for a response: the one whose target address or, failing that, whose name is `reply_to`.
    /// If `reply_to` is missing or fits no link, returns the link that comes from `node`.
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
        // Several links of one client may have the same target address: the one from the right node comes first.
        let by_both = |to: &str| {
            links().find(|(_, link)| *link.node == *node && link.target.as_deref() == Some(to))
        };
        let named =
            reply_to.and_then(|to| by_both(to).or_else(|| by_target(to)).or_else(|| by_name(to)));
        named.or_else(|| links().find(|(_, link)| *link.node == *node)).map(|(id, _)| id)
    }

    /// Sends a response, or keeps it until the client gives credit. A link without credit is ended if too many
    /// bytes of responses wait on all links, because nothing else would make room. A link is also ended if too
    /// many responses wait on it.
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
            self.has_sent(message.len());
        }
        let waits_for_credit = self.engine.credit(link) == 0;
        if let Some(Link::Responses(responses)) = self.links.get(&link)
            && !responses.waiting.is_empty()
            && (self.responding > RESPONDING_MAX && waits_for_credit
                || responses.waiting.len() > RESPONSES_MAX)
        {
            let text = "Too many responses wait for the client.";
            self.engine.detach(link, Some(Error::new(condition::RESOURCE_LIMIT, text)));
            self.responding -= responses.bytes;
            self.links.remove(&link);
        }
    }
}

impl Addressee {
    /// Encodes the response to a request that failed.
    pub fn encode_error(&self, error: &Error) -> Vec<u8> {
        let description = error.description.as_deref().unwrap_or_default();
        let status = status_of(&error.condition);
        self.encode(status, description, Some(&error.condition), |_| {})
    }

    /// Encodes a response.
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
