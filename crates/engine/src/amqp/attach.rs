//! Attachment of the links that a client asks for.

use std::sync::Arc;
use std::time::Duration;

use barid_amqp::message::ValueRef;
use barid_amqp::{AttachAnswer, AttachRequest, Error, Fields, LinkId, Role, SenderSettles};
use barid_core::entity::{Accept, Accepted, Mode, Part, ReceiverId, Refusal};
use barid_core::time::WallTime;

use super::access::NO_TOKEN;
use super::container::Container;
use super::keys::Right;
use super::link::{
    Link, RIGHTS_OF_REQUESTS, ReceiverLink, RequestLink, ResponseLink, SenderLink, Service, TOKENS,
};
use super::receiving::Outbound;
use super::refusals::{closed, condition, disabled, error_of, no_entity};
use crate::denied_action::Action;
use crate::durable::Commits;
use crate::entities::{Address, Node, Queue, new_receiver_id};
use crate::turn::Turn;

/// The filter with which a receiver asks for a session.
const SESSION_FILTER: &str = "com.microsoft:session-filter";

/// The link property with the time for which a receiver waits for the next session, in milliseconds.
const TIMEOUT: &str = "com.microsoft:timeout";

/// The link property with the time until which a session is locked, in ticks of .NET.
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";

/// Wait for the next session if the receiver does not give a time.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(65);

/// Maximum wait for the next session. A longer time is reduced to this.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of messages that a client may send before it is told the outcome of the first.
const CREDIT: u32 = 1_000;

/// Number of requests that a client may send before the first is answered.
const REQUESTS: u32 = 100;

/// Maximum size of a message to `$cbs`, in bytes.
const TOKEN_MESSAGE_MAX: u64 = 16 * 1024;

/// Maximum size of a request, in bytes, without a message or a state that it contains.
const REQUEST_MAX: u64 = 1024 * 1024;

/// Lower bound of the maximum size of a request, in bytes. A request that is too large for the entity is then
/// answered, and does not end the link: some clients never open the link again.
const REQUESTS_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes that a batch may have in addition to its messages: clients fill a batch with messages up to the announced
/// maximum size.
const SLACK: u64 = 256 * 1024;

/// Maximum number of links of a client that has not yet proved possession of a key. It uses them for its tokens.
const LINKS_OF_STRANGERS: usize = 16;

impl Container {
    /// Handles the request of a client to attach a link.
    pub(super) fn attach(&mut self, turn: &mut Turn<'_>, request: &AttachRequest) {
        if let Err(error) = self.try_attach(turn, request) {
            if error.condition == condition::UNAUTHORIZED {
                // Noted without the scheme and the host that many clients write before the path.
                let entity = Address::parse(request.address().unwrap_or_default());
                let (action, right) = match request.attach.role {
                    _ if entity.management => (Action::Manage, Right::Listen),
                    Role::Sender => (Action::Send, Right::Send),
                    Role::Receiver => (Action::Receive, Right::Listen),
                };
                let path = entity.to_string();
                self.deny(turn, action, &path, &self.access.why_not(right, &path));
            }
            self.engine.refuse_attach(request.link, error);
        }
    }

    fn try_attach(&mut self, turn: &mut Turn<'_>, request: &AttachRequest) -> Result<(), Error> {
        if request.is_to_coordinator() {
            let text = "Transactions are not supported.";
            return Err(Error::new(condition::NOT_IMPLEMENTED, text));
        }
        if request.is_dynamic() {
            let text = "Dynamic nodes are not supported: declare a queue.";
            return Err(Error::new(condition::NOT_IMPLEMENTED, text));
        }
        let written = request.address().unwrap_or_default();
        if written == TOKENS {
            if self.access.tenant().is_none() && self.links.len() >= LINKS_OF_STRANGERS {
                return Err(self.unauthorized(written));
            }
            self.attach_service(request, Service::Tokens, TOKENS.into());
            return Ok(());
        }
        let address = Address::parse(written);
        // Includes the sub-queue, because a token may be for that only.
        let path: Box<str> = address.to_string().into();
        let now = turn.context.worker.now;
        let until = if address.management {
            self.access.allows_any(&RIGHTS_OF_REQUESTS, &path, now)
        } else {
            let right = match request.attach.role {
                Role::Sender => Right::Send,
                Role::Receiver => Right::Listen,
            };
            self.access.allows(right, &path, now)
        };
        let until = until.ok_or_else(|| self.unauthorized(written))?;
        let tenant = self.access.tenant().ok_or_else(|| self.unauthorized(written))?;
        let node = tenant
            .entities(&turn.context.engine.alarm)
            .find(&address)
            .ok_or_else(|| no_entity(written))?;
        if node.entity().is_closed() {
            return Err(closed());
        }
        if address.management {
            let answers = path.clone();
            let service = Service::Management { path, node, part: address.part };
            self.attach_service(request, service, answers);
            return Ok(());
        }
        self.note_expiry(until);
        match (request.attach.role, node) {
            (Role::Sender, node) => self.attach_sender(request, path, address.part, node),
            (Role::Receiver, Node::Queue(queue)) => {
                self.attach_receiver(turn, request, path, address.part, &queue)
            }
            (Role::Receiver, Node::Topic(_)) => Err(Error::new(
                condition::NOT_ALLOWED,
                "Messages of a topic are received from its subscriptions.",
            )),
        }
    }

