//! Which key goes next.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::time::Timestamp;

/// The keys that go by themselves, and for when a timer was asked for last.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    due: BTreeSet<(Timestamp, Arc<[u8]>)>,
    /// The timer that was asked for, until it has fired. There may be later ones.
    alarm: Option<Timestamp>,
}

impl Expiries {
    pub fn insert(&mut self, at: Timestamp, key: &Arc<[u8]>) {
        self.due.insert((at, Arc::clone(key)));
    }

    pub fn remove(&mut self, at: Timestamp, key: &Arc<[u8]>) {
        self.due.remove(&(at, Arc::clone(key)));
    }

    /// When the next key goes.
    pub fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next key that is due.
    pub fn next_due(&self, now: Timestamp) -> Option<&Arc<[u8]>> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// The timer that was asked for last, until it has fired.
    pub fn alarm(&self) -> Option<Timestamp> {
        self.alarm
    }

    /// A timer fires at `now`.
    pub fn fire(&mut self, now: Timestamp) {
        // A later one than was asked for last must not make the next one be asked for twice.
        self.alarm = self.alarm.filter(|at| *at > now);
    }

    /// When a timer has to fire, if that is earlier than what was asked for.
    pub fn take_alarm(&mut self) -> Option<Timestamp> {
        let (next, _) = self.due.first()?;
        if self.alarm.is_some_and(|alarm| alarm <= *next) {
            return None;
        }
        self.alarm = Some(*next);
        self.alarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_timer_is_asked_for_when_a_key_goes_earlier() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        assert_eq!(expiries.take_alarm(), None);
        expiries.insert(at(20), &key);
        assert_eq!(expiries.take_alarm(), Some(at(20)));
        expiries.insert(at(30), &key);
        assert_eq!(expiries.take_alarm(), None);
        expiries.insert(at(10), &key);
        assert_eq!(expiries.take_alarm(), Some(at(10)));
        assert_eq!(expiries.next_due(at(9)), None);
        assert_eq!(expiries.next_due(at(10)), Some(&key));
    }

    #[test]
    fn timers_do_not_multiply() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        let mut timers = BTreeSet::new();
        for due in [50, 40, 30, 20, 10, 60] {
            expiries.insert(at(due), &key);
            timers.extend(expiries.take_alarm());
        }
        let mut fired = 0;
        while let Some(now) = timers.pop_first() {
            fired += 1;
            expiries.fire(now);
            expiries.remove(now, &key);
            if let Some(next) = expiries.take_alarm() {
                assert!(timers.is_empty() || !timers.contains(&next) || next <= at(50));
                timers.insert(next);
            }
        }
        assert_eq!(fired, 6);
    }

    #[test]
    fn a_timer_is_asked_for_again_when_it_has_fired_for_nothing() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        expiries.insert(at(10), &key);
        assert_eq!(expiries.take_alarm(), Some(at(10)));
        expiries.remove(at(10), &key);
        expiries.insert(at(20), &key);
        assert_eq!(expiries.take_alarm(), None, "the first one comes before it");
        expiries.fire(at(10));
        assert_eq!(expiries.take_alarm(), Some(at(20)));
    }
}
