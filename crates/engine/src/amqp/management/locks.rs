//! Renewal of locks, and settlement without a link.

use barid_amqp::Error;
use barid_amqp::message::ValueRef;
use barid_core::entity::{LockToken, Outcome, Refusal};

use super::{Asked, Done};
use crate::amqp::encode::{millis, token_of};
use crate::amqp::refusals::{condition, error_of};
use crate::amqp::settling::changes;
use crate::durable::Commits;
use crate::faults::Rule;

fn tokens(asked: &Asked<'_>) -> Result<Vec<LockToken>, Error> {
    asked.named("lock-tokens", |value| value.uuid().map(token_of))
}

/// `renew-lock`: extends the locks of messages.
pub(super) fn renew_messages(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let tokens = tokens(asked)?;
    let (now, part) = (asked.now, asked.part);
    let expirations = asked.queue.with(asked.commits, |entity, effects| {
        let renew = |token| entity.renew_message(part, token, now, effects);
        tokens.into_iter().map(renew).collect::<Result<Vec<_>, _>>()
    });
    let expirations = expirations.map_err(error_of)?;
    Ok(Done::body(move |map| {
        map.value(ValueRef::String("expirations"));
        map.timestamps(expirations.into_iter().map(millis));
    }))
}

/// `renew-session-lock`: extends the lock of a session.
pub(super) fn renew_session(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let ((receiver, _), now) = (asked.holder()?, asked.now);
    let expiration = asked
        .queue
        .with(asked.commits, |entity, effects| entity.renew_session(receiver, now, effects))
        .map_err(error_of)?;
    Ok(Done::body(move |map| map.entry("expiration", ValueRef::Timestamp(millis(expiration)))))
}

/// `update-disposition`: settles messages.
pub(super) fn settle(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let tokens = tokens(asked)?;
    let text = |name: &str| asked.request.argument(name).text().map(Into::into);
    let changes = || {
        let asked = asked.request.argument("properties-to-modify").map();
        changes(asked.into_iter().flat_map(|map| map.iter()))
    };
    let outcome = match asked.text("disposition-status")? {
        "completed" => Outcome::Complete,
        "abandoned" => Outcome::Abandon(changes()),
        // Clients write `defered`.
        "defered" | "deferred" => Outcome::Defer(changes()),
        "suspended" => Outcome::DeadLetter {
            reason: text("deadletter-reason"),
            description: text("deadletter-description"),
            changes: changes(),
        },
        "unlocked" => Outcome::Release,
        other => {
            let text = format!("The disposition status '{other}' does not exist.");
            return Err(Error::new(condition::ARGUMENT_ERROR, text));
        }
    };
    if !asked.request.argument("session-id").is_null() {
        let (_, session) = asked.holder()?;
        let are_its = asked.queue.read(|entity| {
            tokens.iter().all(|token| entity.session_locked_by(*token) == Some(&session))
        });
        if !are_its {
            return Err(error_of(Refusal::SessionLockLost));
        }
    }
    let (now, part) = (asked.now, asked.part);
    let (returns, first) = (outcome.returns(), tokens.iter().map(|token| token.number()).min());
    let mut commits = Commits::default();
    let settled = asked.queue.with(&mut commits, |entity, effects| {
        tokens
            .into_iter()
            .try_for_each(|token| entity.settle(part, token, outcome.clone(), now, effects))
    });
    asked.wait(commits, Rule::SettleWhenDurable);
    settled.map_err(error_of)?;
    Ok(first.filter(|_| returns).map_or_else(Done::empty, Done::Returned))
}
