//! Requests to `$management` and `$cbs`, and their execution.

mod deferred;
mod locks;
mod messages;
mod responses;
mod rules;
mod scheduled;
mod sessions;
mod state;

use std::sync::Arc;

use barid_amqp::message::{Request, ValueRef, Writer};
use barid_amqp::{Delivery, DeliveryState, Error, LinkId};
use barid_core::entity::{Part, ReceiverId, Refusal, SequenceNumber};
use barid_core::time::WallTime;
use smallvec::SmallVec;

use super::container::{Container, RESPONDING_MAX};
use super::held::Answer;
use super::keys::Right;
use super::link::{Link, ReceiverLink, RequestLink, Service, TOKENS};
use super::refusals::{closed, condition, error_of, no_entity};
use crate::denied_action::Action;
use crate::durable::Commits;
use crate::entities::{Address, Entities, Node, Queue};
use crate::faults::{IfHolds as _, Rule};
use crate::random::Random;
use crate::turn::Turn;
pub(super) use messages::Gathering;
use messages::Page;
use responses::Addressee;

/// The operations of `$management`, with the right that each needs.
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
    ("add-rule", Right::Manage, rules::add),
    ("remove-rule", Right::Manage, rules::remove),
    ("enumerate-rules", Right::Listen, rules::enumerate),
    // The name of the same operation in the documentation.
    ("list-rules", Right::Listen, rules::enumerate),
];

/// Maximum number of sequence numbers or lock tokens in one request. More are refused.
const NAMED_MAX: usize = 10_000;

/// Steps of the [`Budget`](crate::budget::Budget) that a request costs at least: so many that the clock is read
/// after each request.
const REQUEST_STEPS: usize = 32;

/// Prefix of the names of all operations.
const PREFIX: &str = "com.microsoft:";

type Operation = fn(&mut Asked<'_>) -> Result<Done, Error>;

/// A request to an entity, and all that its operation may need.
pub(super) struct Asked<'a> {
    request: Request<'a>,
    entities: &'a Arc<Entities>,
    node: &'a Node,
    /// The entity; for a topic, the entity that keeps its scheduled messages.
    queue: &'a Arc<Queue>,
    part: Part,
    /// The client's receiver that the request belongs to, if there is one.
    receiver: Option<ReceiverId>,
    now: WallTime,
    random: Random,
    /// The batches that must be durable before the response leaves.
    commits: &'a mut Commits,
}

/// Result of an operation.
pub(super) enum Done {
    /// Nothing was found: status 204.
    Nothing,
    /// The function that writes the keys and values of the body.
    Body(Box<dyn FnOnce(&mut Writer<'_>)>),
    /// Messages. Some may have to be read from the store.
    Messages(Page),
    /// An empty body. Messages have returned to their places; this is the number of the first of them.
    Returned(SequenceNumber),
}

impl Done {
    fn body(write: impl FnOnce(&mut Writer<'_>) + 'static) -> Self {
        Self::Body(Box::new(write))
    }

    /// Creates a result with an empty body.
    fn empty() -> Self {
        Self::body(|_| {})
    }
}

impl Asked<'_> {
    /// Holds the response until `commits` are durable.
    fn wait(&mut self, commits: Commits, rule: Rule) {
        self.commits.join(&commits.if_holds(rule));
    }

    /// Returns a mandatory argument.
    fn text(&self, name: &str) -> Result<&str, Error> {
        self.request.argument(name).text().ok_or_else(|| missing(name))
    }

    fn integer(&self, name: &str) -> Result<i64, Error> {
        self.request.argument(name).integer().ok_or_else(|| missing(name))
    }

    /// Returns a mandatory count. A count below 1 is refused; a count above `most` is lowered to `most`.
    fn count(&self, name: &str, most: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.integer(name)?).unwrap_or(0);
        if count == 0 {
            let text = format!("{name} must be at least 1.");
            return Err(Error::new(condition::ARGUMENT_ERROR, text));
        }
        Ok(count.min(most))
    }

    /// Returns the elements of a mandatory array or list.
    fn elements(&self, name: &str) -> Result<impl Iterator<Item = ValueRef<'_>>, Error> {
        self.request.argument(name).items().ok_or_else(|| missing(name))
    }

    /// Returns the elements of an array or a list that names messages. More than [`NAMED_MAX`] are refused.
    fn named<T>(
        &self,
        name: &str,
        one: impl Fn(ValueRef<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let named = self.elements(name)?.take(NAMED_MAX + 1).map(one).collect::<Option<Vec<_>>>();
        let named = named.ok_or_else(|| missing(name))?;
        if named.len() > NAMED_MAX {
            let text = format!("{name} has more than {NAMED_MAX} elements: split the request.");
            return Err(Error::new(condition::ARGUMENT_ERROR, text));
        }
        Ok(named)
    }

    /// Returns the sequence numbers that the request names.
    fn numbers(&self) -> Result<Vec<u64>, Error> {
        self.named("sequence-numbers", |number| u64::try_from(number.integer()?).ok())
    }

    /// Returns the receiver that the request belongs to, and the session that it holds. If the request names a
    /// session, it must be that one. Microsoft's client for Go names only the link.
    fn holder(&self) -> Result<(ReceiverId, Arc<str>), Error> {
        let said = self.request.argument("session-id");
        let is_meant = |held: &Arc<str>| said.is_null() || said.text() == Some(held);
        let held = self.session_of_link().filter(is_meant);
        self.receiver.zip(held).ok_or_else(|| error_of(Refusal::SessionLockLost))
    }

    /// Returns the session held by the receiver that the request belongs to.
    fn session_of_link(&self) -> Option<Arc<str>> {
        let receiver = self.receiver?;
        self.queue.read(|entity| entity.session_of(receiver).map(|(held, _)| Arc::clone(held)))
    }
}

fn missing(name: &str) -> Error {
    Error::new(condition::ARGUMENT_ERROR, format!("{name} is missing or has the wrong type."))
}

impl Container {
    /// Handles a request.
    pub(super) fn on_request(&mut self, turn: &mut Turn<'_>, delivery: &Delivery) {
        // Settled before anything else: some clients take a later rejection of another delivery for one of this
        // request.
        self.engine.settle_incoming(delivery.id, &DeliveryState::Accepted);
        let Some(Link::Requests(RequestLink { session, service })) = self.links.get(&delivery.link)
        else {
            return;
        };
        // The search for the links that a request belongs to costs more if the client has many links.
        self.budget.spend(REQUEST_STEPS + delivery.message.len() / 4_096 + self.links.len() / 16);
        let Ok(request) = Request::parse(&delivery.message) else { return };
        let node = match service {
            Service::Tokens => TOKENS,
            Service::Management { path, .. } => path,
        };
        let Some(link) = self.response_link(*session, request.reply_to(), node) else { return };
        let mut correlation_id = Vec::new();
        Writer::new(&mut correlation_id).value(request.message_id());
        let to = Addressee { link, correlation_id };
        let service = service.clone();
        match service {
            Service::Tokens => self.on_token(turn, &request, &to),
            Service::Management { path, mut node, part } => {
                node.look_up();
                self.on_operation(turn, &request, to, &path, &node, part);
            }
        }
    }

