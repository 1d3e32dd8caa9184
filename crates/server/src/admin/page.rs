//! Pages of long lists.

use super::answer::Refusal;

/// Maximum number of items in one answer.
pub const LIMIT_MAX: usize = 10_000;

/// Number of items in an answer, if the request does not say how many.
pub const fn default_limit() -> usize {
    100
}

/// Refuses a limit of 0, or above `most`.
pub fn check_limit(limit: usize, most: usize) -> Result<(), Refusal> {
    if (1..=most).contains(&limit) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!("limit must be from 1 to {most}")))
}

/// Takes the first `limit` items of a sorted list. If there are more, also returns the place of the last one
/// taken, after which the next page begins. `found` must have one more item than `limit`, if there are more.
pub fn cut<T, P>(
    found: impl IntoIterator<Item = T>,
    limit: usize,
    place: impl Fn(&T) -> P,
) -> (Vec<T>, Option<P>) {
    let mut found: Vec<T> = found.into_iter().take(limit + 1).collect();
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(place);
    (found, next)
}
