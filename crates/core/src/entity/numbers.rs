//! The sequence numbers of a part.

use super::{Effects, Part, SequenceNumber};

/// How many numbers are reserved at a time. They are reserved anew when half of them are left, so a batch
/// that says so is durable long before the first of them is given.
const AHEAD: u64 = 1 << 21;

/// Gives the numbers of one part. Messages are delivered before they are durable, and a number that a
/// receiver has seen must not be given to another message after a crash: so numbers are given out of a
/// reservation that is durable, and a crash skips what is left of it.
#[derive(Debug)]
pub(super) struct Numbers {
    part: Part,
    next: SequenceNumber,
    reserved: SequenceNumber,
}

impl Numbers {
    pub fn new(part: Part) -> Self {
        Self { part, next: 1, reserved: 1 }
    }

    pub fn take(&mut self, fx: &mut dyn Effects) -> SequenceNumber {
        self.reserve(fx);
        self.next += 1;
        self.next - 1
    }

    /// Sees to it that enough are reserved.
    pub fn reserve(&mut self, fx: &mut dyn Effects) {
        if self.reserved - self.next < AHEAD / 2 {
            self.reserved = self.next + AHEAD;
            fx.put_numbers(self.part, self.reserved);
        }
    }

    /// Notes the next number itself, for a process that ends as it should.
    pub fn note(&mut self, fx: &mut dyn Effects) {
        self.reserved = self.next;
        fx.put_numbers(self.part, self.reserved);
    }

    /// None below this one may be given any more.
    pub fn recover(&mut self, reserved: SequenceNumber) {
        self.next = self.next.max(reserved);
        self.reserved = self.next;
    }
}
