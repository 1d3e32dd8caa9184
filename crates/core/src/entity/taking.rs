//! Delivery of messages to receivers.

use std::iter;

use smallvec::SmallVec;

use super::entity::Receiver;
use super::{
    Delivery, Effects, Entity, LockToken, Mode, Part, ReceiverId, Refusal, SequenceNumber, State,
};
use crate::time::WallTime;

impl Entity {
    /// Gives a receiver its next messages, at most `max`. If there are fewer, [`Effects::ready`] tells it when there is
    /// another one. A `max` of zero says that the receiver cannot take any now, and passes its turn to the next
    /// receiver.
    ///
    /// A message whose bytes are in the store only is locked even if the mode is [`Mode::ReceiveAndDelete`]: the caller
    /// reads the bytes, and then completes the message.
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`]: the receiver holds no session any more.
    pub fn take(
        &mut self,
        receiver: ReceiverId,
        max: usize,
        now: WallTime,
        fx: &mut dyn Effects,
        out: &mut Vec<Delivery>,
    ) -> Result<(), Refusal> {
        if let Some(Receiver::Plain { part, mode, turn }) = self.receivers.get_mut(&receiver) {
            let (part, mode, turn) = (*part, *mode, turn.take());
            // The receiver is not told of messages that it is about to take.
            turn.inspect(|turn| _ = self.plain_mut(part).hungry.leave(*turn));
            self.end_locks(now, fx);
            self.take_plain(receiver, (part, mode, turn), max, now, fx, out);
            return Ok(());
        }
        let session = self.held(receiver, now, fx)?;
        self.expire_session(&session, now, fx);
        let hold = self.session(&session).and_then(|session| session.hold.as_ref());
        let mode = hold.expect("it is held").mode;
        let sessions = self.sessions_mut();
        let numbers: SmallVec<[_; 16]> = sessions.change(&session, |session| {
            let numbers: SmallVec<_> = iter::from_fn(|| session.pop()).take(max).collect();
            session.hold.as_mut().expect("it is held").hungry = numbers.len() < max;
            numbers
        });
        for number in numbers {
            out.push(self.deliver(Part::Main, number, mode, now, fx));
        }
        Ok(())
    }

    /// Gives a receiver deferred messages. Where there are sessions, the receiver must hold the session of all of them;
    /// otherwise `receiver` is ignored. The messages are settled like others, but stay deferred when they return. For
    /// messages whose bytes are in the store only see [`Entity::take`].
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`]; [`Refusal::MessageNotFound`] if one of the numbers is not that of a deferred
    /// message, or its message is locked. Then none is given.
    #[expect(clippy::too_many_arguments, reason = "all of them come with the request")]
    pub fn receive_deferred(
        &mut self,
        part: Part,
        receiver: Option<ReceiverId>,
        numbers: &[SequenceNumber],
        mode: Mode,
        now: WallTime,
        fx: &mut dyn Effects,
        out: &mut Vec<Delivery>,
    ) -> Result<(), Refusal> {
        self.end_locks(now, fx);
        let held = match (self.sessions_of(part).is_some(), receiver) {
            (false, _) => None,
            (true, None) => return Err(Refusal::SessionLockLost),
            (true, Some(receiver)) => Some(self.held(receiver, now, fx)?),
        };
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let is_there = |number: &SequenceNumber| {
            let entry = self.messages(part).get(*number);
            entry.is_some_and(|entry| entry.state == State::Deferred)
                && match &held {
                    None => !self.plain(part).is_locked(*number),
                    Some(id) => {
                        entry.is_some_and(|entry| entry.session.as_ref() == Some(id))
                            && self.session(id).is_some_and(|one| !one.is_in_flight(*number))
                    }
                }
        };
        if !numbers.iter().all(is_there) {
            return Err(Refusal::MessageNotFound);
        }
        for number in numbers {
            out.push(self.deliver(part, number, mode, now, fx));
        }
        Ok(())
    }

    fn take_plain(
        &mut self,
        receiver: ReceiverId,
        (part, mode, mut turn): (Part, Mode, Option<u64>),
        max: usize,
        now: WallTime,
        fx: &mut dyn Effects,
        out: &mut Vec<Delivery>,
    ) {
        if max == 0 {
            self.offer(part, fx);
            return;
        }
        let mut left = max;
        while left > 0 {
            let (plain, messages) = self.plain_with_messages(part);
            let next = plain.pop(now, |number| messages.get(number).is_some());
            let Some((number, expired)) = next else { break };
            if expired {
                self.expire(number, fx);
                continue;
            }
            out.push(self.deliver(part, number, mode, now, fx));
            left -= 1;
        }
        if left == 0 {
            return;
        }
        // A receiver that has got nothing keeps its turn.
        let hungry = &mut self.plain_mut(part).hungry;
        match turn.filter(|_| left == max) {
            Some(turn) => hungry.rejoin(turn, receiver),
            None => turn = Some(hungry.join(receiver)),
        }
        self.receivers.insert(receiver, Receiver::Plain { part, mode, turn });
    }

    /// Delivers a message that was taken out of its stream.
    fn deliver(
        &mut self,
        part: Part,
        number: SequenceNumber,
        mode: Mode,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Delivery {
        let entry = self.messages(part).get(number).expect("what is delivered is here");
        if mode == Mode::ReceiveAndDelete && entry.body.bytes.is_some() {
            let entry = self.remove(part, number, fx);
            return Delivery { token: LockToken::new(0, number), entry, locked_until: now };
        }
        let entry = entry.clone();
        let (token, locked_until) = self.lock(part, number, now);
        Delivery { token, entry, locked_until }
    }
}
