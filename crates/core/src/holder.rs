//! Users as holders: how much of what is limited belongs to each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

/// What a user can hold, beyond its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Sessions, with and without a client.
    Sessions,
    /// Subscriptions of these sessions.
    Subscriptions,
    /// Bytes of the messages that wait for the clients of these sessions.
    QueuedBytes,
    /// Retained messages that the user was the last to set.
    RetainedMessages,
    /// Bytes of these messages, including an overhead for each.
    RetainedBytes,
    /// Keys of the state store that the user was the last to set.
    StateKeys,
    /// Bytes of these keys and their values, including an overhead for each.
    StateBytes,
}

impl Held {
    /// Everything that a user can hold, in the order of the discriminants.
    pub const ALL: [Self; 7] = [
        Self::Sessions,
        Self::Subscriptions,
        Self::QueuedBytes,
        Self::RetainedMessages,
        Self::RetainedBytes,
        Self::StateKeys,
        Self::StateBytes,
    ];
}

/// The limits of one user, by [`Held`]. `None`: the limit for every user of the tenant applies.
pub type OwnHeldLimits = [Option<u64>; Held::ALL.len()];

/// A user of a tenant, with the amounts that it holds.
#[derive(Debug)]
pub struct Holder {
    name: Box<str>,
    held: [AtomicU64; Held::ALL.len()],
    own: RwLock<Own>,
    /// Whether the user has limits of its own, so that most users are told from others without a lock.
    has_own: AtomicBool,
}

/// Two users are the same if their names are.
impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Holder {}

/// The limits that a user has of its own, as far as the broker knows them.
#[derive(Debug)]
enum Own {
    /// The user has not logged in since the broker started, so it is not known whether it has limits of its own.
    Unknown,
    None,
    Some(Box<OwnHeldLimits>),
}

impl Holder {
    /// Creates a user who holds nothing, and of whose own limits nothing is known.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            held: Default::default(),
            own: RwLock::new(Own::Unknown),
            has_own: AtomicBool::new(false),
        }
    }

    /// The full name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the limits that the user has of its own. Returns whether they differ from those before.
    pub fn set_own(&self, own: &OwnHeldLimits) -> bool {
        let is_known = match &*self.own.read() {
            Own::Unknown => false,
            Own::None => *own == [None; Held::ALL.len()],
            Own::Some(known) => **known == *own,
        };
        if !is_known {
            let has_any = own.iter().any(Option::is_some);
            self.has_own.store(has_any, Ordering::Relaxed);
            *self.own.write() = if has_any { Own::Some(Box::new(*own)) } else { Own::None };
        }
        !is_known
    }

    /// The limit that the user is under, where `common` is that for every user of the tenant; 0: there is none. A user
    /// whose own limits are not known is under none: a message that its own limit would allow must not be lost.
    pub fn limit(&self, held: Held, common: u64) -> u64 {
        if common == 0 && !self.has_own.load(Ordering::Relaxed) {
            return 0;
        }
        self.known_limit(held, common).unwrap_or(0)
    }

    /// The limit that the user is under, as [`limit`](Self::limit) returns it; `None`: its own limits are not known.
    pub fn known_limit(&self, held: Held, common: u64) -> Option<u64> {
        match &*self.own.read() {
            Own::Unknown => None,
            Own::None => Some(common),
            Own::Some(own) => Some(own[held as usize].unwrap_or(common)),
        }
    }

    /// How much more the user may hold, where `common` is the limit for every user of the tenant.
    pub fn room(&self, held: Held, common: u64) -> u64 {
        match self.limit(held, common) {
            0 => u64::MAX,
            most => most.saturating_sub(self.held(held)),
        }
    }

    /// The amount that the user holds.
    pub fn held(&self, held: Held) -> u64 {
        self.held[held as usize].load(Ordering::Relaxed)
    }

    /// Counts that the user holds `after` instead of `before`.
    pub fn change(&self, held: Held, before: u64, after: u64) {
        // Difference and addition both wrap around, so the sum is correct.
        self.held[held as usize].fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Adds to what the user holds, whatever its limits.
    pub fn add(&self, held: Held, amount: u64) {
        self.held[held as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds to what the user holds if that stays within `most`; 0: there is no limit. An amount of 0 always fits.
    /// Returns whether it was added.
    pub fn take(&self, held: Held, amount: u64, most: u64) -> bool {
        let more = |before: u64| {
            let sum = before.saturating_add(amount);
            (amount == 0 || most == 0 || sum <= most).then_some(sum)
        };
        let order = Ordering::Relaxed;
        self.held[held as usize].fetch_update(order, order, more).is_ok()
    }

    /// Takes away what the user holds no longer.
    pub fn give_back(&self, held: Held, amount: u64) {
        let before = self.held[held as usize].fetch_sub(amount, Ordering::Relaxed);
        debug_assert!(before >= amount, "only what was added is given back");
    }

    /// Whether the user holds nothing.
    pub fn is_empty(&self) -> bool {
        self.held.iter().all(|held| held.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(held: Held, limit: u64) -> OwnHeldLimits {
        let mut own = OwnHeldLimits::default();
        own[held as usize] = Some(limit);
        own
    }

    #[test]
    fn what_is_over_the_limit_is_not_taken() {
        let ada = Holder::new("acme/ada");
        assert!(ada.take(Held::StateBytes, 6, 10) && !ada.take(Held::StateBytes, 5, 10));
        assert_eq!(ada.held(Held::StateBytes), 6);
        assert!(ada.take(Held::StateBytes, 4, 10));
        assert!(ada.take(Held::StateBytes, 0, 3), "nothing always fits");
        assert!(ada.take(Held::StateBytes, 90, 0), "there is no limit");
        ada.change(Held::StateBytes, 90, 30);
        ada.change(Held::StateBytes, 1, 61);
        ada.give_back(Held::StateBytes, 100);
        assert!(ada.is_empty());
    }

    #[test]
    fn own_limits_replace_those_of_every_user() {
        let ada = Holder::new("acme/ada");
        let limit = |common| ada.limit(Held::Sessions, common);
        assert_eq!(limit(5), 0, "nothing is known yet");
        assert_eq!(ada.known_limit(Held::Sessions, 5), None);
        ada.set_own(&OwnHeldLimits::default());
        assert_eq!(limit(5), 5);
        ada.set_own(&own(Held::Sessions, 9));
        assert_eq!((limit(5), ada.limit(Held::StateKeys, 5)), (9, 5));
        ada.set_own(&own(Held::Sessions, 0));
        assert_eq!(limit(5), 0);
        assert_eq!(ada.room(Held::Sessions, 5), u64::MAX);
        ada.set_own(&own(Held::Sessions, 2));
        ada.add(Held::Sessions, 3);
        assert_eq!(ada.room(Held::Sessions, 5), 0);
        assert_eq!(ada.room(Held::StateKeys, 5), 5);
    }
}
