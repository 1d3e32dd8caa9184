//! The sequence numbers of a part.

use super::SequenceNumber;

/// How many numbers are reserved at a time. They are reserved anew when half of them are left, so a batch
/// that says so is durable long before the first of them is given.
const AHEAD: u64 = 1 << 21;

/// Gives the numbers of one part. Messages are delivered before they are durable, and a number that a
/// receiver has seen must not be given to another message after a crash: so numbers are given out of a
/// reservation that is durable, and a crash skips what is left of it.
#[derive(Debug)]
pub(super) struct Numbers {
    next: SequenceNumber,
    reserved: SequenceNumber,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: 1, reserved: 1 }
    }
}

impl Numbers {
    /// The next number. Enough are reserved: who takes one has asked for that before.
    pub fn take(&mut self) -> SequenceNumber {
        debug_assert!(self.next < self.reserved, "numbers are given out of a reservation");
        self.next += 1;
        self.next - 1
    }

    /// If more have to be reserved, the first number that is not: it is to be noted.
    pub fn reserve(&mut self) -> Option<SequenceNumber> {
        if self.reserved - self.next >= AHEAD / 2 {
            return None;
        }
        self.reserved = self.next + AHEAD;
        Some(self.reserved)
    }

    /// Gives the reservation up. The next number is to be noted, for a process that ends as it should.
    pub fn release(&mut self) -> SequenceNumber {
        self.reserved = self.next;
        self.reserved
    }

    /// None below this one may be given any more.
    pub fn recover(&mut self, reserved: SequenceNumber) {
        self.next = self.next.max(reserved);
        self.reserved = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_reserved_again_when_half_of_them_are_left() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.reserve(), Some(1 + AHEAD));
        for number in 1..=AHEAD / 2 {
            assert_eq!(numbers.reserve(), None);
            assert_eq!(numbers.take(), number);
        }
        assert_eq!(numbers.reserve(), None);
        numbers.take();
        assert_eq!(numbers.reserve(), Some(2 + AHEAD / 2 + AHEAD));
        assert_eq!(numbers.take(), 2 + AHEAD / 2);
    }

    #[test]
    fn none_comes_again() {
        let mut numbers = Numbers::default();
        numbers.reserve();
        numbers.take();
        numbers.recover(9);
        numbers.recover(5);
        numbers.reserve();
        assert_eq!(numbers.take(), 9);
        assert_eq!(numbers.release(), 10);
        assert_eq!(numbers.reserve(), Some(10 + AHEAD));
    }
}
