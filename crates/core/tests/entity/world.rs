//! One entity, a clock that is a number, and short names for the commands.

use std::sync::Arc;
use std::time::Duration;

use barid_core::entity::{
    Accept, Accepted, Delivery, Entity, Entry, Incoming, LockToken, Mode, Outcome, Part,
    Properties, ReceiverId, Refusal, Sent, SequenceNumber,
};
use barid_core::time::WallTime;

use super::store::{Heard, Told};

/// Duration of a lock, in milliseconds.
pub const LOCK: u64 = 1_000;

pub struct World {
    pub entity: Entity,
    pub fx: Heard,
    pub now: WallTime,
}

/// A message that a receiver got.
#[derive(Clone, Debug)]
pub struct Got {
    pub text: String,
    pub count: u32,
    pub token: LockToken,
    pub entry: Entry,
    pub locked_until: u64,
}

pub fn properties(requires_session: bool) -> Properties {
    Properties {
        requires_session,
        lock_duration: Duration::from_millis(LOCK),
        max_delivery_count: 3,
        default_time_to_live: None,
        dead_lettering_on_expiration: true,
        duplicate_detection: None,
        max_messages: 1_000,
        max_bytes: 10_000_000,
        max_message_size: 1_000,
        max_sessions: 100,
    }
}

pub fn message(session: &str, text: &str) -> Incoming {
    Incoming {
        session: (!session.is_empty()).then(|| Arc::from(session)),
        message_id: None,
        time_to_live: None,
        scheduled_at: None,
        bytes: Arc::from(text.as_bytes()),
        overlay: None,
    }
}

pub fn lives(session: &str, text: &str, millis: u64) -> Incoming {
    Incoming { time_to_live: Some(Duration::from_millis(millis)), ..message(session, text) }
}

pub fn scheduled(session: &str, text: &str, at: u64) -> Incoming {
    Incoming { scheduled_at: Some(WallTime::from_millis(at)), ..message(session, text) }
}

pub fn dead_letter(reason: &str, description: &str) -> Outcome {
    Outcome::DeadLetter {
        reason: Some(reason.into()),
        description: Some(description.into()),
        changes: Vec::new(),
    }
}

pub fn abandon() -> Outcome {
    Outcome::Abandon(Vec::new())
}

pub fn defer() -> Outcome {
    Outcome::Defer(Vec::new())
}

/// The texts of the messages.
pub fn texts(got: &[Got]) -> Vec<&str> {
    got.iter().map(|got| got.text.as_str()).collect()
}

/// The texts with the delivery counts.
pub fn counted(got: &[Got]) -> Vec<(&str, u32)> {
    got.iter().map(|got| (got.text.as_str(), got.count)).collect()
}

impl World {
    /// An entity that requires sessions.
    pub fn with_sessions() -> Self {
        Self::new(properties(true))
    }

    /// An entity without sessions.
    pub fn plain() -> Self {
        Self::new(properties(false))
    }

    pub fn new(properties: Properties) -> Self {
        let (mut entity, mut fx) = (Entity::new(properties, 0), Heard::default());
        entity.start(&mut fx);
        Self { entity, fx, now: WallTime::from_millis(0) }
    }

    /// Changes the properties.
    pub fn set(&mut self, change: impl FnOnce(&mut Properties)) {
        let mut properties = self.entity.properties().clone();
        change(&mut properties);
        self.entity.set_properties(properties);
    }

    /// Sets the time, and tells the entity.
    pub fn at(&mut self, millis: u64) {
        self.now = WallTime::from_millis(millis);
        self.entity.on_time(self.now, &mut self.fx);
    }

    /// Sets the time without telling the entity, which learns it from the next command.
    pub fn later(&mut self, millis: u64) {
        self.now = WallTime::from_millis(millis);
    }

    pub fn send(&mut self, session: &str, text: &str) -> SequenceNumber {
        match self.try_send(message(session, text)) {
            Ok(Sent::Enqueued(number)) => number,
            other => panic!("{text}: {other:?}"),
        }
    }

    pub fn send_all(&mut self, session: &str, texts: &[&str]) {
        for text in texts {
            self.send(session, text);
        }
    }

    pub fn try_send(&mut self, message: Incoming) -> Result<Sent, Refusal> {
        self.entity.send(message, self.now, &mut self.fx)
    }

    /// Accepts a session. Returns when the lock ends.
    pub fn accept(&mut self, receiver: u64, session: &str) -> Result<u64, Refusal> {
        self.accept_as(receiver, session, Mode::PeekLock)
    }

