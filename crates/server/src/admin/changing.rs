//! Changes that are stored: they are answered when they are durable.

use axum::http::{HeaderMap, StatusCode, header};
use barid_engine::agenda::After;
use barid_engine::durable::Commits;

use super::answer::{Refusal, not_durable};
use super::{Served, facts};

/// Makes a change that is stored, and waits until it is durable.
pub async fn change<T>(
    served: &Served,
    change: impl FnOnce(&mut Commits) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    if served.shared.engine.shards.iter().any(|shard| shard.is_failing()) {
        return Err(Refusal::unavailable("no changes are possible: the disk is full or broken"));
    }
    let mut commits = Commits::default();
    let done = change(&mut commits)?;
    let (tell, told) = facts::told();
    served.shared.engine.agenda.after(commits, After::Tell(tell));
    match told.await {
        Ok(()) => Ok(done),
        Err(_) => Err(not_durable("it may be lost at a restart")),
    }
}

/// Whether the request is to create something only if it does not exist.
pub fn only_new(headers: &HeaderMap) -> bool {
    headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == b"*")
}

/// Returns the status for something that was created, or replaced.
pub fn made(is_new: bool) -> StatusCode {
    if is_new { StatusCode::CREATED } else { StatusCode::OK }
}
