//! Assignment of the sequence numbers of a part.

use super::SequenceNumber;

/// Number of sequence numbers that are reserved at a time. A new reservation is made when half of the numbers are left,
/// so it is durable long before the first of its numbers is assigned.
const AHEAD: u64 = 1 << 21;

/// Assigns the sequence numbers of one part. Messages are delivered before they are durable, and a number that a
/// receiver has seen must not be assigned to another message after a crash. Therefore numbers are assigned out of a
/// durable reservation, and a crash skips the rest of it.
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
    /// Assigns the next number. The caller must have called [`Numbers::reserve`] before, so that enough numbers are
    /// reserved.
    pub fn take(&mut self) -> SequenceNumber {
        debug_assert!(self.next < self.reserved, "numbers are given out of a reservation");
        self.next += 1;
        self.next - 1
    }

    /// Makes a new reservation if necessary. Returns its end, the first number that is not reserved, which must be
    /// stored.
    pub fn reserve(&mut self) -> Option<SequenceNumber> {
        if self.reserved - self.next >= AHEAD / 2 {
            return None;
        }
        self.reserved = self.next + AHEAD;
        Some(self.reserved)
    }

    /// Gives the reservation up when the process ends in an orderly way. Returns the next number, which must be stored.
    pub fn release(&mut self) -> SequenceNumber {
        self.reserved = self.next;
        self.reserved
    }

    /// Ensures that no number below `reserved` is assigned.
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
