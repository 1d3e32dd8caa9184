//! Settling of messages.

use super::entity::change_properties;
use super::{Effects, Entity, LockToken, Outcome, Overlay, Part, Refusal, SequenceNumber, State};
use crate::time::WallTime;

/// Maximum size of the reason and the description of a dead letter, in bytes; a settlement beyond it is refused as
/// [`Refusal::TooManyChanges`].
const REASONS_MAX: usize = 16 * 1024;

impl Entity {
    /// Settles a message. The token proves the lock, and that it has not ended.
    ///
    /// # Errors
    /// [`Refusal::SessionLockLost`], [`Refusal::MessageLockLost`], [`Refusal::DeadLetteredAlready`],
    /// [`Refusal::TooManyChanges`]: the message stays locked.
    pub fn settle(
        &mut self,
        part: Part,
        token: LockToken,
        outcome: Outcome,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<(), Refusal> {
        self.end_locks(now, fx);
        self.check_lock(part, token, now)?;
        if part != Part::Main && matches!(outcome, Outcome::DeadLetter { .. }) {
            return Err(Refusal::DeadLetteredAlready);
        }
        let number = token.number();
        self.check_changes(part, number, &outcome)?;
        self.unlock(part, number);
        match outcome {
            Outcome::Complete => _ = self.remove(part, number, fx),
            Outcome::Abandon(changes) => self.fail(part, number, changes, fx),
            Outcome::Release => self.give_back(part, number, fx),
            Outcome::Defer(changes) => {
                // Deferring raises the delivery count, as abandoning does. But a receiver that defers wants to receive
                // the message by its number, so the message does not become a dead letter yet.
                let counts = u32::from(part == Part::Main);
                self.messages_mut(part).change(number, fx, |entry| {
                    entry.state = State::Deferred;
                    entry.delivery_count = entry.delivery_count.saturating_add(counts);
                    change_properties(entry, changes);
                });
                let session = self.messages(part).get(number).and_then(|one| one.session.clone());
                self.change_session(part, session.as_ref(), |session| session.set_aside(number));
            }
            Outcome::DeadLetter { reason, description, changes } => {
                let mut entry = self.leave(part, number, fx);
                change_properties(&mut entry, changes);
                self.dead_letter(entry, reason.as_deref(), description.as_deref(), fx);
            }
        }
        Ok(())
    }

    fn check_changes(
        &self,
        part: Part,
        number: SequenceNumber,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        let changes = match outcome {
            Outcome::Complete | Outcome::Release => return Ok(()),
            Outcome::Abandon(changes) | Outcome::Defer(changes) => changes,
            Outcome::DeadLetter { reason, description, changes } => {
                let texts = [reason, description].into_iter().flatten();
                if texts.map(|text| text.len()).sum::<usize>() > REASONS_MAX {
                    return Err(Refusal::TooManyChanges);
                }
                changes
            }
        };
        let overlay = self.messages(part).get(number).and_then(|entry| entry.overlay.as_deref());
        let fits = match overlay {
            _ if changes.is_empty() => true,
            Some(overlay) => overlay.has_room_for(changes),
            None => Overlay::new().has_room_for(changes),
        };
        if fits { Ok(()) } else { Err(Refusal::TooManyChanges) }
    }

    /// Renews the lock on a message without session, for the lock duration from now. Returns when it ends.
    ///
    /// # Errors
    /// [`Refusal::MessageLockLost`]; also for a message under the lock of its session.
    pub fn renew_message(
        &mut self,
        part: Part,
        token: LockToken,
        now: WallTime,
        fx: &mut dyn Effects,
    ) -> Result<WallTime, Refusal> {
        self.end_locks(now, fx);
        let until = now.after(self.properties.lock_duration);
        let plain = self.plain_mut(part);
        if !plain.holds(token, now) {
            return Err(Refusal::MessageLockLost);
        }
        plain.unlock(token.number());
        plain.lock(token, until);
        Ok(until)
    }

    fn check_lock(&self, part: Part, token: LockToken, now: WallTime) -> Result<(), Refusal> {
        let holds = match self.sessions_of(part) {
            None => self.plain(part).holds(token, now),
            Some(sessions) => {
                let id = sessions.locked(token.lock()).ok_or(Refusal::SessionLockLost)?;
                let session = sessions.get(id).filter(|session| !session.lock_has_ended(now));
                session.ok_or(Refusal::SessionLockLost)?.holds(token)
            }
        };
        if holds { Ok(()) } else { Err(Refusal::MessageLockLost) }
    }
}