    fn unauthorized(&self, address: &str) -> Error {
        let why = match self.access.user() {
            Some(_) => "the rules of the user do not allow it",
            None => NO_TOKEN,
        };
        Error::new(condition::UNAUTHORIZED, format!("Unauthorized access to '{address}': {why}."))
    }

    fn attach_service(&mut self, request: &AttachRequest, service: Service, node: Box<str>) {
        let session = request.session;
        let max_message_size = match &service {
            Service::Tokens => TOKEN_MESSAGE_MAX,
            Service::Management { node, .. } => {
                (node.max_message_size() as u64 + REQUEST_MAX).max(REQUESTS_BYTES)
            }
        };
        let link = match request.attach.role {
            Role::Sender => Link::Requests(RequestLink { session, service }),
            Role::Receiver => {
                let target = request.attach.target.as_ref();
                Link::Responses(ResponseLink {
                    session,
                    name: request.attach.name.as_str().into(),
                    target: target.and_then(|target| target.address()).map(Into::into),
                    node,
                    waiting: Default::default(),
                    bytes: 0,
                })
            }
        };
        self.links.insert(request.link, link);
        let max_message_size = Some(max_message_size);
        let answer = AttachAnswer { credit: REQUESTS, max_message_size, ..Default::default() };
        self.engine.accept_attach(request.link, answer);
    }

    fn attach_sender(
        &mut self,
        request: &AttachRequest,
        path: Box<str>,
        part: Part,
        node: Node,
    ) -> Result<(), Error> {
        accepts_messages(&node, part)?;
        if !node.entity().status().may_send() {
            return Err(disabled(&path));
        }
        let max_message_size = node.max_message_size();
        let unfinished = self.engine.max_unfinished().max(2 * max_message_size);
        self.engine.set_max_unfinished(unfinished);
        let max_message_size = Some(max_message_size as u64);
        self.links.insert(request.link, Link::Sender(SenderLink { path, node }));
        let answer =
            AttachAnswer { max_message_size, slack: SLACK, credit: CREDIT, ..Default::default() };
        self.engine.accept_attach(request.link, answer);
        Ok(())
    }

    fn attach_receiver(
        &mut self,
        turn: &mut Turn<'_>,
        request: &AttachRequest,
        path: Box<str>,
        part: Part,
        queue: &Arc<Queue>,
    ) -> Result<(), Error> {
        let now = turn.context.wall();
        let filter = request.filter().as_ref().and_then(session_filter);
        let wanted = wanted(request, filter.as_ref(), now)?;
        if part == Part::Main && queue.forwards() {
            let text =
                "The entity forwards its messages: receive them from the entity in ForwardTo.";
            return Err(Error::new(condition::NOT_ALLOWED, text));
        }
        let mode = match request.attach.sender_settles {
            SenderSettles::Settled => Mode::ReceiveAndDelete,
            SenderSettles::Unsettled | SenderSettles::Mixed => Mode::PeekLock,
        };
        let id = new_receiver_id();
        if !queue.register(id, Arc::clone(self.inbox()) as _) {
            return Err(if queue.is_closed() { closed() } else { no_entity(&path) });
        }
        // Looked at after the registration, with which the receiver is told of changes.
        if !queue.status().may_receive() {
            queue.unregister(id);
            return Err(disabled(&path));
        }
        let accepted = open(queue, (id, part, mode), wanted.as_ref(), now)
            .inspect_err(|_| queue.unregister(id))?;
        self.receivers.insert(id, request.link);
        let link = ReceiverLink {
            name: request.attach.name.as_str().into(),
            id,
            path,
            queue: Arc::clone(queue),
            part,
            mode,
            has_session: wanted.is_some(),
            pending: accepted == Some(Accepted::Waiting),
            filter,
            outbound: Outbound::default(),
        };
        let max_message_size = Some(queue.max_message_size() as u64);
        self.links.insert(request.link, Link::Receiver(link));
        match accepted {
            None => {
                let answer = AttachAnswer { max_message_size, ..AttachAnswer::default() };
                self.engine.accept_attach(request.link, answer);
            }
            Some(Accepted::Now { session, locked_until }) => {
                self.grant_session(request.link, &session, locked_until);
            }
            Some(Accepted::Waiting) => {}
        }
        Ok(())
    }

