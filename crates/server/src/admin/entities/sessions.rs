//! `…/sessions`: sessions of a queue or subscription.

use std::collections::BinaryHeap;
use std::sync::Arc;

use axum::Json;
use barid_core::entity::SessionDetails;
use barid_engine::entities::Queue;
use serde::Serialize;
use utoipa::ToSchema;

use super::{Cut, Paging};
use crate::admin::answer::Answer;
use crate::admin::rfc3339::Rfc3339;

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessageSessionList)]
pub struct Page {
    sessions: Vec<Described>,
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessageSession)]
struct Described {
    /// The session id.
    id: Box<str>,
    /// Messages that can be received.
    active: usize,
    /// Messages that receivers have locked.
    locked: usize,
    /// Messages that are deferred or scheduled.
    set_aside: usize,
    /// Until when a receiver has the session; `None`: none has it.
    locked_until: Option<Rfc3339>,
    /// Length of the session's state, in bytes; `None`: it has none.
    state_bytes: Option<usize>,
    state_updated_at: Option<Rfc3339>,
}

/// Lists sessions that have a message, a state or a lock, by id.
pub fn list(queue: &Queue, paging: &Paging) -> Answer<Page> {
    let first = queue.read(|entity| {
        first_after(entity.session_ids(), paging.after.as_deref(), paging.limit + 1)
    });
    let Cut { found, next } = paging.cut(first.into_iter(), |id: &Arc<str>| id.to_string());
    // Some sessions may have ended since.
    let sessions = queue.read(|entity| {
        found
            .iter()
            .filter_map(|id| entity.session_details(id))
            .map(|one| Described::of(&one))
            .collect()
    });
    Ok(Json(Page { sessions, next }))
}

/// Returns the first ids in their order. Visits all, and holds no more than `count` and one.
fn first_after<'a>(
    all: impl Iterator<Item = &'a Arc<str>>,
    after: Option<&str>,
    count: usize,
) -> Vec<Arc<str>> {
    let mut first: BinaryHeap<&Arc<str>> = BinaryHeap::with_capacity(count + 1);
    for id in all {
        if after.is_none_or(|after| **id > *after) {
            first.push(id);
            if first.len() > count {
                first.pop();
            }
        }
    }
    first.into_sorted_vec().into_iter().cloned().collect()
}

impl Described {
    fn of(details: &SessionDetails) -> Self {
        Self {
            id: (*details.id).into(),
            active: details.active,
            locked: details.locked,
            set_aside: details.set_aside,
            locked_until: details.locked_until.map(Rfc3339::from),
            state_bytes: details.state_size,
            state_updated_at: details.state_updated_at.map(Rfc3339::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_behind_one() {
        let all: Vec<Arc<str>> = ["d", "a", "c", "b"].map(Arc::from).into();
        let first = |after, count| first_after(all.iter(), after, count).join("");
        assert_eq!(first(None, 2), "ab");
        assert_eq!(first(Some("a"), 2), "bc");
        assert_eq!(first(Some("c"), 2), "d");
        assert_eq!(first(Some("d"), 2), "");
    }
}
