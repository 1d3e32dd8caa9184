//! Messages go to receivers.

use std::iter;

use smallvec::SmallVec;

use super::entity::Receiver;
use super::{
    Delivery, Effects, Entity, LockToken, Mode, Part, ReceiverId, Refusal, SequenceNumber, State,
};
use crate::time::WallTime;

impl Entity {
    /// Gives a receiver its next messages, at most `max`. If there are fewer, it is told by
    /// [`Effects::ready`] when there is one. With a `max` of zero it cannot take now, and its turn passes
    /// to the next receiver.
    ///
    /// A message whose bytes are in the store only is locked even if the mode is
    /// [`Mode::ReceiveAndDelete`]: the caller reads them, and then completes it.
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`]: it has no session any more.
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
            // It is not told of what it is about to take.
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

    /// Gives a receiver deferred messages. Where there are sessions it must hold that of all of them;
    /// elsewhere it is of no account who it is. They are settled as others are, but stay deferred when they
    /// come back. For messages whose bytes are in the store only see [`Entity::take`].
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`]; [`Refusal::MessageNotFound`]: one of the numbers is of no deferred
    /// message, or of one that somebody has. None is given then.
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
        // Who has got nothing keeps its turn.
        let hungry = &mut self.plain_mut(part).hungry;
        match turn.filter(|_| left == max) {
            Some(turn) => hungry.rejoin(turn, receiver),
            None => turn = Some(hungry.join(receiver)),
        }
        self.receivers.insert(receiver, Receiver::Plain { part, mode, turn });
    }

    /// A message that waits for nothing goes to a receiver.
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