    /// Answers the attach of a receiver that has got its session.
    pub(super) fn grant_session(&mut self, link: LinkId, session: &str, locked_until: WallTime) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else { return };
        receiver.pending = false;
        let mut filter = receiver.filter.take().unwrap_or_default();
        // The descriptor stays as the client wrote it: some clients compare the filter with a bare string, others
        // expect their descriptor.
        filter.insert(SESSION_FILTER, session);
        let answer = AttachAnswer {
            filter: Some(filter),
            properties: Fields::new().with(LOCKED_UNTIL, ticks(locked_until)),
            max_message_size: Some(receiver.queue.max_message_size() as u64),
            ..AttachAnswer::default()
        };
        self.engine.accept_attach(link, answer);
    }
}

/// Checks that clients may send messages to this part of a node.
pub(super) fn accepts_messages(node: &Node, part: Part) -> Result<(), Error> {
    if part != Part::Main {
        let text = "Messages cannot be sent to a dead-letter queue.";
        return Err(Error::new(condition::NOT_ALLOWED, text));
    }
    if node.entity().is_subscription() {
        let text = "Messages for a subscription are sent to its topic.";
        return Err(Error::new(condition::NOT_ALLOWED, text));
    }
    Ok(())
}

/// Opens a receiver, which asks for a session if one is `wanted`.
fn open(
    queue: &Queue,
    (id, part, mode): (ReceiverId, Part, Mode),
    wanted: Option<&Accept>,
    now: WallTime,
) -> Result<Option<Accepted>, Error> {
    let opened = queue.with(&mut Commits::default(), |entity, effects| match wanted {
        None => entity.open(id, part, mode).map(|()| None),
        Some(_) if part != Part::Main => Err(Refusal::SessionsNotSupported),
        Some(wanted) => entity.accept(id, mode, wanted.clone(), now, effects).map(Some),
    });
    opened.map_err(|refusal| match (refusal, wanted) {
        (Refusal::SessionCannotBeLocked, Some(Accept::Session(session))) => Error::new(
            condition::SESSION_CANNOT_BE_LOCKED,
            format!(
                "The requested session '{session}' cannot be accepted. It may be locked by another receiver."
            ),
        ),
        _ => error_of(refusal),
    })
}

/// Returns the session that a client asks for. A bare or described string names it; null stands for any.
fn wanted(
    request: &AttachRequest,
    filter: Option<&Fields>,
    now: WallTime,
) -> Result<Option<Accept>, Error> {
    let Some(value) = filter.and_then(|filter| filter.get(SESSION_FILTER)) else {
        return Ok(None);
    };
    match value.undescribed() {
        ValueRef::Null => Ok(Some(Accept::Next { until: now.after(patience(request)) })),
        ValueRef::String(session) | ValueRef::Symbol(session) => {
            Ok(Some(Accept::Session(session.into())))
        }
        _ => Err(Error::new(condition::ARGUMENT_ERROR, "A session id must be a string.")),
    }
}

/// Returns the part of a filter that is kept until the attach is answered.
fn session_filter(filter: &Fields) -> Option<Fields> {
    Some(Fields::new().with(SESSION_FILTER, filter.get(SESSION_FILTER)?))
}

/// Returns the time for which a client waits for the next session.
fn patience(request: &AttachRequest) -> Duration {
    let millis = match request.attach.properties.get(TIMEOUT) {
        Some(ValueRef::Double(millis)) => Some(millis as u64),
        value => value.and_then(|value| u64::try_from(value.integer()?).ok()),
    };
    millis.map_or(TIMEOUT_DEFAULT, |millis| Duration::from_millis(millis).min(TIMEOUT_MAX))
}

/// Converts a time to ticks of .NET: units of 100 nanoseconds since the year 1.
fn ticks(at: WallTime) -> i64 {
    /// The Unix epoch, in ticks.
    const EPOCH: i64 = 621_355_968_000_000_000;
    i64::try_from(at.as_millis())
        .ok()
        .and_then(|millis| millis.checked_mul(10_000)?.checked_add(EPOCH))
        .unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_count_from_the_year_1() {
        assert_eq!(ticks(WallTime::from_millis(0)), 621_355_968_000_000_000);
        assert_eq!(ticks(WallTime::from_millis(1_000)), 621_355_968_010_000_000);
        assert_eq!(ticks(WallTime::from_millis(u64::MAX)), i64::MAX);
    }
}
