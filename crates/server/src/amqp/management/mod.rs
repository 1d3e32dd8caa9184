//! `$management` and `$cbs`: requests, and their responses.

mod deferred;
mod locks;
mod messages;
mod rules;
mod scheduled;
mod sessions;
mod state;

use std::sync::Arc;

use barid_amqp::message::{Request, Response, ValueRef, Writer};
use barid_amqp::{Delivery, DeliveryState, Error, LinkId};
use barid_core::entity::{Part, ReceiverId, Refusal};
use barid_core::time::Timestamp;

use super::attach::TOKENS;
use super::container::{Container, RESPONDING_MAX};
use super::held::Answer;
use super::link::{Link, RequestLink, Service};
use super::refusals::{condition, error_of, no_entity, status_of};
use crate::connection::Turn;
use crate::durable::Commits;
use crate::entities::{Entities, Node, Queue};
use crate::settings::Right;
pub(super) use messages::Gathering;
use messages::Page;

/// Responses that may wait on a link.
const RESPONSES_MAX: usize = 1_000;

/// Which kinds of requests there are, and which right each needs.
const OPERATIONS: [(&str, Right, Operation); 15] = [
    ("renew-lock", Right::Listen, locks::renew_messages),
    ("renew-session-lock", Right::Listen, locks::renew_session),
    ("update-disposition", Right::Listen, locks::settle),
    ("get-session-state", Right::Listen, state::get),
    ("set-session-state", Right::Listen, state::set),
    ("get-message-sessions", Right::Listen, sessions::list),
    ("peek-message", Right::Listen, messages::peek),
    ("batch-delete-messages", Right::Listen, messages::delete),
    ("receive-by-sequence-number", Right::Listen, deferred::receive),
    ("schedule-message", Right::Send, scheduled::schedule),
    ("cancel-scheduled-message", Right::Send, scheduled::cancel),
    ("add-rule", Right::Listen, rules::add),
    ("remove-rule", Right::Listen, rules::remove),
    ("enumerate-rules", Right::Listen, rules::enumerate),
    // Of the same meaning, in the words of the documentation.
    ("list-rules", Right::Listen, rules::enumerate),
];

/// What all operations begin with.
const PREFIX: &str = "com.microsoft:";

type Operation = fn(&mut Asked<'_>) -> Result<Done, Error>;

/// A request to an entity, and what may be needed to do it.
pub(super) struct Asked<'a> {
    request: Request<'a>,
    entities: &'a Arc<Entities>,
    node: &'a Node,
    /// The entity; of a topic, what keeps its scheduled messages.
    queue: &'a Arc<Queue>,
    part: Part,
    /// The client's receiver that the request belongs to, if there is one.
    receiver: Option<ReceiverId>,
    now: Timestamp,
    /// What the response has to wait for.
    commits: &'a mut Commits,
}

/// What is responded.
pub(super) enum Done {
    /// There is nothing: 204.
    Nothing,
    /// What writes the keys and values of the body.
    Body(Box<dyn FnOnce(&mut Writer<'_>)>),
    /// Messages, of which some may have to be read.
    Messages(Page),
}

/// To whom a response goes.
#[derive(Debug)]
pub(super) struct Addressee {
    link: LinkId,
    /// The message id of the request, encoded, so that its type is kept.
    correlation_id: Vec<u8>,
}

impl Done {
    fn body(write: impl FnOnce(&mut Writer<'_>) + 'static) -> Self {
        Self::Body(Box::new(write))
    }

    /// Done, and no more to say.
    fn empty() -> Self {
        Self::body(|_| {})
    }
}

impl Asked<'_> {
    /// An argument that has to be there.
    fn text(&self, name: &str) -> Result<&str, Error> {
        self.request.argument(name).text().ok_or_else(|| missing(name))
    }

    fn integer(&self, name: &str) -> Result<i64, Error> {
        self.request.argument(name).integer().ok_or_else(|| missing(name))
    }

    /// A number of things, at least one and at most `most`.
    fn count(&self, name: &str, most: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.integer(name)?).unwrap_or(0);
        if count == 0 {
            let text = format!("{name} must be at least 1.");
            return Err(Error::new(condition::ARGUMENT_ERROR, text));
        }
        Ok(count.min(most))
    }

    /// The elements of an array or a list.
    fn elements(&self, name: &str) -> Result<impl Iterator<Item = ValueRef<'_>>, Error> {
        self.request.argument(name).items().ok_or_else(|| missing(name))
    }

    /// Sequence numbers.
    fn numbers(&self) -> Result<Vec<u64>, Error> {
        const NAME: &str = "sequence-numbers";
        self.elements(NAME)?
            .map(|number| number.integer().and_then(|number| u64::try_from(number).ok()))
            .collect::<Option<_>>()
            .ok_or_else(|| missing(NAME))
    }

    /// The receiver that holds the session that the request is about.
    fn holder(&self) -> Result<ReceiverId, Error> {
        let session = self.text("session-id")?;
        let holds = |receiver: &ReceiverId| {
            self.queue.read(|entity| {
                entity.session_of(*receiver).is_some_and(|(held, _)| **held == *session)
            })
        };
        self.receiver.filter(holds).ok_or_else(|| error_of(Refusal::SessionLockLost))
    }
}

fn missing(name: &str) -> Error {
    Error::new(condition::ARGUMENT_ERROR, format!("{name} is missing, or not of its type."))
}

