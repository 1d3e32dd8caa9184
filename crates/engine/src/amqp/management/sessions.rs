//! The request that lists message sessions.

use barid_amqp::Error;
use barid_amqp::message::ValueRef;
use barid_core::time::WallTime;

use super::{Asked, Done};
use crate::amqp::refusals::condition;

/// The `last-updated-time` that asks for all sessions with messages or a state: the end of time in .NET, in
/// milliseconds since 1970.
const ALL: i64 = 253_402_300_800_000;

/// Maximum number of sessions in one response.
const PAGE_MAX: usize = 1_000;

/// Maximum number of sessions that can be skipped if only sessions whose state was set after a time are listed:
/// each skipped session costs a step. A higher number is refused.
const SKIP_MAX: usize = 100_000;

/// `get-message-sessions`: lists the ids of sessions.
pub(super) fn list(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let updated_after = asked.request.argument("last-updated-time").timestamp().unwrap_or(ALL);
    // .NET rounds the end of time down to the millisecond before.
    let updated_after = (updated_after < ALL - 1)
        .then(|| WallTime::from_millis(u64::try_from(updated_after).unwrap_or(0)));
    let skip = usize::try_from(asked.request.argument("skip").integer().unwrap_or(0)).unwrap_or(0);
    let top = asked.count("top", PAGE_MAX)?;
    if updated_after.is_some() && skip > SKIP_MAX {
        let text = format!("skip is more than {SKIP_MAX}: use a later last-updated-time.");
        return Err(Error::new(condition::ARGUMENT_ERROR, text));
    }
    let sessions = asked.queue.read(|entity| entity.sessions(updated_after, skip, top));
    if sessions.is_empty() {
        return Ok(Done::Nothing);
    }
    let next = i32::try_from(skip + sessions.len()).unwrap_or(i32::MAX);
    Ok(Done::body(move |map| {
        map.entry("skip", ValueRef::Int(next));
        map.value(ValueRef::String("sessions-ids"));
        map.strings(sessions.iter().map(|session| &**session));
    }))
}
