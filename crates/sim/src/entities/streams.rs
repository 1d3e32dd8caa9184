//! The order of messages in sessions, as receivers must find it.

use std::collections::BTreeMap;

use barid_core::entity::SequenceNumber;

use crate::packets::entities::{EntityId, Handle, MessageNumber, SessionId};

/// The known facts about the messages in each session. The holder of a session gets the first message that it
/// does not have.
#[derive(Default)]
pub struct Streams {
    sessions: BTreeMap<(EntityId, SessionId), BTreeMap<SequenceNumber, Known>>,
    /// The message that had each sequence number, by entity and whether it is a dead letter.
    numbers: BTreeMap<(EntityId, bool, SequenceNumber), MessageNumber>,
}

/// The known facts about a message in a session.
struct Known {
    standing: Standing,
    /// Whether the message is durable, so that a crash does not remove it.
    durable: bool,
    /// Number of settlements that are not answered yet, by receiver.
    asked: BTreeMap<Handle, u32>,
}

/// The state of a message in its session.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// The message waits for the holder of the session.
    Waiting,
    /// This receiver has the message.
    With(Handle),
    /// The receiver has settled the message; the result is not known yet.
    Settled,
    /// The message has left the stream.
    Gone,
}

impl Streams {
    /// Records that a client learns the sequence number of a message.
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

    /// Records that a sender is told that its message is in the stream.
    pub fn enqueued(&mut self, of: (EntityId, SessionId), number: SequenceNumber) {
        self.known(of, number).durable = true;
    }

    /// Records that a message is delivered to the holder of the session. All messages that wait before it must
    /// have been delivered first.
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
            // The previous holder has lost the session.
            Standing::With(other) => other != handle,
            Standing::Settled | Standing::Gone => false,
        };
        match self.sessions[&of].range(..number).find(|(_, known)| overtaken(known)) {
            Some((first, _)) => Err(format!("r{handle} gets n{number} before n{first}")),
            None => Ok(()),
        }
    }

    /// Records that a receiver settles a message. The result is not known until the settlement is answered or
    /// the message is delivered again. If another receiver has the message, the settlement has no effect.
    pub fn settles(&mut self, of: (EntityId, SessionId), number: SequenceNumber, handle: Handle) {
        let known = self.known(of, number);
        *known.asked.entry(handle).or_default() += 1;
        if known.standing == Standing::With(handle) || known.standing == Standing::Waiting {
            known.standing = Standing::Settled;
        }
    }

    /// Records that a receiver is told that a message has left the stream.
    pub fn left(&mut self, of: (EntityId, SessionId), number: SequenceNumber) {
        self.known(of, number).standing = Standing::Gone;
    }

    /// Records that a receiver is told that a message is back in the stream (`back`), or that the receiver has
    /// lost it.
    pub fn answered(
        &mut self,
        of: (EntityId, SessionId),
        number: SequenceNumber,
        (handle, back): (Handle, bool),
    ) {
        let known = self.known(of, number);
        let asked = known.asked.get_mut(&handle).expect("it was settled");
        *asked -= 1;
        // Otherwise the message was delivered again, and may have been settled again.
        if back && *asked == 0 && known.standing == Standing::Settled {
            known.standing = Standing::Waiting;
        }
    }

    /// Removes the messages that were not durable, because the process has ended.
    pub fn crashed(&mut self) {
        self.sessions.values_mut().for_each(|stream| stream.retain(|_, known| known.durable));
    }

    fn known(&mut self, of: (EntityId, SessionId), number: SequenceNumber) -> &mut Known {
        let new = Known { standing: Standing::Waiting, durable: false, asked: BTreeMap::new() };
        self.sessions.entry(of).or_default().entry(number).or_insert(new)
    }
}
