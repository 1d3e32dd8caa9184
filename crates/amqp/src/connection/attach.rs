use super::event::{AttachAnswer, AttachRequest, LinkId};
use super::link::{Link, LinkEnd, LinkState, Receiving, Sending};
use super::{Connection, Event, Failure};
use crate::Error;
use crate::Fields;
use crate::frame::{Attach, Detach, Performative, Role, Terminus};

/// Maximum length of a link's name, in bytes. Clients build the name from an entity's path and a UUID. A
/// link with a longer name is refused.
const NAME_MAX: usize = 1_024;

/// Maximum length of a source or a target, in bytes: enough for an address and a filter with a session
/// id. A link with a longer one is refused.
const TERMINUS_MAX: usize = 4_096;

impl Connection {
    /// Answers [`Event::Attach`]: attaches the link. Returns `false` if the link is gone or was already
    /// answered.
    pub fn accept_attach(&mut self, link: LinkId, answer: AttachAnswer) -> bool {
        let Some(link) = self.links.get_mut(link) else { return false };
        let LinkState::Requested(request) = &mut link.state else { return false };
        let peer = request.role;
        let max_message_size = answer.max_message_size.unwrap_or(self.limits.max_message_size);
        let (mut source, mut target) = (request.source.take(), request.target.take());
        if let Some(filter) = &answer.filter {
            source = source.map(|source| source.with_filter(filter));
        }
        if let Some(address) = &answer.address {
            let node = if peer == Role::Receiver { &mut source } else { &mut target };
            *node = node.take().map(|node| node.with_address(address));
        }
        let attach = Attach {
            source,
            target,
            max_message_size: Some(max_message_size),
            properties: answer.properties,
            ..mirrored(request)
        };
        self.out.frame(link.session.channel, &Performative::Attach(Box::new(attach)));
        link.state = LinkState::Attached;
        let id = link.id;
        match &mut link.end {
            LinkEnd::Sending(sending) => {
                let event = match sending {
                    Sending { drain: true, .. } => Some(Event::Drain { link: id }),
                    Sending { credit: 0, .. } => None,
                    _ => Some(Event::Credit { link: id }),
                };
                self.events.extend(event);
            }
            LinkEnd::Receiving(receiving) => {
                let size = match max_message_size {
                    0 => self.limits.max_message_size,
                    size => size,
                };
                receiving.max_message_size = size.saturating_add(answer.slack);
                self.grant(id, answer.credit);
            }
        }
        true
    }

    /// Answers [`Event::Attach`]: refuses the link. Returns `false` if the link is gone or was already
    /// answered.
    pub fn refuse_attach(&mut self, link: LinkId, error: Error) -> bool {
        match self.links.get(link) {
            Some(Link { state: LinkState::Requested(_), .. }) => self.detach(link, Some(error)),
            _ => false,
        }
    }

    /// Closes a link, or refuses it if its attach is unanswered. Returns `false` if the link is gone.
    pub fn detach(&mut self, link: LinkId, error: Option<Error>) -> bool {
        let Some(found) = self.links.get_mut(link) else { return false };
        if found.is_gone() {
            return false;
        }
        self.write_refusal(link);
        self.release(link);
        let link = self.links.get_mut(link).expect("a link stays until the peer detaches it");
        link.state = LinkState::Detaching;
        let detach = Detach { handle: link.handle, closed: true, error };
        self.out.frame(link.session.channel, &Performative::Detach(detach));
        true
    }

    /// Detaches a link on which the peer broke a rule, and reports that to the caller.
    pub(super) fn fail_link(&mut self, link: LinkId, error: Error) {
        if self.detach(link, Some(error.clone())) {
            self.events.push_back(Event::Detached { link, closed: true, error: Some(error) });
        }
    }

    pub(super) fn on_attach(&mut self, channel: u16, attach: Box<Attach>) -> Result<(), Failure> {
        if attach.handle > self.limits.handle_max {
            return Err(Failure::OutOfBounds("the handle"));
        }
        let links = self.links.len();
        if links >= self.limits.max_links.saturating_mul(2) {
            return Err(Failure::TooManyLinks);
        }
        let has_room = links < self.limits.max_links;
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        if session.link(attach.handle).is_some() {
            let text = "The handle has a link.";
            self.end_ours(channel, Some(Error::new("amqp:session:handle-in-use", text)));
            return Ok(());
        }
        let (session_id, handle) = (session.id, attach.handle);
        let end = match attach.role {
            Role::Receiver => LinkEnd::Sending(Sending::default()),
            Role::Sender => LinkEnd::Receiving(Receiving {
                delivery_count: attach.initial_delivery_count.unwrap_or(0),
                ..Receiving::default()
            }),
        };
        // The properties are for the caller only: the answer does not repeat them.
        let mut attach = attach;
        let properties = std::mem::take(&mut attach.properties);
        let link = self.links.insert(|id| Link {
            id,
            session: session_id,
            handle,
            state: LinkState::Requested(attach.clone()),
            end,
        });
        attach.properties = properties;
        let id = link.id;
        session.set_link(handle, Some(id));
        let refusal = if !has_room {
            Some(("amqp:resource-limit-exceeded", "The connection has too many links."))
        } else if !is_short(&attach) {
            Some(("amqp:invalid-field", "The name or an address of the link is too long."))
        } else {
            None
        };
        if let Some((condition, text)) = refusal {
            self.detach(id, Some(Error::new(condition, text)));
        } else {
            let request = AttachRequest { link: id, session: session_id, attach: *attach };
            self.events.push_back(Event::Attach(Box::new(request)));
        }
        Ok(())
    }

