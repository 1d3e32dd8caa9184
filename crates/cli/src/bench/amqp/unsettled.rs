//! Deliveries that wait for their outcome.

use std::collections::VecDeque;

use anyhow::ensure;

/// Data about each delivery whose outcome is outstanding, by consecutive delivery ids.
pub struct Unsettled<T> {
    first: u32,
    waiting: VecDeque<Option<T>>,
}

impl<T> Unsettled<T> {
    pub fn new() -> Self {
        Self { first: 0, waiting: VecDeque::new() }
    }

    /// Adds a delivery of this side, and returns its id.
    pub fn push(&mut self, known: T) -> u32 {
        let id = self.first.wrapping_add(self.waiting.len() as u32);
        self.waiting.push_back(Some(known));
        id
    }

    /// Adds a delivery of the peer.
    ///
    /// # Errors
    /// The id does not follow the last one.
    pub fn push_as(&mut self, id: u32, known: T) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            self.first = id;
        }
        ensure!(self.push(known) == id, "the broker skipped a delivery id before {id}");
        Ok(())
    }

    /// Removes the deliveries between two ids that are still outstanding, and passes each to `settled`.
    pub fn settle(&mut self, first: u32, last: u32, mut settled: impl FnMut(T)) {
        // Ids wrap: an id before the first has been settled already.
        let index = |id: u32| i64::from(id.wrapping_sub(self.first) as i32);
        let end = (index(last) + 1).clamp(0, self.waiting.len() as i64) as usize;
        let begin = index(first).clamp(0, end as i64) as usize;
        self.waiting.range_mut(begin..end).filter_map(Option::take).for_each(&mut settled);
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Removes the deliveries for which `is_gone` holds, because their link has ended.
    pub fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        for slot in &mut self.waiting {
            if slot.as_ref().is_some_and(&is_gone) {
                *slot = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_in_any_order_and_in_ranges() {
        let mut unsettled = Unsettled::new();
        let ids: Vec<u32> = ('a'..='e').map(|name| unsettled.push(name)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        let mut settled = Vec::new();
        unsettled.settle(3, 3, |name| settled.push(name));
        unsettled.settle(0, 1, |name| settled.push(name));
        unsettled.settle(0, 4, |name| settled.push(name));
        assert_eq!(settled, ['d', 'a', 'b', 'c', 'e']);
        assert_eq!(unsettled.push('f'), 5);
    }

    #[test]
    fn ids_of_the_peer_must_follow_each_other() {
        let mut unsettled = Unsettled::new();
        unsettled.push_as(u32::MAX, 'a').unwrap();
        unsettled.push_as(0, 'b').unwrap();
        unsettled.push_as(2, 'd').unwrap_err();
        let mut settled = Vec::new();
        unsettled.settle(0, 0, |name| settled.push(name));
        unsettled.settle(u32::MAX, u32::MAX, |name| settled.push(name));
        assert_eq!(settled, ['b', 'a']);
    }
}