    pub fn accept_as(&mut self, receiver: u64, session: &str, mode: Mode) -> Result<u64, Refusal> {
        let which = Accept::Session(Arc::from(session));
        match self.entity.accept(ReceiverId(receiver), mode, which, self.now, &mut self.fx)? {
            Accepted::Now { session: granted, locked_until } => {
                assert_eq!(&*granted, session);
                Ok(locked_until.as_millis())
            }
            Accepted::Waiting => panic!("it waits for one session"),
        }
    }

    /// Accepts any session. Returns its id, or `None` if the receiver waits until `until`.
    pub fn accept_next(&mut self, receiver: u64, until: u64) -> Option<String> {
        let which = Accept::Next { until: WallTime::from_millis(until) };
        let receiver = ReceiverId(receiver);
        let accepted =
            self.entity.accept(receiver, Mode::PeekLock, which, self.now, &mut self.fx).unwrap();
        match accepted {
            Accepted::Now { session, .. } => Some(session.to_string()),
            Accepted::Waiting => None,
        }
    }

    /// Opens a receiver without session.
    pub fn open(&mut self, receiver: u64, part: Part) {
        self.entity.open(ReceiverId(receiver), part, Mode::PeekLock).unwrap();
    }

    pub fn close(&mut self, receiver: u64) {
        self.entity.close(ReceiverId(receiver), self.now, &mut self.fx);
    }

    pub fn take(&mut self, receiver: u64, max: usize) -> Vec<Got> {
        self.try_take(receiver, max).unwrap()
    }

    pub fn try_take(&mut self, receiver: u64, max: usize) -> Result<Vec<Got>, Refusal> {
        let mut out = Vec::new();
        self.entity.take(ReceiverId(receiver), max, self.now, &mut self.fx, &mut out)?;
        Ok(self.got(out))
    }

    pub fn take_deferred(
        &mut self,
        part: Part,
        receiver: u64,
        numbers: &[SequenceNumber],
    ) -> Result<Vec<Got>, Refusal> {
        let (mut out, receiver) = (Vec::new(), Some(ReceiverId(receiver)));
        self.entity.receive_deferred(
            part,
            receiver,
            numbers,
            Mode::PeekLock,
            self.now,
            &mut self.fx,
            &mut out,
        )?;
        Ok(self.got(out))
    }

    fn got(&self, deliveries: Vec<Delivery>) -> Vec<Got> {
        let got = |delivery: Delivery| Got {
            text: String::from_utf8(self.fx.bytes_of(&delivery.entry).to_vec()).unwrap(),
            count: delivery.entry.delivery_count,
            token: delivery.token,
            entry: delivery.entry,
            locked_until: delivery.locked_until.as_millis(),
        };
        deliveries.into_iter().map(got).collect()
    }

    pub fn settle(&mut self, got: &Got, outcome: Outcome) -> Result<(), Refusal> {
        self.settle_in(Part::Main, got, outcome)
    }

    pub fn settle_in(&mut self, part: Part, got: &Got, outcome: Outcome) -> Result<(), Refusal> {
        self.entity.settle(part, got.token, outcome, self.now, &mut self.fx)
    }

    pub fn complete(&mut self, got: &Got) {
        self.settle(got, Outcome::Complete).unwrap();
    }

    pub fn set_state(&mut self, receiver: u64, state: Option<&[u8]>) -> Result<(), Refusal> {
        let state = state.map(Arc::from);
        self.entity.set_state(ReceiverId(receiver), state, self.now, &mut self.fx)
    }

    pub fn state(&self, session: &str) -> Option<Vec<u8>> {
        self.entity.state(session).map(|bytes| bytes.to_vec())
    }

    /// The entries of a part, in order.
    pub fn entries(&self, part: Part) -> Vec<Entry> {
        self.peek(part, 0, usize::MAX, None)
    }

    pub fn peek(&self, part: Part, from: u64, max: usize, session: Option<&str>) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.entity.peek(part, from, max, session, |entry| {
            entries.push(entry.clone());
            true
        });
        entries
    }

    pub fn text(&self, entry: &Entry) -> String {
        String::from_utf8(self.fx.bytes_of(entry).to_vec()).unwrap()
    }

    /// The texts in a part, in order.
    pub fn texts(&self, part: Part) -> Vec<String> {
        self.entries(part).iter().map(|entry| self.text(entry)).collect()
    }

    /// Returns the notifications since the last call.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.fx.told)
    }

    /// Ends the process and starts another one with all stored records.
    pub fn restart(&mut self) {
        let properties = self.entity.properties().clone();
        self.entity = self.fx.recover(properties, 1 << 32);
    }
}
