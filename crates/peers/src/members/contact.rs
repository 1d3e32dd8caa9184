//! Whether another broker and this one hear each other.

use barid_core::time::MonoTime;

use crate::heartbeat::Support;

/// What a broker and another one know of each other, in their present lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    /// It has told all its filters.
    pub(super) has_told: bool,
    /// It has heard of all filters that this broker had.
    pub(super) has_heard: bool,
    /// The number of the last heartbeat of this broker that it has heard.
    pub(super) has_heard_number: u64,
    /// Whether it is told that it is heard, which lets it serve.
    pub(super) supports_it: bool,
    /// Whether it was told so once: subscriptions wait for it, because it may serve.
    pub(super) is_waited_for: bool,
    /// Until when it does not hold this broker to be unreachable. `None`: it has never let this broker serve.
    pub(super) supports_until: Option<MonoTime>,
    /// Whether others may have been told that it cannot be reached, in this life or before.
    pub(super) doubt: Doubt,
    /// Whether a broker that has held it down is gone, and so cannot tell it: it must begin a new life.
    pub(super) is_given_up: bool,
    /// Since when one of the two has not heard the other one.
    pub(super) lost_since: Option<MonoTime>,
}

/// Others may have been told that a broker cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doubt {
    /// They are told so, or a former life of this broker may have.
    #[default]
    Present,
    /// They are told that it can be reached, since the heartbeat with this number.
    Withdrawn(u64),
    /// They have heard that it can be reached.
    None,
}

impl Contact {
    /// Returns the part of a contact that this broker keeps when it begins a new life.
    pub(super) fn of_former_life(&self) -> Self {
        Self { is_given_up: self.is_given_up, ..Self::default() }
    }

    /// The other broker does not hold this one to be unreachable before `until`.
    pub(super) fn supports(&mut self, until: MonoTime) {
        self.supports_until = self.supports_until.max(Some(until));
    }

    /// Whether the other broker may serve, as far as this one is concerned.
    pub(super) fn support(&self) -> Support {
        match (self.supports_it, self.is_given_up) {
            (_, true) => Support::Never,
            (true, false) => Support::Yes,
            (false, false) => Support::No,
        }
    }

    /// Notes whether the two hear each other now.
    pub(super) fn note(&mut self, now: MonoTime, hear_each_other: bool) {
        match hear_each_other {
            true => self.lost_since = None,
            false => _ = self.lost_since.get_or_insert(now),
        }
    }
}
