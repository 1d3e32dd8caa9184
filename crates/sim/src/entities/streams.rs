//! The order of messages in sessions, as receivers must find it.

use std::collections::BTreeMap;

use barid_core::entity::SequenceNumber;

use crate::packets::entities::{EntityId, Handle, MessageNumber, SessionId};

/// What is known of the messages in each session. Whoever holds a session gets the first of them that it
/// does not have.
#[derive(Default)]
pub struct Streams {
    sessions: BTreeMap<(EntityId, SessionId), BTreeMap<SequenceNumber, Known>>,
    /// Which message had a number, among the dead letters or not.
    numbers: BTreeMap<(EntityId, bool, SequenceNumber), MessageNumber>,
}

/// What is known of a message in a session.
struct Known {
    standing: Standing,
    /// A crash does not undo that it is there.
    durable: bool,
    /// For how many answers its receivers wait who have settled it.
    asked: BTreeMap<Handle, u32>,
}

/// How a message stands in its session.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// It waits for whoever holds the session.
    Waiting,
    /// This receiver has it.
    With(Handle),
    /// Its receiver has settled it; nobody knows yet what became of that.
    Settled,
    /// It has left the stream.
    Gone,
}

impl Streams {
    /// Somebody learns that a message has a number.
    pub fn numbered(
        &mut self,
        (entity, dead, number): (EntityId, bool, SequenceNumber),
        message: MessageNumber,
    ) -> Result<(), String> {
        let known = *self.numbers.entry((entity, dead, number)).or_insert(message);
        match known == message {
            true => Ok(()),
            false => Err(format!("m{known} and m{message} have the number {number}")),
        }
    }

    /// A sender is told that its message is in the stream.
    pub fn enqueued(&mut self, of: (EntityId, SessionId), number: SequenceNumber) {
        self.known(of, number).durable = true;
    }

    /// A message comes to the holder of the session, in its turn. All that waits before it should have come
    /// first.
    pub fn delivered(
        &mut self,
        of: (EntityId, SessionId),
        number: SequenceNumber,
        handle: Handle,
    ) -> Result<(), String> {
        let with = Standing::With(handle);
        let known = self.known(of, number);
        if known.standing == with {
            return Err(format!("r{handle} gets n{number} while it has it"));
        }
        known.standing = with;
        let overtaken = |known: &Known| match known.standing {
            Standing::Waiting => true,
            // Who had the session before has lost it.
            Standing::With(other) => other != handle,
            Standing::Settled | Standing::Gone => false,
        };
        match self.sessions[&of].range(..number).find(|(_, known)| overtaken(known)) {
            Some((first, _)) => Err(format!("r{handle} gets n{number} before n{first}")),
            None => Ok(()),
        }
    }

    /// A receiver settles a message. Until it is answered, or the message comes again, nothing is known of that;
    /// unless somebody else has it meanwhile: then it is too late.
    pub fn settles(&mut self, of: (EntityId, SessionId), number: SequenceNumber, handle: Handle) {
        let known = self.known(of, number);
        *known.asked.entry(handle).or_default() += 1;
        if known.standing == Standing::With(handle) || known.standing == Standing::Waiting {
            known.standing = Standing::Settled;
        }
    }

    /// A receiver hears that a message has left the stream.
    pub fn left(&mut self, of: (EntityId, SessionId), number: SequenceNumber) {
        self.known(of, number).standing = Standing::Gone;
    }

    /// A receiver hears that a message is back in the stream, or that it has lost it.
    pub fn answered(
        &mut self,
        of: (EntityId, SessionId),
        number: SequenceNumber,
        (handle, back): (Handle, bool),
    ) {
        let known = self.known(of, number);
        let asked = known.asked.get_mut(&handle).expect("it was settled");
        *asked -= 1;
        // Otherwise it came again, and may have been settled again.
        if back && *asked == 0 && known.standing == Standing::Settled {
            known.standing = Standing::Waiting;
        }
    }

    /// The process has ended, and what was not durable is gone.
    pub fn crashed(&mut self) {
        self.sessions.values_mut().for_each(|stream| stream.retain(|_, known| known.durable));
    }

    fn known(&mut self, of: (EntityId, SessionId), number: SequenceNumber) -> &mut Known {
        let new = Known { standing: Standing::Waiting, durable: false, asked: BTreeMap::new() };
        self.sessions.entry(of).or_default().entry(number).or_insert(new)
    }
}
