//! A queue, or a subscription of a topic.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::due::Due;
use super::duplicates::Duplicates;
use super::message_session::MessageSession;
use super::messages::Messages;
use super::plain::Plain;
use super::ready::Ready;
use super::sessions::Sessions;
use super::{
    Changes, Counts, Effects, Entry, LockToken, Mode, Overlay, Part, Properties, ReceiverId,
    SequenceNumber, State,
};
use crate::time::WallTime;
use crate::value::{Scope, Value};

/// A queue, or a subscription of a topic: its messages, and which receiver has which of them.
///
/// An entity only changes its own state, and passes the consequences to [`Effects`]. It learns the time from each
/// command, and from [`Entity::on_time`], which must be called at [`Entity::due`] at the latest. The cost of a command
/// does not grow with the number of sessions or messages, except that of [`Entity::purge`] and [`Entity::delete_all`];
/// and the first access to a session in which a message may have expired reads the expiry of each of its messages.
#[derive(Debug)]
pub struct Entity {
    pub(super) properties: Properties,
    /// The messages, by [`Part`].
    parts: [Messages; 3],
    /// The streams without sessions, by [`Part`]. The one of the main part is empty if the entity has sessions.
    plain: [Plain; 3],
    /// The sessions of the main part, if messages belong to sessions.
    pub(super) sessions: Option<Box<Sessions>>,
    pub(super) schedule: Due<SequenceNumber>,
    pub(super) seen: Duplicates,
    pub(super) receivers: HashMap<ReceiverId, Receiver, FixedState>,
    last_lock: u64,
    /// Whether a receiver waits for a session and the search for one was interrupted: not all sessions with expired
    /// messages were looked at.
    pub(super) searches: bool,
    /// Messages of the main part that have expired with their session; they are no longer in any stream.
    pub(super) condemned: VecDeque<SequenceNumber>,
}

/// The state of a receiver.
#[derive(Debug)]
pub(super) enum Receiver {
    /// Takes messages from a stream without sessions.
    Plain {
        part: Part,
        mode: Mode,
        /// Its turn, until it has got a message.
        turn: Option<u64>,
    },
    /// Waits for a session.
    Waiting { turn: u64 },
    /// Holds a session.
    Holder { session: Arc<str> },
}

impl Entity {
    /// Creates an entity without messages. Its stored records are passed to the `recover_…` methods before
    /// [`Entity::start`]. The numbers of its locks are greater than `last_lock`, which must not be less than any lock
    /// number of an earlier process, so that tokens of that process are invalid.
    pub fn new(properties: Properties, last_lock: u64) -> Self {
        Self {
            sessions: properties.requires_session.then(Box::default),
            properties,
            parts: Part::ALL.map(Messages::new),
            plain: Default::default(),
            schedule: Due::default(),
            seen: Duplicates::default(),
            receivers: HashMap::default(),
            last_lock,
            searches: false,
            condemned: VecDeque::new(),
        }
    }

    /// The properties of the entity.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Sets the properties. Effects of the old properties remain. Whether the entity requires sessions does not change.
    pub fn set_properties(&mut self, mut properties: Properties) {
        properties.requires_session = self.properties.requires_session;
        self.properties = properties;
    }

    /// Counts the contents.
    pub fn counts(&self) -> Counts {
        let main = self.messages(Part::Main);
        Counts {
            active: main.active(),
            locked: main.locked(),
            deferred: main.deferred(),
            scheduled: main.scheduled(),
            dead_lettered: self.messages(Part::DeadLetter).len(),
            transfer_dead_lettered: self.messages(Part::TransferDeadLetter).len(),
            sessions: self.sessions.as_ref().map_or(0, |sessions| sessions.len()),
            bytes: self.bytes(),
            footprint: self.footprint(),
            oldest: main.oldest(),
        }
    }

    /// Bytes of messages and states in memory: the sum of all calls of [`Effects::memory`] since the entity was
    /// created, plus what was recovered.
    pub fn bytes_in_memory(&self) -> usize {
        let messages: usize = self.parts.iter().map(Messages::in_memory).sum();
        messages + self.state_bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        let messages: usize = self.parts.iter().map(Messages::bytes).sum();
        messages + self.state_bytes()
    }

    /// Bytes that count against the limit of the entity.
    pub fn footprint(&self) -> usize {
        let messages: usize = self.parts.iter().map(Messages::footprint).sum();
        messages + self.sessions.as_ref().map_or(0, |sessions| sessions.footprint())
    }

