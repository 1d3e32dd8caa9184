use std::collections::VecDeque;

/// Unsettled deliveries of a session, by ascending number.
///
/// Most are settled in the order in which they were made. So the ledger is a queue in which
/// deliveries settled out of order leave gaps. The gaps are closed when they outnumber the live
/// entries.
#[derive(Debug)]
pub(super) struct Ledger<T> {
    entries: VecDeque<(u64, Option<T>)>,
    live: usize,
}

impl<T> Ledger<T> {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), live: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Appends an entry; `number` must be greater than all before.
    pub(super) fn push(&mut self, number: u64, entry: T) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < number));
        self.entries.push_back((number, Some(entry)));
        self.live += 1;
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number);
        let (_, entry) = self.entries.get_mut(place).filter(|(found, _)| *found == number)?;
        let entry = entry.take()?;
        self.live -= 1;
        self.tidy();
        Some(entry)
    }

    /// Returns the first entry from `first` to `last`, both included.
    pub(super) fn first_in_mut(&mut self, first: u64, last: u64) -> Option<(u64, &mut T)> {
        let place = self.place(first);
        self.entries
            .range_mut(place..)
            .find_map(|(number, entry)| Some((*number, entry.as_mut()?)))
            .filter(|(number, _)| *number <= last)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|(_, entry)| entry.as_ref().is_some_and(&mut keep));
        self.live = self.entries.len();
    }

    /// Returns the index of `number`, or of the first entry behind it.
    fn place(&self, number: u64) -> usize {
        // Usually there are no gaps, and the index follows from the first number.
        let Some((first, _)) = self.entries.front() else { return 0 };
        let guess = usize::try_from(number.saturating_sub(*first)).unwrap_or(usize::MAX);
        match self.entries.get(guess) {
            Some((found, _)) if *found == number => guess,
            _ => self.entries.partition_point(|(found, _)| *found < number),
        }
    }

    fn tidy(&mut self) {
        while matches!(self.entries.front(), Some((_, None))) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.live + 32 {
            self.entries.retain(|(_, entry)| entry.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    proptest! {
        #[test]
        fn a_ledger_is_a_map(steps in prop::collection::vec((0..4u8, 0..64u64, 0..8u64), 1..400)) {
            let (mut ledger, mut map, mut last) = (Ledger::new(), BTreeMap::new(), 0u64);
            for (step, number, width) in steps {
                let number = (last + 32).saturating_sub(number);
                match step {
                    0 | 1 => {
                        last += 1 + width / 7;
                        ledger.push(last, width);
                        map.insert(last, width);
                    }
                    2 => prop_assert_eq!(ledger.remove(number), map.remove(&number)),
                    _ => {
                        let found = ledger.first_in_mut(number, number + width);
                        let wanted = map.range_mut(number..=number + width).next();
                        prop_assert_eq!(found, wanted.map(|(number, entry)| (*number, entry)));
                        if width == 0 {
                            ledger.retain(|entry| *entry != 3);
                            map.retain(|_, entry| *entry != 3);
                        }
                    }
                }
                prop_assert_eq!(ledger.len(), map.len());
                prop_assert!(ledger.entries.len() <= 2 * ledger.len() + 33);
            }
        }
    }
}
