//! Long lists, a part at a time.

use super::answer::Refusal;

/// The most that one answer has.
pub const LIMIT_MAX: usize = 10_000;

/// Refuses to answer with nothing, or with more than `most`.
pub fn check_limit(limit: usize, most: usize) -> Result<(), Refusal> {
    if (1..=most).contains(&limit) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!("limit must be from 1 to {most}")))
}

/// The first `limit` of what is sorted and was asked for one more than that; and where to go on, if there are more.
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
