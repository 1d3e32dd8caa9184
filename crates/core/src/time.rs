//! Points in time. The core never reads a clock: time is an argument.
//!
//! There are two clocks, and their times have different types. The broker's own clock never goes back; it is used for
//! everything between the broker and one client: expiry in queues, wills, sessions. The wall clock is that of the
//! operating system, which may be corrected; it is used for times that clients compare with their own clocks, as in
//! entities and in the state store.

use std::time::Duration;

macro_rules! time {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The time `millis` milliseconds after the Unix epoch.
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis)
            }

            /// Milliseconds since the Unix epoch.
            pub const fn as_millis(self) -> u64 {
                self.0
            }

            /// This time plus `duration`; saturates at the end of time.
            #[must_use]
            pub fn after(self, duration: Duration) -> Self {
                Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
            }

            /// This time less `duration`; saturates at the Unix epoch.
            #[must_use]
            pub fn before(self, duration: Duration) -> Self {
                Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
            }

            /// The time from `earlier` to this one; zero if `earlier` is later.
            pub fn since(self, earlier: Self) -> Duration {
                Duration::from_millis(self.0.saturating_sub(earlier.0))
            }
        }
    };
}

time! {
    /// A time of the broker's own clock, in milliseconds since the Unix epoch: the wall time at the broker's start plus
    /// the time that has passed since.
    MonoTime
}

time! {
    /// A time of the wall clock, in milliseconds since the Unix epoch, as the operating system reports it.
    WallTime
}