    fn state_bytes(&self) -> usize {
        self.sessions.as_ref().map_or(0, |sessions| sessions.state_bytes())
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Messages::len).sum()
    }

    pub(super) fn messages(&self, part: Part) -> &Messages {
        &self.parts[part as usize]
    }

    pub(super) fn messages_mut(&mut self, part: Part) -> &mut Messages {
        &mut self.parts[part as usize]
    }

    pub(super) fn plain(&self, part: Part) -> &Plain {
        &self.plain[part as usize]
    }

    pub(super) fn plain_mut(&mut self, part: Part) -> &mut Plain {
        &mut self.plain[part as usize]
    }

    /// The stream of a part, and its messages.
    pub(super) fn plain_with_messages(&mut self, part: Part) -> (&mut Plain, &Messages) {
        (&mut self.plain[part as usize], &self.parts[part as usize])
    }

    /// The sessions, if the messages of the part belong to sessions.
    pub(super) fn sessions_of(&self, part: Part) -> Option<&Sessions> {
        self.sessions.as_deref().filter(|_| part == Part::Main)
    }

    pub(super) fn session(&self, id: &str) -> Option<&MessageSession> {
        self.sessions.as_ref()?.get(id)
    }

    /// Changes the session of a message, if the messages of the part belong to sessions.
    pub(super) fn change_session<R>(
        &mut self,
        part: Part,
        id: Option<&Arc<str>>,
        change: impl FnOnce(&mut MessageSession) -> R,
    ) -> Option<R> {
        let sessions = self.sessions.as_mut().filter(|_| part == Part::Main)?;
        Some(sessions.change(id.expect("every message has a session here"), change))
    }

    pub(super) fn new_lock(&mut self) -> u64 {
        self.last_lock += 1;
        self.last_lock
    }

    /// Puts an active message, new or returned, into its place in the stream.
    pub(super) fn make_ready(&mut self, part: Part, number: SequenceNumber, fx: &mut dyn Effects) {
        let entry = self.messages(part).get(number).expect("what is made ready is here");
        let (ready, session) = (Ready::from(entry), entry.session.clone());
        match self.change_session(part, session.as_ref(), |session| session.put_back(ready)) {
            Some(told) => _ = told.inspect(|receiver| fx.ready(*receiver)),
            None => {
                self.plain_mut(part).put_back(ready, part == Part::Main);
                self.offer(part, fx);
            }
        }
    }

    /// Tells the plain receiver whose turn it is, if there is a message for it.
    pub(super) fn offer(&mut self, part: Part, fx: &mut dyn Effects) {
        if let Some(receiver) = self.plain_mut(part).offer() {
            fx.ready(receiver);
        }
    }

    /// Locks a message for a receiver.
    pub(super) fn lock(
        &mut self,
        part: Part,
        number: SequenceNumber,
        now: WallTime,
    ) -> (LockToken, WallTime) {
        let messages = self.messages_mut(part);
        let entry = messages.get(number).expect("what is locked is here");
        let (session, is_active) = (entry.session.clone(), entry.state == State::Active);
        if is_active {
            messages.count_locked(true);
        }
        let held = self.change_session(part, session.as_ref(), |session| {
            let hold = session.hold.as_mut().expect("who takes holds the session");
            hold.in_flight.insert(number);
            (LockToken::new(hold.number, number), hold.until)
        });
        held.unwrap_or_else(|| {
            let token = LockToken::new(self.new_lock(), number);
            let until = now.after(self.properties.lock_duration);
            self.plain_mut(part).lock(token, until);
            (token, until)
        })
    }

    /// Unlocks a message of a receiver.
    pub(super) fn unlock(&mut self, part: Part, number: SequenceNumber) {
        let messages = self.messages_mut(part);
        let entry = messages.get(number).expect("what is locked is here");
        let (session, is_active) = (entry.session.clone(), entry.state == State::Active);
        if is_active {
            messages.count_locked(false);
        }
        let held = self.change_session(part, session.as_ref(), |session| {
            session.hold.iter_mut().for_each(|hold| _ = hold.in_flight.remove(&number));
        });
        if held.is_none() {
            self.plain_mut(part).unlock(number);
        }
    }

    /// Returns a message from its receiver. An active message waits again in its place.
    pub(super) fn give_back(&mut self, part: Part, number: SequenceNumber, fx: &mut dyn Effects) {
        let entry = self.messages(part).get(number).expect("what comes back is here");
        if entry.state == State::Active {
            self.make_ready(part, number, fx);
        }
    }

    /// Returns a message whose delivery failed. Its delivery count is raised, except that of a dead letter; at the
    /// maximum the message becomes a dead letter.
    pub(super) fn fail(
        &mut self,
        part: Part,
        number: SequenceNumber,
        changes: Changes,
        fx: &mut dyn Effects,
    ) {
        let entry = self.messages(part).get(number).expect("what comes back is here");
        let count = entry.delivery_count.saturating_add(u32::from(part == Part::Main));
        if part == Part::Main && count >= self.properties.max_delivery_count {
            let mut entry = self.leave(part, number, fx);
            entry.delivery_count = count;
            change_properties(&mut entry, changes);
            let description =
                format!("Message could not be consumed after {count} delivery attempts.");
            self.dead_letter(entry, Some(MAX_DELIVERY_COUNT_EXCEEDED), Some(&description), fx);
            return;
        }
        self.messages_mut(part).change(number, fx, |entry| {
            entry.delivery_count = count;
            change_properties(entry, changes);
        });
        self.give_back(part, number, fx);
    }

    /// Expires a waiting message.
    pub(super) fn expire(&mut self, number: SequenceNumber, fx: &mut dyn Effects) {
        if self.properties.dead_lettering_on_expiration {
            let entry = self.leave(Part::Main, number, fx);
            let description = "The message expired and was dead lettered.";
            self.dead_letter(entry, Some(TTL_EXPIRED), Some(description), fx);
        } else {
            self.remove(Part::Main, number, fx);
        }
    }

    /// Moves a message that has left the main part to the dead letters.
    pub(super) fn dead_letter(
        &mut self,
        mut entry: Entry,
        reason: Option<&str>,
        description: Option<&str>,
        fx: &mut dyn Effects,
    ) {
        explain(&mut entry, reason, description);
        entry.state = State::Active;
        self.bury(Part::DeadLetter, entry, fx);
    }

    /// Stores a message in one of the two parts for dead letters.
    pub(super) fn bury(&mut self, part: Part, mut entry: Entry, fx: &mut dyn Effects) {
        let messages = self.messages_mut(part);
        let number = messages.new_number(fx);
        entry.number = number;
        messages.put(entry, fx);
        self.make_ready(part, number, fx);
    }

    /// Takes a message that is not locked out of its part. Its body stays in the store, and its number among those that
    /// are ready.
    pub(super) fn leave(
        &mut self,
        part: Part,
        number: SequenceNumber,
        fx: &mut dyn Effects,
    ) -> Entry {
        let entry = self.messages_mut(part).take(number, fx);
        if entry.state != State::Active {
            let session = entry.session.as_ref();
            self.change_session(part, session, |session| session.unset_aside(number));
        }
        entry
    }

    /// Removes a message and its body.
    pub(super) fn remove(
        &mut self,
        part: Part,
        number: SequenceNumber,
        fx: &mut dyn Effects,
    ) -> Entry {
        let entry = self.leave(part, number, fx);
        fx.remove_body(entry.body.id);
        fx.memory(entry.body.in_memory(), 0);
        entry
    }
}