impl Container {
    /// A request has come.
    pub(super) fn on_request(&mut self, turn: &mut Turn<'_>, delivery: &Delivery) {
        // Before anything else: some clients take a later rejection of something else for one of this.
        self.engine.settle_incoming(delivery.id, &DeliveryState::Accepted);
        let Some(Link::Requests(RequestLink { session, service })) = self.links.get(&delivery.link)
        else {
            return;
        };
        let Ok(request) = Request::parse(&delivery.message) else { return };
        let node = match service {
            Service::Tokens => Box::from(TOKENS),
            Service::Management { path, .. } => path.clone(),
        };
        let Some(link) = self.response_link(*session, request.reply_to(), &node) else { return };
        let mut correlation_id = Vec::new();
        Writer::new(&mut correlation_id).value(request.message_id());
        let to = Addressee { link, correlation_id };
        let service = service.clone();
        match service {
            Service::Tokens => self.on_token(turn, &request, &to),
            Service::Management { path, node, part } => {
                self.on_operation(turn, &request, to, &path, &node, part);
            }
        }
    }

    /// The link on which to respond: the one whose target or, failing that, whose name is in `reply_to`; for a
    /// client that says neither, the one that comes from the same node.
    fn response_link(
        &self,
        session: barid_amqp::SessionId,
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

    fn on_token(&mut self, turn: &Turn<'_>, request: &Request<'_>, to: &Addressee) {
        let put = match (request.operation(), request.body().text()) {
            (Some("put-token"), Some(token)) => {
                self.put_token(turn, token).map_err(|denied| denied.to_string())
            }
            (Some("put-token"), None) => Err("the body is no token".into()),
            _ => Err("the operation is not put-token".into()),
        };
        let (status, description) = match &put {
            Ok(()) => (202, "Accepted"),
            Err(why) => (401, why.as_str()),
        };
        let message = to.encode(status, description, None, |_| {});
        self.answer(turn, Commits::default(), Answer::Response(to.link, message));
    }

    fn on_operation(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request<'_>,
        to: Addressee,
        path: &str,
        node: &Node,
        part: Part,
    ) {
        let mut commits = Commits::default();
        let done = self.operate(turn, *request, path, node, part, &mut commits);
        let message = match done {
            Ok(Done::Nothing) => to.encode(204, "No Content", None, |_| {}),
            Ok(Done::Body(write)) => to.encode(200, "OK", None, write),
            Ok(Done::Messages(page)) => {
                let queue = match node {
                    Node::Queue(queue) => queue,
                    Node::Topic(topic) => topic.held(),
                };
                self.respond_with_messages(turn, (queue, part), to, page, commits);
                return;
            }
            Err(error) => {
                let description = error.description.as_deref().unwrap_or_default();
                let status = status_of(&error.condition);
                to.encode(status, description, Some(&error.condition), |_| {})
            }
        };
        self.answer(turn, commits, Answer::Response(to.link, message));
    }

    fn operate(
        &self,
        turn: &Turn<'_>,
        request: Request<'_>,
        path: &str,
        node: &Node,
        part: Part,
        commits: &mut Commits,
    ) -> Result<Done, Error> {
        if self.responding > RESPONDING_MAX {
            // It is heard only because it has to open its windows.
            let text = "Too many responses wait.";
            return Err(Error::new(condition::SERVER_BUSY, text));
        }
        let now = turn.context.worker.wall();
        let name = request.operation().unwrap_or_default();
        let known = name.strip_prefix(PREFIX);
        let known = known.and_then(|name| OPERATIONS.iter().find(|(known, ..)| *known == name));
        let Some((_, right, operation)) = known else {
            let text = format!("The operation '{name}' does not exist.");
            return Err(Error::new(condition::NOT_IMPLEMENTED, text));
        };
        let tenant = self
            .access
            .tenant()
            .filter(|_| self.access.allows(*right, path, turn.context.worker.now).is_some());
        let Some(tenant) = tenant else {
            let text =
                format!("Unauthorized access to '{path}': the token lacks the right {right:?}.");
            return Err(Error::new(condition::UNAUTHORIZED, text));
        };
        let queue = match node {
            Node::Queue(queue) => queue,
            Node::Topic(topic) => topic.held(),
        };
        if queue.is_deleted() {
            return Err(no_entity(queue.path()));
        }
        let receiver = self.receiver_of(&request, queue);
        let entities = tenant.entities(&turn.context.worker.shared.housekeeping);
        operation(&mut Asked { request, entities, node, queue, part, receiver, now, commits })
    }

    /// The receiver that a request belongs to: the one it names, or the one that has the session.
    fn receiver_of(&self, request: &Request<'_>, queue: &Arc<Queue>) -> Option<ReceiverId> {
        let receivers = || {
            self.links.values().filter_map(|link| match link {
                Link::Receiver(link) if Arc::ptr_eq(&link.queue, queue) => Some(link),
                _ => None,
            })
        };
        let named =
            request.application_property("associated-link-name").and_then(|name| name.text());
        if let Some(link) = named.and_then(|name| receivers().find(|link| *link.name == *name)) {
            return Some(link.id);
        }
        let session = request.argument("session-id").text()?;
        queue.read(|entity| {
            let holds =
                |id: ReceiverId| entity.session_of(id).is_some_and(|(held, _)| **held == *session);
            receivers().map(|link| link.id).find(|id| holds(*id))
        })
    }

    /// Sends a response, or keeps it until the client gives credit. While too many are kept, a link without
    /// credit ends: nothing else would make room.
    pub(super) fn respond(&mut self, link: LinkId, message: Vec<u8>) {
        let Some(Link::Responses(responses)) = self.links.get_mut(&link) else {
            self.responding -= message.len();
            return;
        };
        responses.bytes += message.len();
        responses.waiting.push_back(message);
        self.send_responses(link);
    }

    pub(super) fn send_responses(&mut self, link: LinkId) {
        while self.engine.credit(link) > 0 {
            if self.is_backed_up() {
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
    fn encode(
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
