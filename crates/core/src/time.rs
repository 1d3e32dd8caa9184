//! Time is an argument: the core never asks a clock.
//!
//! There are two clocks, and their times are of different types. The broker's own never goes back, and stands for all
//! that is between the broker and one client: what expires in queues, wills, sessions. The clock on the wall is that of
//! the operating system, which may be corrected: it stands for what others compare with their own clocks, as in entities
//! and in the state store.

use std::time::Duration;

macro_rules! time {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The time so many milliseconds after the Unix epoch.
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
    /// A time by the broker's own clock: milliseconds since the Unix epoch as they were known at its start, and as they
    /// have passed since.
    MonoTime
}

time! {
    /// A time by the clock on the wall: milliseconds since the Unix epoch, as the operating system knows them.
    WallTime
}
