//! Requests about the state of a message session.

use std::sync::Arc;

use barid_amqp::Error;
use barid_amqp::message::ValueRef;
use barid_core::entity::Refusal;

use super::{Asked, Done, missing};
use crate::amqp::refusals::error_of;
use crate::durable::Commits;
use crate::faults::Rule;

const STATE: &str = "session-state";

/// `get-session-state`: returns the state of the session.
pub(super) fn get(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let (_, session) = asked.holder()?;
    let state = asked.queue.read(|entity| entity.state(&session));
    // The state may have been set a moment ago, by a holder that has not been answered yet.
    let shard = asked.queue.shard();
    let last = Commits::one(shard.index(), shard.last_change());
    asked.wait(last, Rule::TellStatesWhenDurable);
    Ok(Done::body(move |map| {
        map.entry(STATE, state.as_deref().map_or(ValueRef::Null, ValueRef::Binary));
    }))
}

/// `set-session-state`: sets or removes the state of the session.
pub(super) fn set(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let ((receiver, session), now) = (asked.holder()?, asked.now);
    let state: Option<Arc<[u8]>> = match asked.request.argument(STATE) {
        ValueRef::Null => None,
        ValueRef::Binary(bytes) => Some(bytes.into()),
        ValueRef::String(text) => Some(text.as_bytes().into()),
        _ => return Err(missing(STATE)),
    };
    // A state that becomes smaller makes room.
    let before = asked.queue.read(|entity| entity.state(&session).map_or(0, |state| state.len()));
    let after = state.as_ref().map_or(0, |state| state.len());
    if after > before && !asked.queue.tenant_has_room(after - before) {
        return Err(error_of(Refusal::QuotaExceeded));
    }
    let mut commits = Commits::default();
    asked
        .queue
        .with(&mut commits, |entity, effects| entity.set_state(receiver, state, now, effects))
        .map_err(error_of)?;
    asked.wait(commits, Rule::SetStatesWhenDurable);
    Ok(Done::empty())
}
