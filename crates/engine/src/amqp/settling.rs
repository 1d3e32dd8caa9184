//! Settlement of received messages.

use barid_amqp::message::ValueRef;
use barid_amqp::{DeliveryState, Disposition, Error, Fields};
use barid_core::entity::{CHANGED_MAX, Changes, Outcome, Refusal};

use super::container::Container;
use super::encode::token_of_tag;
use super::held::Answer;
use super::link::Link;
use super::refusals::error_of;
use crate::durable::Commits;
use crate::entities::value::kept;
use crate::faults::{IfHolds as _, Rule};
use crate::turn::Turn;

impl Container {
    /// Settles a message as the client has decided.
    pub(super) fn settle(&mut self, turn: &mut Turn<'_>, disposition: &Disposition) {
        let Some(Link::Receiver(receiver)) = self.links.get(&disposition.link) else { return };
        let Some(outcome) = outcome_of(disposition) else { return };
        let now = turn.context.wall();
        let mut commits = Commits::default();
        let part = receiver.part;
        let returns = outcome.returns();
        let token = token_of_tag(&disposition.tag);
        let result = match token {
            Some(token) => receiver.queue.with(&mut commits, |entity, effects| {
                entity.settle(part, token, outcome, now, effects)
            }),
            None => Err(Refusal::MessageLockLost),
        };
        let commits = commits.if_holds(Rule::SettleWhenDurable);
        let answer = match result {
            _ if disposition.settled => Answer::Nothing,
            Ok(()) => Answer::Outgoing(disposition.delivery, echo(disposition.state.as_deref())),
            Err(refusal) => {
                let state = DeliveryState::Rejected(Some(Box::new(error_of(refusal))));
                Answer::Outgoing(disposition.delivery, state)
            }
        };
        self.answer(turn, commits, answer);
        if let Some(token) = token.filter(|_| returns && result.is_ok()) {
            self.came_back(turn, disposition.link, token.number());
        }
    }
}

/// Returns the outcome that a client has decided on; `None`: it has not decided yet.
fn outcome_of(disposition: &Disposition) -> Option<Outcome> {
    Some(match disposition.state.as_deref() {
        Some(DeliveryState::Accepted) => Outcome::Complete,
        Some(DeliveryState::Released) => Outcome::Release,
        Some(DeliveryState::Modified(modified)) => {
            let changes = changes(modified.message_annotations.iter());
            if modified.undeliverable_here {
                Outcome::Defer(changes)
            } else {
                // `delivery-failed` is ignored: some clients abandon messages without it.
                Outcome::Abandon(changes)
            }
        }
        Some(DeliveryState::Rejected(error)) => dead_letter(error.as_deref()),
        // Other states are no outcomes: there are no transactions.
        Some(_) => return None,
        None if disposition.settled => Outcome::Release,
        None => return None,
    })
}

fn dead_letter(error: Option<&Error>) -> Outcome {
    const REASON: &str = "DeadLetterReason";
    const DESCRIPTION: &str = "DeadLetterErrorDescription";
    let none = Fields::new();
    let info = error.map_or(&none, |error| &error.info);
    let text = |name: &str| info.get(name)?.text().map(Into::into);
    let rest = info.iter().filter(|(name, _)| ![REASON, DESCRIPTION].contains(name));
    Outcome::DeadLetter {
        reason: text(REASON),
        description: text(DESCRIPTION).or_else(|| error?.description.as_deref().map(Into::into)),
        changes: changes(rest),
    }
}

/// Returns the changes of properties that a client asks for. Values of types that properties cannot have are left
/// out.
pub fn changes<'a>(fields: impl Iterator<Item = (&'a str, ValueRef<'a>)>) -> Changes {
    // One more than the maximum is enough to be refused.
    let fields = fields.take(CHANGED_MAX + 1);
    fields.filter_map(|(name, value)| Some((name.into(), kept(value)?))).collect()
}

/// Returns the state that tells the client that its decision was carried out. A rejection is repeated without its
/// error, which would be taken for an error of the broker.
fn echo(state: Option<&DeliveryState>) -> DeliveryState {
    match state {
        None => DeliveryState::Released,
        Some(DeliveryState::Rejected(_)) => DeliveryState::Rejected(None),
        Some(state) => state.clone(),
    }
}