    pub(super) fn on_detach(&mut self, channel: u16, detach: Detach) {
        let session = self.sessions[usize::from(channel)].as_mut().expect("the session is there");
        let Some(link) = session.link(detach.handle) else {
            return self.unattached(channel, detach.handle);
        };
        self.write_refusal(link);
        let decided = self.release_undecided(link);
        let Some(found) = self.links.get_mut(link) else { return };
        match found.state {
            LinkState::Leaving { .. } => return self.unattached(channel, detach.handle),
            LinkState::Detaching => return self.forget(link),
            LinkState::Requested(_) | LinkState::Attached => {}
        }
        let Detach { closed, error, .. } = detach;
        found.state = LinkState::Leaving { decided, closed };
        self.events.push_back(Event::Detached { link, closed, error });
        self.leave(link);
    }

    /// Notes that one of the deliveries whose outcome a leaving link still has to echo was echoed.
    pub(super) fn let_go(&mut self, link: LinkId) {
        if let Some(Link { state: LinkState::Leaving { decided, .. }, .. }) =
            self.links.get_mut(link)
        {
            *decided -= 1;
            self.leave(link);
        }
    }

    /// Answers the detach of a link once no delivery waits for its echo.
    fn leave(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id) else { return };
        if let LinkState::Leaving { decided: 0, closed } = link.state {
            let (handle, channel) = (link.handle, link.session.channel);
            self.out.frame(channel, &Performative::Detach(Detach { handle, closed, error: None }));
            self.forget(id);
        }
    }

    /// Removes a link and frees its handle.
    fn forget(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(id) else { return };
        if let Some(session) = self.session_mut(link.session) {
            session.set_link(link.handle, None);
        }
    }

    /// Ends the session because of a frame with a handle that has no link.
    pub(super) fn unattached(&mut self, channel: u16, handle: u32) {
        let text = format!("The handle {handle} has no link.");
        self.end_ours(channel, Some(Error::new("amqp:session:unattached-handle", text)));
    }

    /// Answers an unanswered attach with neither source nor target, before the detach that must follow:
    /// some clients do not know a link before its attach.
    fn write_refusal(&mut self, link: LinkId) {
        let Some(link) = self.links.get(link) else { return };
        if let LinkState::Requested(request) = &link.state {
            let attach = mirrored(request);
            self.out.frame(link.session.channel, &Performative::Attach(Box::new(attach)));
        }
    }

    /// Forgets the deliveries of a link.
    fn release(&mut self, id: LinkId) {
        if self.release_undecided(id) > 0
            && let Some(session) = self.links.get(id).map(|link| link.session)
            && let Some(session) = self.session_mut(session)
        {
            let before = session.outgoing.len();
            session.outgoing.retain(|sent| sent.link != id);
            let gone = before - session.outgoing.len();
            self.unsettled -= gone;
        }
    }

    /// Forgets the deliveries of a link, except those that the peer has decided and whose echo it waits
    /// for. Returns the number of these.
    fn release_undecided(&mut self, id: LinkId) -> usize {
        let Some(link) = self.links.get_mut(id) else { return 0 };
        let session_id = link.session;
        if let LinkEnd::Receiving(receiving) = &mut link.end
            && let Some(unfinished) = receiving.unfinished.take()
        {
            self.unfinished -= unfinished.bytes.len();
        }
        let Some(session) = self.sessions[usize::from(session_id.channel)].as_mut() else {
            return 0;
        };
        let before = session.outgoing.len();
        self.looked_at += before + session.incoming.len() + session.held.len();
        session.incoming.retain(|incoming| incoming.link != id);
        let mut decided = 0;
        session.outgoing.retain(|sent| {
            let is_due = sent.link == id && sent.is_decided;
            decided += usize::from(is_due);
            sent.link != id || is_due
        });
        session.held.retain(|held| {
            let keep = held.link() != id;
            if !keep {
                session.held_bytes -= held.len();
                self.held -= held.len();
            }
            keep
        });
        self.unsettled -= before - session.outgoing.len();
        self.tell_of_room(session_id);
        decided
    }
}

/// Whether the name and the addresses of a link are short enough. All of them are kept in memory while
/// the attach waits for its answer.
fn is_short(attach: &Attach) -> bool {
    let ends = [&attach.source, &attach.target];
    attach.name.len() <= NAME_MAX
        && ends.into_iter().flatten().all(|node| node.len() <= TERMINUS_MAX)
}

/// Builds the attach that answers `request`, with neither source nor target.
fn mirrored(request: &Attach) -> Attach {
    Attach {
        name: request.name.clone(),
        handle: request.handle,
        role: request.role.opposite(),
        sender_settles: request.sender_settles,
        receiver_settles: request.receiver_settles,
        source: None::<Terminus>,
        target: None,
        initial_delivery_count: (request.role == Role::Receiver).then_some(0),
        max_message_size: None,
        properties: Fields::new(),
    }
}
