//! Which sessions there are.

use barid_amqp::Error;
use barid_amqp::message::ValueRef;
use barid_core::time::WallTime;

use super::{Asked, Done};
use crate::amqp::refusals::condition;

/// The time that stands for all sessions with messages or a state: the end of time in .NET.
const ALL: i64 = 253_402_300_800_000;

/// Sessions that are listed at a time.
const PAGE_MAX: usize = 1_000;

/// Sessions that can be skipped among those whose state was set after a time: each costs a step.
const SKIP_MAX: usize = 100_000;

/// `get-message-sessions`.
pub(super) fn list(asked: &mut Asked<'_>) -> Result<Done, Error> {
    let updated_after = asked.request.argument("last-updated-time").timestamp().unwrap_or(ALL);
    // .NET rounds it down to the millisecond before.
    let updated_after = (updated_after < ALL - 1)
        .then(|| WallTime::from_millis(u64::try_from(updated_after).unwrap_or(0)));
    let skip = usize::try_from(asked.request.argument("skip").integer().unwrap_or(0)).unwrap_or(0);
    let top = asked.count("top", PAGE_MAX)?;
    if updated_after.is_some() && skip > SKIP_MAX {
        let text =
            format!("skip is more than {SKIP_MAX}: ask for those updated after a later time.");
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