    fn on_token(&mut self, turn: &Turn<'_>, request: &Request<'_>, to: &Addressee) {
        let put = match (request.operation(), request.body().text()) {
            (Some("put-token"), Some(token)) => {
                self.put_token(turn, token).map_err(|denied| denied.to_string())
            }
            (Some("put-token"), None) => Err("the body is not a token".into()),
            _ => Err("the operation is not put-token".into()),
        };
        if self.leaves() {
            // Another broker answers.
            return;
        }
        let audience = request.application_property("name").and_then(|name| name.text());
        let missing = audience.filter(|audience| put.is_ok() && self.is_missing(turn, audience));
        let message = match (&put, missing) {
            (Err(why), _) => to.encode(401, why, None, |_| {}),
            (Ok(()), None) => to.encode(202, "Accepted", None, |_| {}),
            (Ok(()), Some(audience)) => to.encode_error(&no_entity(audience)),
        };
        self.answer(turn, Commits::default(), Answer::Response(to.link, message));
    }

    /// Whether a client asks for a token for an entity that does not exist, and has a right for its path. It is
    /// told so at once: some clients learn it in no other way.
    fn is_missing(&self, turn: &Turn<'_>, audience: &str) -> bool {
        let address = Address::parse(audience);
        let path = address.to_string();
        let now = turn.context.worker.now;
        let rights = [Right::Listen, Right::Send];
        let may = |right| self.access.allows(right, &path, now).is_some();
        if address.entity.is_empty() || !rights.into_iter().any(may) {
            return false;
        }
        let Some(tenant) = self.access.tenant() else { return false };
        !tenant.entities(&turn.context.engine.alarm).is_path(&address.entity)
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
        let done = match commits.are_lost() {
            // Answered at once: a lost batch never becomes durable.
            true => {
                commits.clear();
                Err(closed())
            }
            false => done,
        };
        let message = match done {
            Ok(Done::Nothing) => to.encode(204, "No Content", None, |_| {}),
            Ok(Done::Body(write)) => to.encode(200, "OK", None, write),
            Ok(Done::Returned(first)) => {
                for link in self.links_of(node.entity()) {
                    self.came_back(turn, link, first);
                }
                to.encode(200, "OK", None, |_| {})
            }
            Ok(Done::Messages(page)) => {
                self.respond_with_messages(turn, (node.entity(), part), to, page, commits);
                return;
            }
            Err(error) => to.encode_error(&error),
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
            // The client is read from only because it has to open its session windows.
            let text = "Too many responses wait for the client: receive them first.";
            return Err(Error::new(condition::SERVER_BUSY, text));
        }
        let now = turn.context.wall();
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
            self.deny(turn, Action::Manage, path, &self.access.why_not(*right, path));
            let text =
                format!("Unauthorized access to '{path}': the client lacks the right {right:?}.");
            return Err(Error::new(condition::UNAUTHORIZED, text));
        };
        let queue = node.entity();
        if queue.is_deleted() {
            return Err(no_entity(queue.path()));
        }
        if queue.is_closed() {
            return Err(closed());
        }
        let receiver = self.receiver_of(&request, queue);
        let entities = tenant.entities(&turn.context.engine.alarm);
        let random = turn.context.engine.random;
        operation(&mut Asked {
            request,
            entities,
            node,
            queue,
            part,
            receiver,
            now,
            random,
            commits,
        })
    }

    /// Returns the client's receivers of an entity.
    fn receivers_of(&self, queue: &Arc<Queue>) -> impl Iterator<Item = (LinkId, &ReceiverLink)> {
        self.links.iter().filter_map(|(id, link)| match link {
            Link::Receiver(link) if Arc::ptr_eq(&link.queue, queue) => Some((*id, link)),
            _ => None,
        })
    }

    fn links_of(&self, queue: &Arc<Queue>) -> SmallVec<[LinkId; 1]> {
        self.receivers_of(queue).map(|(link, _)| link).collect()
    }

    /// Returns the receiver that a request belongs to: the one whose link the request names, or else the one that
    /// holds the session that the request names.
    fn receiver_of(&self, request: &Request<'_>, queue: &Arc<Queue>) -> Option<ReceiverId> {
        let receivers = || self.receivers_of(queue).map(|(_, receiver)| receiver);
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
}
