//! Checks of connected clients after changes of users and bans, in steps.
//!
//! All connections of the thread are visited once after a change. Changes that come meanwhile are gathered, and the
//! next visit is for all of them. A client that is let in during a visit is not missed: it is checked against the
//! users and bans as they are then, which are never older than the changes that have been posted.

use std::sync::Arc;

use crate::logins::{Change, Changes};

/// Changes that are still to be applied to connections of the thread.
#[derive(Debug, Default)]
pub(super) struct Checks {
    visit: Option<Visit>,
    /// The changes that have come since the visit began.
    next: Changes,
}

/// A visit to the places of all connections, for some changes.
#[derive(Debug)]
struct Visit {
    changes: Arc<Changes>,
    /// The next place.
    place: usize,
}

impl Checks {
    /// Adds a change.
    pub(super) fn add(&mut self, change: Change) {
        self.next.add(change);
    }

    /// Whether connections are still to be visited.
    pub(super) fn are_pending(&self) -> bool {
        self.visit.is_some() || !self.next.are_none()
    }

    /// Returns the next place to visit, below `places`, and the changes that the visit is for. `None`: all
    /// connections are checked.
    pub(super) fn next(&mut self, places: usize) -> Option<(usize, Arc<Changes>)> {
        if self.visit.as_ref().is_some_and(|visit| visit.place >= places) {
            self.visit = None;
        }
        if self.visit.is_none() && places > 0 && !self.next.are_none() {
            let changes = Arc::new(std::mem::take(&mut self.next));
            self.visit = Some(Visit { changes, place: 0 });
        }
        let Some(visit) = &mut self.visit else {
            // Nobody is there who could be concerned.
            self.next = Changes::default();
            return None;
        };
        let place = visit.place;
        visit.place += 1;
        Some((place, Arc::clone(&visit.changes)))
    }
}

#[cfg(test)]
mod tests {
    use barid_auth::Scope;

    use super::*;

    fn user(name: &str) -> Change {
        Change::Users(Scope::User(name.into()))
    }

    /// Returns the places that are visited in up to `most` steps, each with whether its visit is for these users.
    fn visit(checks: &mut Checks, most: usize, places: usize) -> Vec<(usize, [bool; 2])> {
        let steps = std::iter::from_fn(|| checks.next(places)).take(most);
        let concerns = |changes: Arc<Changes>| {
            ["acme/ada", "acme/bob"].map(|user| changes.concern(user).is_some())
        };
        steps.map(|(place, changes)| (place, concerns(changes))).collect()
    }

    #[test]
    fn each_place_is_visited_for_each_change() {
        let mut checks = Checks::default();
        assert!(!checks.are_pending() && visit(&mut checks, 9, 3).is_empty());
        checks.add(user("acme/ada"));
        let ada = [true, false];
        assert_eq!(visit(&mut checks, 2, 3), [(0, ada), (1, ada)]);
        checks.add(user("acme/bob"));
        let bob = [false, true];
        let rest = [(2, ada), (0, bob), (1, bob), (2, bob)];
        assert!(checks.are_pending());
        assert_eq!(visit(&mut checks, 9, 3), rest);
        assert!(!checks.are_pending());
    }

    #[test]
    fn changes_that_come_together_are_one_visit() {
        let mut checks = Checks::default();
        checks.add(user("acme/ada"));
        checks.add(Change::Users(Scope::Tenant("acme".into())));
        checks.add(Change::Bans);
        assert_eq!(visit(&mut checks, 9, 1), [(0, [true, true])]);
        // Places may become more or fewer during a visit.
        checks.add(Change::Users(Scope::Everybody));
        let places = |checks: &mut Checks, most, places| {
            visit(checks, most, places).into_iter().map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert_eq!(places(&mut checks, 2, 2), [0, 1]);
        assert_eq!(places(&mut checks, 9, 4), [2, 3]);
        checks.add(Change::Bans);
        assert_eq!(places(&mut checks, 1, 4), [0]);
        assert_eq!(places(&mut checks, 9, 1), [] as [usize; 0]);
        assert!(!checks.are_pending());
    }

    #[test]
    fn without_connections_nothing_is_kept() {
        let mut checks = Checks::default();
        checks.add(Change::Bans);
        assert!(checks.next(0).is_none() && !checks.are_pending());
    }
}
