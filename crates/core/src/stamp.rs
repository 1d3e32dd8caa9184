//! Stamps: which of two changes of the same object is the later one, although different brokers have made them.
//!
//! Objects that all brokers of a cluster have are changed at any of them. Each change gets a stamp, and of two changes the
//! one with the greater stamp wins, at every broker, in whatever order they arrive.

/// The stamp of a change. Ordered by time, then by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// When the change was made, in microseconds since the Unix epoch, by the clock of [`Stamps`].
    pub time: u64,
    /// A number that tells the broker that has made it from others.
    pub origin: u64,
}

impl Stamp {
    /// The stamp of a change that has none: less than all others.
    pub const NONE: Self = Self { time: 0, origin: 0 };
}

/// The source of the stamps of one broker: a hybrid logical clock. Each stamp is greater than all stamps that the broker
/// has given or [seen](Stamps::see) before, also if the wall clock goes back.
#[derive(Debug)]
pub struct Stamps {
    origin: u64,
    last: u64,
}

impl Stamps {
    /// Creates the source of the broker with this number.
    pub fn of(origin: u64) -> Self {
        Self { origin, last: 0 }
    }

    /// Returns the next stamp. `wall`: the wall time in microseconds since the Unix epoch.
    pub fn next(&mut self, wall: u64) -> Stamp {
        self.last = self.last.saturating_add(1).max(wall);
        Stamp { time: self.last, origin: self.origin }
    }

    /// Notes a stamp that another broker has given, or that was stored.
    pub fn see(&mut self, stamp: Stamp) {
        self.last = self.last.max(stamp.time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stamp_is_greater_than_all_that_were_seen() {
        let mut stamps = Stamps::of(7);
        let first = stamps.next(5_000);
        assert_eq!(first, Stamp { time: 5_000, origin: 7 });
        let again = stamps.next(5_000);
        let back = stamps.next(3_000);
        assert!(first < again && again < back, "the clock goes back");
        let other = Stamp { time: 9_000, origin: 8 };
        stamps.see(other);
        assert!(stamps.next(6_000) > other);
        assert_eq!(stamps.next(20_000).time, 20_000);
        stamps.see(Stamp { time: u64::MAX, origin: 0 });
        assert_eq!(stamps.next(20_000).time, u64::MAX);
    }

    #[test]
    fn of_two_brokers_one_wins() {
        let [one, other] = [1, 2].map(|origin| Stamps::of(origin).next(1));
        assert!(one < other && other > Stamp::NONE);
    }
}