/// The properties that say why a message is a dead letter.
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

const MAX_DELIVERY_COUNT_EXCEEDED: &str = "MaxDeliveryCountExceeded";
const TTL_EXPIRED: &str = "TTLExpiredException";

/// Changes application properties of a message.
pub(super) fn change_properties(entry: &mut Entry, changes: Changes) {
    if changes.is_empty() {
        return;
    }
    let mut overlay = entry.overlay.take().map_or_else(Overlay::new, Arc::unwrap_or_clone);
    for (name, value) in changes {
        overlay.set(Scope::User, &name, value);
    }
    entry.overlay = Some(Arc::new(overlay));
}

/// Sets the properties that say why a message is a dead letter.
pub(super) fn explain(entry: &mut Entry, reason: Option<&str>, description: Option<&str>) {
    let reason = reason.map(|reason| (REASON.into(), Value::from(reason)));
    let description = description.map(|text| (DESCRIPTION.into(), Value::from(text)));
    change_properties(entry, reason.into_iter().chain(description).collect());
}

/// Removes the properties that say why a message was a dead letter.
pub(super) fn unexplain(entry: &mut Entry) {
    let Some(overlay) = entry.overlay.take() else { return };
    let mut overlay = Arc::unwrap_or_clone(overlay);
    for name in [REASON, DESCRIPTION] {
        overlay.unset(Scope::User, name);
    }
    entry.overlay = (!overlay.is_empty()).then(|| Arc::new(overlay));
}
